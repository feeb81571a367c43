"""How many tokens a step yields and what it costs: the arithmetic of the planner.

alpha is the probability that a draft token is accepted given that those before it were. Costs are in units of
one target forward with one row: c is a draft step, r(M) a target forward with M rows.

    >>> round(expected_tokens(0.75, 4), 2)
    3.05
"""

# K is the name that the papers, the design and the glossary use.
# ruff: noqa: N803

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline.theory.laws import check_cost, check_count, check_length, check_unit


@dataclass(frozen=True, slots=True)
class CostCurve:
    """r(M): time of a target forward with M rows ÷ time with 1 row, as measured.

    ``rows``: ascending row counts starting at 1; ``costs``: r at each, so ``costs[0]`` is 1. Between measured
    points r is linear. Past the last one it is unknown and asking raises ``ConfigError``; except that
    ``CostCurve.flat()`` says that any number of rows costs the same.
    """

    rows: tuple[int, ...]
    costs: tuple[float, ...]
    is_flat: bool = False

    def __post_init__(self) -> None:
        if not self.rows or len(self.rows) != len(self.costs):
            raise ConfigError(
                f"r has {len(self.rows)} row counts and {len(self.costs)} costs; give one cost each"
            )
        for row in self.rows:
            check_count(row, "r: rows", 1, "a forward has at least one row")
        if self.rows[0] != 1 or any(a >= b for a, b in zip(self.rows, self.rows[1:], strict=False)):
            raise ConfigError(f"r covers rows {list(self.rows)}; give ascending counts that start at 1")
        for row, cost in zip(self.rows, self.costs, strict=True):
            if check_cost(cost, f"r({row})") == 0.0:
                raise ConfigError(f"r({row}) is 0; a forward takes time")
        if abs(self.costs[0] - 1.0) > 1e-6:
            raise ConfigError(f"r(1) is {self.costs[0]:g}; divide all times by the time of one row")

    @classmethod
    def flat(cls) -> CostCurve:
        """Return r(M) = 1 for every M: verification is free, as the first papers assume."""
        return cls((1,), (1.0,), is_flat=True)

    @classmethod
    def from_mapping(cls, costs: Mapping[int, float] | Mapping[str, float]) -> CostCurve:
        """Return the curve of ``{rows: r}``; keys may be strings, as in the JSON of ``paceline profile``."""
        try:
            points = sorted((int(row), float(cost)) for row, cost in costs.items())
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f'r is no table of numbers ({error}); give {{"1": 1.0, "2": 1.1, …}}'
            ) from error
        return cls(tuple(row for row, _ in points), tuple(cost for _, cost in points))

    @property
    def longest_draft(self) -> int | None:
        """The longest chain whose verification was measured; ``None`` when there is no limit."""
        return None if self.is_flat else self.rows[-1] - 1

    def __call__(self, rows: int) -> float:
        """Return r(rows)."""
        check_count(rows, "rows", 1, "a forward has at least one row")
        if self.is_flat:
            return 1.0
        if rows > self.rows[-1]:
            raise ConfigError(
                f"rows is {rows}, but r was measured up to {self.rows[-1]}; measure more or draft less"
            )
        upper = next(i for i, row in enumerate(self.rows) if row >= rows)
        if self.rows[upper] == rows:
            return self.costs[upper]
        (low, high), (r_low, r_high) = self.rows[upper - 1 : upper + 1], self.costs[upper - 1 : upper + 1]
        return r_low + (r_high - r_low) * (rows - low) / (high - low)


FLAT = CostCurve.flat()


def expected_tokens(alpha: float, K: int) -> float:
    """Return the expected tokens of one step of a chain of ``K``, bonus included.

    (1 - alpha^(K + 1)) / (1 - alpha), and K + 1 at alpha = 1. Source: Leviathan et al. 2023, equation 1. For
    alpha = 0.75, K = 4 this is 3.05; a figure of 3.20 that circulates for these values is wrong.
    """
    check_unit(alpha, "alpha")
    check_length(K)
    # Summed from the inside, so that 1 stays 1, K + 1 stays K + 1, and no digits are lost near alpha = 1.
    total = 1.0
    for _ in range(K):
        longer = 1.0 + alpha * total
        if longer == total:
            break
        total = longer
    return total


