"""How many prompt rows a forward may read beside requests that decode, from what rows were measured to cost.

A step of plain decoding may take ``stretch`` times as long because of a prompt, and one with drafts so many
seconds longer as a plain one may: drafts lengthen a step already. With R decoding rows (roots and drafts) and
P prompt rows a forward is taken to last w·r(R) + p·P seconds. w is learnt from forwards without prompt rows,
p from those with some, both as medians; so p follows the machine, the model, and how far the prompt has come
(its attention costs more and more: 4,000 tokens on, a row of SmolLM2-135M costs as much as a whole forward
for one request at its beginning). With D decoding requests P = (stretch - 1)·w·r(D) / p, and 1 at least.

Replies grow beside a long prompt, and w with them. So a prompt now and then stands still for a step; else
what the replies cost would be laid to the prompt, which would be read ever more slowly.

The clock decides how a prompt is cut, never what is written: rows do not depend on their batch (law 7).
"""

from __future__ import annotations

from paceline.drafters.verify_cost import VerifyCost

_LEAST_ROW = 1 / 256
"""The least that a row is taken to cost, in one-row forwards."""
_GAIN = 1.05
"""A measured median moves by this factor with each measurement: twofold in fourteen."""
_LOOK_EACH = 32
"""Forwards with prompt rows after which one without is due, to measure w."""


class PromptPace:
    """``stretch``: see the module; infinity reads as many rows as fit. ``cost``: the shape of r."""

    def __init__(self, stretch: float, cost: VerifyCost | None = None) -> None:
        self._stretch = stretch
        self._cost = cost or VerifyCost()
        self._forward_seconds: float | None = None  # w
        self._row_seconds: float | None = None  # p
        self._since_look = 0

    def num_rows(self, num_decoding: int, left: int) -> int:
        """Return how many of ``left`` rows (one or more) read prompts beside ``num_decoding`` requests.

        None when the requests are to be timed alone.
        """
        if not num_decoding or self._stretch == float("inf"):
            return left
        if self._since_look >= _LOOK_EACH:
            return 0
        slope = self._cost.mean_slope(len(self._cost.ratios) - 1) if len(self._cost.ratios) > 1 else 1.0
        w, p = self._forward_seconds, self._row_seconds
        per_row = max(_LEAST_ROW, slope if w is None or p is None else p / w)
        spare = (self._stretch - 1.0) * self._r(num_decoding)
        return min(left, max(1, int(spare / per_row)))

    def learn(self, decode_rows: int, prompt_rows: int, seconds: float) -> None:
        """Take the time of one forward."""
        self._since_look = self._since_look + 1 if prompt_rows and decode_rows else 0
        if not prompt_rows:
            self._forward_seconds = _median(self._forward_seconds, seconds / self._r(decode_rows))
            return
        w = self._forward_seconds
        if w is None and decode_rows:
            return  # the two shares cannot be told apart yet
        # A prompt row costs something, whatever one measurement in the noise says.
        least = 0.0 if w is None else _LEAST_ROW * w
        rest = seconds - (w or 0.0) * self._r(decode_rows)
        self._row_seconds = max(_median(self._row_seconds, rest / prompt_rows), least)

    def _r(self, rows: int) -> float:
        return self._cost.at(max(1, rows))


def _median(median: float | None, new: float) -> float:
    """Return ``median`` a step nearer to where half of the measurements lie above it.

    Times on a shared machine have a long tail: a mean would follow its stalls.
    """
    if median is None or new == median:
        return new
    return median * _GAIN if new > median else median / _GAIN
