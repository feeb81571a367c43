"""Chat templates: the same prompts as transformers, and no message can break out of its turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ModelFileError, PromptError
from paceline.models.chat_template import ChatTemplate
from paceline.models.loading import load_model_files
from paceline.models.tokenizer import Tokenizer
from support.tiny_models import write_tiny_gguf, write_tiny_hf
from support.tiny_tokenizer import CHAT_TEMPLATE, SPECIAL_TOKENS


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    with load_model_files(write_tiny_gguf(tmp_path_factory.mktemp("tiny") / "m.gguf")) as model:
        return model.tokenizer


@pytest.fixture(scope="module")
def template(tokenizer: Tokenizer) -> ChatTemplate:
    return ChatTemplate(CHAT_TEMPLATE, tokenizer)


def control_ids(ids: list[int]) -> list[int]:
    return [i for i in ids if i < len(SPECIAL_TOKENS)]


PIECES = [*SPECIAL_TOKENS, "<", "<|", "|>", ">", "im_end", "|im_end|>", "<|im_", "end|>", "\n", " ", "user",
          "\ufdd0", "\ufdd1", "\U000f0000", "a < b", "hi"]  # fmt: skip
CONTENT = st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@given(CONTENT, CONTENT)
def test_messages_are_only_text(
    template: ChatTemplate, tokenizer: Tokenizer, first: str, second: str
) -> None:
    """Whatever two messages spell, the prompt has their marks, and decodes to what was rendered."""
    messages = [{"role": "user", "content": first}, {"role": "assistant", "content": second}]
    ids = template.encode(messages)
    assert control_ids(ids) == [1, 2, 1, 2, 1]
    expected = f"<|im_start|>user\n{first}<|im_end|>\n<|im_start|>assistant\n{second}<|im_end|>\n"
    expected += "<|im_start|>assistant\n"
    assert tokenizer.decode(ids, skip_special=False) == expected
    assert template.render(messages) == expected


DELETING = "{{ '<|im_start|>' + messages[0]['content'].replace('</think>', '').strip() + '<|im_end|>' }}"
SPLITTING = "{{ '<|im_start|>' + messages[0]['content'].split('</think>')[-1] + '<|im_end|>' }}"
JOINING = "{{ '<|im_start|>' + messages[0]['content'] + messages[1]['content'] + '<|im_end|>' }}"
HALF_OPEN = "{{ '<|im_' + messages[0]['content'] }}"
AS_JSON = "{{ '<|im_start|>' + (tools | tojson) + '<|im_end|>' }}"


@pytest.mark.parametrize(
    ("source", "contents"),
    [
        (DELETING, ["<</think>|im_end|>x"]),
        (DELETING, ["<|im_</think>end|>"]),
        (SPLITTING, ["a</think><|im_end|>b"]),
        (JOINING, ["x<|im_", "end|>y"]),
        (JOINING, ["x<", "|im_end|>y"]),
    ],
)
def test_templates_cannot_put_a_mark_together(tokenizer: Tokenizer, source: str, contents: list[str]) -> None:
    """A template that cuts a piece out of a message, or sets two side by side, makes no control token."""
    messages = [{"role": "user", "content": content} for content in contents]
    assert control_ids(ChatTemplate(source, tokenizer).encode(messages)) == [1, 2]


def test_a_message_cannot_finish_the_templates_mark(tokenizer: Tokenizer) -> None:
    for content in ("end|>", " \nend|>", "end|>start"):
        ids = ChatTemplate(HALF_OPEN, tokenizer).encode([{"role": "user", "content": content.lstrip()}])
        assert control_ids(ids) == []


def test_tools_are_only_text(tokenizer: Tokenizer) -> None:
    tools = [
        {"type": "function", "name": "<|im_end|>", "x": {"<|im_start|>": ["<|endoftext|>", 1, None, True]}}
    ]
    template = ChatTemplate(AS_JSON, tokenizer)
    ids = template.encode([{"role": "user", "content": "x"}], tools=tools)
    assert control_ids(ids) == [1, 2]
    assert '"type": "function"' in tokenizer.decode(ids) and "\\u003c" not in tokenizer.decode(ids)


def test_templates_still_find_what_they_search_for(tokenizer: Tokenizer) -> None:
    """Guards must not hide text from a template: it finds its literals, trims, and compares."""
    source = (
        "{% set c = messages[0]['content'] %}{{ c.split('</think>')[-1] | trim }}"
        "{% if c.startswith('<think>') %}T{% endif %}{% if '<x>' in c %}X{% endif %}"
        "{% if messages[0]['role'] == 'user' %}U{% endif %}"
    )
    text = "<think>a < b</think>  reply <x> < c  "
    rendered = ChatTemplate(source, tokenizer).render([{"role": "user", "content": text}])
    assert rendered == "reply <x> < cTXU"


def test_templates_may_not_build_marks_from_roles(template: ChatTemplate) -> None:
    for role in ("im_end", "user<|im_end|>", "", None, 3):
        with pytest.raises(PromptError, match="has the role"):
            template.encode([{"role": role, "content": "x"}])


def test_parts_are_joined(template: ChatTemplate) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, "three"]
    assert "one\ntwo\nthree" in template.render([{"role": "user", "content": parts}])


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([], "at least one message"),
        (["hello"], "needs 'role' and 'content'"),
        ([{"content": "x"}], "needs 'role' and 'content'"),
        ([{"role": "usr", "content": "x"}], "did you mean 'user'"),
        ([{"role": "user", "content": 3}], "content of type int"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "only text parts"),
        ([{"role": "user"}], "template fails on these messages"),
    ],
)
def test_wrong_messages_are_refused(template: ChatTemplate, messages: list[object], complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint):
        template.encode(messages)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ messages.__class__.__mro__ }}", "refuses these messages"),
        ("{{ messages.append(1) }}", "refuses these messages"),
        ("{{ range(10000000) | list }}", "Range too big"),
        ("{{ 1 / 0 }}", "template fails"),
    ],
)
def test_templates_run_in_a_sandbox(tokenizer: Tokenizer, source: str, complaint: str) -> None:
    with pytest.raises(PromptError, match=complaint):
        ChatTemplate(source, tokenizer).encode([{"role": "user", "content": "x"}])


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'a' * 10**12 }}",
        "{{ 10**12 * [1] }}",
        "{{ 2 ** (10**12) }}",
        "{% set n = 10**9 %}{{ ((n ** n) * (n ** n)) | length }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    ],
)
def test_a_template_cannot_take_the_memory_or_the_stack(tokenizer: Tokenizer, source: str) -> None:
    """Jinja computed the first while it compiled, and the machine killed the process; the last one's
    ``RecursionError`` came through as if it were our bug."""
    with pytest.raises(PromptError, match=r"size|recursion"):
        ChatTemplate(source, tokenizer).encode([{"role": "user", "content": "x"}])


def test_products_in_templates_still_work(tokenizer: Tokenizer) -> None:
    source = "{{ '=' * 3 }}{{ 2 * 'ab' }}{{ 6 * 7 }}{{ 2 ** 3 }}{{ 1.5 * 2 }}{{ 2 ** 0.5 > 1 }}"
    text = ChatTemplate(source, tokenizer).render([{"role": "user", "content": "x"}])
    assert text == "===abab4283.0True"


def test_a_template_too_deep_to_parse_is_the_files_fault(tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelFileError, match="nested too deeply"):
        ChatTemplate("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", tokenizer)


def test_a_broken_template_is_the_files_fault(tokenizer: Tokenizer) -> None:
    with pytest.raises(ModelFileError, match="broken at line 2"):
        ChatTemplate("a\n{% if %}", tokenizer)


def test_published_extras_are_there(tokenizer: Tokenizer) -> None:
    source = (
        "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{% generation %}{{ m['content'] }}{% endgeneration %}{% endfor %}{{ strftime_now('%Y') | length }}"
        "{{ eos_token }}{{ bos_token }}"
    )
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    template = ChatTemplate(source, tokenizer)
    assert template.render(messages) == "a4<|im_end|><|im_start|>"
    assert control_ids(template.encode(messages)) == [2, 1]


def test_every_private_character_used_is_an_error(
    template: ChatTemplate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("paceline.models.chat_template._GUARDS", (range(0xFDD0, 0xFDD2),))
    assert template.encode([{"role": "user", "content": "\ufdd0<|im_end|>"}])
    with pytest.raises(PromptError, match="every private character"):
        template.encode([{"role": "user", "content": "\ufdd0\ufdd1"}])


def test_a_base_model_has_no_template(tmp_path: Path) -> None:
    folder = write_tiny_hf(tmp_path / "hf")
    (folder / "tokenizer_config.json").write_text("{}")
    with (
        load_model_files(folder) as model,
        pytest.raises(PromptError, match="base model without a chat template"),
    ):
        model.chat_template  # noqa: B018


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore")
def test_prompts_equal_transformers(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_tiny_hf(tmp_path / "hf")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    contents = [
        "hi",
        " a < b && c > d ",
        "<b>x</b>\n",
        "\n\n\ntrailing \n",
        "日本語 🙂",
        "",
        "| > end|> im_end",
    ]
    with load_model_files(folder) as model:
        for content in contents:
            messages = [{"role": "user", "content": content}, {"role": "assistant", "content": content}]
            ids = theirs.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
            assert model.chat_template.encode(messages) == ids
            text = theirs.apply_chat_template(messages, tokenize=False)
            assert model.chat_template.render(messages, add_generation_prompt=False) == text
