"""Each parameter of the two interfaces is honoured, or refused by name: no field goes without a test here."""

from __future__ import annotations

import inspect
import json
import typing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paceline import LLM, SamplingParams
from paceline.server.params import queue_terms
from paceline.server.schema import MAX_TOOLS, ChatRequest, CompletionRequest
from paceline.server.settings import ServerSettings
from paceline.server.unsupported import UNSUPPORTED
from support.served import Served, serving
from support.tiny_models import write_tiny_gguf

openai_types = pytest.importorskip("openai.types")

CHATS, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
PROMPT = "one two three one two three one two three one two"
MESSAGES = [{"role": "user", "content": PROMPT}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
SEEDED: dict[str, Any] = {"temperature": 1.0, "seed": 3, "max_tokens": 24}
CHECKS: dict[str, Callable[[Served, LLM], None]] = {}


def check(*names: str) -> Callable[[Callable[[Served, LLM], None]], None]:
    """Register a check of what the parameters ``names`` do."""

    def register(function: Callable[[Served, LLM], None]) -> None:
        assert CHECKS.keys().isdisjoint(names)
        CHECKS.update(dict.fromkeys(names, function))

    return register


def ask(served: Served, path: str = COMPLETIONS, **body: Any) -> Any:
    """Return a reply, or the stream's chunks."""
    start: dict[str, Any] = {"prompt": PROMPT} if path == COMPLETIONS else {"messages": MESSAGES}
    answer = served.post(path, {**start, **body})
    assert answer.status_code == 200, answer.text
    if not body.get("stream"):
        return answer.json()
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]


def text(served: Served, **body: Any) -> str:
    return str(ask(served, **body)["choices"][0]["text"])


def refusal(served: Served, path: str, **body: Any) -> Any:
    start: dict[str, Any] = {"prompt": PROMPT} if path == COMPLETIONS else {"messages": MESSAGES}
    answer = served.post(path, {**start, **body})
    assert answer.status_code == 400, answer.text
    return answer.json()["error"]


# ---- what the library does with a parameter, the server does too ----

AS_THE_LIBRARY: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "temperature": (SEEDED, {"temperature": 1.7}),
    "seed": (SEEDED, {"seed": 4}),
    "top_p": (SEEDED, {"top_p": 0.3}),
    "top_k": (SEEDED, {"top_k": 2}),
    "min_p": (SEEDED, {"min_p": 0.5}),
    "presence_penalty": (GREEDY, {"presence_penalty": 2.0}),
    "frequency_penalty": (GREEDY, {"frequency_penalty": 2.0}),
    "repetition_penalty": (GREEDY, {"repetition_penalty": 3.0}),
    "logit_bias": (GREEDY, {"logit_bias": {"70": 100}}),
    "max_tokens": (GREEDY, {"max_tokens": 7}),
    "stop": (GREEDY, {"stop": ["e"]}),
    "stop_token_ids": (GREEDY, {"stop_token_ids": "third"}),
    "include_stop_str_in_output": ({**GREEDY, "stop": ["e"]}, {"include_stop_str_in_output": True}),
    "ignore_eos": ({**GREEDY, "logit_bias": {"2": 100}, "skip_special_tokens": False}, {"ignore_eos": True}),
    "min_tokens": ({**GREEDY, "logit_bias": {"2": 100}}, {"min_tokens": 5}),
    "skip_special_tokens": ({**GREEDY, "logit_bias": {"1": 100}}, {"skip_special_tokens": False}),
}


@pytest.mark.parametrize(("base", "extra"), AS_THE_LIBRARY.values(), ids=AS_THE_LIBRARY)
def test_a_parameter_does_what_it_does_in_the_library(
    served: Served, reference: LLM, base: dict[str, Any], extra: dict[str, Any]
) -> None:
    if "stop_token_ids" in extra:  # of a token that comes without it
        extra = {"stop_token_ids": [ask(served, **base, return_token_ids=True)["choices"][0]["token_ids"][2]]}
    own = {**base, **extra}
    biases = {int(token): bias for token, bias in own.pop("logit_bias", {}).items()}
    (whole,) = reference.generate(PROMPT, SamplingParams(**own, logit_bias=biases or None))
    plain = text(served, **base)
    assert text(served, **{**base, **extra}) == whole.outputs[0].text != plain
    chat = ask(served, CHATS, **{**base, **extra})["choices"][0]["message"]["content"]
    assert (
        chat == reference.chat(MESSAGES, SamplingParams(**own, logit_bias=biases or None))[0].outputs[0].text
    )


