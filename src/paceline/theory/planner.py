"""The plan of one request's draft: drafter, depth and tree with the most expected tokens per second.

A step commits, on average, one token and each drafted node with the probability that its whole path is
accepted; it costs the forward's rows, the drafting, and what the rest of the batch costs. The plan maximises
the tokens of the whole step ÷ its cost, and drafting nothing is one of the candidates. Costs and speeds are
in one-row forwards (:class:`~paceline.theory.cost_table.CostTable`): plain decoding alone has a speed of 1 ÷
(1 + fixed cost). No clock is read. Of several requests of one forward see ``batch_planner``.

>>> table = CostTable(((1, 1.0), (4, 1.3), (8, 2.0)), 0.005, draft_costs={"eagle3": DraftCost(0.02, 0.03)})
>>> plan = best_plan(table, [chain_offer("eagle3", [0.8, 0.7, 0.6, 0.5])])
>>> plan.drafter, plan.nodes
('eagle3', (0, 1, 2))
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from paceline.errors import ConfigError
from paceline.theory.cost_table import CostTable, DraftCost
from paceline.theory.laws import check_count, check_unit

ROOT = -1


@dataclass(frozen=True, slots=True)
class StepLoad:
    """What a step carries besides the request that is planned.

    ``rows``: of other requests (roots, prompt chunks, their drafts). ``tokens``: what these are expected to
    commit. ``cost``: their drafting and what was spent already, in one-row forwards.
    """

    rows: int = 0
    tokens: float = 0.0
    cost: float = 0.0

    def __post_init__(self) -> None:
        check_count(self.rows, "rows", 0, "0: the request is alone")
        if not (self.tokens >= 0.0 and self.cost >= 0.0):
            raise ConfigError(f"tokens={self.tokens!r}, cost={self.cost!r}: both are at least 0")


ALONE = StepLoad()


@dataclass(frozen=True, slots=True)
class Offer:
    """Nodes a drafter could draft; a plan takes some of them, each with all nodes above it.

    ``paths[i]``: probability that the whole path down to node i is accepted; ``parents[i]``: its parent, -1
    for the root, parents first. ``is_drafted``: the nodes are there already, so drafting costs no more (what
    it has cost belongs into :attr:`StepLoad.cost`).

    Raises ``ConfigError`` for a tree that is none, or a node likelier than its parent.
    """

    drafter: str
    paths: tuple[float, ...]
    parents: tuple[int, ...]
    is_drafted: bool = False

    def __post_init__(self) -> None:
        if len(self.paths) != len(self.parents):
            raise ConfigError(f"{len(self.paths)} paths but {len(self.parents)} parents; give one of each")
        for node, (path, parent) in enumerate(zip(self.paths, self.parents, strict=True)):
            check_unit(path, f"paths[{node}]")
            if not ROOT <= parent < node:
                raise ConfigError(f"parents[{node}] is {parent}; parents come first (-1 is the root)")
            if parent != ROOT and path > self.paths[parent]:
                raise ConfigError(f"paths[{node}] is {path}, more than {self.paths[parent]} of its parent")

    @property
    def depths(self) -> list[int]:
        """Depth of each node, 1 behind the root."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return depths


@dataclass(frozen=True, slots=True)
class DraftPlan:
    """What to draft in a step.

    ``nodes``: of the offer, likeliest first and parents before children; empty for ``none``. ``depth``:
    levels they take. ``expected_tokens``: of this request, recovered or bonus token included. ``cost``: of
    the whole step. ``speed``: tokens of the whole step per one-row forward. ``gain``: speed ÷ speed of the
    same step without this draft.
    """

    drafter: str
    nodes: tuple[int, ...]
    depth: int
    expected_tokens: float
    cost: float
    speed: float
    gain: float

    def tokens_per_second(self, table: CostTable) -> float:
        """Return the speed on the machine of ``table``."""
        return self.speed / table.row_seconds


def best_plan(
    table: CostTable,
    offers: Sequence[Offer],
    *,
    load: StepLoad = ALONE,
    context: int = 0,
    limit: int = 64,
    min_gain: float = 0.0,
) -> DraftPlan:
    """Return the plan with the most expected tokens per second out of all node sets of all offers.

    ``context``: tokens the request has in the cache. ``limit``: most nodes. A draft must gain at least
    ``min_gain`` (0.02: two per cent) over none. On a tie the earlier offer and the smaller draft win. Raises
    ``ConfigError`` for a drafter whose cost ``table`` does not know.

    Exact: with cost and number of levels given, the best n nodes are the n likeliest of those levels, which
    hold their own parents; so all (levels, n) are tried.
    """
    check_count(limit, "limit", 0, "0 drafts nothing")
    row = table.row_surcharge(context)
    fixed = table.step_cost + table.sequence_surcharge(context) + row + load.cost
    cost = fixed + table.r(load.rows + 1)
    plain = (load.tokens + 1.0) / cost
    best, least = DraftPlan("none", (), 0, 1.0, cost, plain, 1.0), plain * (1.0 + min_gain)
    for offer in offers:
        drafting = DraftCost(0.0) if offer.is_drafted else table.cost_of(offer.drafter)
        for bound, order in _node_orders(offer):
            nodes = order[:limit]
            costs = [
                fixed + table.r(load.rows + 1 + count) + count * row + drafting.at(bound, count)
                for count in range(1, len(nodes) + 1)
            ]
            paths = [offer.paths[node] for node in nodes]
            count, speed = best_count(paths, costs, load.tokens + 1.0, max(best.speed, least))
            if count:
                tokens, cost = 1.0 + sum(paths[:count]), costs[count - 1]
                best = DraftPlan(
                    offer.drafter, tuple(nodes[:count]), bound, tokens, cost, speed, speed / plain
                )
    return best


