"""Stop rules inside accepted blocks: one fifth of what users of other systems report breaks here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paceline.engine.outputs import CompletionOutput
from paceline.sampling.params import SamplingParams
from support.engines import EOS, Rig, follow_script, make_rig, run_alone, scripted
from support.fake_executor import FakeExecutor, path_logits

PROMPT = (1, 2, 3)


def greedy_text(length: int, executor: FakeExecutor) -> list[int]:
    """The target's own greedy continuation, EOS passed over as an ordinary token."""
    tokens = list(PROMPT)
    for _ in range(length):
        tokens.append(int(path_logits(tuple(tokens), executor.vocab_size, executor.spread).argmax()))
    return tokens


EXECUTOR = FakeExecutor(vocab_size=12)
TEXT = greedy_text(40, EXECUTOR)
REPLY = TEXT[len(PROMPT) :]
LETTERS = "".join(chr(97 + token) for token in REPLY)


def drafted(k: int = 8, **chosen: Any) -> tuple[CompletionOutput, Rig]:
    """Run greedily with drafts that are all right, so that stop rules fire inside accepted blocks."""
    rig = make_rig(scripted(follow_script(TEXT)))
    chosen = {"temperature": 0.0, "max_tokens": 30, "ignore_eos": True} | chosen
    rig.engine.add_request("0", PROMPT, SamplingParams(drafter="scripted", num_draft_tokens=k, **chosen))
    return rig.finish()["0"], rig


def test_a_right_draft_is_accepted_whole() -> None:
    reply, _ = drafted(max_tokens=9)
    assert list(reply.token_ids) == REPLY[:9]
    assert reply.metrics.num_verify_steps == 1
    assert reply.metrics.num_accepted_tokens == 8
    assert reply.origins[-1] == "bonus"


@pytest.mark.parametrize("max_tokens", [1, 2, 5, 8, 9, 10, 17])
def test_max_tokens(max_tokens: int) -> None:
    reply, _ = drafted(max_tokens=max_tokens)
    assert list(reply.token_ids) == REPLY[:max_tokens]
    assert (reply.finish_reason, reply.stop_reason) == ("length", None)


def test_context_length_ends_the_reply() -> None:
    rig = make_rig(scripted(follow_script(TEXT)), max_model_len=12)
    params = SamplingParams(temperature=0, max_tokens=None, ignore_eos=True, drafter="scripted")
    rig.engine.add_request("0", PROMPT, params)
    reply = rig.finish()["0"]
    assert len(PROMPT) + len(reply.token_ids) == 12
    assert reply.finish_reason == "length"


@pytest.mark.parametrize("place", [0, 3, 5])
def test_a_stop_id_drops_everything_behind_it(place: int) -> None:
    token = REPLY[place]
    first = REPLY.index(token)
    reply, rig = drafted(stop_token_ids=[token], logprobs=1)
    assert list(reply.token_ids) == REPLY[: first + 1]
    assert reply.text == LETTERS[:first]
    assert (reply.finish_reason, reply.stop_reason) == ("stop", token)
    assert reply.logprobs is not None
    assert len(reply.origins) == len(reply.logprobs) == first + 1
    assert (
        reply.metrics.num_accepted_tokens
        == sum(origin == "accepted" for origin in reply.origins)
        == first + 1
    )
    assert sum(reply.metrics.accepted_at) == first + 1
    assert rig.engine.num_free_blocks == rig.executor.num_blocks


def test_include_stop_str_in_output_covers_stop_ids() -> None:
    first = REPLY.index(REPLY[3])
    reply, _ = drafted(stop_token_ids=[REPLY[3]], include_stop_str_in_output=True)
    assert reply.text == LETTERS[: first + 1]


@pytest.mark.parametrize("include", [False, True])
@pytest.mark.parametrize(("start", "length"), [(2, 1), (2, 3), (6, 4), (0, 2)])
def test_a_stop_string_across_tokens(start: int, length: int, include: bool) -> None:
    stop = LETTERS[start : start + length]
    found = LETTERS.index(stop)
    reply, _ = drafted(stop=[stop], include_stop_str_in_output=include)
    assert list(reply.token_ids) == REPLY[: found + length]
    assert reply.text == LETTERS[: found + length if include else found]
    assert (reply.finish_reason, reply.stop_reason) == ("stop", stop)


