"""The tokenizer on small vocabularies: special tokens, streams of bytes, every pre-tokenizer type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.errors import ModelFileError, PromptError
from paceline.models.gguf_tokenizer import build_gguf_tokenizer
from paceline.models.loading import load_model_files
from paceline.models.metadata import Metadata
from paceline.models.special_split import SpecialSplitter, WholeToken
from paceline.models.string_array import StringArray
from paceline.models.tokenizer import Tokenizer
from support.reference_bpe import WORDS, ReferenceBpe
from support.tiny_models import write_tiny_gguf, write_tiny_hf
from support.tiny_tokenizer import MERGES, SPECIAL_TOKENS, TOKEN_TYPES, TOKENS
from support.tokenizer_corpus import tokenizer_corpus

CORPUS = tokenizer_corpus()


def string_array(strings: list[str]) -> StringArray:
    """Pack strings the way the header parser leaves them."""
    from array import array

    blob, starts = b"", array("q")
    for text in strings:
        starts.append(len(blob) + 8)
        blob += bytes(8) + text.encode()
    starts.append(len(blob) + 8)
    return StringArray(blob, starts, "test")


def byte_level(pre: str, **changes: object) -> Tokenizer:
    values: dict[str, object] = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": string_array(TOKENS),
        "tokenizer.ggml.merges": string_array(MERGES),
        "tokenizer.ggml.token_type": np.array(TOKEN_TYPES, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **changes,
    }
    return build_gguf_tokenizer(Metadata(values, Path("test.gguf")), "llama")  # type: ignore[arg-type]


SPM_WORDS = ["▁hello", "▁world", "he", "ll", "hell", "▁h", "lo", "llo", "or", "wor", "▁w", "ld", "▁▁"]
SPM_TOKENS = (
    ["<unk>", "<s>", "</s>", "<mark>", "\n\n", "  "]
    + [f"<0x{byte:02X}>" for byte in range(256)]
    + list("▁helowrd")
    + SPM_WORDS[:-1]
)
SPM_TYPES = [2, 3, 3, 3, 4, 4] + [6] * 256 + [1] * (len(SPM_TOKENS) - 262)


def sentencepiece(**changes: object) -> Tokenizer:
    scores = np.zeros(len(SPM_TOKENS), np.float32)
    scores[262:] = -np.arange(len(SPM_TOKENS) - 262)
    values: dict[str, object] = {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": string_array(SPM_TOKENS),
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": np.array(SPM_TYPES, np.int32),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        **changes,
    }
    return build_gguf_tokenizer(Metadata(values, Path("test.gguf")), "llama")  # type: ignore[arg-type]


@pytest.mark.parametrize("pre", WORDS)
def test_pre_tokenizers_equal_a_plain_reference(pre: str) -> None:
    """Ids of the whole corpus equal those of a BPE in forty lines with the published word patterns."""
    tokenizer, reference = byte_level(pre), ReferenceBpe(pre, TOKENS, MERGES)
    different = [text for text in CORPUS if tokenizer.encode(text, add_bos=False) != reference.encode(text)]
    assert different == []


@pytest.mark.parametrize("pre", WORDS)
def test_text_comes_back(pre: str) -> None:
    import unicodedata

    tokenizer = byte_level(pre)
    for text in CORPUS:
        expected = unicodedata.normalize("NFC", text) if pre == "qwen2" else text
        assert tokenizer.decode(tokenizer.encode(text)) == expected


def test_special_tokens_are_parsed_only_when_asked() -> None:
    tokenizer = byte_level("smollm")
    text = "a<|im_start|>b<|im_end|><|endoftext|>"
    assert [i for i in tokenizer.encode(text, parse_special=True) if i < 3] == [1, 2, 0]
    plain = tokenizer.encode(text)
    assert not {0, 1, 2} & set(plain)
    assert tokenizer.decode(plain) == text
    parsed = tokenizer.encode(text, parse_special=True)
    assert tokenizer.decode(parsed) == "ab"
    assert tokenizer.decode(parsed, skip_special=False) == text


@given(
    st.lists(st.sampled_from([*SPECIAL_TOKENS, "<", "|", "im_end", ">", "<|", "|>", "x", " "]), max_size=12)
)
def test_plain_text_never_becomes_a_control_token(parts: list[str]) -> None:
    tokenizer = load_tiny()
    assert not {0, 1, 2} & set(tokenizer.encode("".join(parts)))


_CACHE: dict[str, Tokenizer] = {}


def load_tiny() -> Tokenizer:
    return _CACHE.setdefault("tiny", byte_level("smollm"))


@given(st.text())
def test_any_text_comes_back_and_streams_the_same(text: str) -> None:
    tokenizer = load_tiny()
    ids = tokenizer.encode(text)
    assert tokenizer.decode(ids) == text
    stream = tokenizer.stream()
    deltas = [stream.push(i) for i in ids]
    assert "".join(deltas) + stream.finish() == text
    for delta in deltas:
        assert "\ufffd" not in delta or "\ufffd" in text


@given(st.lists(st.integers(0, len(TOKENS) + 5)))
def test_any_ids_stream_as_they_decode(ids: list[int]) -> None:
    """Also broken UTF-8 and padding ids: the deltas are whole characters and add up to ``decode``."""
    tokenizer = load_tiny()
    stream = tokenizer.stream()
    deltas = [stream.push(i) for i in ids] + [stream.finish()]
    for delta in deltas:
        delta.encode()  # valid Unicode
    assert "".join(deltas) == tokenizer.decode(ids)


def test_a_character_is_never_cut() -> None:
    tokenizer = load_tiny()
    stream = tokenizer.stream()
    ids = tokenizer.encode("é🙂")
    assert len(ids) == 6
    assert [stream.push(i) for i in ids] == ["", "é", "", "", "", "🙂"]
    assert stream.push(ids[2]) == "" and stream.finish() == "\ufffd" and stream.finish() == ""


def test_bos_is_added_once_and_only_where_expected() -> None:
    plain, with_bos = byte_level("smollm"), byte_level("llama-bpe")
    assert not plain.adds_bos and with_bos.adds_bos
    assert plain.encode("a")[0] != 1 and plain.encode("a", add_bos=True)[0] == 1
    assert with_bos.encode("a")[0] == 1 and with_bos.encode("a", add_bos=False)[0] != 1
    assert with_bos.encode("<|im_start|>a", parse_special=True).count(1) == 1
    stated = byte_level("smollm", **{"tokenizer.ggml.add_bos_token": True})
    assert stated.encode("") == [1]


def test_ends_of_an_answer() -> None:
    assert byte_level("smollm").eos_token_ids == {0, 2}
    assert byte_level("smollm").eos_token_id == 2
    assert byte_level("smollm", **{"tokenizer.ggml.eot_token_id": 40}).eos_token_ids == {0, 2, 40}


def test_lone_surrogates_and_negative_ids_are_refused() -> None:
    with pytest.raises(PromptError, match="lone surrogate"):
        load_tiny().encode("a\ud800")
    with pytest.raises(PromptError, match="negative"):
        load_tiny().decode([-1])


def test_control_marks_filed_as_user_defined_are_put_right() -> None:
    kinds = np.array(TOKEN_TYPES, np.int32)
    kinds[2] = 4
    assert 2 not in byte_level("smollm", **{"tokenizer.ggml.token_type": kinds}).encode("<|im_end|>")


_BROKEN = {
    "tokenizer.ggml.pre": ("smolm", r"one of .*did you mean 'smollm'"),
    "tokenizer.ggml.model": ("bert", "'gpt2' or 'llama'"),
    "tokenizer.ggml.token_type": (np.zeros(3, np.int32), "one kind for each of the 320 tokens"),
    "tokenizer.ggml.merges": (string_array(["q zz"]), "names tokens the vocabulary does not have"),
    "tokenizer.ggml.bos_token_id": (320, "an integer from 0 to 319"),
    "tokenizer.ggml.tokens": ("x", "an array of strings"),
}


@pytest.mark.parametrize("key", _BROKEN)
def test_broken_vocabularies_are_refused(key: str) -> None:
    value, message = _BROKEN[key]
    with pytest.raises(ModelFileError, match=message):
        byte_level("smollm", **{key: value})


def spelled(tokenizer: Tokenizer, text: str, **options: bool) -> list[str]:
    return [tokenizer.tokens[i] for i in tokenizer.encode(text, add_bos=False, **options)]


def test_sentencepiece_merges_by_score() -> None:
    tokenizer = sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})
    assert spelled(tokenizer, "hellohello") == ["hell", "o", "hell", "o"]
    assert tokenizer.decode(tokenizer.encode("hello  world\n\né")) == "hello  world\n\né"


def test_sentencepiece_byte_fallback_and_user_defined() -> None:
    tokenizer = sentencepiece(**{"tokenizer.ggml.add_space_prefix": False})
    assert spelled(tokenizer, "é") == ["<0xC3>", "<0xA9>"]
    assert spelled(tokenizer, "h\n\nh") == ["h", "\n\n", "h"]
    assert spelled(tokenizer, "h\nh") == ["h", "<0x0A>", "h"]
    assert spelled(tokenizer, "  h") == ["  ", "h"]
    assert "<mark>" not in spelled(tokenizer, "<mark>")
    assert spelled(tokenizer, "<mark>", parse_special=True) == ["<mark>"]
    assert "<0x41>" not in spelled(tokenizer, "<0x41>")


def test_sentencepiece_space_prefix() -> None:
    tokenizer = sentencepiece()
    assert (
        spelled(tokenizer, "hello")[0] == "▁hello"[:2]
        or tokenizer.decode(tokenizer.encode("hello")) == "hello"
    )
    assert tokenizer.decode(tokenizer.encode(" hello")) == " hello"
    pieces = spelled(tokenizer, "h<mark>h", parse_special=True)
    assert pieces == ["▁h", "<mark>", "▁h"]
    assert tokenizer.encode("h")[0] == 1


def test_sentencepiece_needs_all_bytes_and_scores() -> None:
    kinds = np.array(SPM_TYPES, np.int32)
    kinds[10] = 1
    with pytest.raises(ModelFileError, match=r"no token for 1 bytes \(first <0x04>\)"):
        sentencepiece(**{"tokenizer.ggml.token_type": kinds})
    with pytest.raises(ModelFileError, match="finite score"):
        sentencepiece(**{"tokenizer.ggml.scores": np.full(len(SPM_TOKENS), np.nan, np.float32)})


@given(st.text(alphabet="<|>abx"), st.lists(st.text(alphabet="<|>ab", min_size=1, max_size=4), max_size=6))
def test_splitter_equals_a_leftmost_longest_search(text: str, specials: list[str]) -> None:
    import re

    splitter = SpecialSplitter([WholeToken(special, i) for i, special in enumerate(dict.fromkeys(specials))])
    ids = {special: i for i, special in enumerate(dict.fromkeys(specials))}
    ordered = sorted(ids, key=len, reverse=True)
    expected: list[str | int] = []
    if ordered:
        for piece in re.split("(" + "|".join(map(re.escape, ordered)) + ")", text):
            expected += [ids[piece]] if piece in ids else [piece] if piece else []
    elif text:
        expected = [text]
    assert list(splitter.split(text)) == expected


def test_whole_tokens_swallow_spaces_where_they_say() -> None:
    splitter = SpecialSplitter(
        [WholeToken("<l>", 0, strips_left=True), WholeToken("<r>", 1, strips_right=True)]
    )
    assert list(splitter.split("a  <l>  b  <r> \n c")) == ["a", 0, "  b  ", 1, "c"]
    assert list(splitter.split(" <l>")) == [0]


def test_a_folder_and_a_file_give_the_same_ids(tmp_path: Path) -> None:
    with load_model_files(write_tiny_gguf(tmp_path / "m.gguf")) as file_model:
        ours = file_model.tokenizer
    with load_model_files(write_tiny_hf(tmp_path / "hf")) as folder_model:
        folder = folder_model.tokenizer
    assert folder.control_tokens == ours.control_tokens
    for text in CORPUS:
        for parse_special in (False, True):
            ids = ours.encode(text, parse_special=parse_special)
            assert folder.encode(text, parse_special=parse_special) == ids
            assert folder.decode(ids) == ours.decode(ids)


@pytest.mark.reference
@pytest.mark.filterwarnings("ignore")
def test_a_folder_gives_transformers_ids(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_tiny_hf(tmp_path / "hf")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    with load_model_files(folder) as model:
        for text in CORPUS:
            ids = theirs.encode(text, add_special_tokens=False)
            assert model.tokenizer.encode(text, parse_special=True) == ids
