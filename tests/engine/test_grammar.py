"""Grammars under speculation: the same replies whatever drafts, legal ones, ended where the grammar ends."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llguidance")

from paceline.drafters.scripted import ScriptedDrafter
from paceline.errors import ConfigError, GrammarError
from paceline.records import Draft
from paceline.sampling.grammar import Grammar, GrammarCompiler, GrammarState
from paceline.sampling.params import SamplingParams
from paceline.tree import TokenTree
from support.engines import EOS, LetterDecoder, chain_script, make_rig, random_script, run_alone, scripted
from support.fake_executor import FakeExecutor

PATTERN = "(cb|bcd?|[e-h]{2}k)+l"


class Letters(LetterDecoder):
    """The fake executor's vocabulary as a tokenizer: EOS and eleven letters."""

    vocab_size = FakeExecutor().vocab_size
    eos_token_ids = frozenset({EOS})
    eos_token_id = EOS
    bos_token_id = None

    def encode(self, text: str, *, add_bos: bool) -> list[int]:
        return [ord(letter) - ord("a") for letter in text if ord("a") < ord(letter) <= ord("l")]


@pytest.fixture(scope="module")
def compiler() -> GrammarCompiler:
    return GrammarCompiler(Letters())  # type: ignore[arg-type]


def text_of(tokens: tuple[int, ...]) -> str:
    return "".join(chr(ord("a") + token) for token in tokens if token != EOS)


PARAMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "coupled": {"temperature": 1.0, "seed": 5},
    "penalised": {"temperature": 0.0, "frequency_penalty": 1.5, "logit_bias": {2: 3.0}},
}


@pytest.mark.parametrize("params", PARAMS.values(), ids=PARAMS)
@pytest.mark.parametrize("right", [0.3, 0.9])
def test_drafts_change_nothing(compiler: GrammarCompiler, params: dict[str, Any], right: float) -> None:
    executor = FakeExecutor()
    grammar = compiler.regex(PATTERN)
    chosen = SamplingParams(**params, max_tokens=30, grammar=grammar)
    for seed in range(6):
        prompt = [1, 2 + seed]
        plain = run_alone(prompt, chosen)
        drafted = SamplingParams(
            **params, max_tokens=30, grammar=grammar, drafter="scripted", num_draft_tokens=6
        )
        rig = make_rig(scripted(random_script(seed, right, 0.4, executor)), executor=executor)
        rig.engine.add_request("0", prompt, drafted)
        reply = rig.finish()["0"]
        assert reply.token_ids == plain.token_ids
        assert reply.logit_hashes == plain.logit_hashes
        if reply.finish_reason == "stop":
            assert re.fullmatch(PATTERN, text_of(reply.token_ids))
            assert reply.token_ids[-1] == EOS


def test_a_grammar_ends_a_reply_inside_a_block(compiler: GrammarCompiler) -> None:
    """The draft goes on behind the end; everything behind it is cut, and EOS is the last token."""
    script = chain_script([1, 2, EOS, 3, 4])
    rig = make_rig(scripted(script))
    grammar = compiler.regex("bc")
    params = SamplingParams(
        temperature=0, max_tokens=9, grammar=grammar, drafter="scripted", num_draft_tokens=5
    )
    rig.engine.add_request("0", [5, 6], params)
    reply = rig.finish()["0"]
    assert reply.token_ids == (1, 2, EOS)
    assert reply.finish_reason == "stop"
    assert reply.metrics.num_verify_steps == 1
    assert reply.metrics.num_draft_tokens == 3  # the two behind the end were not even verified


def test_unseeded_draws_follow_the_grammar(compiler: GrammarCompiler) -> None:
    rig = make_rig(scripted(chain_script([1, 2, 1, 2])))
    grammar = compiler.regex("(bc|d){3}")
    params = SamplingParams(temperature=2.0, max_tokens=20, grammar=grammar, drafter="scripted")
    for name in "abcdef":
        rig.engine.add_request(name, [3, 4], params)
    for reply in rig.finish().values():
        assert re.fullmatch("(bc|d){3}", text_of(reply.token_ids))