# ---- the others ----


@check("messages")
def _(served: Served, reference: LLM) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": PROMPT}]}]
    both = [served.post(CHATS, {**GREEDY, "messages": of}).json() for of in (MESSAGES, parts)]
    assert both[0]["choices"] == both[1]["choices"]
    repeated = {"annotations": [], "audio": None, "function_call": None, "refusal": None, "tool_calls": None}
    again = [{**MESSAGES[0], **repeated}]
    assert served.post(CHATS, {**GREEDY, "messages": again}).json()["choices"] == both[0]["choices"]


@check("prompt")
def _(served: Served, reference: LLM) -> None:
    ids = reference.tokenizer.encode(PROMPT)
    one = text(served, **GREEDY)
    for prompt in (ids, [PROMPT], [ids]):
        assert text(served, prompt=prompt, **GREEDY) == one
    two = ask(served, prompt=[PROMPT, "the"], **GREEDY)["choices"]
    assert [choice["text"] for choice in two] == [one, text(served, prompt="the", **GREEDY)]


@check("model")
def _(served: Served, reference: LLM) -> None:
    assert ask(served, **GREEDY)["model"] == ask(served, model="tiny", **GREEDY)["model"] == "tiny"
    assert served.post(COMPLETIONS, {"model": "other", "prompt": "a"}).status_code == 404


@check("n", "best_of")
def _(served: Served, reference: LLM) -> None:
    choices = ask(served, n=3, best_of=3, **SEEDED)["choices"]
    seeds = [text(served, **{**SEEDED, "seed": 3 + index}) for index in range(3)]
    assert [choice["text"] for choice in choices] == seeds
    assert refusal(served, COMPLETIONS, best_of=2)["param"] == "best_of"


@check("max_completion_tokens")
def _(served: Served, reference: LLM) -> None:
    reply = ask(served, CHATS, temperature=0, max_completion_tokens=5, ignore_eos=True)
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (5, "length")


@check("echo")
def _(served: Served, reference: LLM) -> None:
    assert text(served, echo=True, **GREEDY) == PROMPT + text(served, **GREEDY)


@check("logprobs", "top_logprobs")
def _(served: Served, reference: LLM) -> None:
    found = ask(served, logprobs=2, **GREEDY)["choices"][0]["logprobs"]
    assert [len(found[name]) for name in ("tokens", "token_logprobs", "text_offset")] == [24] * 3
    # Two tokens that hold half a character each looked the same once, and one of them was lost.
    assert all(len(best) == 2 for best in found["top_logprobs"])
    assert any(token.startswith("bytes:\\x") for token in found["tokens"])
    for token, logprob, best in zip(
        found["tokens"], found["token_logprobs"], found["top_logprobs"], strict=True
    ):
        assert max(best, key=lambda word: best[word]) == token
        assert best[token] == logprob
    content = ask(served, CHATS, logprobs=True, top_logprobs=3, **GREEDY)["choices"][0]["logprobs"]["content"]
    for entry in content:
        best = entry["top_logprobs"]
        assert [other["logprob"] for other in best] == sorted((o["logprob"] for o in best), reverse=True)
        assert (best[0]["token"], best[0]["logprob"]) == (entry["token"], entry["logprob"])  # greedy
    assert ask(served, CHATS, logprobs=False, **GREEDY)["choices"][0]["logprobs"] is None


@check("stream", "stream_options")
def _(served: Served, reference: LLM) -> None:
    options = {"include_usage": True, "include_obfuscation": False}
    chunks = ask(served, stream=True, stream_options=options, **GREEDY)
    assert "".join(c["text"] for chunk in chunks for c in chunk["choices"]) == text(served, **GREEDY)
    assert chunks[-1]["usage"]["total_tokens"] > 0
    assert "usage" not in ask(served, stream=True, **GREEDY)[-1]
    padded = refusal(served, COMPLETIONS, stream=True, stream_options={"include_obfuscation": True})
    assert padded["param"] == "stream_options.include_obfuscation"


@check("user", "priority", "max_queue_time", "deadline")
def _(served: Served, reference: LLM) -> None:
    """What they do in the queue is tested with the scheduler (test_scheduler.py) and in test_limits.py."""
    server = ServerSettings(model_names=("tiny",), max_queue_time=9.0, request_timeout=2.0)
    given = {"user": "me", "priority": -3, "max_queue_time": 5.0, "deadline": 4.0}
    terms = queue_terms(CompletionRequest(prompt="a", **given), server, "1.2.3.4")
    assert (terms.client, terms.priority, terms.max_queue_time, terms.deadline) == ("me", -3, 5.0, 2.0)
    plain = queue_terms(CompletionRequest(prompt="a"), server, "1.2.3.4")
    assert (plain.client, plain.priority, plain.max_queue_time, plain.deadline) == ("1.2.3.4", 0, 9.0, 2.0)
    ask(served, **given, **GREEDY)


