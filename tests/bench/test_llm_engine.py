"""The bench's engine on a tiny model: what is asked of it, and what its clock covers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from paceline import LLM
from paceline.bench.llm_engine import LlmEngine, named_costs, prompt_ids
from paceline.drafters.base import Drafter
from paceline.errors import PromptError
from paceline.theory.cost_table import CostTable, DraftCost
from support.tiny_models import write_tiny_gguf

CONVERSATION = [
    {"role": "user", "content": "the rest"},
    {"role": "assistant", "content": "of it"},
    {"role": "user", "content": "the rest of the rest"},
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("bench")
    return write_tiny_gguf(folder / "tiny.gguf", "llama", "q8_0", seed=3)


@pytest.fixture
def llm(path: Path) -> LLM:
    return LLM(path, drafter="none", threads=1)


@pytest.fixture
def base(llm: LLM) -> LLM:
    """The same model without its chat template."""
    object.__setattr__(llm.model_files, "chat_template_text", None)
    return llm


def test_an_instruct_model_is_asked_by_its_template(llm: LLM) -> None:
    assert prompt_ids(llm, CONVERSATION) == llm.model_files.chat_template.encode(CONVERSATION)


def test_a_base_model_continues_the_texts(base: LLM) -> None:
    with pytest.raises(PromptError):
        base.chat(CONVERSATION)
    ids = prompt_ids(base, CONVERSATION)
    assert ids == base.tokenizer.encode("the rest\n\nof it\n\nthe rest of the rest\n")
    plain, drafted = (LlmEngine(base).reply(name, CONVERSATION, 12, 0.0, 0) for name in ("none", "ngram"))
    assert len(plain.token_ids) == 12 or plain.token_ids[-1] in base.tokenizer.eos_token_ids
    assert drafted.token_ids == plain.token_ids


def test_texts_of_a_base_model_are_never_read_as_control_tokens(base: LLM) -> None:
    """Its prompt is text from a file: a row that spells the end token does not end."""
    end = base.tokenizer.tokens[next(iter(base.tokenizer.eos_token_ids))]
    ids = prompt_ids(base, [{"role": "user", "content": f"the {end!s} rest"}])
    assert not base.tokenizer.eos_token_ids & set(ids)


def test_a_seed_repeats_a_reply_and_none_does_not(llm: LLM) -> None:
    """At temperature 100 no token of the 320 has a share of 0.1: eight equal replies come with p < 1e-7."""
    engine = LlmEngine(llm)
    first, again = (engine.reply("none", CONVERSATION, 30, 100.0, 5).token_ids for _ in range(2))
    assert first == again
    fresh = {engine.reply("none", CONVERSATION, 30, 100.0, None).token_ids for _ in range(8)}
    assert len(fresh) > 1


def test_no_reply_pays_for_building_its_drafter(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    built: list[str] = []

    def build(name: str) -> Drafter:
        built.append(name)
        return llm._build_drafter(name)

    monkeypatch.setattr(llm.engine, "_build_drafter", build)
    engine = LlmEngine(llm)
    engine.start_afresh(("none", "ngram", "suffix"))
    assert built == ["none", "ngram", "suffix"]
    engine.reply("suffix", CONVERSATION, 4, 0.0, 0)
    assert len(built) == 3
    engine.start_afresh(("none", "suffix"))
    assert built[3:] == ["none", "suffix"], "each repeat begins with new ones"


def test_a_batch_gives_each_reply_as_it_would_be_alone(llm: LLM) -> None:
    """Same ids, and the times of the batch shared among its replies."""
    asked = [[{"role": "user", "content": text}] for text in ("the rest", "of it", "the rest of the rest")]
    engine = LlmEngine(llm)
    alone = [engine.reply("suffix", messages, 12, 1.0, 4) for messages in asked]
    together = engine.replies("suffix", asked, 12, 1.0, [4] * 3)
    assert [reply.token_ids for reply in together] == [reply.token_ids for reply in alone]
    assert (
        len({reply.seconds for reply in together}) == len({reply.verify_seconds for reply in together}) == 1
    )
    for reply in (*alone, *together):
        assert sum(delivery.num_tokens for delivery in reply.deliveries) == len(reply.token_ids)
        times = [delivery.seconds for delivery in reply.deliveries]
        assert times == sorted(times)
        assert len(times) == reply.num_steps
    batch_seconds = sum(reply.seconds for reply in together)
    assert max(reply.deliveries[-1].seconds for reply in together) == pytest.approx(batch_seconds)
    assert sum(reply.verify_seconds for reply in together) < batch_seconds


def test_a_prompt_that_does_not_fit_leaves_nothing_of_its_batch_behind(llm: LLM) -> None:
    asked = [[{"role": "user", "content": "the rest " * count}] for count in (1, 5000)]
    with pytest.raises(PromptError):
        LlmEngine(llm).replies("none", asked, 8, 0.0, [None, None])
    assert not llm.engine.has_unfinished


def test_no_drafter_finds_the_prompt_computed_by_the_one_before(llm: LLM) -> None:
    """With the prefix cache on, whoever answered second seemed faster by a whole prompt."""
    engine = LlmEngine(llm)
    long = [{"role": "user", "content": "the rest of it " * 40}]
    for name in ("none", "ngram"):
        engine.reply(name, long, 4, 0.0, None)
        assert llm.engine.load.num_prefix_hits == 0


def test_a_shipped_head_has_its_costs_under_the_name_it_was_asked_for(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`paceline bench --drafter eagle3` predicted nothing: the table had it as eagle3:smollm2-135m alone."""
    monkeypatch.setattr(llm.engine, "drafter", lambda name: SimpleNamespace(name=f"{name}:tiny"))
    table = CostTable(((1, 1.0),), 0.01, draft_costs={"eagle3:tiny": DraftCost(0.5)})
    named = named_costs(llm, table, ["eagle3", "ngram"])
    assert named.cost_of("eagle3").fixed == 0.5
    assert not named.knows("ngram")


def test_a_large_batch_has_room(path: Path) -> None:
    from paceline.bench.datasets import BenchPrompt
    from paceline.bench.room import cache_tokens_wanted, size_of
    from paceline.bench.runner import BenchSettings

    prompts = [BenchPrompt("a", "w", ("the rest " * 50, "of it")), BenchPrompt("b", "w", ("of it",))]
    small = cache_tokens_wanted(str(path), prompts, [BenchSettings((), batch=2)], 256)
    assert small == 8192
    large = cache_tokens_wanted(str(path), prompts, [BenchSettings((), batch=b) for b in (1, 256)], 256)
    assert 128 * 256 < large <= 256 * (256 + 64)
    assert size_of(path) == path.stat().st_size == size_of(path.parent)
