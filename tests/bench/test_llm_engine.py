"""The bench's engine on a tiny model: what is asked of it, and what its clock covers."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline import LLM
from paceline.bench.llm_engine import LlmEngine, prompt_ids
from paceline.drafters.base import Drafter
from paceline.errors import PromptError
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