def best_count(
    paths: Sequence[float], costs: Sequence[float], tokens: float, least: float
) -> tuple[int, float]:
    """Return the n whose first n nodes promise the highest speed above ``least``, and that speed.

    ``costs[n - 1]``: of the step with n of them. ``tokens``: that it commits without any. (0, ``least``) when
    no n is faster; on a tie the smaller draft wins. What is planned beforehand and what ``auto`` decides in
    each step (``drafters/verify_cost``) both end here; 2 µs for seven nodes.
    """
    best, best_speed = 0, least
    for count, (path, cost) in enumerate(zip(paths, costs, strict=True), start=1):
        tokens += path
        if tokens > best_speed * cost:
            best, best_speed = count, tokens / cost
    return best, best_speed


def _node_orders(offer: Offer) -> Iterator[tuple[int, list[int]]]:
    """Yield for each number of levels the nodes on these, likeliest first and parents before children."""
    depths = offer.depths
    order = sorted(range(len(depths)), key=lambda node: -offer.paths[node])
    for bound in sorted(set(depths)):
        yield bound, [node for node in order if depths[node] <= bound]


def chain_offer(drafter: str, acceptance: Sequence[float], *, is_drafted: bool = False) -> Offer:
    """Return the chain of a drafter. ``acceptance[i]``: that depth i + 1 is kept given that depth i was."""
    paths: list[float] = []
    for depth, rate in enumerate(acceptance):
        above = paths[-1] if paths else 1.0
        paths.append(above * check_unit(rate, f"acceptance[{depth}]"))
    return Offer(drafter, tuple(paths), tuple(range(-1, len(paths) - 1)), is_drafted)


def tree_offer(drafter: str, acceptance: Sequence[Sequence[float]], limit: int) -> Offer:
    """Return the nodes that a best tree of at most ``limit`` nodes is made of, by rank at each depth.

    ``acceptance[i][j]``: probability that the j-th choice of the drafter at depth i + 1 is right, given that
    its parent was (the positional tree of Chen et al. 2024, Sequoia, arXiv 2402.12374). For each number of
    levels the ``limit`` likeliest nodes are in it, so that no node of a best plan is missing.

    Raises ``ConfigError`` when the choices of one depth are right with more than probability 1.
    """
    check_count(limit, "limit", 0, "0 drafts nothing")
    ranks = [
        sorted((check_unit(rate, f"acceptance[{depth}]") for rate in rates), reverse=True)
        for depth, rates in enumerate(acceptance)
    ]
    for depth, rates in enumerate(ranks):
        if sum(rates) > 1.0 + 1e-9:
            raise ConfigError(f"acceptance[{depth}] sums to {sum(rates):g}; only one choice can be right")
    nodes: set[tuple[int, ...]] = set()
    for levels in range(1, len(ranks) + 1):
        nodes.update(_likeliest(ranks[:levels], limit))
    # Shorter first, so that parents come before their children.
    ordered = sorted(nodes, key=lambda node: (len(node), node))
    index = {node: position for position, node in enumerate(ordered)}
    parents = tuple(index[node[:-1]] if len(node) > 1 else ROOT for node in ordered)
    paths: list[float] = []
    for node, parent in zip(ordered, parents, strict=True):
        above = 1.0 if parent == ROOT else paths[parent]
        paths.append(above * ranks[len(node) - 1][node[-1]])
    return Offer(drafter, tuple(paths), parents)


def _likeliest(ranks: Sequence[Sequence[float]], limit: int) -> list[tuple[int, ...]]:
    """Return the ``limit`` likeliest nodes, each as the ranks along its path, best first.

    A heap holds, of each node found, its first child and its next sibling: nothing else can come next.
    """
    found: list[tuple[int, ...]] = []
    heap: list[tuple[float, float, tuple[int, ...]]] = [(-ranks[0][0], 1.0, (0,))] if ranks[0] else []
    while heap and len(found) < limit:
        path, above, node = heapq.heappop(heap)
        found.append(node)
        depth, rank = len(node), node[-1]
        if rank + 1 < len(ranks[depth - 1]):
            sibling = (*node[:-1], rank + 1)
            heapq.heappush(heap, (-above * ranks[depth - 1][rank + 1], above, sibling))
        if depth < len(ranks) and ranks[depth]:
            heapq.heappush(heap, (path * ranks[depth][0], -path, (*node, 0)))
    return found