def test_eos_inside_an_accepted_block() -> None:
    """EOS is forced by a bias that only wins where the text would be EOS anyway."""
    text = [*TEXT[:6], EOS, *TEXT[7:]]

    class EndsThere(FakeExecutor):
        def forward(self, batch: Any) -> Any:
            logits = super().forward(batch)
            for index, row in enumerate(batch.logit_rows.tolist()):
                tail = batch.tail_offsets[row + 1] - batch.tail_offsets[row]
                if batch.prefix_lengths[row] + tail == 6:
                    logits[index, EOS] = 100.0
            return logits

    for ignore in (False, True):
        rig = make_rig(scripted(follow_script(text)), executor=EndsThere())
        params = SamplingParams(temperature=0, max_tokens=8, ignore_eos=ignore, drafter="scripted")
        rig.engine.add_request("0", PROMPT, params)
        reply = rig.finish()["0"]
        assert reply.token_ids[:4] == tuple(text[3:7])
        assert (len(reply.token_ids), reply.finish_reason) == ((8, "length") if ignore else (4, "stop"))
        assert reply.text.startswith("".join(chr(97 + token) for token in text[3:6]))
        if not ignore:
            assert reply.stop_reason is None
            assert len(reply.text) == 3


@pytest.mark.parametrize("min_tokens", [1, 4, 9, 12])
def test_min_tokens_outlasts_stop_ids_and_stop_strings(min_tokens: int) -> None:
    stops = {"stop_token_ids": [REPLY[0]], "stop": [LETTERS[1:3], LETTERS[4]], "min_tokens": min_tokens}
    reply, _ = drafted(**stops)
    plain = run_alone(PROMPT, SamplingParams(temperature=0, max_tokens=30, ignore_eos=True, **stops))
    assert len(reply.token_ids) > min_tokens
    assert REPLY[0] not in reply.token_ids[:min_tokens]
    assert (reply.token_ids, reply.text, reply.stop_reason) == (
        plain.token_ids,
        plain.text,
        plain.stop_reason,
    )


def test_a_stop_string_complete_at_min_tokens_does_not_count() -> None:
    """As in vLLM: the reply must be longer than ``min_tokens`` before anything ends it."""
    letter = LETTERS[4]
    first = LETTERS.index(letter) + 1
    assert len(drafted(stop=[letter], min_tokens=first - 1)[0].token_ids) == first
    assert len(drafted(stop=[letter], min_tokens=first)[0].token_ids) > first


def test_drafters_are_told_only_of_tokens_that_were_kept() -> None:
    rig = make_rig(drafters := scripted(follow_script(TEXT)))
    params = SamplingParams(temperature=0, max_tokens=30, stop=[LETTERS[2]], drafter="scripted")
    rig.engine.add_request("0", PROMPT, params)
    reply = rig.finish()["0"]
    (step,) = drafters["scripted"].sessions["0"].steps  # type: ignore[attr-defined]
    assert step.committed == reply.token_ids
    assert step.num_accepted_tokens == len(reply.token_ids) < len(step.draft)


def test_logprobs_are_the_raw_log_softmax() -> None:
    """Before penalties, bias and temperature, as vLLM and OpenAI report them."""
    reply, _ = drafted(logprobs=3, logit_bias={5: 3.0}, max_tokens=6)
    path = list(PROMPT)
    assert reply.logprobs is not None
    for token, entry in zip(reply.token_ids, reply.logprobs, strict=True):
        logits = path_logits(tuple(path), 12, 2.0).astype(np.float64)
        wanted = logits - np.log(np.exp(logits).sum())
        assert next(iter(entry)) == token
        order = np.argsort(-wanted, kind="stable").tolist()
        assert set(entry) == {token, *order[:3]}
        for other, logprob in entry.items():
            assert logprob.logprob == pytest.approx(wanted[other], abs=1e-9)
            assert logprob.rank == order.index(other) + 1
            assert logprob.decoded_token == ("<eos>" if other == EOS else chr(97 + other))
        path.append(token)
    assert reply.cumulative_logprob == sum(
        entry[token].logprob for token, entry in zip(reply.token_ids, reply.logprobs, strict=True)
    )


def test_no_logprobs_unless_asked_for() -> None:
    reply, _ = drafted(max_tokens=3)
    assert reply.logprobs is None
    assert reply.cumulative_logprob is None
