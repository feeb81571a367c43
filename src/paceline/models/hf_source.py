"""The tensors of a Hugging Face folder under GGUF names, converted while their rows are read."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelFileError
from paceline.models import ggml_types
from paceline.models.families import Family
from paceline.models.ggml_types import GgmlType
from paceline.models.safetensors_file import StoredTensor
from paceline.models.spec import TensorInfo

_TOP_NAMES = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
LAYER_NAMES = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}
# With norms on both sides of a sublayer, "post_attention_layernorm" means the one it is named after.
_POST_NORM_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_LAYER = re.compile(r"model\.layers\.(\d+)\.(.+)\.(weight|bias)")
_NOT_WEIGHTS = re.compile(r".*rotary_emb\.inv_freq")


@dataclass(frozen=True, slots=True)
class FusedRows:
    """Rows of the parts that a fused tensor holds, in order: part name → rows."""

    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Entry:
    """Where a tensor's rows come from (``stored``, from row ``first_row`` on) and what is done to them."""

    stored: StoredTensor
    first_row: int
    kind: GgmlType
    added: float


class HfSource:
    """``TensorSource`` over safetensors files.

    Vectors come as F32, with a family's norm offset added. Matrices come as stored, or as blocks of
    ``quantised`` where their columns fill whole blocks (a matrix whose columns do not stays as stored).
    ``fused``: parts of Phi-3's fused matrices by their Hugging Face name.
    """

    def __init__(
        self,
        stored: Mapping[str, StoredTensor],
        family: Family,
        fused: Mapping[str, FusedRows],
        quantised: GgmlType | None,
    ) -> None:
        self._family = family
        self._quantised = quantised
        self._tensors: dict[str, TensorInfo] = {}
        self._entries: dict[str, _Entry] = {}
        for name, tensor in stored.items():
            if not _NOT_WEIGHTS.fullmatch(name):
                self._add(name, tensor, fused)
        self._files: dict[Path, IO[bytes]] = {}
        for path in {tensor.path for tensor in stored.values()}:
            self._files[path] = path.open("rb", buffering=0)
        self._lock = threading.Lock()

    @property
    def tensors(self) -> Mapping[str, TensorInfo]:
        return self._tensors

    def drop(self, name: str) -> None:
        """Forget a tensor (a stored copy of tied weights)."""
        self._tensors.pop(name, None)

    def read_rows(self, name: str, start: int, count: int) -> npt.NDArray[np.uint8]:
        info, entry = self._tensors[name], self._entries[name]
        rows = info.shape[0] if len(info.shape) > 1 else 1
        if start < 0 or count < 0 or start + count > rows:
            raise IndexError(f"rows {start} to {start + count} of {name}, which has {rows}")
        columns = info.shape[-1]
        raw = self._read(entry.stored, (entry.first_row + start) * columns, count * columns, name)
        if entry.kind is entry.stored.kind and not entry.added:
            return raw
        values = as_float32(raw, entry.stored.kind)
        if entry.kind is ggml_types.F32:
            return (values + np.float32(entry.added)).view(np.uint8)
        return _quantise(values.reshape(count, columns), entry.kind)

    def close(self) -> None:
        for file in self._files.values():
            file.close()

    def _add(self, name: str, tensor: StoredTensor, fused: Mapping[str, FusedRows]) -> None:
        layer = _LAYER.fullmatch(name)
        parts = fused.get(layer[2]) if layer else None
        if layer is None or parts is None:
            self._present(self._gguf_name(name), tensor, 0, tensor.shape)
            return
        total = sum(parts.parts.values())
        if len(tensor.shape) != 2 or tensor.shape[0] != total:
            raise ModelFileError(
                f"{tensor.path}: {name} is {list(tensor.shape)}, expected {total} rows: the file does not "
                "fit its config.json"
            )
        first_row = 0
        for part, rows in parts.parts.items():
            self._present(f"blk.{layer[1]}.{part}.{layer[3]}", tensor, first_row, (rows, tensor.shape[1]))
            first_row += rows

    def _gguf_name(self, name: str) -> str:
        """Return the GGUF name of a tensor; one that no family has keeps its own and is refused later."""
        layer = _LAYER.fullmatch(name)
        if layer is None:
            return _TOP_NAMES.get(name, name)
        names = LAYER_NAMES | (_POST_NORM_NAMES if self._family.has_post_norms else {})
        return f"blk.{layer[1]}.{names[layer[2]]}.{layer[3]}" if layer[2] in names else name

    def _present(self, name: str, tensor: StoredTensor, first_row: int, shape: tuple[int, ...]) -> None:
        is_vector = len(shape) == 1
        kind = ggml_types.F32 if is_vector else self._matrix_kind(tensor, shape)
        added = self._family.norm_offset if name.endswith("norm.weight") else 0.0
        self._entries[name] = _Entry(tensor, first_row, kind, added)
        row_bytes = kind.row_bytes(shape[-1]) if shape else 0
        self._tensors[name] = TensorInfo(name, shape, kind.number, row_bytes)

    def _matrix_kind(self, tensor: StoredTensor, shape: tuple[int, ...]) -> GgmlType:
        wanted = self._quantised
        if wanted is None or not shape or shape[-1] % wanted.block_size:
            return tensor.kind
        return wanted

    def _read(self, stored: StoredTensor, first: int, count: int, name: str) -> npt.NDArray[np.uint8]:
        data = np.empty(count * stored.kind.block_bytes, np.uint8)
        view, file, done = data.data, self._files[stored.path], 0
        with self._lock:
            file.seek(stored.offset + first * stored.kind.block_bytes)
            while done < len(view):
                piece = file.readinto(view[done:])  # type: ignore[attr-defined]
                if not piece:
                    raise ModelFileError(f"{stored.path} ended inside {name!r}: download it again")
                done += piece
        return data


def as_float32(raw: npt.NDArray[np.uint8], kind: GgmlType) -> npt.NDArray[np.float32]:
    """Return stored F32, F16 or BF16 bytes as float32 (exact)."""
    if kind is ggml_types.F32:
        return raw.view("<f4").astype(np.float32, copy=False)
    if kind is ggml_types.F16:
        return raw.view("<f2").astype(np.float32)
    return (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)


def _quantise(values: npt.NDArray[np.float32], kind: GgmlType) -> npt.NDArray[np.uint8]:
    """Return blocks of ``kind``, by the gguf package's reference quantiser."""
    from gguf import GGMLQuantizationType, quantize

    blocks: npt.NDArray[np.uint8] = quantize(values, GGMLQuantizationType(kind.number))
    return blocks.reshape(-1)
