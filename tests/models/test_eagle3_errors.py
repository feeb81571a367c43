"""EAGLE-3 heads that are broken, incomplete or no heads: one clear error each, when they are opened."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.errors import ModelFileError, ModelNotFoundError, PacelineError
from paceline.models.eagle3 import open_eagle3
from paceline.models.loading import load_model_files
from paceline.models.spec import ModelSpec
from support.eagle3_folders import Stored, folder_tensors, write_safetensors, write_weights
from support.eagle3_gguf import write_gguf_head
from support.eagle3_heads import TinyHead, tiny_head, write_head
from support.tiny_models import write_tiny_gguf, write_tiny_hf


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> ModelSpec:
    with load_model_files(write_tiny_gguf(tmp_path_factory.mktemp("target") / "t.gguf")) as model:
        return replace(model.spec, num_layers=8, layer_windows=(0,) * 8, layer_ropes=(0,) * 8)


def refused(path: Path | str, target: ModelSpec) -> str:
    with pytest.raises(ModelFileError) as caught:
        open_eagle3(path, target)
    return str(caught.value)


def with_tensors(folder: Path, change: Callable[[Stored], object], head: TinyHead | None = None) -> Path:
    """Write a head in speculators' form whose tensors ``change`` has edited."""
    head = head or tiny_head()
    tensors = folder_tensors(head, "speculators")
    change(tensors)
    write_head(folder, head)
    write_weights(folder, tensors)
    return folder


@pytest.mark.parametrize("name", ["blk.", "blk.foo.weight", "blk.\u00b2.attn_q.weight"])
def test_a_name_that_looks_like_a_layers_is_extra_like_any_other(
    tmp_path: Path, target: ModelSpec, name: str
) -> None:
    """A tensor named "blk.…" without a number ended in "invalid literal for int()", naming no file."""
    extra = ("F32", np.zeros(4, np.float32))
    message = refused(with_tensors(tmp_path / "h", lambda tensors: tensors.update({name: extra})), target)
    assert name in message
    assert str(tmp_path / "h") in message


def test_one_message_lists_every_faulty_tensor(tmp_path: Path, target: ModelSpec) -> None:
    def change(tensors: Stored) -> None:
        del tensors["norm.weight"], tensors["layers.0.hidden_norm.weight"]
        tensors["fc.weight"] = ("F32", np.zeros((64, 128), np.float32))
        tensors["layers.0.self_attn.q_proj.weight"] = ("F32", np.zeros((64, 64), np.float32))
        tensors["fc.bias"] = ("F32", np.zeros(64, np.float32))

    message = refused(with_tensors(tmp_path / "h", change), target)
    for fault in (
        "norm.weight [64] is missing",
        "layers.0.hidden_norm.weight [64] is missing",
        "fc.weight is [64, 128], expected [64, 192]",
        "layers.0.self_attn.q_proj.weight is [64, 64], expected [64, 128]",
        "fc.bias is not known (it is [64])",
        "reads 3 states of 64 values",
    ):
        assert fault in message, fault


def test_what_the_config_promises_must_be_there(tmp_path: Path, target: ModelSpec) -> None:
    """Flags of variants without their tensors, and tensors that the config denies."""
    message = refused(write_head(tmp_path / "a", tiny_head(), norm_before_fc=True, fc_norm=True), target)
    assert "input_norm.weight [192] is missing" in message and "fc_norm.2.weight [64] is missing" in message
    message = refused(write_head(tmp_path / "b", tiny_head("input_norm"), norm_before_fc=False), target)
    assert "input_norm.weight is not known" in message
    message = refused(
        write_head(tmp_path / "c", tiny_head(), eagle_aux_hidden_state_layer_ids=[1, 2, 3, 4]), target
    )
    assert "fc.weight is [64, 192], expected [64, 256]" in message
    head = tiny_head("layers")
    assert "layers.3.self_attn.q_proj.weight [64, 64] is missing" in refused(
        with_tensors(tmp_path / "d", _add_fifth_layer, head), target
    )


def _add_fifth_layer(tensors: Stored) -> None:
    tensors["layers.4.input_layernorm.weight"] = ("F32", np.ones(64, np.float32))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("storage", ["F32", "F16", "BF16"])
def test_weights_that_are_no_numbers_are_named(
    tmp_path: Path, target: ModelSpec, storage: str, value: float
) -> None:
    head = tiny_head()
    tensors = folder_tensors(head, "safeailab", storage.lower())
    name = "midlayer.mlp.up_proj.weight"
    kind, values = tensors[name]
    spoilt = values.copy()
    spoilt[5, 7] = np.uint16(np.array(value, np.float32).view(np.uint32) >> 16) if kind == "BF16" else value
    tensors[name] = (kind, spoilt)
    folder = write_head(tmp_path / "h", head, "safeailab")
    write_weights(folder, tensors)
    assert f"tensor {name!r} holds NaN or infinity" in refused(folder, target)


