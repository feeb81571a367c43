"""Replies that must follow a grammar: which tokens are legal where, by the ``llguidance`` package.

A grammar is compiled once (:class:`GrammarCompiler`) and started anew by each request. Its mask is one more
processor: it acts on every verified row, and on the drafter's draws, so the law of the output is that of the
model under the grammar whatever drafts. Where the grammar has ended only the end-of-sequence tokens are
legal.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from paceline.errors import ConfigError, GrammarError
from paceline.records import Draft, FloatArray
from paceline.tree import ROOT, TokenTree

if TYPE_CHECKING:
    from llguidance import LLMatcher, LLTokenizer

    from paceline.models.tokenizer import Tokenizer

Kind = Literal["json_schema", "regex", "lark"]
MAX_SOURCE = 65536
"""Characters of a grammar."""
MAX_SYMBOLS = 50_000
MAX_LEXER_STATES = 50_000
"""A tenth and a fifth of what ``llguidance`` allows: grammars come from strangers; a state has 1 to 2 kB."""


class GrammarState:
    """Where one reply is in its grammar. Not thread-safe."""

    __slots__ = ("_eos_ids", "_matcher", "_vocab_size")

    def __init__(self, matcher: LLMatcher, vocab_size: int, eos_ids: frozenset[int]) -> None:
        self._matcher = matcher
        self._vocab_size = vocab_size
        self._eos_ids = eos_ids

    def append(self, token: int) -> None:
        """Take one committed token. Raises ``GrammarError`` when it is illegal."""
        if not self._matcher.consume_token(token):
            raise GrammarError(f"the grammar does not go on with token {token}: {self._why()}")

    def mask(self, row: FloatArray, path: Sequence[int]) -> None:
        """Put minus infinity at all tokens of ``row`` float32 [V] that are illegal behind ``path``.

        Behind an end of sequence nothing is ever committed, so nothing is masked there. Raises
        ``GrammarError`` when ``path`` is illegal itself, or the grammar became too complex.
        """
        if not self._eos_ids.isdisjoint(path):
            return
        taken = self._matcher.try_consume_tokens(list(path)) if path else 0
        try:
            if taken < len(path):
                raise GrammarError(f"the grammar does not go on with token {path[taken]}: {self._why()}")
            bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
            if self._matcher.is_error():
                raise GrammarError(f"the grammar cannot be followed any further: {self._why()}")
        finally:
            if taken:
                self._matcher.rollback(taken)
        legal = np.unpackbits(bits, bitorder="little")[: self._vocab_size]
        row[: len(legal)][legal == 0] = -np.inf
        row[len(legal) :] = -np.inf

    def cut(self, draft: Draft) -> Draft:
        """Return ``draft`` without its illegal nodes and what follows them."""
        tree = draft.tree
        kept: list[int] = []
        places: dict[int, int] = {ROOT: ROOT}
        paths: dict[int, list[int]] = {ROOT: []}
        for node, (token, parent) in enumerate(zip(tree.tokens, tree.parents, strict=True)):
            if parent not in places:
                continue
            path = [*paths[parent], token]
            if self._matcher.validate_tokens(path) == len(path):
                places[node], paths[node] = len(kept), path
                kept.append(node)
        if len(kept) == len(tree):
            return draft
        tokens = tuple(tree.tokens[node] for node in kept)
        parents = tuple(places[tree.parents[node]] for node in kept)
        laws = None if draft.laws is None else tuple(draft.laws[node] for node in kept)
        return Draft(TokenTree(tokens, parents), laws)

    def _why(self) -> str:
        return self._matcher.get_error() or "it is illegal there"


@dataclass(frozen=True, slots=True)
class Grammar:
    """A compiled grammar, ready to be started by any number of requests of one model."""

    kind: Kind
    _matcher: Any
    _vocab_size: int
    _eos_ids: frozenset[int]

    def start(self) -> GrammarState:
        """Return the state in front of the first token."""
        return GrammarState(self._matcher.deep_copy(), self._vocab_size, self._eos_ids)


class GrammarCompiler:
    """Compiles grammars for one vocabulary. Building one takes a second for a large one: keep it."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        """Raises ``ConfigError`` when ``llguidance`` is not installed."""
        try:
            import llguidance
        except ImportError as error:
            raise ConfigError(
                "grammars need the package llguidance: install it with  pip install 'paceline[server]'"
            ) from error
        wrapped = llguidance.TokenizerWrapper(_Vocabulary(tokenizer))
        self._tokenizer: LLTokenizer = llguidance.LLTokenizer(
            wrapped, n_vocab=tokenizer.vocab_size, eos_token=sorted(tokenizer.eos_token_ids)
        )
        self._vocab_size = tokenizer.vocab_size
        self._eos_ids = tokenizer.eos_token_ids

    def json_schema(self, schema: Mapping[str, Any]) -> Grammar:
        """Compile a JSON schema. Raises ``ConfigError`` for one that is invalid or not supported."""
        from llguidance import LLMatcher

        text = json.dumps(schema)
        _check_size("the JSON schema", text)
        try:
            # One way to write each value, the one models saw most: free white space invites endless blanks.
            grammar = LLMatcher.grammar_from_json_schema(
                text, overrides={"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
            )
        except ValueError as error:
            raise ConfigError(f"the JSON schema cannot be used: {error}") from error
        return self._compile("json_schema", grammar)

    def regex(self, pattern: str) -> Grammar:
        """Compile a regular expression. Raises ``ConfigError``."""
        from llguidance import LLMatcher

        _check_size("the regular expression", pattern)
        return self._compile("regex", LLMatcher.grammar_from_regex(pattern))

    def lark(self, text: str) -> Grammar:
        """Compile a grammar in Lark's notation. Raises ``ConfigError``."""
        from llguidance import LLMatcher

        _check_size("the grammar", text)
        return self._compile("lark", LLMatcher.grammar_from_lark(text))

    def _compile(self, kind: Kind, grammar: str) -> Grammar:
        from llguidance import LLMatcher, LLParserLimits

        limits = LLParserLimits(
            max_grammar_size=MAX_SYMBOLS, max_lexer_states=MAX_LEXER_STATES, verbose_errors=False
        )
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if matcher.is_error():
            raise ConfigError(f"the {kind.replace('_', ' ')} cannot be used: {matcher.get_error():.300}")
        return Grammar(kind, matcher, self._vocab_size, self._eos_ids)


class _Vocabulary:
    """A tokenizer in the form that ``llguidance`` asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        ids = range(tokenizer.vocab_size)
        self.tokens = [tokenizer.token_bytes(token, skip_special=False) for token in ids]
        self.special_token_ids = [token for token in ids if not tokenizer.token_bytes(token)]
        self.eos_token_id = tokenizer.eos_token_id
        self.bos_token_id = tokenizer.bos_token_id
        self._tokenizer = tokenizer

    def __call__(self, text: bytes | str) -> list[int]:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(plain, add_bos=False)


def _check_size(what: str, text: str) -> None:
    if len(text) > MAX_SOURCE:
        raise ConfigError(f"{what} has {len(text)} characters: give at most {MAX_SOURCE}")
