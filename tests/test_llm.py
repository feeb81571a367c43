"""The public class on a tiny model file and the native executor."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import paceline
from paceline import LLM, RequestOutput, SamplingParams
from paceline.drafters.scripted import ScriptedDrafter
from paceline.errors import CacheFullError, ConfigError, DrafterError, ModelNotFoundError, PromptError
from paceline.records import EMPTY_DRAFT, Draft
from support.tiny_models import write_tiny_gguf

GREEDY = SamplingParams(temperature=0, max_tokens=24, ignore_eos=True)
CHAT = [{"role": "user", "content": "say <|im_end|> twice"}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("llm") / "tiny.gguf", "llama", "q8_0", seed=3)


@pytest.fixture(scope="module")
def shared(model: Path) -> LLM:
    return LLM(model, threads=1, record_logit_hashes=True)


@pytest.fixture
def llm(shared: LLM) -> Iterator[LLM]:
    """The shared instance; each test must leave it empty and whole."""
    yield shared
    assert not shared.engine.has_unfinished
    shared.engine.check_integrity()
    assert shared.engine.num_free_blocks == shared.executor.num_blocks


def ids(outputs: list[RequestOutput]) -> list[tuple[int, ...]]:
    return [output.outputs[0].token_ids for output in outputs]


def test_a_second_request_computes_only_what_is_new(model: Path, llm: LLM) -> None:
    """Native kernels, real blocks: behind a hit the logits have the very bits of a request that ran alone."""
    prompt = [5 + i % 60 for i in range(70)]
    llm.start_afresh()
    (first,) = llm.generate(prompt, GREEDY)
    longer = [*prompt, *first.outputs[0].token_ids[:20], 7, 9]
    (second,) = llm.generate(longer, GREEDY)
    assert first.metrics.num_cached_tokens == 0
    assert second.metrics.num_cached_tokens >= 80
    without = LLM(model, threads=1, record_logit_hashes=True, enable_prefix_caching=False)
    (alone,) = without.generate(longer, GREEDY)
    assert alone.metrics.num_cached_tokens == 0
    assert second.outputs[0].token_ids == alone.outputs[0].token_ids
    assert second.outputs[0].logit_hashes == alone.outputs[0].logit_hashes
    llm.start_afresh()
    assert llm.generate(longer, GREEDY)[0].metrics.num_cached_tokens == 0


def test_every_form_of_prompt(llm: LLM) -> None:
    text = "the rest of the world"
    tokens = llm.tokenizer.encode(text, parse_special=True)
    single = llm.generate(text, GREEDY)
    assert ids(single) == ids(llm.generate([text], GREEDY)) == ids(llm.generate(tokens, GREEDY))
    assert ids(single) == ids(llm.generate({"prompt": text}, GREEDY))
    assert ids(single) == ids(llm.generate([{"prompt_token_ids": tokens}], GREEDY))
    assert (single[0].prompt, single[0].prompt_token_ids) == (text, tuple(tokens))
    assert llm.generate(tokens, GREEDY)[0].prompt is None
    many = llm.generate([tokens, text, [7, 8]], [GREEDY, SamplingParams(temperature=0, max_tokens=2), GREEDY])
    assert ids(many)[0] == ids(single)[0]
    assert len(ids(many)[1]) <= 2
    assert many[0].finished


@pytest.mark.filterwarnings("ignore::paceline.drafters.copy_check.LowAcceptanceWarning")
def test_drafters_change_nothing_but_the_number_of_forwards(llm: LLM) -> None:
    """Ids and logit bits, greedy and seeded, on the real kernels."""
    prompt = "one two three one two three one two three one two"
    for params in ({"temperature": 0.0}, {"temperature": 0.8, "top_p": 0.9, "seed": 11}):
        replies = {}
        for drafter in ("none", "ngram", "suffix", "recycle", "auto", "draft_model:self:1"):
            chosen = SamplingParams(**params, max_tokens=40, ignore_eos=True, logprobs=2, drafter=drafter)
            replies[drafter] = llm.generate(prompt, chosen)[0].outputs[0]
        plain = replies.pop("none")
        assert plain.logit_hashes is not None
        for reply in replies.values():
            assert reply.token_ids == plain.token_ids
            assert reply.logit_hashes == plain.logit_hashes
            assert reply.logprobs == plain.logprobs
        assert replies["draft_model:self:1"].metrics.num_draft_tokens > 0


def test_batches_change_nothing(llm: LLM) -> None:
    prompts = ["the sun", "a", "in the end it is the same as in the beginning and on and on", "the sun"]
    together = llm.generate(prompts, GREEDY)
    assert ids(together) == [ids(llm.generate(prompt, GREEDY))[0] for prompt in prompts]


def test_completions_of_one_prompt(llm: LLM) -> None:
    params = SamplingParams(n=3, temperature=1.0, seed=5, max_tokens=8, ignore_eos=True)
    (output,) = llm.generate("the", params)
    assert [reply.index for reply in output.outputs] == [0, 1, 2]
    alone = SamplingParams(temperature=1.0, seed=6, max_tokens=8, ignore_eos=True)
    assert output.outputs[1].token_ids == ids(llm.generate("the", alone))[0]


def test_unseeded_replies_differ(llm: LLM) -> None:
    """64 tokens at temperature 2 twice the same by chance: far below 1e-12."""
    params = SamplingParams(temperature=2.0, max_tokens=64, ignore_eos=True)
    first, second = ids(llm.generate(["the", "the"], params))
    assert first != second


def test_chat_uses_the_template_and_keeps_text_apart(llm: LLM) -> None:
    (output,) = llm.chat(CHAT, GREEDY)
    assert output.prompt_token_ids == tuple(llm.model_files.chat_template.encode(CHAT))
    assert output.prompt is not None
    assert output.prompt.startswith("<|im_start|>user")
    assert (
        ids([output])
        == ids(llm.chat([CHAT], GREEDY))
        == ids(llm.generate(list(output.prompt_token_ids), GREEDY))
    )
    assert "".join(llm.stream_chat(CHAT, GREEDY)) == output.outputs[0].text


def test_stream(llm: LLM) -> None:
    (whole,) = llm.generate("the rest", GREEDY)
    stream = llm.stream("the rest", GREEDY)
    deltas = list(stream)
    assert "".join(deltas) == whole.outputs[0].text
    assert stream.output is not None
    assert stream.output.outputs[0].token_ids == whole.outputs[0].token_ids
    assert list(stream) == []


def test_a_stream_that_is_left_early_frees_its_blocks(llm: LLM) -> None:
    with llm.stream("the rest", GREEDY) as stream:
        next(stream)
    second = llm.stream("the rest", GREEDY)
    next(second)
    del second


def test_streams_and_runs_share_the_engine(llm: LLM) -> None:
    whole = llm.generate("the rest", GREEDY)[0].outputs[0].text
    stream = llm.stream("the rest", GREEDY)
    text = next(stream)
    other = llm.generate("a", GREEDY)
    assert text + "".join(stream) == whole
    assert ids(other) == ids(llm.generate("a", GREEDY))


def test_a_prediction_that_comes_true_saves_forwards(llm: LLM) -> None:
    (plain,) = llm.generate("the rest", SamplingParams(temperature=0, max_tokens=24, drafter="none"))
    text = plain.outputs[0].text
    params = SamplingParams(temperature=0, max_tokens=24, prediction=plain.outputs[0].token_ids)
    (drafted,) = llm.generate("the rest", params)
    assert drafted.outputs[0].token_ids == plain.outputs[0].token_ids
    assert drafted.metrics.num_verify_steps < plain.metrics.num_verify_steps / 2
    assert llm.generate("the rest", SamplingParams(temperature=0, prediction=text))[0].finished


@pytest.fixture
def heeds_ctrl_c() -> Iterator[None]:
    """Shells start what they run in the background with SIGINT ignored; Python then leaves it so."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("heeds_ctrl_c")