@check("prediction")
def _(served: Served, reference: LLM) -> None:
    plain = text(served, **GREEDY)
    reply = ask(served, prediction={"type": "content", "content": plain}, **GREEDY)
    assert reply["choices"][0]["text"] == plain
    assert reply["usage"]["completion_tokens_details"]["accepted_prediction_tokens"] > 5
    parts = [{"type": "text", "text": plain[:5]}, {"type": "text", "text": plain[5:]}]
    again = ask(served, prediction={"type": "content", "content": parts}, **GREEDY)
    assert again["usage"] == reply["usage"]


@check("speculative")
def _(served: Served, reference: LLM) -> None:
    def drafted(**speculative: Any) -> tuple[str, int, int]:
        reply = ask(served, speculative=speculative, **{**SEEDED, "max_tokens": 60}, ignore_eos=True)
        counts = reply["metrics"]["speculative_decoding"]
        depth = len(counts["acceptance_histogram"]) - 1
        return reply["choices"][0]["text"], counts["num_draft_tokens"], depth

    plain, none, _ = drafted(enabled=False)
    assert none == 0
    one, some, depth = drafted(drafter="ngram", num_draft_tokens=1)
    assert one == plain
    assert some > 0
    assert depth <= 1
    assert drafted(drafter="ngram", num_draft_tokens=1, acceptance="coupled") == (one, some, depth)
    assert (
        refusal(served, COMPLETIONS, speculative={"acceptance": "lossy"})["param"] == "speculative.acceptance"
    )
    greedy = refusal(served, COMPLETIONS, temperature=0, speculative={"acceptance": "block"})
    assert greedy["param"] == "speculative.acceptance"
    near = refusal(served, COMPLETIONS, speculative={"num_draft_token": 3})
    assert near["param"] == "speculative.num_draft_token"
    assert "'num_draft_tokens'" in near["message"]


@check("workload")
def _(served: Served, reference: LLM) -> None:
    ask(served, workload="audit-label", **GREEDY)
    served.wait_until_idle()
    assert 'workload="audit-label"' in served.get("/metrics").text


@check("stream_tokens")
def _(served: Served, reference: LLM) -> None:
    plain = text(served, **GREEDY)
    told = {"prediction": {"type": "content", "content": plain}}
    chunks = ask(served, stream=True, stream_tokens=True, **told, **GREEDY)
    words = [chunk["choices"][0]["text"] for chunk in chunks if chunk["choices"][0]["text"]]
    steps = ask(served, stream=True, **told, **GREEDY)
    assert "".join(words) == plain
    assert len(words) > len(steps)


@check("include_token_origin", "return_token_ids")
def _(served: Served, reference: LLM) -> None:
    choice = ask(served, include_token_origin=True, return_token_ids=True, **GREEDY)["choices"][0]
    assert "".join(piece["text"] for piece in choice["token_origins"]) == choice["text"]
    assert {piece["origin"] for piece in choice["token_origins"]} <= {"accepted", "recovered", "bonus"}
    assert "rejected_draft_tokens" in choice
    assert reference.tokenizer.decode(choice["token_ids"]) == choice["text"]
    assert choice["prompt_token_ids"] == reference.tokenizer.encode(PROMPT)
    plain = ask(served, **GREEDY)["choices"][0]
    assert not {"token_origins", "token_ids", "prompt_token_ids"} & set(plain)


@check("structured_outputs", "response_format")
def _(served: Served, reference: LLM) -> None:
    """Each kind is tested in test_grammars.py."""
    assert text(served, structured_outputs={"choice": ["yes"]}, **GREEDY) == "yes"
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
    reply = ask(served, CHATS, response_format=form, **GREEDY)
    assert json.loads(reply["choices"][0]["message"]["content"]) == {"a": 1}
    both = [ask(served, CHATS, **GREEDY, **given) for given in ({}, {"response_format": {"type": "text"}})]
    assert both[0]["choices"] == both[1]["choices"]


