"""The suffix drafter: what usually follows these tokens, here and in earlier replies.

It keeps one counting suffix tree over the request's own tokens (the caller's prediction included) and one,
shared, over past replies; takes the
place of the longest run of last tokens that occurred before; and grows a draft tree from there, likeliest
path first. The idea of frequency-scored suffix trees for drafting is that of SuffixDecoding (Oliaro et al.
2024, arXiv 2411.04975); counts become probabilities by the escape estimate of PPM (method C, Moffat 1990):
a child seen c times of n, with d different children, has probability c / (n + d·e(L)), where e(L), the escape
weight after a match of L tokens, was measured on replies of SmolLM2-135M (benchmarks/replay_drafters.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

from paceline.config import Settings, check_float, check_int
from paceline.drafters.base import DraftContext, DrafterCapabilities
from paceline.drafters.past_replies import PastReplies
from paceline.drafters.scored_tree import ConfidenceTable, ScoredTree
from paceline.drafters.suffix_index import NOWHERE, SuffixIndex
from paceline.errors import ConfigError
from paceline.records import Draft, StepObservation
from paceline.tree import ROOT

# e(L) for a match of L = 0, 1, 2 … tokens; the last value holds for all longer matches.
_ESCAPE = (9.0, 2.7, 0.85, 0.5, 0.45, 0.37, 0.28, 0.28, 0.2, 0.2, 0.16, 0.16, 0.05)
_LONGEST = len(_ESCAPE) - 1
_NEGLIGIBLE = 0.02  # paths less likely than this are not worth a candidate

# A candidate on the heap: (-path probability, order of arrival, raw, token, parent node, place, match length)
_Candidate = tuple[float, int, float, int, int, int, int]


@dataclass(frozen=True, slots=True)
class SuffixOptions(Settings):
    """Options of the suffix drafter.

    ``min_match``: shortest run of last tokens that may be looked up (1–12). ``max_match``: longest one
    (min_match–12). ``min_probability``: a node is drafted only while its whole path is at least this likely,
    so drafts grow and shrink with confidence. ``shared_nodes``: bound on the tree nodes (about 260 bytes
    each) that hold past replies of all requests; 0 shares nothing. ``max_depth``: longest run counted.
    """

    min_match: int = 1
    max_match: int = 12
    min_probability: float = 0.2
    shared_nodes: int = 100_000
    max_depth: int = 24

    def __post_init__(self) -> None:
        check_int("suffix: min_match", self.min_match, 1, _LONGEST)
        check_int("suffix: max_match", self.max_match, self.min_match, _LONGEST)
        check_int("suffix: max_depth", self.max_depth, 2, 64)
        check_int("suffix: shared_nodes", self.shared_nodes, 0)
        check_float("suffix: min_probability", self.min_probability, 0.0, 1.0)
        if self.max_depth <= self.max_match:
            raise ConfigError(
                f"suffix: max_depth={self.max_depth} leaves nothing to draft behind a match of "
                f"max_match={self.max_match} tokens; raise max_depth or lower max_match"
            )


class SuffixSession:
    """Suffix drafting for one request."""

    __slots__ = (
        "_grown",
        "_index",
        "_num_indexed",
        "_num_past",
        "_options",
        "_past",
        "_prediction",
        "_prompt",
        "_reply",
        "_shared_match",
        "_tables",
        "_used",
    )

    def __init__(self, options: SuffixOptions, past: PastReplies, context: DraftContext) -> None:
        self._options = options
        self._past = past
        self._index = SuffixIndex(options.max_depth)
        self._prediction = context.prediction
        self._prompt = tuple(context.prompt_token_ids)
        self._reply: list[int] = []
        self._num_indexed = 0  # tokens of the reply; prediction and prompt go first, when a draft is wanted
        self._num_past = past.num_added
        self._shared_match = options.max_match
        self._tables = (ConfidenceTable(), ConfidenceTable())
        self._used = self._tables[0]
        self._grown = ScoredTree()

    def propose(self, budget: int) -> Draft:
        """Return the likeliest nodes whose path probability is at least ``min_probability``."""
        grown = self.grow(budget)
        return grown.draft(grown.count_above(self._options.min_probability, budget))

    def observe(self, step: StepObservation) -> None:
        """Learn how the last candidates fared and add the committed tokens."""
        self._grown.learn(self._used, step.committed)
        self._grown = ScoredTree()
        self._reply.extend(step.committed)
        self._shared_match += len(step.committed)

    def stop(self) -> None:
        """Hand the reply, with the prompt tokens just before it, to the shared replies."""
        if self._reply:
            self._past.add([*self._prompt[-self._options.max_match :], *self._reply])

    def _catch_up(self) -> None:
        """Index what came since the last draft."""
        index = self._index
        if not index.text:
            if self._prediction:
                index.extend(self._prediction)
                index.end_sequence()
            index.extend(self._prompt)
        index.extend(self._reply[self._num_indexed :])
        self._num_indexed = len(self._reply)
        self._past.take_in()

    def grow(self, limit: int) -> ScoredTree:
        """Return up to ``limit`` candidates, likeliest path first."""
        self._catch_up()
        tree = ScoredTree()
        self._grown = tree
        index, place, length = self._longest_place()
        if length < self._options.min_match or limit <= 0:
            return tree
        heap: list[_Candidate] = []
        order = self._expand(heap, 0, index, tree, ROOT, place, length)
        while heap and len(tree) < limit:
            path, _, raw, token, parent, below, matched = heappop(heap)
            node = tree.add(token, parent, raw, -path)
            order = self._expand(heap, order, index, tree, node, below, matched)
        return tree

    def grow_behind(self, path: Sequence[int], limit: int) -> ScoredTree:
        """Return candidates for what follows ``path``, tokens that another drafter put behind the text.

        Only a run that ends with the whole path and begins in the text counts, so that the path is borne out
        by a copy. These candidates are not counted as trials of this session's own.
        """
        self._catch_up()
        tree = ScoredTree()
        text, most = self._index.text, self._options.max_match - len(path)
        for matched in range(min(most, self._index.match_length + 1), 0, -1):
            place = self._index.find([*text[len(text) - matched :], *path])
            if place != NOWHERE:
                heap: list[_Candidate] = []
                self._used = self._tables[0]
                length = matched + len(path)
                order = self._expand(heap, 0, self._index, tree, ROOT, place, length)
                while heap and len(tree) < limit:
                    likely, _, raw, token, parent, below, depth = heappop(heap)
                    node = tree.add(token, parent, raw, -likely)
                    order = self._expand(heap, order, self._index, tree, node, below, depth)
                break
        return tree

    def _longest_place(self) -> tuple[SuffixIndex, int, int]:
        """Return the index, place and length of the longest match; the request's own tokens win a tie."""
        own = self._index
        length = min(own.match_length, self._options.max_match)
        index, place = own, own.active[length]
        self._used = self._tables[0]
        if self._num_past != self._past.num_added:
            # New replies may hold a longer match than the last search found.
            self._num_past = self._past.num_added
            self._shared_match = self._options.max_match
        longest_shared = 0
        for past in self._past.generations:
            tried = min(self._shared_match, self._options.max_match, len(own.text))
            found = NOWHERE
            while tried > max(length, 1):
                found = past.find(own.text[-tried:])
                if found != NOWHERE:
                    break
                tried -= 1
            longest_shared = max(longest_shared, tried)
            if found != NOWHERE:
                index, place, length = past, found, tried
                self._used = self._tables[1]
        # The next match is at most the tokens to come longer than this one.
        self._shared_match = longest_shared
        return index, place, length

    def _expand(
        self,
        heap: list[_Candidate],
        order: int,
        index: SuffixIndex,
        tree: ScoredTree,
        node: int,
        place: int,
        length: int,
    ) -> int:
        """Push the children of ``node`` that are likely enough; return the next order of arrival."""
        path = 1.0 if node == ROOT else tree.paths[node]
        escape = _ESCAPE[length] if length < _LONGEST else _ESCAPE[_LONGEST]
        table = self._used
        below = index.children[place] if place >= 0 else None
        if below is None:
            token, count, child = self._single(index, tree, node, place)
            if token >= 0:
                raw = count / (count + escape)
                likely = path * table.estimate(raw)
                if likely >= _NEGLIGIBLE:
                    heappush(heap, (-likely, order, raw, token, node, child, length + 1))
                    order += 1
            return order
        counts = index.counts
        total = sum([counts[child] for child in below.values()]) + escape * len(below)
        least = _NEGLIGIBLE * total / path
        for token, child in below.items():
            if counts[child] < least:
                continue
            raw = counts[child] / total
            likely = path * table.estimate(raw)
            heappush(heap, (-likely, order, raw, token, node, child, length + 1))
            order += 1
        return order

    def _single(self, index: SuffixIndex, tree: ScoredTree, node: int, place: int) -> tuple[int, int, int]:
        """Return (token, how often seen, place below) where the text goes on in one way; token -1 for none.

        Past the end of the request's own text the copy continues with the drafted path itself, which is how a
        repetition goes on.
        """
        position = index.tails[place] if place >= 0 else ~place
        count = index.counts[place] if place >= 0 else 1
        if node == ROOT and place >= 0 and index is self._index:
            count -= 1  # the run that ends the text has no continuation yet
        ahead = position - len(index.text)
        if ahead < 0:
            return index.text[position], count, ~(position + 1)
        if index is not self._index:
            return -1, 0, NOWHERE
        drafted = tree.path_tokens(node)
        return (drafted[ahead] if ahead < len(drafted) else -1), count, ~(position + 1)


class SuffixDrafter:
    """Opens :class:`SuffixSession` objects that share the replies of finished requests."""

    def __init__(self, options: SuffixOptions | None = None) -> None:
        self.options = options or SuffixOptions()
        self._past = PastReplies(self.options.shared_nodes, self.options.max_depth)

    @property
    def name(self) -> str:
        return "suffix"

    @property
    def capabilities(self) -> DrafterCapabilities:
        return DrafterCapabilities(can_branch=True)

    def start(self, context: DraftContext) -> SuffixSession:
        """Open a session. Its first draft indexes the prompt, about 2 µs per token."""
        return SuffixSession(self.options, self._past, context)
