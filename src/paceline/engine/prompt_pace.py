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
_GAIN = 0.05
"""Share by which a measured median moves with each measurement: twofold in fourteen. The second one moves it
by a half, the third by a third and so on: the first forward of a process finds nothing in its place and took
four times as long, and prompts were then read two tokens a step for a hundred steps.
"""
_LOOK_EACH = 32
"""Forwards with prompt rows after which one without is due, to measure w."""


class PromptPace:
    """``stretch``: see the module; infinity reads as many rows as fit. ``cost``: the shape of r."""

    def __init__(self, stretch: float, cost: VerifyCost | None = None) -> None:
        self._stretch = stretch
        self._cost = cost or VerifyCost()
        self._forward = _Median()  # w
        self._row = _Median()  # p
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
        w, p = self._forward.value, self._row.value
        per_row = max(_LEAST_ROW, slope if w is None or p is None else p / w)
        spare = (self._stretch - 1.0) * self._r(num_decoding)
        return min(left, max(1, int(spare / per_row)))

    def learn(self, decode_rows: int, prompt_rows: int, seconds: float) -> None:
        """Take the time of one forward."""
        self._since_look = self._since_look + 1 if prompt_rows and decode_rows else 0
        if not prompt_rows:
            self._forward.learn(seconds / self._r(decode_rows))
            return
        w = self._forward.value
        if w is None and decode_rows:
            return  # the two shares cannot be told apart yet
        # A prompt row costs something, whatever one measurement in the noise says.
        least = 0.0 if w is None else _LEAST_ROW * w
        rest = seconds - (w or 0.0) * self._r(decode_rows)
        self._row.learn(rest / prompt_rows, least)

    def _r(self, rows: int) -> float:
        return self._cost.at(max(1, rows))


class _Median:
    """A running median: each measurement moves it a step to where half of them lie above it.

    Times on a shared machine have a long tail: a mean would follow its stalls.
    """

    def __init__(self) -> None:
        self.value: float | None = None
        self._count = 0

    def learn(self, new: float, least: float = 0.0) -> None:
        """Take a measurement; the median does not fall below ``least``."""
        self._count += 1
        if self.value is None:
            self.value = max(new, least)
        elif new != self.value:
            step = 1.0 + max(_GAIN, 1.0 / self._count)
            moved = min(new, self.value * step) if new > self.value else max(new, self.value / step)
            self.value = max(moved, least)
