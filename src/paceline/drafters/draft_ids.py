"""A reduced draft vocabulary in the order that samplers want."""

from __future__ import annotations

import numpy as np

from paceline.records import FloatArray, IntArray


class DraftIds:
    """``ids`` int32 [Vd]: the target ids of a head's rows, rising. Public heads list them in any order."""

    __slots__ = ("_order", "ids")

    def __init__(self, draft_to_target: IntArray) -> None:
        is_rising = bool((np.diff(draft_to_target) > 0).all())
        self._order = None if is_rising else np.argsort(draft_to_target)
        self.ids = draft_to_target if self._order is None else draft_to_target[self._order]

    def in_order(self, logits: FloatArray) -> FloatArray:
        """Return a head's ``logits`` float32 [Vd] in the order of ``ids``."""
        return logits if self._order is None else logits[self._order]