def test_drafts_are_cut_at_the_first_illegal_token(compiler: GrammarCompiler) -> None:
    state = compiler.regex("ab|bcd").start()
    legal = Draft.chain([1, 2, 3])
    assert state.cut(legal) is legal
    assert state.cut(Draft.chain([1, 3, 2])).tree.tokens == (1,)
    assert len(state.cut(Draft.chain([5]))) == 0
    tree = TokenTree((5, 1, 2, 2, 3, 3), (-1, -1, 0, 1, 3, 1))
    assert state.cut(Draft(tree)).tree == TokenTree((1, 2, 3), (-1, 0, 1))


def test_a_mask_leaves_the_state_as_it_was(compiler: GrammarCompiler) -> None:
    state = compiler.regex("bcd").start()
    row = np.zeros(Letters.vocab_size + 3, np.float32)  # a model with rows that pad the vocabulary
    for path, expected in (((), [1]), ((1,), [2]), ((1, 2, 3), [EOS]), ((), [1])):
        masked = row.copy()
        state.mask(masked, path)
        assert np.flatnonzero(np.isfinite(masked)).tolist() == expected
    with pytest.raises(GrammarError, match="token 3"):
        state.mask(row.copy(), (1, 3))
    masked = row.copy()
    state.mask(masked, (1, 2, 3, EOS))
    assert np.isfinite(masked).all()


class Broken(GrammarState):
    """Fails when the third token is chosen."""

    count = 0

    def fail_at_third(self) -> None:
        self.count += 1
        if self.count > 2:
            raise GrammarError("too complex")

    def mask(self, row: Any, path: Any) -> None:
        self.fail_at_third()
        super().mask(row, path)


class BrokenAtCommit(Broken):
    """Fails when the third token is committed."""

    def mask(self, row: Any, path: Any) -> None:
        GrammarState.mask(self, row, path)

    def append(self, token: int) -> None:
        self.fail_at_third()
        super().append(token)


@pytest.mark.parametrize("failing", [Broken, BrokenAtCommit])
def test_a_grammar_that_fails_ends_its_request_alone(
    compiler: GrammarCompiler, monkeypatch: pytest.MonkeyPatch, failing: type[Broken]
) -> None:
    """One that failed while a token was committed, not chosen, once ended every request of the step."""
    grammar = compiler.regex("[b-l]{20}")
    broken = compiler.regex("[b-l]{20}")

    def start(self: Grammar) -> GrammarState:
        kind = failing if self is broken else GrammarState
        return kind(self._matcher.deep_copy(), self._vocab_size, self._eos_ids)

    monkeypatch.setattr(Grammar, "start", start)
    rig = make_rig({"scripted": ScriptedDrafter(chain_script([]))})
    params = {"temperature": 0.0, "max_tokens": 8}
    rig.engine.add_request("good", [1, 2], SamplingParams(**params, grammar=grammar))
    rig.engine.add_request("bad", [1, 2], SamplingParams(**params, grammar=broken))
    done = rig.finish()
    assert len(done["good"].token_ids) == 8
    assert done["bad"].finish_reason == "abort"
    assert isinstance(rig.deltas["bad"][-1].error, GrammarError)
    rig.engine.check_integrity()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda c: c.regex("((("), "cannot be used"),
        (lambda c: c.regex("a" * 100_000), "at most"),
        (lambda c: c.regex("(" * 30_000 + ")" * 30_000), "cannot be used"),
        (lambda c: c.lark("start: nothing"), "cannot be used"),
        (lambda c: c.json_schema({"type": "nonsense"}), "cannot be used"),
        (lambda c: c.json_schema({"$ref": "http://example.com/x"}), "cannot be used"),
    ],
    ids=["open", "long", "deep", "unknown rule", "unknown type", "outside reference"],
)
def test_bad_grammars_are_refused(compiler: GrammarCompiler, make: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make(compiler)


def test_settings_that_contradict_a_grammar(compiler: GrammarCompiler) -> None:
    grammar = compiler.regex("b")
    for wrong in ({"min_tokens": 2}, {"ignore_eos": True}):
        with pytest.raises(ConfigError, match="contradicts"):
            SamplingParams(**wrong, grammar=grammar)
    with pytest.raises(ConfigError, match="GrammarCompiler"):
        SamplingParams(grammar="b")  # type: ignore[arg-type]
