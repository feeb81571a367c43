"""Open an EAGLE-3 head, whatever its format, and hold it against the target it is to draft for.

>>> files = open_eagle3("hf:org/head", target.spec, quant="q8")
>>> check_fit(files, target.spec, target.tokenizer.tokens)

Formats: SafeAILab's, SpecForge's and speculators' folders (safetensors, whole or sharded, or
pytorch_model.bin), and GGUF files of architecture ``eagle3``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from paceline.errors import ConfigError, DrafterError, ModelFileError, VocabularyMismatchError, nearest_name
from paceline.models.catalog import resolve_model
from paceline.models.eagle3_config import spec_from_head_config
from paceline.models.eagle3_spec import Eagle3Files, Eagle3Spec
from paceline.models.eagle3_tensors import check_values, file_name, head_shapes, our_name, without_prefix
from paceline.models.eagle3_vocabulary import MAP_NAMES, read_map, target_ids
from paceline.models.families import Family
from paceline.models.ggml_types import GGML_TYPES
from paceline.models.hf_folder import QUANTS
from paceline.models.hf_source import HfSource
from paceline.models.loading import Quant
from paceline.models.safetensors_file import (
    INDEX_TYPES,
    STORED_TYPES,
    StoredTensor,
    read_folder_tensors,
    read_json_object,
)
from paceline.models.spec import ModelSpec
from paceline.models.tensor_layout import layout_error, layout_faults
from paceline.models.vocabulary import shared_vocabulary_size

MOST_NAMED = 200
"""Faulty tensors spelled out in one message."""


def open_eagle3(path_or_name: str | Path, target: ModelSpec, *, quant: Quant = "none") -> Eagle3Files:
    """Open a head by path (folder or GGUF file) or ``hf:org/repo[:file]`` and check all of it.

    ``quant``: storage that a folder's matrices are converted to while they are read (``q8`` → Q8_0, ``q4`` →
    Q4_0). Raises ``ModelNotFoundError``; ``ModelFileError`` for files that do not make a head (one message
    lists every missing, extra and mis-shaped tensor); ``DrafterError`` or ``VocabularyMismatchError`` for a
    head of another target; ``ConfigError`` for a quant that is unknown or does not apply.
    """
    if quant not in get_args(Quant):
        known = get_args(Quant)
        raise ConfigError(f"quant={quant!r}{nearest_name(str(quant), known)}; known are {', '.join(known)}")
    path = resolve_model(path_or_name)
    if path.is_dir():
        files = open_folder_head(path, target, quant)
    else:
        if quant != "none":
            raise ConfigError(
                f"quant={quant!r} applies to folders; {path.name} is a GGUF file, which has its storage "
                "types already: leave quant out"
            )
        from paceline.models.eagle3_gguf import open_gguf_head

        files = open_gguf_head(path)
    try:
        check_target(files.spec, target)
    except BaseException:
        files.source.close()
        raise
    return files


def check_fit(files: Eagle3Files, target: ModelSpec, vocabulary: Sequence[str] | None = None) -> None:
    """Hold a head against its target, and its tokenizer against the target's where it carries one.

    ``vocabulary``: the text of each of the target's ids. Raises ``DrafterError`` for another width or too
    few layers, ``VocabularyMismatchError`` for another number of ids or naming the first id that differs.
    """
    check_target(files.spec, target)
    if vocabulary is not None and files.read_tokens is not None:
        shared_vocabulary_size(vocabulary, files.read_tokens(), files.spec.name, kind="EAGLE-3 head")


def check_target(spec: Eagle3Spec, target: ModelSpec) -> None:
    """Hold a head's dimensions against the target's; errors as in ``check_fit``."""
    if spec.target_hidden_size != target.hidden_size:
        raise DrafterError(
            f"EAGLE-3 head {spec.name!r} reads states of {spec.target_hidden_size} values, but the states of "
            f"{target.name} have {target.hidden_size}: take a head that was trained for this target"
        )
    if spec.vocab_size != target.vocab_size:
        raise VocabularyMismatchError(
            f"EAGLE-3 head {spec.name!r} was made for {spec.vocab_size} token ids, but {target.name} has "
            f"{target.vocab_size}: take a head that was trained for this target"
        )
    layers = spec.layers_of(target.num_layers)
    if not all(0 <= layer <= target.num_layers for layer in layers):
        raise DrafterError(
            f"EAGLE-3 head {spec.name!r} reads the states that enter layers {list(layers)}, but "
            f"{target.name} has {target.num_layers} layers (0 to {target.num_layers} can be read): it is "
            "another target's"
        )
    shared = [] if spec.has_embedding else ["embedding (embed_tokens.weight)"]
    shared += [] if spec.has_head else ["output head (lm_head.weight)"]
    if shared and spec.hidden_size != target.hidden_size:
        raise DrafterError(
            f"EAGLE-3 head {spec.name!r} has no {' and no '.join(shared)} of its own, and cannot use the "
            f"target's, whose rows have {target.hidden_size} values where the head's have {spec.hidden_size}"
        )


# ---- folders ----


def open_folder_head(folder: Path, target: ModelSpec | None = None, quant: Quant = "none") -> Eagle3Files:
    """Return the head in a folder, not held against a target; its tokenizer is read with ``target`` only."""
    config_path = folder / "config.json"
    stored = read_head_tensors(folder)
    bare = without_prefix(stored, folder)
    maps = {bare[name]: tensor for name, tensor in stored.items() if bare[name] in MAP_NAMES}
    weights = {bare[name]: tensor for name, tensor in stored.items() if bare[name] not in MAP_NAMES}
    weights = {name: tensor for name, tensor in weights.items() if not name.endswith("rotary_emb.inv_freq")}
    ours = _our_names(weights, folder)
    spec = spec_from_head_config(read_json_object(config_path), config_path, ours)
    _check_layout(folder, spec, weights)
    ids = target_ids(
        {name: read_map(name, tensor) for name, tensor in maps.items()},
        spec.draft_vocab_size,
        spec.vocab_size,
        folder,
    )
    source = HfSource({our: weights[name] for our, name in ours.items()}, Family("silu"), {}, QUANTS[quant])
    try:
        check_values(source, ours)
    except BaseException:
        source.close()
        raise
    if target is None or not (folder / "tokenizer.json").is_file():
        return Eagle3Files(spec, source, ids)
    return Eagle3Files(spec, source, ids, partial(_folder_tokens, folder, target))


def read_head_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Return every tensor of a head's folder: safetensors if there are any, else pytorch_model.bin."""
    binary = folder / "pytorch_model.bin"
    if not list(folder.glob("*.safetensors*")) and binary.is_file():
        from paceline.models.torch_pickle import read_torch_tensors

        return read_torch_tensors(binary)
    return read_folder_tensors(folder, STORED_TYPES | INDEX_TYPES)


