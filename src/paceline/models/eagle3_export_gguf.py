"""Write an EAGLE-3 head as one quantised GGUF file: what ships with Paceline, what users pass around.

>>> convert_head(Path("runs/smol/export/head"), Path("head.gguf"), quant="q8_0")
>>> export_gguf(Path("head.gguf"), spec, tensors, ids, quant="q4_1", verifier=verifier, provenance=facts)

The form is llama.cpp's (see ``eagle3_gguf``), with two keys of our own that hold JSON:
``paceline.provenance`` and ``paceline.verifier``. The file has no tokenizer, whose 50,000 token texts would
be a tenth of it; the target's is meant. It is opened as any head is before it takes its place.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError, ModelFileError, nearest_name
from paceline.models import ggml_types
from paceline.models.catalog import resolve_model
from paceline.models.eagle3 import open_folder_head
from paceline.models.eagle3_export import (
    PROVENANCE_KEY,
    check_head,
    read_provenance,
    read_verifier,
    rope_base,
)
from paceline.models.eagle3_gguf import open_gguf_head
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.eagle3_tensors import head_shapes
from paceline.models.eagle3_vocabulary import checked_ids
from paceline.models.ggml_types import GGML_TYPES, GgmlType
from paceline.models.hf_source import as_float32
from paceline.records import FloatArray, IntArray

if TYPE_CHECKING:
    from gguf import GGUFWriter

HEAD_QUANTS = {
    kind.name.lower(): kind
    for kind in (ggml_types.Q8_0, ggml_types.Q4_0, ggml_types.Q4_1, ggml_types.BF16, ggml_types.F16)
}
VERIFIER_KEY = "paceline.verifier"
_NOT_IN_GGUF = ("norm_output", "has_input_norm", "has_state_norms", "has_output_bias")
_ROTATED = tuple(f"attn_{which}{kind}" for which in "qk" for kind in (".weight", ".bias", "_norm.weight"))


def convert_head(
    head: str | Path, out: Path, *, quant: str, state_layers: tuple[int, ...] | None = None
) -> Path:
    """Convert a head's folder, of any format, to the GGUF file ``out``; return ``out``.

    ``state_layers``: for a head that leaves them to its target's number of layers. Provenance and verifier
    come along. Raises as ``open_eagle3`` and :func:`export_gguf` do, and ``ConfigError`` for layers that
    contradict the head.
    """
    folder = resolve_model(head)
    if not folder.is_dir():
        raise ConfigError(f"{folder} is a file already; name the folder of a head (config.json, safetensors)")
    files = open_folder_head(folder)
    with closing(files.source):
        tensors = {name: _floats(files.source, name) for name in files.source.tensors}
    return export_gguf(
        out,
        _with_layers(files.spec, state_layers),
        tensors,
        files.draft_to_target,
        quant=quant,
        verifier=read_verifier(folder),
        provenance=read_provenance(folder),
    )


def export_gguf(
    path: Path,
    spec: Eagle3Spec,
    tensors: Mapping[str, npt.NDArray[Any]],
    draft_to_target: IntArray,
    *,
    quant: str,
    verifier: Mapping[str, Any],
    provenance: Mapping[str, Any],
) -> Path:
    """Write the head to ``path`` (``*.gguf``) and return it; a file there is replaced whole or not at all.

    ``tensors``: under the names of ``Eagle3Files.source``, float32, or uint16 holding bfloat16 bits.
    ``quant``: storage of the matrices, one of ``HEAD_QUANTS``, by the gguf package's quantiser; a matrix
    whose rows do not fill blocks of 32 is stored as bf16; vectors stay float32. ``verifier``,
    ``provenance``: anything JSON can hold, left out when empty. The same arguments give the same bytes.

    What is read back is the same spec but for the rounding of ``norm_eps`` to float32 and the order of q and
    k rows. Raises ``ConfigError`` for a spec the form cannot express or a place that cannot be written,
    ``ModelFileError`` for tensors or ids that do not fit the spec, or values past the range of ``quant``.
    """
    kind = _known_quant(quant)
    if path.suffix != ".gguf":
        raise ConfigError(f"cannot write {path}: a head is found in its folder by its ending, name it *.gguf")
    _check_spec(spec)
    check_head(spec, tensors)
    ids = checked_ids(np.asarray(draft_to_target), spec.draft_vocab_size, spec.vocab_size, spec.name)
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(part, spec, tensors, ids, kind, {VERIFIER_KEY: verifier, PROVENANCE_KEY: provenance})
        _check_written(part, spec, ids)
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror or error}; choose another place") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _known_quant(quant: str) -> GgmlType:
    if quant not in HEAD_QUANTS:
        raise ConfigError(
            f"quant={quant!r}{nearest_name(quant, HEAD_QUANTS)}; known are {', '.join(HEAD_QUANTS)}"
        )
    return HEAD_QUANTS[quant]


def _floats(source: Any, name: str) -> FloatArray:
    info = source.tensors[name]
    raw = source.read_rows(name, 0, info.shape[0] if len(info.shape) > 1 else 1)
    return as_float32(raw, GGML_TYPES[info.ggml_type]).reshape(info.shape)


def _with_layers(spec: Eagle3Spec, state_layers: tuple[int, ...] | None) -> Eagle3Spec:
    if state_layers is None:
        return spec
    if spec.state_layers not in (None, state_layers):
        raise ConfigError(f"state_layers={state_layers}: the head states {spec.state_layers}; leave them out")
    if len(state_layers) != spec.num_states:
        raise ConfigError(
            f"state_layers={state_layers}: the head reads {spec.num_states} states, name as many"
        )
    return replace(spec, state_layers=state_layers)


def _check_spec(spec: Eagle3Spec) -> None:
    if others := [name for name in _NOT_IN_GGUF if getattr(spec, name)]:
        raise ConfigError(
            f"{spec.name}: the GGUF form of a head has no {', '.join(others)}; keep it as a folder"
        )
    if spec.state_layers is None:
        raise ConfigError(
            f"{spec.name} does not state the layers it reads, which a GGUF file must: give state_layers "
            "(--layers), 2, L // 2, L - 3 of a target of L layers by default"
        )
    base = rope_base(spec.rope)
    if float(np.float32(base)) != base:
        raise ConfigError(f"{spec.name}: GGUF holds rope bases in float32, which cannot hold {base!r}")


# ---- writing ----


def _write(
    path: Path,
    spec: Eagle3Spec,
    tensors: Mapping[str, npt.NDArray[Any]],
    ids: IntArray,
    kind: GgmlType,
    facts: Mapping[str, Mapping[str, Any]],
) -> None:
    from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType

    writer = GGUFWriter(path, "eagle3")
    try:
        _add_metadata(writer, spec)
        writer.add_file_type(LlamaFileType[f"MOSTLY_{kind.name}"])
        writer.add_quantization_version(2)
        for key, values in facts.items():
            if values:
                writer.add_string(key, json.dumps(values, ensure_ascii=False))
        for name in head_shapes(spec):
            data, stored = _stored(name, _ordered(name, _widened(tensors[name]), spec), kind)
            writer.add_tensor(name, data, raw_dtype=GGMLQuantizationType(stored.number))
        if spec.draft_vocab_size != spec.vocab_size:
            writer.add_tensor("d2t", ids.astype(np.int64))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
    finally:
        writer.close()
    with path.open("rb+") as file:
        os.fsync(file.fileno())


def _add_metadata(writer: GGUFWriter, spec: Eagle3Spec) -> None:
    writer.add_name(spec.name)
    writer.add_block_count(spec.num_layers)
    writer.add_context_length(spec.max_context)
    writer.add_embedding_length(spec.hidden_size)
    writer.add_feed_forward_length(spec.ffn_size)
    writer.add_head_count(spec.num_heads)
    writer.add_head_count_kv(spec.num_kv_heads)
    writer.add_key_length(spec.head_dim)
    writer.add_value_length(spec.head_dim)
    writer.add_layer_norm_rms_eps(spec.norm_eps)
    writer.add_rope_dimension_count(2 * len(spec.rope.inverse_frequencies))
    writer.add_rope_freq_base(rope_base(spec.rope))
    writer.add_vocab_size(spec.vocab_size)
    if sizes := set(spec.layer_windows) - {0}:
        if len(sizes) > 1:
            raise ConfigError(f"layer_windows={spec.layer_windows}: GGUF has one window size for all layers")
        writer.add_sliding_window(sizes.pop())
        writer.add_sliding_window_pattern([window > 0 for window in spec.layer_windows])
    writer.add_array("eagle3.extract_layers", list(spec.state_layers or ()))
    writer.add_uint32("eagle3.target_hidden_size", spec.target_hidden_size)
    writer.add_bool("eagle3.norm_before_residual", spec.norm_before_residual)


def _widened(values: npt.NDArray[Any]) -> FloatArray:
    if values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values


def _ordered(name: str, values: FloatArray, spec: Eagle3Spec) -> FloatArray:
    """Return q and k with the dims that rotate together side by side; other tensors as they are."""
    if not name.endswith(_ROTATED):
        return values
    half = len(spec.rope.inverse_frequencies)
    pairs = np.arange(2 * half).reshape(2, half).T.reshape(-1)
    order = np.concatenate([pairs, np.arange(2 * half, spec.head_dim)])
    heads = values.reshape(-1, spec.head_dim, *values.shape[1:])
    return np.ascontiguousarray(heads[:, order].reshape(values.shape))


def _stored(name: str, values: FloatArray, kind: GgmlType) -> tuple[npt.NDArray[Any], GgmlType]:
    """Return what is stored of a tensor and as what."""
    from gguf import GGMLQuantizationType, dequantize, quantize

    if values.ndim == 1:
        return values, ggml_types.F32
    if values.shape[-1] % kind.block_size:
        kind = ggml_types.BF16
    number = GGMLQuantizationType(kind.number)
    with np.errstate(all="ignore"):
        data = quantize(values, number)
        is_whole = bool(np.isfinite(dequantize(data, number)).all())
    if not is_whole:
        largest = float(np.abs(values).max())
        raise ModelFileError(f"{name} holds {largest:g}, past the range of {kind.name}: take bf16")
    return data, kind


def _check_written(path: Path, spec: Eagle3Spec, ids: IntArray) -> None:
    """Raise ``ModelFileError`` unless ``path`` opens as the head that was to be written."""
    files = open_gguf_head(path)
    files.source.close()
    expected = replace(
        spec, norm_eps=float(np.float32(spec.norm_eps)), rope=replace(spec.rope, style="interleaved")
    )
    found = files.spec
    lost = [f.name for f in fields(spec) if getattr(found, f.name) != getattr(expected, f.name)]
    if lost or not np.array_equal(files.draft_to_target, ids):
        raise ModelFileError(
            f"{spec.name}: the GGUF form does not keep {', '.join(lost) or 'the draft vocabulary'} of this "
            "head; keep it as a folder"
        )
