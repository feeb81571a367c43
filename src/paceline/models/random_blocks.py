"""Random weights, made directly as valid storage blocks of any supported type.

Quantising random floats would take minutes for a model of a billion weights, and no quantiser for the K types
is at hand; blocks of random codes under scales chosen for the wanted spread are as good for measuring speed,
and exact by definition: the blocks *are* the model.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paceline.models import ggml_types as types
from paceline.models.ggml_types import GgmlType

Bytes = npt.NDArray[np.uint8]

# Root mean square of a code minus its middle, for codes drawn evenly: sqrt((levels^2 - 1) / 12).
_RMS_4_BIT, _RMS_5_BIT, _RMS_6_BIT, _RMS_8_BIT = 4.61, 9.23, 18.47, 73.9


def random_rows(kind: GgmlType, rows: int, columns: int, deviation: float, rng: np.random.Generator) -> Bytes:
    """Return uint8 [rows, row bytes]: weights of mean about 0 and standard deviation about ``deviation``.

    Raises ``ValueError`` unless ``columns`` fill whole blocks.
    """
    num_blocks = rows * kind.row_bytes(columns) // kind.block_bytes
    if kind.block_size == 1:
        data = _random_floats(kind, num_blocks, deviation, rng)
    else:
        data = rng.integers(0, 256, (num_blocks, kind.block_bytes), np.uint8)
        _set_scales(kind, data, deviation, rng)
    return data.reshape(rows, -1)


def _random_floats(kind: GgmlType, count: int, deviation: float, rng: np.random.Generator) -> Bytes:
    values = rng.standard_normal(count, np.float32) * np.float32(deviation)
    if kind is types.F32:
        return values.view(np.uint8)
    if kind is types.F16:
        return values.astype(np.float16).view(np.uint8)
    return np.ascontiguousarray((values.view(np.uint32) >> 16).astype(np.uint16)).view(np.uint8)


def _set_scales(kind: GgmlType, data: Bytes, deviation: float, rng: np.random.Generator) -> None:
    """Overwrite the scale fields of random blocks ``data`` [N, block bytes] (layouts: ggml-common.h)."""
    spread = deviation * (0.75 + 0.5 * rng.random(len(data), np.float32))
    if kind in (types.Q4_0, types.Q5_0, types.Q8_0):
        signs = np.where(rng.random(len(data)) < 0.5, -1.0, 1.0)
        rms = {types.Q4_0: _RMS_4_BIT, types.Q5_0: _RMS_5_BIT, types.Q8_0: _RMS_8_BIT}[kind]
        _put_half(data, 0, signs * spread / rms)
    elif kind in (types.Q4_1, types.Q5_1):
        rms, middle = (_RMS_4_BIT, 7.5) if kind is types.Q4_1 else (_RMS_5_BIT, 15.5)
        _put_half(data, 0, spread / rms)
        _put_half(data, 2, -middle * spread / rms)
    elif kind in (types.Q4_K, types.Q5_K):
        rms, middle = (_RMS_4_BIT, 7.5) if kind is types.Q4_K else (_RMS_5_BIT, 15.5)
        scale_codes, min_codes = _matched_codes(len(data), rng)
        data[:, 4:16] = _pack_six_bit(scale_codes, min_codes)
        _put_half(data, 0, spread / (rms * 48))
        _put_half(data, 2, middle * spread / (rms * 48))
    else:
        codes = rng.integers(24, 128, (len(data), 16)) * rng.choice([-1, 1], (len(data), 16))
        data[:, 192:208] = codes.astype(np.int8).view(np.uint8)
        _put_half(data, 208, spread / (_RMS_6_BIT * 76))


def _put_half(data: Bytes, offset: int, values: npt.NDArray[np.floating]) -> None:
    data[:, offset : offset + 2] = values.astype("<f2").reshape(-1, 1).view(np.uint8)


def _matched_codes(num_blocks: int, rng: np.random.Generator) -> tuple[Bytes, Bytes]:
    """Return 6-bit scale and minimum codes [N, 8]; a minimum follows its scale, so that the mean stays 0."""
    scales = rng.integers(32, 64, (num_blocks, 8))
    mins = np.clip(scales + rng.integers(-3, 4, scales.shape), 0, 63)
    return scales.astype(np.uint8), mins.astype(np.uint8)


def _pack_six_bit(scales: Bytes, mins: Bytes) -> Bytes:
    """Pack codes [N, 8] and [N, 8] into 12 bytes: the low four pairs whole, the others split 4 + 2 bits."""
    packed = np.empty((len(scales), 12), np.uint8)
    packed[:, 0:4] = scales[:, :4] | (scales[:, 4:] >> 4 << 6)
    packed[:, 4:8] = mins[:, :4] | (mins[:, 4:] >> 4 << 6)
    packed[:, 8:12] = (scales[:, 4:] & 15) | (mins[:, 4:] & 15) << 4
    return packed
