"""Write an EAGLE-3 head as a folder in speculators' format, which this package and vLLM load.

>>> export_speculators(Path("head"), spec, tensors, ids,
...                    {"name_or_path": "org/model", "architectures": ["LlamaForCausalLM"]}, {"seed": 0})

What is written is what ``open_eagle3`` reads back: the same spec, the same bits. The folder appears whole or
not at all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ConfigError, ModelFileError
from paceline.models.catalog import resolve_model
from paceline.models.eagle3_config import LAYER_IDS
from paceline.models.eagle3_gguf import HEAD_TYPES
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.eagle3_tensors import file_name, head_shapes
from paceline.models.eagle3_vocabulary import checked_ids
from paceline.models.gguf_file import read_gguf_header
from paceline.models.metadata import Metadata
from paceline.models.rope import plain_frequencies
from paceline.models.safetensors_file import read_json_object
from paceline.models.spec import RopeSpec
from paceline.models.tensor_layout import layout_error, layout_faults
from paceline.records import IntArray

FILES = ("config.json", "model.safetensors")
"""All that an exported folder holds."""
PROVENANCE_KEY = "paceline.provenance"
"""Of GGUF heads: JSON text."""
_DTYPES = {"float32": "F32", "uint16": "BF16", "int64": "I64", "bool": "BOOL"}
_MOST_NAMED = 200


def export_speculators(
    folder: Path,
    spec: Eagle3Spec,
    tensors: Mapping[str, npt.NDArray[Any]],
    draft_to_target: IntArray,
    verifier: Mapping[str, Any],
    provenance: Mapping[str, Any],
    *,
    speculative_tokens: int = 4,
) -> Path:
    """Write the head to ``folder`` and return it; an earlier export there is replaced.

    ``tensors``: under the names of ``Eagle3Files.source``, float32, or uint16 holding bfloat16 bits.
    ``verifier``: ``name_or_path`` and ``architectures`` of the target. ``provenance``: anything JSON can hold
    (data hashes, command, commit, steps, seed, metrics), kept in config.json. ``speculative_tokens``: the
    draft length other engines use by default. Raises ``ModelFileError`` for tensors or ids that do not fit
    the spec, ``ConfigError`` for a spec the format cannot express or a place that cannot be written.
    """
    check_head(spec, tensors)
    ids = checked_ids(np.asarray(draft_to_target), spec.draft_vocab_size, spec.vocab_size, spec.name)
    config = json.dumps(_config(spec, verifier, provenance, speculative_tokens), indent=2) + "\n"
    arrays = {file_name(name, "layers"): np.ascontiguousarray(values) for name, values in tensors.items()}
    if spec.draft_vocab_size != spec.vocab_size:
        arrays["d2t"] = ids.astype(np.int64) - np.arange(len(ids))
        mask = np.zeros(spec.vocab_size, np.bool_)
        mask[ids] = True
        arrays["t2d"] = mask
    try:
        _write(folder, config, arrays)
    except OSError as error:
        raise ConfigError(
            f"cannot write {folder}: {error.strerror or error}; choose another place"
        ) from error
    return folder


def read_provenance(head: Path) -> dict[str, Any]:
    """Return the provenance of an exported head, folder or GGUF file; empty for one that was made elsewhere.

    Raises ``ModelNotFoundError`` and ``ModelFileError`` for what is missing or damaged.
    """
    place = resolve_model(head)
    if place.is_dir():
        value = read_json_object(place / "config.json").get("provenance", {})
    else:
        value = _gguf_provenance(place)
    return value if isinstance(value, dict) else {}


def _gguf_provenance(path: Path) -> Any:
    metadata = Metadata(read_gguf_header(path, HEAD_TYPES).metadata, path)
    text = metadata.text(PROVENANCE_KEY, "{}")
    try:
        return json.loads(text)
    except ValueError as error:
        raise metadata.wrong(PROVENANCE_KEY, text, "JSON") from error


def read_verifier(folder: Path) -> dict[str, Any]:
    """Return what a folder in speculators' format says of its target; empty where it says nothing."""
    described = read_json_object(folder / "config.json").get("speculators_config")
    value = described.get("verifier") if isinstance(described, dict) else None
    return value if isinstance(value, dict) else {}


def check_head(spec: Eagle3Spec, tensors: Mapping[str, npt.NDArray[Any]]) -> None:
    """Raise unless ``tensors`` are those of ``spec``: ``ModelFileError`` for names, shapes and NaN,
    ``ConfigError`` for dtypes."""
    faults = layout_faults(head_shapes(spec), {name: values.shape for name, values in tensors.items()})
    if faults:
        raise layout_error(
            f"{spec.name}: these tensors do not make the head of its spec", faults, _MOST_NAMED
        )
    for name, values in tensors.items():
        if values.dtype not in (np.float32, np.uint16):
            raise ConfigError(f"{name} is {values.dtype}; give float32, or uint16 with bfloat16 bits")
        exponents = (values & 0x7F80) == 0x7F80 if values.dtype == np.uint16 else ~np.isfinite(values)
        if exponents.any():
            raise ModelFileError(f"{name} holds NaN or infinity: the training diverged, nothing was written")


