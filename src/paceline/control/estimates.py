"""How often a drafter is right at each depth, learned from one request.

A drafter that can says how likely each of its nodes is (its *confidence*); that is the prior. What the target
then wrote says how much of it came true. Both are known for every candidate whose parent lies on the written
text, whether it was verified or not, so a drafter that was not listened to is still judged.
"""

from __future__ import annotations

from collections.abc import Sequence

from paceline.tree import ROOT

MAX_DEPTH = 16
"""Deeper levels share the estimate of this one: few drafts reach them."""

_KEEP = 0.93
"""Weight left to earlier trials after one more: the last 14 or so count."""
_PRIOR = 2.0
"""Promised tokens that the prior (confidence comes true) is worth over all depths."""
_DEPTH_PRIOR = 1.5
"""Promised tokens that the estimate over all depths is worth at each single depth."""
_LEAST, _MOST = 0.25, 1.25


class DepthEstimates:
    """Accepted ÷ promised tokens of one drafter in one request, by depth, exponentially weighted.

    The estimate of a depth is drawn to that of all depths, and that one to 1: the confidence as it is.
    """

    __slots__ = ("_accepted", "_all_accepted", "_all_promised", "_promised")

    def __init__(self) -> None:
        self._accepted: list[float] = []
        self._promised: list[float] = []
        self._all_accepted = self._all_promised = _PRIOR

    @property
    def factor(self) -> float:
        """Accepted ÷ promised over all depths, between 1/4 and 5/4."""
        return min(_MOST, max(_LEAST, self._all_accepted / self._all_promised))

    def factor_at(self, depth: int) -> float:
        """Return what to multiply a confidence at ``depth`` (1: behind the root) by."""
        index = min(depth, MAX_DEPTH) - 1
        whole = self.factor
        if index >= len(self._promised):
            return whole
        ratio = (self._accepted[index] + _DEPTH_PRIOR * whole) / (self._promised[index] + _DEPTH_PRIOR)
        return min(_MOST, max(_LEAST, ratio))

    def learn(self, depth: int, promised: float, accepted: bool) -> None:
        """Count one trial: at ``depth`` the candidates promised to hold the token with this probability."""
        index = min(depth, MAX_DEPTH) - 1
        while index >= len(self._promised):
            self._accepted.append(0.0)
            self._promised.append(0.0)
        self._accepted[index] = self._accepted[index] * _KEEP + accepted
        self._promised[index] = self._promised[index] * _KEEP + promised
        prior = _PRIOR * (1.0 - _KEEP)
        self._all_accepted = self._all_accepted * _KEEP + accepted + prior
        self._all_promised = self._all_promised * _KEEP + promised + prior

    def learn_tree(
        self, tokens: Sequence[int], parents: Sequence[int], paths: Sequence[float], committed: Sequence[int]
    ) -> int:
        """Judge a whole tree of candidates against the written tokens; return how deep it was right.

        ``paths``: path probabilities as promised, before any factor. The token behind the last committed one
        is not known, so the level below it is no trial.
        """
        below: dict[int, list[int]] = {}
        for node, parent in enumerate(parents):
            below.setdefault(parent, []).append(node)
        place, above = ROOT, 1.0
        for depth, token in enumerate(committed):
            children = below.get(place)
            if not children:
                return depth
            promised = min(1.0, sum(paths[child] for child in children) / above)
            hit = next((child for child in children if tokens[child] == token), ROOT)
            self.learn(depth + 1, promised, hit != ROOT)
            if hit == ROOT:
                return depth
            place, above = hit, max(paths[hit], 1e-9)
        return len(committed)

    def paths(self, parents: Sequence[int], paths: Sequence[float]) -> list[float]:
        """Return path probabilities corrected by what each depth has shown; no node beats its parent."""
        if not self._promised:
            return list(paths)
        factors = [1.0]
        corrected: list[float] = []
        depths: list[int] = []
        for node, parent in enumerate(parents):
            depth = 1 if parent == ROOT else depths[parent] + 1
            if depth == len(factors):
                factors.append(self.factor_at(depth))
            above = 1.0 if parent == ROOT else paths[parent]
            base = 1.0 if parent == ROOT else corrected[parent]
            depths.append(depth)
            corrected.append(min(base, base * factors[depth] * paths[node] / max(above, 1e-9)))
        return corrected
