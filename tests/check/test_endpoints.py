"""Two servers compared: what counts as the same, what as noise, what as a bug, and what no server may do."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from paceline.bench.load.endpoint import parse_endpoint
from paceline.check.endpoints import EndpointPrompt, EndpointResult, EndpointSettings, check_endpoints
from paceline.check.report import as_json, endpoint_lines
from paceline.errors import ConfigError, EndpointError
from support.completion_server import Spoken, Told, completion_server

PROMPTS = [EndpointPrompt(f"q{i}", [{"role": "user", "content": f"question {i}"}]) for i in range(3)]
PLAIN = Spoken(("the", " cat", " sat", "."), (5, 6, 7, 8), (-0.1, -0.5, -0.7, -0.2), {2: {" ran": -0.705}})
RAN = Spoken(("the", " cat", " ran", "!"), (5, 6, 9, 3), (-0.1, -0.5, -0.69, -0.2))

Reply = Callable[[str, int], Spoken]


def always(spoken: Spoken) -> Reply:
    return lambda _prompt, _number: spoken


def shifted(by: float) -> Spoken:
    return replace(PLAIN, logprobs=tuple(value + by for value in PLAIN.logprobs))


def settings_of(one: Told, two: Told | None, **changes: object) -> EndpointSettings:
    api = str(changes.pop("api", "chat"))
    baseline = None if two is None else parse_endpoint(two.url, api)
    return replace(EndpointSettings(parse_endpoint(one.url, api), baseline, timeout=5.0), **changes)  # type: ignore[arg-type]


def compare(speculative: Reply, plain: Reply, **behaviour: object) -> EndpointResult:
    with completion_server(speculative, **behaviour) as one, completion_server(plain, **behaviour) as two:
        return check_endpoints(settings_of(one, two), PROMPTS)


@pytest.mark.parametrize("form", ["vllm", "llama.cpp"])
def test_equal_servers_pass_by_token_ids(form: str) -> None:
    result = compare(always(PLAIN), always(PLAIN), form=form)
    assert result.passed
    assert (result.num_same, result.num_tokens, result.compared_by) == (3, 12, ("token ids",))
    assert (result.noise_repeat, result.noise_between) == (0.0, 0.0)
    assert json.loads(json.dumps(as_json(result, {})))["form"] == "endpoint"


def test_without_ids_the_tokens_are_compared_and_then_the_text() -> None:
    assert compare(always(PLAIN), always(PLAIN), form="other").compared_by == ("tokens",)
    result = compare(always(PLAIN), always(PLAIN), form="other", refuses_logprobs=True)
    assert result.compared_by == ("text",)
    assert result.noise_between is None
    assert "neither tells log-probabilities" in "\n".join(endpoint_lines(result))


def test_a_difference_without_noise_is_a_bug() -> None:
    result = compare(always(RAN), always(PLAIN))
    assert not result.passed
    found = result.differences[0]
    assert (found.kind, found.position, found.token_ids, found.texts) == ("bug", 2, (7, 9), (" sat", " ran"))
    assert found.gap == pytest.approx(0.005)
    assert "BUG: prompt q0" in "\n".join(endpoint_lines(result))


def test_a_gap_below_the_noise_between_servers_is_a_tie() -> None:
    """The servers' log-probabilities differ by 0.01 throughout; the two tokens are 0.005 apart."""
    noisy = replace(RAN, logprobs=tuple(value + 0.01 for value in RAN.logprobs))
    result = compare(always(noisy), always(PLAIN))
    assert result.noise_between == pytest.approx(0.01)
    assert {found.kind for found in result.differences} == {"tie"}
    assert result.passed


def test_servers_far_apart_are_not_excused_by_their_own_noise() -> None:
    """A cache bug shifts every log-probability: what looks like noise is too large to be any."""
    result = compare(always(shifted(0.5)), always(PLAIN))
    assert not result.passed
    assert {(found.what, found.kind) for found in result.differences} == {("logprob", "bug")}


def test_a_plain_server_that_changes_its_reply_says_nothing() -> None:
    def moody(_prompt: str, number: int) -> Spoken:
        return RAN if number % 2 else PLAIN

    result = compare(always(RAN), moody)
    assert {found.kind for found in result.differences} == {"baseline"}
    assert result.num_unclear == 3
    assert not result.passed, "nothing was shown"
    assert "nothing can be said" in "\n".join(endpoint_lines(result))


def test_finish_reason_and_usage_count_too() -> None:
    """A server that reports `length` where plain decoding met the end token commits drafts past it."""
    result = compare(always(replace(PLAIN, finish_reason="stop")), always(PLAIN))
    assert [found.what for found in result.differences] == ["finish_reason"] * 3
    assert not result.passed
    assert "finish_reason length and stop" in "\n".join(endpoint_lines(result))


def test_one_server_is_asked_twice_and_has_no_other_excuse() -> None:
    with completion_server(lambda _prompt, number: RAN if number % 2 else PLAIN) as told:
        result = check_endpoints(settings_of(told, None), PROMPTS)
        assert len(told.bodies) == 6
    assert {found.kind for found in result.differences} == {"bug"}
    with completion_server(always(PLAIN)) as told:
        assert check_endpoints(settings_of(told, None), PROMPTS).passed


def test_the_older_interface_is_read_too() -> None:
    with completion_server(always(RAN)) as one, completion_server(always(PLAIN)) as two:
        result = check_endpoints(settings_of(one, two, api="completions"), PROMPTS)
        assert one.bodies[0]["prompt"] == "question 0"
    assert result.differences[0].texts == (" sat", " ran")
    assert result.differences[0].gap == pytest.approx(0.005)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("html", "HTML page"),
        ("http_401", "Invalid API Key"),
        ("slow", "within 0.3 s"),
        ("other_json", "another form"),
    ],
)
def test_a_server_that_misbehaves_is_named_with_what_was_expected(fault: str, says: str) -> None:
    with completion_server(always(PLAIN), fault=fault) as told:
        with pytest.raises(EndpointError, match=says) as raised:
            check_endpoints(settings_of(told, None, timeout=0.3), PROMPTS)
        assert f"{told.url}/v1/chat/completions" in str(raised.value)
        assert "expected a completion in OpenAI's form" in str(raised.value)


def test_a_server_that_is_down_is_named() -> None:
    with completion_server(always(PLAIN)) as told:
        settings = settings_of(told, None)
    with pytest.raises(EndpointError, match="cannot be reached"):
        check_endpoints(settings, PROMPTS)


def test_no_prompts() -> None:
    with pytest.raises(ConfigError, match="no prompt"):
        check_endpoints(EndpointSettings(parse_endpoint("localhost:1")), [])