def test_a_quantised_gguf_head_with_nan_scales(tmp_path: Path, target: ModelSpec) -> None:
    path = write_gguf_head(tmp_path / "h.gguf", tiny_head(), quantised=gguf.GGMLQuantizationType.Q8_0)
    tensor = gguf.GGUFReader(path).get_tensor(0)
    with path.open("r+b") as file:
        file.seek(int(tensor.data_offset))
        file.write(np.array([np.nan], np.float16).tobytes())
    assert f"tensor {tensor.name!r} holds NaN" in refused(path, target)


def _offsets(ids: Any) -> Any:
    return ("I64", np.asarray(ids, np.int64) - np.arange(len(ids)))


_IDS = tiny_head().draft_to_target
_HIGH = [*_IDS[:-1], 320]
_SWAPPED = [_IDS[1], _IDS[0], *_IDS[2:]]
_MAPS: dict[str, tuple[dict[str, Any], str]] = {
    "past the end": ({"d2t": _offsets(_HIGH), "t2d": None}, "stands for target id 320, outside the target's"),
    "negative": ({"d2t": _offsets([-1, *_IDS[1:]]), "t2d": None}, "draft id 0 stands for target id -1"),
    "falling": ({"d2t": _offsets(_SWAPPED), "t2d": None}, "d2t does not rise: draft ids 0 and 1"),
    "absolute": ({"d2t": ("I64", _IDS.astype(np.int64)), "t2d": None}, "stands for target id|does not rise"),
    "too few": ({"d2t": _offsets(_IDS[:-1]), "t2d": None}, "d2t has 95 entries, but 96 tokens are drafted"),
    "mask": ({"t2d": ("BOOL", np.arange(320) < 96)}, "d2t and t2d name different tokens"),
    "short mask": ({"t2d": ("BOOL", np.ones(319, np.bool_))}, "t2d has 319 entries, but the target has 320"),
    "neither": ({"d2t": None, "t2d": None}, "does not say which: d2t and t2d are missing"),
    "floats": ({"d2t": ("F32", np.zeros(96, np.float32))}, r"stores d2t as F32 \[96\]"),
    "square": ({"d2t": ("I64", np.zeros((2, 48), np.int64))}, r"stores d2t as I64 \[2, 48\]"),
    "whole weights": (
        {"norm.weight": ("I64", np.ones(64, np.int64))},
        "stores the weight 'norm.weight' as I64",
    ),
    "twice": ({"model.norm.weight": ("F32", np.ones(64, np.float32))}, "both 'norm.weight' and 'model.norm"),
    "two names": (
        {"midlayer.mlp.up_proj.weight": ("F32", np.ones((96, 64), np.float32))},
        "which are one tensor twice",
    ),
    "no head": ({"fc.weight": None}, "is no EAGLE-3 head: fc.weight is not among its"),
}


@pytest.mark.parametrize("case", _MAPS)
def test_wrong_tensors_and_vocabulary_maps(tmp_path: Path, target: ModelSpec, case: str) -> None:
    edits, message = _MAPS[case]

    def change(tensors: Stored) -> None:
        for name, value in edits.items():
            tensors.pop(name, None)
            if value is not None:
                tensors[name] = value

    folder = with_tensors(tmp_path / "h", change)
    with pytest.raises(ModelFileError, match=message):
        open_eagle3(folder, target)


_EAGLE = "eagle_aux_hidden_state_layer_ids"
_CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "other kind": ({"speculators_model_type": "dflash"}, "speculators_model_type = 'dflash'; only 'eagle3'"),
    "no layers": ({"transformer_layer_config": None}, "no table transformer_layer_config"),
    "layer ids": ({_EAGLE: [1, "2"]}, f"{_EAGLE} = .*needs a list of layer numbers"),
    "no ids": ({_EAGLE: []}, "needs a list of layer numbers"),
    "two ids": ({_EAGLE: [1, 2, 3], "eagle_config": {_EAGLE: [1, 2, 3]}}, "twice and differently"),
    "eagle 1": ({"eagle_config": {"use_aux_hidden_state": False}}, "it is an EAGLE-1 head"),
    "eagle table": ({"eagle_config": 3}, "eagle_config = 3, but needs a table"),
    "flag": ({"norm_output": "yes"}, "norm_output = 'yes', but needs true or false"),
    "draft size": ({"draft_vocab_size": 321}, "draft_vocab_size = 321, but needs an integer from 1 to 320"),
    "width": ({"target_hidden_size": 0}, "target_hidden_size = 0"),
}


@pytest.mark.parametrize("case", _CONFIGS)
def test_wrong_configs(tmp_path: Path, target: ModelSpec, case: str) -> None:
    changes, message = _CONFIGS[case]
    with pytest.raises(ModelFileError, match=message):
        open_eagle3(write_head(tmp_path / "h", tiny_head(), "speculators", **changes), target)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "deepseek_v3"}, "layers of type 'deepseek_v3'.*supported are llama"),
        ({"hidden_act": "relu"}, "hidden_act = 'relu'"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}, "rope_type = 'dynamic'"),
        ({"layer_types": ["full_attention"] * 2}, "layer_types"),
        ({"hidden_size": None}, "does not state hidden_size"),
    ],
)
def test_wrong_layers(tmp_path: Path, target: ModelSpec, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelFileError, match=message):
        open_eagle3(write_head(tmp_path / "h", tiny_head(), "specforge", **changes), target)


