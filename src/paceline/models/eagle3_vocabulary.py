"""The draft vocabulary of an EAGLE-3 head: which target id each draft id stands for.

Folders store *offsets* (``d2t[i]`` = target id - i, int64 [Vd]) and a mask of the target's ids (``t2d``, bool
[V]); llama.cpp's GGUF files store the target ids themselves under the name ``d2t``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from paceline.errors import ModelFileError
from paceline.models.safetensors_file import INDEX_TYPES, StoredTensor
from paceline.records import IntArray

MAP_NAMES = ("d2t", "t2d")
_DTYPES = {"I64": "<i8", "I32": "<i4", "BOOL": "|b1"}


def read_map(name: str, stored: StoredTensor) -> npt.NDArray[Any]:
    """Return a vocabulary map. Raises ``ModelFileError`` unless it is one dimension of whole numbers."""
    if stored.kind.name not in INDEX_TYPES or len(stored.shape) != 1:
        raise ModelFileError(
            f"{stored.path} stores {name} as {stored.kind.name} {list(stored.shape)}, but needs one "
            "dimension of whole numbers: save the head again"
        )
    size = stored.shape[0] * stored.kind.block_bytes
    with stored.path.open("rb") as file:
        file.seek(stored.offset)
        raw = file.read(size)
    if len(raw) != size:
        raise ModelFileError(f"{stored.path} ended inside {name!r}: download it again")
    return np.frombuffer(raw, _DTYPES[stored.kind.name])


def target_ids(
    maps: Mapping[str, npt.NDArray[Any]], draft_size: int, target_size: int, place: object
) -> IntArray:
    """Return the target id of each draft id, int32 [Vd], from offsets and mask as folders hold them.

    Without either the vocabularies are one. Raises ``ModelFileError`` when a map has another length, ids do
    not rise or leave the vocabulary, or the two maps contradict each other.
    """
    offsets, mask = maps.get("d2t"), maps.get("t2d")
    if mask is not None and len(mask) != target_size:
        raise ModelFileError(f"{place}: t2d has {len(mask)} entries, but the target has {target_size} ids")
    if offsets is not None:
        with np.errstate(over="ignore"):
            ids = offsets.astype(np.int64) + np.arange(len(offsets), dtype=np.int64)
    elif mask is not None:
        ids = np.flatnonzero(mask)
    elif draft_size == target_size:
        ids = np.arange(draft_size)
    else:
        raise ModelFileError(
            f"{place} drafts {draft_size} of the target's {target_size} tokens but does not say which: d2t "
            "and t2d are missing"
        )
    checked = checked_ids(ids, draft_size, target_size, place)
    if mask is not None and not np.array_equal(np.flatnonzero(mask), checked):
        raise ModelFileError(
            f"{place}: d2t and t2d name different tokens (t2d marks {np.count_nonzero(mask)}, d2t lists "
            f"{len(checked)}): the head is badly converted"
        )
    return checked


def checked_ids(ids: npt.NDArray[Any], draft_size: int, target_size: int, place: object) -> IntArray:
    """Return absolute target ids as int32 after checking their number, order and range."""
    if len(ids) != draft_size:
        raise ModelFileError(f"{place}: d2t has {len(ids)} entries, but {draft_size} tokens are drafted")
    wrong = np.flatnonzero((ids < 0) | (ids >= target_size))
    if wrong.size:
        raise ModelFileError(
            f"{place}: draft id {wrong[0]} stands for target id {ids[wrong[0]]}, outside the target's "
            f"vocabulary of {target_size}: the head belongs to another target, or d2t was converted wrongly"
        )
    falls = np.flatnonzero(np.diff(ids) <= 0)
    if falls.size:
        at = int(falls[0])
        raise ModelFileError(
            f"{place}: d2t does not rise: draft ids {at} and {at + 1} stand for target ids {ids[at]} and "
            f"{ids[at + 1]}; d2t of a folder holds offsets, of a GGUF file ids"
        )
    return np.ascontiguousarray(ids, np.int32)