def test_ctrl_c_stops_within_one_step_and_leaves_the_engine_usable(model: Path) -> None:
    calls = 0

    def script(known: tuple[int, ...], budget: int, sampler: Any) -> Draft:
        nonlocal calls
        calls += 1
        if calls == 5:
            signal.raise_signal(signal.SIGINT)
        return EMPTY_DRAFT

    llm = LLM(model, ScriptedDrafter(script), threads=1)
    with pytest.raises(KeyboardInterrupt):
        llm.generate("the rest", GREEDY)
    assert calls == 5
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    llm.engine.check_integrity()
    assert llm.engine.num_free_blocks == llm.executor.num_blocks
    assert len(ids(llm.generate("the rest", GREEDY))[0]) == 24
    calls = 3
    with pytest.raises(KeyboardInterrupt):
        list(llm.stream("the rest", GREEDY))
    assert not llm.engine.has_unfinished


def test_the_progress_bar(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "the"], GREEDY, use_tqdm=True)
    assert "2/2" in capsys.readouterr().err
    llm.generate(["a", "the"], GREEDY, use_tqdm=False)
    assert capsys.readouterr().err == ""


def test_settings_can_be_read(llm: LLM) -> None:
    assert llm.settings["drafter"] == "auto"
    assert llm.settings["threads"] == 1
    assert llm.settings["max_model_len"] == 1024
    assert llm.settings["kv_cache_tokens"] >= 8192


