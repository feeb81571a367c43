"""What a step costs on one machine: the measured table that drafting is planned by.

Costs are in *one-row forwards* (1: the time of a target forward with one row), so that a plan reads off a
table and never a clock; ``row_seconds`` turns them into seconds.

>>> table = CostTable(((1, 1.0), (4, 1.3), (8, 2.0)), 0.005, 0.0004, {"eagle3": DraftCost(0.02, 0.03)})
>>> table.r(6), table.draft("eagle3", levels=1, nodes=7)
(1.65, 0.05)
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from paceline.errors import ConfigError, nearest_name

MEASURED_ROWS: tuple[int, ...] = (*range(1, 18), 20, 24, 32, 33, 36, 48, 64)
"""Row counts a profile measures: each width the native kernels treat differently, and far ones on both sides
of the steps: kernels take 16 rows at a time, so r(24) and r(32) lie close together and r(33) well above."""


@dataclass(frozen=True, slots=True)
class DraftCost:
    """What drafting costs one request in one step, in one-row forwards of the target.

    ``fixed``: asking at all (of a head or a draft model: catching up with what was committed).
    ``per_level``: each level of the draft, one draft step. ``per_node``: each node.
    """

    fixed: float
    per_level: float = 0.0
    per_node: float = 0.0

    def __post_init__(self) -> None:
        for name in ("fixed", "per_level", "per_node"):
            _check_number(f"DraftCost: {name}", getattr(self, name), 0.0)

    def at(self, levels: int, nodes: int) -> float:
        """Return the cost of a draft of ``nodes`` nodes on ``levels`` levels."""
        return self.fixed + self.per_level * levels + self.per_node * nodes


@dataclass(frozen=True, slots=True)
class CostTable:
    """The costs of one model on one machine.

    ``verify``: pairs (M, r(M)) with rising M from 1 and never falling r, r(1) = 1, measured with the logits
    of every row and ``context`` tokens in the cache; what rows cost a step outside its forward may be in it.
    ``row_seconds``: time of a forward with one row.
    ``step_seconds``: fixed time of a step outside the forward. ``draft_costs``: by drafter name.
    ``per_sequence_token`` and ``per_row_token``: what each token of cache beyond ``context`` adds for a
    sequence, however many rows it has, and for each of its rows, in one-row forwards.

    Raises ``ConfigError`` for anything else.
    """

    verify: tuple[tuple[int, float], ...]
    row_seconds: float
    step_seconds: float = 0.0
    draft_costs: Mapping[str, DraftCost] = field(default_factory=dict)
    context: int = 128
    per_sequence_token: float = 0.0
    per_row_token: float = 0.0
    _rows: tuple[int, ...] = field(init=False, repr=False, compare=False)
    _costs: tuple[float, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_curve(self.verify)
        _check_number("CostTable: row_seconds", self.row_seconds, 0.0)
        if self.row_seconds == 0:
            raise ConfigError("CostTable: row_seconds=0: a forward takes time")
        for name in ("step_seconds", "context", "per_sequence_token", "per_row_token"):
            _check_number(f"CostTable: {name}", getattr(self, name), 0.0)
        for name, cost in self.draft_costs.items():
            if not isinstance(name, str) or not isinstance(cost, DraftCost):
                raise ConfigError(f"CostTable: draft_costs[{name!r}]={cost!r}: give a name and a DraftCost")
        object.__setattr__(self, "draft_costs", dict(self.draft_costs))
        object.__setattr__(self, "_rows", tuple(rows for rows, _ in self.verify))
        object.__setattr__(self, "_costs", tuple(float(cost) for _, cost in self.verify))

    @property
    def step_cost(self) -> float:
        """Fixed time of a step outside the forward, in one-row forwards."""
        return self.step_seconds / self.row_seconds

    def r(self, rows: int) -> float:
        """Return r(rows): linear between measured points, past the last one with the curve's mean slope.

        r(0) is 0: no forward runs. A curve of one point goes on with slope 1: a row as dear as a forward.
        """
        if rows <= 0:
            return 0.0
        known, costs = self._rows, self._costs
        if rows > known[-1]:
            slope = (costs[-1] - costs[0]) / (known[-1] - 1) if len(known) > 1 else 1.0
            return costs[-1] + slope * (rows - known[-1])
        upper = bisect_left(known, rows)
        if known[upper] == rows:
            return costs[upper]
        share = (rows - known[upper - 1]) / (known[upper] - known[upper - 1])
        return costs[upper - 1] + share * (costs[upper] - costs[upper - 1])

    def row_surcharge(self, context: int) -> float:
        """Return what a row costs more than r says when its sequence has ``context`` tokens in the cache."""
        return self.per_row_token * max(0, context - self.context)

    def sequence_surcharge(self, context: int) -> float:
        """Return what a sequence costs more than r says at ``context`` tokens, its rows aside."""
        return self.per_sequence_token * max(0, context - self.context)

    def draft(self, name: str, levels: int, nodes: int) -> float:
        """Return the cost of a draft of ``name`` in one-row forwards; see :meth:`cost_of`."""
        return self.cost_of(name).at(levels, nodes)

    def cost_of(self, name: str) -> DraftCost:
        """Return the costs of drafter ``name``; ``eagle3:x`` and the like fall back on the part before ``:``.

        ``none`` is free. Raises ``ConfigError`` for a drafter that was not measured.
        """
        for key in (name, name.partition(":")[0]):
            if key in self.draft_costs:
                return self.draft_costs[key]
        if name == "none":
            return DraftCost(0.0)
        known = ", ".join(self.draft_costs) or "none"
        raise ConfigError(
            f"the cost of drafter {name!r} was not measured{nearest_name(name, self.draft_costs)}; known: "
            f"{known}"
        )

    def knows(self, name: str) -> bool:
        """Return whether :meth:`cost_of` knows ``name``."""
        return name == "none" or name in self.draft_costs or name.partition(":")[0] in self.draft_costs

    def step_ratios(self, rows: int) -> tuple[float, ...]:
        """Return the time of a *step* with 1 … ``rows`` rows ÷ the time of a step with one row.

        The fixed part of a step is in both, so these rise more slowly than r.
        """
        fixed = self.step_cost
        return tuple((fixed + self.r(m)) / (fixed + 1.0) for m in range(1, rows + 1))

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dump``."""
        return {
            "verify": [[rows, cost] for rows, cost in self.verify],
            "row_seconds": self.row_seconds,
            "step_seconds": self.step_seconds,
            "draft_costs": {
                name: {"fixed": cost.fixed, "per_level": cost.per_level, "per_node": cost.per_node}
                for name, cost in self.draft_costs.items()
            },
            "context": self.context,
            "per_sequence_token": self.per_sequence_token,
            "per_row_token": self.per_row_token,
        }

    @classmethod
    def from_json(cls, plain: object) -> CostTable:
        """Return the table of :meth:`to_json`. Raises ``ConfigError`` for anything it cannot have written."""
        if not isinstance(plain, Mapping):
            raise ConfigError(f"a cost table is a JSON object, not {type(plain).__name__}")
        known = {*(f for f in cls.__dataclass_fields__ if not f.startswith("_"))}
        if set(plain) != known:
            odd = ", ".join(sorted(map(str, set(plain) ^ known)))
            raise ConfigError(
                f"a cost table has the keys {', '.join(sorted(known))}; missing or unknown: {odd}"
            )
        try:
            verify = tuple((rows, cost) for rows, cost in plain["verify"])
            drafts = {str(name): DraftCost(**cost) for name, cost in plain["draft_costs"].items()}
            rest = {name: plain[name] for name in known - {"verify", "draft_costs"}}
        except (TypeError, ValueError, AttributeError) as error:
            raise ConfigError(f"this is no cost table: {error}") from error
        return cls(verify=verify, draft_costs=drafts, **rest)


def _check_curve(verify: object) -> None:
    if not isinstance(verify, tuple) or not verify:
        raise ConfigError(f"CostTable: verify={verify!r:.80}: give pairs (rows, r), the first (1, 1.0)")
    before, least = 0, 1.0
    for point in verify:
        if not (isinstance(point, tuple) and len(point) == 2 and type(point[0]) is int):
            raise ConfigError(f"CostTable: verify holds {point!r:.80}: give pairs (rows, r)")
        rows, cost = point
        _check_number(f"CostTable: r({rows})", cost, least)
        if rows <= before or (before == 0 and (rows, cost) != (1, 1.0)):
            raise ConfigError(
                f"CostTable: verify has {point!r} behind {before} rows: rows rise, and the first is (1, 1.0)"
            )
        before, least = rows, cost


def _check_number(name: str, value: object, low: float) -> None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and math.isfinite(value) and value >= low):  # type: ignore[arg-type, operator]
        raise ConfigError(f"{name}={value!r}: give a finite number of at least {low:g}")
