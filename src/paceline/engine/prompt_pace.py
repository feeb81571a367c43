"""How many prompt rows a forward may read beside requests that decode, from what rows were measured to cost.

A step of plain decoding may take ``stretch`` times as long because of a prompt, and one with drafts so many
seconds longer as a plain one may: drafts lengthen a step already. With R decoding rows (roots and drafts) and
P prompt rows a forward is taken to last s(R) + p·P seconds. s is learnt from forwards without prompt rows,
p from those with some, both as medians; so p follows the machine, the model, and how far the prompt has come
(XX
Replies grow beside a long prompt, and s with them. So a prompt now and then stands still for a step; else
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
"""Forwards with prompt rows after which one without is due, to measure s."""


class PromptPace:
    """``stretch``: see the module; infinity reads as many rows as fit. ``cost``: the shape of r, for what
    was not measured yet."""

    def __init__(self, stretch: float, cost: VerifyCost | None = None) -> None:
        self._stretch = stretch
        self._cost = cost or VerifyCost()
        self._steps = _StepTimes(self._cost)  # s
        self._row = _Median()  # p
        self._since_look = 0

    def num_rows(self, num_decoding: int, num_reading: int, left: int) -> int:
        """Return how many of ``left`` rows (one or more) read the prompts of ``num_reading`` requests beside
        ``num_decoding`` others.

        None when the requests are to be timed alone.
        """
        if not num_decoding or self._stretch == float("inf"):
            return left
        if self._since_look >= _LOOK_EACH:
            return 0
        width = max(num_decoding, num_reading)
        step, row = self._steps.at(width), self._row.value
        if step is None or row is None:
            step, row = self._cost.at(width), self._assumed_row()
        return min(left, max(1, int((self._stretch - 1.0) * step / row)))

    def learn(self, decode_rows: int, prompt_rows: int, seconds: float) -> None:
        """Take the time of one forward."""
        self._since_look = self._since_look + 1 if prompt_rows and decode_rows else 0
        if not prompt_rows:
            self._steps.learn(decode_rows, seconds)
            return
        step = self._steps.at(max(1, decode_rows))
        if step is None and decode_rows:
            return  # the two shares cannot be told apart yet
        # A prompt row costs something, whatever one measurement in the noise says.
        least = _LEAST_ROW * (self._steps.at(1) or 0.0)
        self._row.learn((seconds - (step or 0.0)) / prompt_rows, least)

    def _assumed_row(self) -> float:
        """Return what a further row costs, in one-row forwards."""
        slope = self._cost.mean_slope(len(self._cost.ratios) - 1) if len(self._cost.ratios) > 1 else 1.0
        return max(_LEAST_ROW, slope)


class _StepTimes:
    """What forwards without prompt rows take, by their rows: a median each for 1, 2, 3 to 4, 5 to 8 … rows.

    One median and the curve's shape would not do: the shape is another machine's. In a batch of 32 a median
    learnt from single requests promised 20 prompt rows where one learnt from full batches promised 85.
    """

    def __init__(self, cost: VerifyCost) -> None:
        self._cost = cost
        self._medians: dict[int, _Median] = {}  # of seconds ÷ r, by the bits of rows - 1

    def learn(self, rows: int, seconds: float) -> None:
        median = self._medians.setdefault(max(0, rows - 1).bit_length(), _Median())
        median.learn(seconds / self._cost.at(max(1, rows)))

    def at(self, rows: int) -> float | None:
        """Return the seconds of a forward of ``rows`` rows, by the nearest number measured."""
        if not self._medians:
            return None
        wanted = (rows - 1).bit_length()
        unit = self._medians[min(self._medians, key=lambda bits: abs(bits - wanted))].value
        return None if unit is None else unit * self._cost.at(rows)


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