def test_drafters_can_be_made_to_forget(llm: LLM) -> None:
    before = llm.engine.drafter("suffix")
    llm.start_afresh()
    assert llm.engine.drafter("suffix") is not before
    with llm.stream("a", GREEDY) as stream:
        next(stream)
        with pytest.raises(ConfigError, match="running"):
            llm.start_afresh()


@pytest.mark.parametrize(
    ("prompts", "params", "error", "message"),
    [
        ("", None, PromptError, "empty"),
        ([], None, PromptError, "no prompt"),
        ([[]], None, PromptError, "empty"),
        ([5000], None, PromptError, "outside the vocabulary"),
        ([1] * 2000, None, PromptError, "max_model_len=1024"),
        ([1.5, "a"], None, PromptError, "token ids"),
        ([1.7, 2.2], None, PromptError, "token ids"),
        ([1, "2"], None, PromptError, "token ids"),
        ([True], None, PromptError, "token ids"),
        ({"prompt_token_ids": "abc"}, None, PromptError, "token ids"),
        ({"prompt_token_ids": b"abc"}, None, PromptError, "token ids"),
        ({1: 2}, None, ConfigError, "no setting 1"),
        ([[1]], [5], ConfigError, "sampling_params=5"),
        (3.5, None, PromptError, r"3\.5"),
        ({"promt": "a"}, None, ConfigError, "did you mean 'prompt'"),
        ({"prompt": "a", "prompt_token_ids": [1]}, None, PromptError, "one of"),
        ("a", {"temperature": 0}, ConfigError, "sampling_params={'temperature"),
        (["a", "b"], [GREEDY], ConfigError, "1 sampling_params for 2"),
        ("a", SamplingParams(drafter="ngrams"), ConfigError, "did you mean 'ngram'"),
        ("a", SamplingParams(drafter="draft_model:self:99"), (ConfigError, DrafterError), "layers"),
    ],
    ids=str,
)
def test_bad_input_leaves_the_engine_usable(
    llm: LLM, prompts: Any, params: Any, error: Any, message: str
) -> None:
    with pytest.raises(error, match=message):
        llm.generate(prompts, params)
    assert len(ids(llm.generate("a", GREEDY))[0]) == 24


def test_bad_settings(model: Path) -> None:
    cases: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"drafer": "none"}, ConfigError, "did you mean 'drafter'"),
        ({"tensor_parallel_size": 2}, ConfigError, "no setting"),
        ({"drafter": "n-gram"}, ConfigError, "did you mean 'ngram'"),
        ({"threads": 0}, ConfigError, r"^threads=0: "),
        ({"threads": "2"}, ConfigError, r"^threads='2': "),
        ({"drafter": None}, ConfigError, "drafter=None"),
        ({"kv_cache_tokens": 10**15}, ConfigError, "kv_cache_tokens"),
        ({"max_model_len": 1}, ConfigError, "max_model_len=1"),
        ({"max_model_len": 4096}, ConfigError, "made for"),
        ({"max_model_len": 4096, "kv_cache_tokens": 100}, ConfigError, "cannot hold"),
        ({"quant": "q5"}, ConfigError, "quant='q5'"),
        ({"acceptance": "typical"}, ConfigError, "acceptance='typical'"),
        ({"draft_timeout": 0}, ConfigError, "draft_timeout=0"),
    ]
    for settings, error, message in cases:
        with pytest.raises(error, match=message):
            LLM(model, **settings)
    for name in ("/nowhere/at/all.gguf", "", None, "a" * 5000):
        with pytest.raises(ModelNotFoundError):
            LLM(name)  # type: ignore[arg-type]


def test_a_small_cache_bounds_the_context(model: Path) -> None:
    llm = LLM(model, "none", kv_cache_tokens=64, threads=1)
    assert llm.settings["max_model_len"] <= 64
    with pytest.raises((PromptError, CacheFullError)):
        llm.generate([5] * 100, GREEDY)
    assert llm.generate("a", SamplingParams(temperature=0, max_tokens=None, ignore_eos=True))[0].finished


def test_public_names() -> None:
    for name in paceline.__all__:
        assert getattr(paceline, name).__name__ == name
    with pytest.raises(AttributeError, match="LLMs"):
        paceline.LLMs  # noqa: B018