@check("tools", "tool_choice", "parallel_tool_calls")
def _(served: Served, reference: LLM) -> None:
    """More in test_tools.py."""
    tool = {"type": "function", "function": {"name": "leave"}}
    reply = ask(
        served,
        CHATS,
        tools=[tool],
        tool_choice="required",
        parallel_tool_calls=False,
        **{**GREEDY, "max_tokens": 99},
    )
    (call,) = reply["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "leave", "arguments": "{}"}
    for name, value in (("tool_choice", "required"), ("parallel_tool_calls", False)):
        assert refusal(served, CHATS, **{name: value})["param"] == name


@check("modalities")
def _(served: Served, reference: LLM) -> None:
    plain = ask(served, CHATS, **GREEDY)["choices"]
    assert ask(served, CHATS, modalities=["text"], **GREEDY)["choices"] == plain
    assert refusal(served, CHATS, modalities=["text", "audio"])["param"] == "modalities[1]"


@check("chat_template_kwargs")
def _(served: Served, reference: LLM) -> None:
    """More in test_template_variables."""
    wrong = refusal(served, CHATS, chat_template_kwargs={"enable_thinking": False})
    assert wrong["param"] == "chat_template_kwargs"
    assert "does not read it" in wrong["message"]


@pytest.mark.parametrize("name", CHECKS)
def test_a_parameter_does_what_it_says(served: Served, reference: LLM, name: str) -> None:
    CHECKS[name](served, reference)


def test_template_variables(tmp_path: Path) -> None:
    template = "{{ mood }} {{ messages[0].content }}{% if add_generation_prompt %}:{% endif %}"
    path = write_tiny_gguf(tmp_path / "tiny.gguf", chat_template=template)
    with serving(LLM(path, threads=1)) as served:
        body = {"return_token_ids": True, "max_tokens": 1, "chat_template_kwargs": {"mood": "merry"}}
        ids = ask(served, CHATS, **body)["choices"][0]["prompt_token_ids"]
        assert served.llm.tokenizer.decode(ids) == f"merry {PROMPT}:"
        near = refusal(served, CHATS, chat_template_kwargs={"moot": "merry"})
        assert "'mood'" in near["message"]


# ---- nothing is left out ----


def test_the_guide_lists_every_name() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "serving.md").read_text(encoding="utf-8")
    names = {*ChatRequest.model_fields, *CompletionRequest.model_fields, *UNSUPPORTED}
    missing = {name for name in names if f"`{name}`" not in guide and not name.startswith("guided_")}
    assert not missing
    assert "`guided_*`" in guide


def test_every_field_has_a_test() -> None:
    fields = set(ChatRequest.model_fields) | set(CompletionRequest.model_fields)
    assert fields == set(CHECKS) | set(AS_THE_LIBRARY)


@pytest.mark.parametrize(
    ("module", "model"),
    [
        ("openai.types.chat.completion_create_params", ChatRequest),
        ("openai.types.completion_create_params", CompletionRequest),
    ],
)
def test_every_name_of_the_official_client_is_known(module: str, model: Any) -> None:
    """A client newer than this server may know more: then the name is honoured or refused here first."""
    params = __import__(module, fromlist=["CompletionCreateParamsBase"])
    names = {"stream"}
    for kind in inspect.getmro(params.CompletionCreateParamsBase):
        names |= set(typing.get_type_hints(kind)) if kind.__module__ == module else set()
    names |= set(params.CompletionCreateParamsBase.__annotations__)
    assert {"logit_bias", "seed"} < names
    assert names <= set(model.model_fields) | set(UNSUPPORTED)


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_is_not_honoured_is_refused_by_name(served: Served, name: str) -> None:
    tried = 0
    for path, model in ((CHATS, ChatRequest), (COMPLETIONS, CompletionRequest)):
        if name in model.model_fields:
            continue
        error = refusal(served, path, **{name: {}})
        assert (error["param"], error["code"]) == (name, "unsupported_parameter")
        assert ask(served, path, **{name: None}, **GREEDY)["choices"]
        tried += 1
    assert tried


def test_lists_of_a_wrong_length_are_refused_in_our_words(served: Served) -> None:
    """pydantic says "List should have at least 1 item after validation, not 0"."""
    error = served.post(CHATS, {**GREEDY, "messages": []}).json()["error"]
    assert (error["message"], error["param"]) == ("messages=[]: give at least 1 entry", "messages")
    tools = [{"type": "function", "function": {"name": f"f{i}"}} for i in range(MAX_TOOLS + 1)]
    message = refusal(served, CHATS, tools=tools)["message"]
    assert message.endswith(f": give at most {MAX_TOOLS} entries")