def _config(
    spec: Eagle3Spec, verifier: Mapping[str, Any], provenance: Mapping[str, Any], speculative_tokens: int
) -> dict[str, Any]:
    proposal = {"proposal_type": "greedy", "speculative_tokens": speculative_tokens, "verifier_accept_k": 1,
                "accept_tolerance": 0.0}  # fmt: skip
    return {
        "architectures": ["Eagle3Speculator"],
        "model_type": "speculator_model",
        "_name_or_path": spec.name,
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [proposal],
            "verifier": {key: verifier[key] for key in ("name_or_path", "architectures")},
        },
        "draft_vocab_size": spec.draft_vocab_size,
        "target_hidden_size": spec.target_hidden_size,
        LAYER_IDS: None if spec.state_layers is None else list(spec.state_layers),
        "norm_before_residual": spec.norm_before_residual,
        "norm_before_fc": spec.has_input_norm,
        "fc_norm": spec.has_state_norms,
        "norm_output": spec.norm_output,
        "transformer_layer_config": _layer_config(spec),
        "provenance": dict(provenance),
    }


def _layer_config(spec: Eagle3Spec) -> dict[str, Any]:
    return {
        "model_type": "qwen3" if spec.has_qk_norm else "llama",
        "vocab_size": spec.vocab_size,
        "hidden_size": spec.hidden_size,
        "intermediate_size": spec.ffn_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "hidden_act": "silu",
        "attention_bias": spec.has_qkv_bias,
        "max_position_embeddings": spec.max_context,
        "rms_norm_eps": spec.norm_eps,
        "rope_theta": rope_base(spec.rope),
        **_partial_rotary(spec),
        **_windows(spec),
    }


def rope_base(rope: RopeSpec) -> float:
    """Return the base whose plain frequencies ``rope`` holds, bit for bit.

    Raises ``ConfigError`` for scaled frequencies or another style: the format would need their scaling rule,
    which a ``RopeSpec`` no longer knows.
    """
    dims = 2 * len(rope.inverse_frequencies)
    last = rope.inverse_frequencies[-1]
    estimate = last ** (-dims / (dims - 2)) if dims > 2 and last > 0 else 10000.0
    rounded = [float(f"{estimate:.{digits}g}") for digits in range(1, 16)]
    for base in (*rounded, float(np.float32(estimate)), estimate):
        is_same = tuple(plain_frequencies(base, dims).tolist()) == rope.inverse_frequencies
        if is_same and rope.style == "half_split" and rope.attention_factor == 1.0:
            return base
    raise ConfigError("only heads with a plain rope that rotates halves can be exported; train one with it")


def _partial_rotary(spec: Eagle3Spec) -> dict[str, float]:
    rotated = 2 * len(spec.rope.inverse_frequencies)
    return {} if rotated == spec.head_dim else {"partial_rotary_factor": rotated / spec.head_dim}


def _windows(spec: Eagle3Spec) -> dict[str, Any]:
    sizes = set(spec.layer_windows) - {0}
    if not sizes:
        return {}
    if len(sizes) > 1:
        raise ConfigError(
            f"layer_windows={spec.layer_windows}: the format has one window size for all layers"
        )
    kinds = ["sliding_attention" if window else "full_attention" for window in spec.layer_windows]
    return {"sliding_window": sizes.pop(), "use_sliding_window": True, "layer_types": kinds}


# ---- writing ----


def _write(folder: Path, config: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Build the folder beside its place and move it there when it is complete and on the disk."""
    if folder.exists() and (not folder.is_dir() or {entry.name for entry in folder.iterdir()} - set(FILES)):
        raise ConfigError(f"{folder} holds other things than an exported head: choose an empty place")
    folder.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        new, old = work / "new", work / "old"
        new.mkdir()
        write_synced(new / "model.safetensors", *safetensors_pieces(arrays))
        write_synced(new / "config.json", config.encode())
        if folder.exists():
            folder.rename(old)
        try:
            new.rename(folder)
        except OSError:
            if old.exists():
                old.rename(folder)
            raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def write_synced(path: Path, *pieces: bytes | memoryview) -> None:
    """Write a file and wait until it is on the disk."""
    with path.open("wb") as file:
        for piece in pieces:
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())


def safetensors_pieces(arrays: Mapping[str, npt.NDArray[Any]]) -> list[bytes | memoryview]:
    """Return the pieces of a safetensors file (https://huggingface.co/docs/safetensors, "Format").

    The ``safetensors`` package cannot store bfloat16 from numpy.
    """
    table: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    offset = 0
    for name, values in arrays.items():
        end = offset + values.nbytes
        kind = _DTYPES[values.dtype.name]
        table[name] = {"dtype": kind, "shape": list(values.shape), "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(table, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    data = [values.reshape(-1).view(np.uint8).data for values in arrays.values()]
    return [len(header).to_bytes(8, "little"), header, *data]