def test_other_models_are_no_heads(tmp_path: Path, target: ModelSpec) -> None:
    assert "is no EAGLE-3 head: fc.weight is not among" in refused(write_tiny_hf(tmp_path / "hf"), target)
    path = write_tiny_gguf(tmp_path / "m.gguf")
    assert "architecture 'llama', no EAGLE-3 head" in refused(path, target)
    with pytest.raises(ModelNotFoundError, match="neither a file, a folder nor a known model"):
        open_eagle3(tmp_path / "nowhere", target)
    with pytest.raises(ModelNotFoundError, match="paceline pull hf:nobody/nothing"):
        open_eagle3("hf:nobody/nothing", target)


def test_wrong_gguf_heads(tmp_path: Path, target: ModelSpec) -> None:
    head = tiny_head()
    offsets = head.draft_to_target - np.arange(96)
    path = write_gguf_head(tmp_path / "offsets.gguf", head, ids=offsets)
    assert "d2t of a folder holds offsets, of a GGUF file ids" in refused(path, target)
    path = write_gguf_head(tmp_path / "high.gguf", head, ids=[*head.draft_to_target[:-1], 320])
    assert "stands for target id 320" in refused(path, target)
    short = TinyHead(head.spec, {**head.weights, "fc.weight": head.weights["fc.weight"][:, :128]}, _IDS)
    path = write_gguf_head(tmp_path / "short.gguf", short)
    assert "fc.weight is [64, 128], expected [64, 192]" in refused(path, target)


@pytest.mark.parametrize("container", ["safetensors", "bin"])
def test_truncated_weights(tmp_path: Path, target: ModelSpec, container: str) -> None:
    folder = write_head(tmp_path / "h", tiny_head(), container=container)
    path = next(file for file in folder.iterdir() if file.name != "config.json")
    raw = path.read_bytes()
    for size in (0, 1, 9, 500, len(raw) // 2, len(raw) - 1):
        path.write_bytes(raw[:size])
        assert str(folder) in refused(folder, target)
    path.unlink()
    assert "neither model.safetensors nor" in refused(folder, target)


def test_code_in_a_head_is_refused(tmp_path: Path, target: ModelSpec) -> None:
    from support.torch_bin import call, named, table, text, write_archive

    folder = write_head(tmp_path / "h", tiny_head(), container="bin")
    write_archive(folder / "pytorch_model.bin", table({"a": call(named("os", "system"), text("x"))}), {})
    assert "refers to 'os.system'" in refused(folder, target)


# ---- at random ----

FUZZ = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 1 << 70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def open_or_refuse(path: Path, target: ModelSpec) -> None:
    try:
        open_eagle3(path, target).source.close()
    except PacelineError as error:
        assert str(error)


def test_config_fields_of_any_kind(tmp_path: Path, target: ModelSpec) -> None:
    folder = write_head(tmp_path / "h", tiny_head("layer_windows"))
    config = json.loads((folder / "config.json").read_text())
    layers = config["transformer_layer_config"]

    @FUZZ
    @given(
        st.sampled_from([*config, "eagle_config", _EAGLE]),
        st.sampled_from([*layers]),
        JSON_VALUES,
        JSON_VALUES,
    )
    def run(field: str, inner: str, value: object, other: object) -> None:
        nested = {"transformer_layer_config": {**layers, inner: other}}
        (folder / "config.json").write_text(json.dumps({**config, **nested, field: value}))
        open_or_refuse(folder, target)

    run()


@pytest.mark.parametrize("form", ["safetensors", "bin", "gguf"])
def test_spoilt_weight_files(tmp_path: Path, target: ModelSpec, form: str) -> None:
    if form == "gguf":
        path = head = write_head(tmp_path / "h.gguf", tiny_head(), "gguf")
    else:
        head = write_head(tmp_path / "h", tiny_head(), container=form)
        path = next(file for file in head.iterdir() if file.name != "config.json")
    raw = path.read_bytes()

    @FUZZ
    @given(
        st.lists(
            st.tuples(st.integers(0, 1 << 20), st.binary(min_size=1, max_size=8)), min_size=1, max_size=4
        )
    )
    def run(edits: list[tuple[int, bytes]]) -> None:
        data = bytearray(raw)
        for position, piece in edits:
            # The start and the end hold the tables.
            at = position % 3000 if position % 2 else len(data) - 1 - position % 3000
            data[at : at + len(piece)] = piece
        path.write_bytes(data)
        open_or_refuse(head, target)

    run()


def test_a_header_that_promises_more_than_the_file(tmp_path: Path, target: ModelSpec) -> None:
    folder = write_head(tmp_path / "h", tiny_head())
    write_safetensors(folder / "model.safetensors", {"fc.weight": ("F32", np.zeros((1, 1), np.float32))})
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 1 << 40) + raw[8:])
    assert "it is truncated, download it again" in refused(folder, target)
