"""Draft candidates with the probability that each will be accepted, and how those estimates learn.

A drafter that can estimate grows a :class:`ScoredTree`, best node first. Every prefix of its node list is a
valid tree, so choosing how much to draft is choosing how many nodes to keep. A :class:`ConfidenceTable` turns
a drafter's raw estimates into the acceptance that this request has really shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from paceline.control.estimates import DepthEstimates
from paceline.records import EMPTY_DRAFT, Draft
from paceline.tree import ROOT, TokenTree

_NUM_BINS = 8
_PRIOR_TRIALS = 6.0
_KEEP = 0.95  # weight left to earlier trials after one more: about the last 20 of a bin count


class ConfidenceTable:
    """Acceptance by raw estimate: exponentially weighted counts in bins, drawn to the raw estimate itself."""

    __slots__ = ("_accepted", "_tried")

    def __init__(self) -> None:
        self._accepted = [0.0] * _NUM_BINS
        self._tried = [0.0] * _NUM_BINS

    def estimate(self, raw: float) -> float:
        """Return the acceptance to expect for a raw estimate in [0, 1]: the mean of a beta posterior.

        The prior is worth six trials at ``raw``; the data are the weighted trials of its bin.
        """
        index = min(int(raw * _NUM_BINS), _NUM_BINS - 1)
        return (self._accepted[index] + _PRIOR_TRIALS * raw) / (self._tried[index] + _PRIOR_TRIALS)

    def learn(self, raw: float, accepted: bool) -> None:
        """Count one trial of a node whose parent was accepted."""
        index = min(int(raw * _NUM_BINS), _NUM_BINS - 1)
        self._tried[index] = self._tried[index] * _KEEP + 1.0
        self._accepted[index] = self._accepted[index] * _KEEP + accepted


class ScoredTree:
    """A growing token tree. Nodes are added in falling order of ``paths``, parents before children.

    Per node: ``tokens``; ``parents`` (``ROOT`` on top); ``raws``: the drafter's estimate that the node is
    accepted once its parent is; ``paths``: the estimated probability that the whole path to it is accepted.
    """

    __slots__ = ("parents", "paths", "raws", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.raws: list[float] = []
        self.paths: list[float] = []

    def __len__(self) -> int:
        return len(self.tokens)

    def add(self, token: int, parent: int, raw: float, path: float) -> int:
        """Append a node and return its index."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.raws.append(raw)
        self.paths.append(path)
        return len(self.tokens) - 1

    def path_tokens(self, node: int) -> list[int]:
        """Return the tokens from the top down to ``node``."""
        tokens: list[int] = []
        while node != ROOT:
            tokens.append(self.tokens[node])
            node = self.parents[node]
        tokens.reverse()
        return tokens

    def count_above(self, threshold: float, limit: int) -> int:
        """Return how many leading nodes (at most ``limit``) have a path probability from ``threshold`` up."""
        count = 0
        for path in self.paths[:limit]:
            if path < threshold:
                break
            count += 1
        return count

    def draft(self, count: int) -> Draft:
        """Return the first ``count`` nodes as a certain draft."""
        if count <= 0 or not self.tokens:
            return EMPTY_DRAFT
        return Draft(TokenTree(tuple(self.tokens[:count]), tuple(self.parents[:count])))

    def learn(self, table: ConfidenceTable, committed: Sequence[int]) -> None:
        """Tell ``table`` how the nodes fared against the tokens that were really committed.

        A node counts once its parent lies on the committed path, whether or not it was verified: what the
        target says after an accepted token is known either way. So an estimate that led to no draft still
        learns, for free.
        """
        if not self.tokens:
            return
        depth_of = {ROOT: 0}
        for node, parent in enumerate(self.parents):
            depth = depth_of.get(parent)
            if depth is None or depth >= len(committed):
                continue
            accepted = committed[depth] == self.tokens[node]
            table.learn(self.raws[node], accepted)
            if accepted:
                depth_of[node] = depth + 1


def merge_trees(trees: Sequence[ScoredTree], limit: int) -> ScoredTree:
    """Return the ``limit`` likeliest nodes of all ``trees`` in one tree, best first.

    Trees that hold the same path bear each other out: it fails only if each of them is wrong, as if they
    erred independently, 1 - (1 - a)(1 - b). (Taking the larger of the two instead gave 1 % fewer tokens per
    second in replays.) No path becomes likelier than its beginning, so the best nodes always form a tree.
    """
    filled = [tree for tree in trees if tree.tokens]
    if len(filled) == 1 and len(filled[0]) <= limit:
        return filled[0]
    union = ScoredTree()
    known: dict[tuple[int, int], int] = {}
    for tree in filled:
        place = {ROOT: ROOT}
        for node, (token, parent, raw, path) in enumerate(
            zip(tree.tokens, tree.parents, tree.raws, tree.paths, strict=True)
        ):
            key = (place[parent], token)
            found = known.get(key)
            if found is None:
                found = known[key] = union.add(token, key[0], raw, path)
            else:
                above = 1.0 if key[0] == ROOT else union.paths[key[0]]
                union.paths[found] = min(above, 1.0 - (1.0 - union.paths[found]) * (1.0 - path))
            place[node] = found
    return best_nodes(union, limit)


def best_nodes(tree: ScoredTree, limit: int) -> ScoredTree:
    """Return the ``limit`` likeliest nodes in falling order; parents win ties with their children."""
    paths = tree.paths
    order = sorted(range(len(paths)), key=lambda node: (-paths[node], node))[:limit]
    best = ScoredTree()
    place = {ROOT: ROOT}
    for node in order:
        place[node] = best.add(tree.tokens[node], place[tree.parents[node]], tree.raws[node], paths[node])
    return best


def corrected(tree: ScoredTree, estimates: DepthEstimates) -> ScoredTree:
    """Return the tree with the probabilities that its drafter has borne out at each depth, best first."""
    paths = estimates.paths(tree.parents, tree.paths)
    likely = ScoredTree()
    likely.tokens, likely.parents, likely.raws, likely.paths = tree.tokens, tree.parents, tree.raws, paths
    if all(above >= below for above, below in pairwise(paths)):
        return likely
    return best_nodes(likely, len(likely))


def likeliest_leaf(tree: ScoredTree) -> int:
    """Return the node at the end of the path that starts at the root and follows the likeliest child."""
    leaf = ROOT
    for node, parent in enumerate(tree.parents):
        if parent == leaf:  # nodes come best first, so this is the likeliest child
            leaf = node
    return leaf


def graft(tree: ScoredTree, node: int, more: ScoredTree) -> ScoredTree:
    """Return ``tree`` with ``more``, whose paths begin behind ``node``, hung below it; best first."""
    whole = ScoredTree()
    whole.tokens, whole.parents = list(tree.tokens), list(tree.parents)
    whole.raws, whole.paths = list(tree.raws), list(tree.paths)
    known = {pair: i for i, pair in enumerate(zip(tree.parents, tree.tokens, strict=True))}
    place = {ROOT: node}
    for index, (token, parent) in enumerate(zip(more.tokens, more.parents, strict=True)):
        path = tree.paths[node] * more.paths[index]
        found = known.get((place[parent], token), ROOT)
        if found == ROOT:
            found = whole.add(token, place[parent], more.raws[index], path)
        else:
            whole.paths[found] = max(whole.paths[found], path)
        place[index] = found
    return best_nodes(whole, len(whole))