def expected_tokens_at(conditional_acceptance: Sequence[float]) -> float:
    """Return the expected tokens of a chain whose acceptance differs by depth.

    ``conditional_acceptance[i]``: probability that depth i + 1 is kept given that depth i was.
    """
    kept, total = 1.0, 1.0
    for depth, alpha in enumerate(conditional_acceptance):
        kept *= check_unit(alpha, f"conditional_acceptance[{depth}]")
        total += kept
    return total


def expected_tokens_tree(path_probabilities: Sequence[float], parents: Sequence[int] | None = None) -> float:
    """Return the expected tokens of one step of a tree: 1 + the sum over nodes of P(node is accepted).

    ``path_probabilities[i]``: probability that the whole path down to node i is accepted. With ``parents``
    (-1 for the root) the probabilities are checked for consistency: the children of a node cannot be accepted
    more often than the node itself.
    """
    paths = [check_unit(path, f"path_probabilities[{node}]") for node, path in enumerate(path_probabilities)]
    if parents is not None:
        _check_paths(paths, parents)
    return 1.0 + math.fsum(paths)


def wall_time_per_token(alpha: float, K: int, c: float, r: CostCurve = FLAT) -> float:
    """Return the expected time per output token, in units of plain decoding.

    (K c + r(K + 1)) / expected_tokens(alpha, K): a step is K draft steps and one verification of K + 1 rows
    (the root and the draft). Below 1 speculation pays. The speedup is the inverse.
    """
    return _step_cost(K, c, r) / expected_tokens(alpha, K)


def speedup(alpha: float, K: int, c: float, r: CostCurve = FLAT) -> float:
    """Return 1 / :func:`wall_time_per_token`."""
    return 1.0 / wall_time_per_token(alpha, K, c, r)


def optimal_draft_length(alpha: float, c: float, r: CostCurve = FLAT, longest: int = 16) -> int:
    """Return the K in 0..``longest`` with the least wall time per token; the shortest on a tie.

    Zero says that drafting does not pay. Lengths whose verification was not measured are not considered.
    """
    check_length(longest, "longest")
    if r.longest_draft is not None:
        longest = min(longest, r.longest_draft)
    return min(range(longest + 1), key=lambda length: wall_time_per_token(alpha, length, c, r))


def break_even_alpha(K: int, c: float, r: CostCurve = FLAT) -> float | None:
    """Return the smallest alpha at which a chain of ``K`` is no slower than plain decoding.

    ``None`` when even alpha = 1 does not pay the step: K + 1 tokens cost more than K + 1 plain forwards.
    """
    cost = _step_cost(K, c, r)
    if cost <= 1.0:
        return 0.0
    if cost > K + 1.0:
        return None
    low, high = 0.0, 1.0  # expected_tokens rises strictly from 1 to K + 1
    while low < (middle := (low + high) / 2) < high:
        if expected_tokens(middle, K) < cost:
            low = middle
        else:
            high = middle
    return high


def _step_cost(K: int, c: float, r: CostCurve) -> float:
    return check_length(K) * check_cost(c, "c") + r(K + 1)


def _check_paths(paths: Sequence[float], parents: Sequence[int]) -> None:
    if len(paths) != len(parents):
        raise ConfigError(
            f"{len(paths)} path_probabilities but {len(parents)} parents; give one of each per node"
        )
    below = [0.0] * (len(paths) + 1)
    for node, (path, parent) in enumerate(zip(paths, parents, strict=True)):
        if not -1 <= parent < node:
            raise ConfigError(
                f"parents[{node}] is {parent}; parents come before their children (-1 is the root)"
            )
        below[parent + 1] += path
    for node, (own, children) in enumerate(zip([1.0, *paths], below, strict=True)):
        if children > own + 1e-9:
            name = "the root" if node == 0 else f"node {node - 1}"
            raise ConfigError(
                f"the children of {name} are accepted with probability {children:g}, the node with {own:g}; "
                "path probabilities are those of whole paths from the root"
            )