def _our_names(weights: dict[str, StoredTensor], folder: Path) -> dict[str, str]:
    """Return our name → the file's. Raises ``ModelFileError`` for what is no head at all."""
    if "fc.weight" not in weights:
        raise ModelFileError(
            f"{folder} is no EAGLE-3 head: fc.weight is not among its {len(weights)} tensors; as a model of "
            "its own it can be used with drafter='draft_model:…'"
        )
    ours: dict[str, str] = {}
    for name, tensor in weights.items():
        our = our_name(name)
        if our in ours:
            raise ModelFileError(f"{folder} holds {ours[our]!r} and {name!r}, which are one tensor twice")
        if tensor.kind.number not in GGML_TYPES:
            raise ModelFileError(f"{folder} stores the weight {name!r} as {tensor.kind.name}: save it again")
        ours[our] = name
    return ours


def _check_layout(folder: Path, spec: Eagle3Spec, weights: dict[str, StoredTensor]) -> None:
    style = "layers" if any(name.startswith("layers.") for name in weights) else "midlayer"
    expected = {file_name(name, style): shape for name, shape in head_shapes(spec).items()}
    faults = layout_faults(expected, {name: tensor.shape for name, tensor in weights.items()})
    if faults:
        states = f"{spec.num_states} states of {spec.target_hidden_size} values"
        raise layout_error(
            f"{folder}: its tensors do not make the EAGLE-3 head of its config.json (which reads {states})",
            faults,
            MOST_NAMED,
        )


def _folder_tokens(folder: Path, target: ModelSpec) -> Sequence[str]:
    from paceline.models.hf_tokenizer import build_hf_tokenizer

    return build_hf_tokenizer(folder, target).tokens
