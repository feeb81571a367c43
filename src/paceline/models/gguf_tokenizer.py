"""Build a tokenizer from what a GGUF file says about its vocabulary.

Two kinds exist: byte-level BPE (``tokenizer.ggml.model`` = ``gpt2``), where the file names the way text is
cut into words, and SentencePiece BPE with byte fallback (``llama``), where the order of merges follows from
scores.

Where the two references differ, this is what was found and done (llama.cpp through llama-cpp-python 0.3.36,
transformers 5.24, 4,994 strings; see tests/models/test_tokenizer_real.py):

- ``smollm``: transformers' GGUF conversion does not cut digits off; SmolLM's own tokenizer.json and llama.cpp
  do. Done as they do.
- ``qwen2``: Qwen's own tokenizer composes characters (NFC); llama.cpp does not. Done as Qwen does.
- Gemma, runs of more than 31 spaces: Google's tokenizer.json builds them by merges, llama.cpp takes 31 at a
  time. Done as transformers does. llama.cpp also reads ``</s>`` (HTML, in Gemma's vocabulary) as a control
  token; that is a mistake.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from paceline.errors import ModelFileError, nearest_name
from paceline.models.byte_alphabet import spelled_bytes
from paceline.models.metadata import Metadata
from paceline.models.special_split import WholeToken
from paceline.models.tokenizer import SpacePrefix, Tokenizer, Vocabulary

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

# Token kinds of GGUF (llama.cpp, llama_token_type).
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6

END_MARKS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>"}
)
"""Control tokens that end an answer in the chat formats of the supported families, besides the stated EOS."""

# Marks that some converters list as user-defined although nothing but a template may produce them.
_CONTROL_LOOKS = re.compile(r"<\|[^|<>]*\|>|<(?:start|end)_of_turn>")

_LLAMA3_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r"\p{N}{1,3}", r"\p{N}")
PRE_TOKENIZERS = ("smollm", "llama-bpe", "qwen2", "gpt-2", "default")
_ALIASES = {"llama3": "llama-bpe", "llama-v3": "llama-bpe"}


def build_gguf_tokenizer(metadata: Metadata, architecture: str) -> Tokenizer:
    """Return the tokenizer the file describes.

    Raises ``ModelFileError`` when a key is missing or wrong, or the kind of vocabulary is not supported.
    """
    tokens = list(metadata.strings("tokenizer.ggml.tokens"))
    kinds = _token_kinds(metadata, tokens)
    model = metadata.text("tokenizer.ggml.model")
    if model == "gpt2":
        return _byte_level(metadata, tokens, kinds)
    if model == "llama":
        return _sentencepiece(metadata, tokens, kinds, architecture)
    raise metadata.wrong("tokenizer.ggml.model", model, "'gpt2' or 'llama'")


def _token_kinds(metadata: Metadata, tokens: Sequence[str]) -> list[int]:
    """Return each token's kind, with misfiled control marks put right."""
    key = "tokenizer.ggml.token_type"
    if not metadata.has(key):
        return [NORMAL] * len(tokens)
    kinds = metadata.values[key]
    if not isinstance(kinds, np.ndarray) or len(kinds) != len(tokens):
        raise metadata.wrong(key, kinds, f"one kind for each of the {len(tokens)} tokens")
    listed: list[int] = kinds.tolist()
    for index in np.flatnonzero(kinds == USER_DEFINED).tolist():
        if _CONTROL_LOOKS.fullmatch(tokens[index]):
            listed[index] = CONTROL
    return listed


def _byte_level(metadata: Metadata, tokens: list[str], kinds: list[int]) -> Tokenizer:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models

    pre = metadata.text("tokenizer.ggml.pre", "default")
    pre = _ALIASES.get(pre, pre)
    if pre not in PRE_TOKENIZERS:
        wanted = f"one of {', '.join(PRE_TOKENIZERS)}{nearest_name(pre, PRE_TOKENIZERS)}"
        raise metadata.wrong("tokenizer.ggml.pre", pre, wanted)
    vocab = {token: index for index, token in enumerate(tokens) if kinds[index] in (NORMAL, USER_DEFINED)}
    merges = _stated_merges(metadata, vocab, {t for t, kind in zip(tokens, kinds, strict=True) if kind != 1})
    is_llama3 = pre == "llama-bpe"
    backend = Backend(models.BPE(vocab, merges, ignore_merges=is_llama3))
    _set_word_split(backend, pre)

    def raw_bytes(index: int) -> bytes:
        if kinds[index] == NORMAL and (spelled := spelled_bytes(tokens[index])) is not None:
            return spelled
        return tokens[index].encode()

    return Tokenizer(
        backend,
        Vocabulary(
            tokens=tokens,
            control=_whole_tokens(tokens, kinds, CONTROL),
            user_defined=_whole_tokens(tokens, kinds, USER_DEFINED),
            hidden=_hidden(kinds),
            raw_bytes=raw_bytes,
            bos_id=_stated_id(metadata, "bos_token_id", len(tokens)),
            eos_id=_stated_id(metadata, "eos_token_id", len(tokens)),
            eos_ids=_eos_ids(metadata, tokens, kinds),
            adds_bos=metadata.flag("tokenizer.ggml.add_bos_token", is_llama3),
        ),
    )


def _stated_merges(metadata: Metadata, vocab: dict[str, int], special: set[str]) -> list[tuple[str, str]]:
    """Return the file's merges; one that would build a special token from text is left out."""
    merges: list[tuple[str, str]] = []
    for index, merge in enumerate(metadata.strings("tokenizer.ggml.merges")):
        left, space, right = merge.partition(" ")
        if left in vocab and right in vocab and left + right in vocab:
            merges.append((left, right))
        elif not space or not {left, right, left + right} & special:
            raise ModelFileError(
                f"{metadata.path}: merge {index} ({merge!r:.60}) names tokens the vocabulary does not have: "
                "the file is corrupt or badly converted, convert it again"
            )
    return merges


def _set_word_split(backend: Backend, pre: str) -> None:
    """Cut text into words the way the vocabulary's merges were learned.

    ``default`` means that the converter did not know; GPT-2's rule is taken, as transformers does. Qwen
    composes characters first (NFC), as its own tokenizer does and llama.cpp does not.
    """
    from tokenizers import Regex, normalizers, pre_tokenizers

    gpt2_words = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    if pre == "smollm":
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, gpt2_words])
    elif pre in ("llama-bpe", "qwen2"):
        pattern = _LLAMA3_WORDS if pre == "llama-bpe" else _QWEN2_WORDS
        split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
        backend.pre_tokenizer = pre_tokenizers.Sequence([split, bytes_only])
    else:
        backend.pre_tokenizer = gpt2_words
    if pre == "qwen2":
        backend.normalizer = normalizers.NFC()


def _sentencepiece(metadata: Metadata, tokens: list[str], kinds: list[int], architecture: str) -> Tokenizer:
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, normalizers

    respelled = ["▁" * len(token) if token and not token.strip(" ") else token for token in tokens]
    vocab = {
        token: index
        for index, token in enumerate(respelled)
        if kinds[index] in (NORMAL, USER_DEFINED, BYTE, UNKNOWN)
    }
    byte_ids = _byte_ids(metadata, tokens, kinds)
    merges = _merges_from_scores(respelled, _merge_order(metadata, kinds), vocab)
    backend = Backend(models.BPE(vocab, merges, fuse_unk=True, byte_fallback=True))
    backend.normalizer = normalizers.Replace(" ", "▁")
    values = {index: value for value, index in enumerate(byte_ids)}

    def raw_bytes(index: int) -> bytes:
        if index in values:
            return bytes([values[index]])
        return tokens[index].replace("▁", " ").encode()

    # Runs of spaces are built by merges, after spaces were respelled: a literal ▁ counts as one too.
    user_defined = _whole_tokens(tokens, kinds, USER_DEFINED)
    is_phi3 = architecture == "phi3"
    has_prefix = metadata.flag("tokenizer.ggml.add_space_prefix", True)
    prefix: SpacePrefix = "each" if has_prefix else "never"
    return Tokenizer(
        backend,
        Vocabulary(
            tokens=tokens,
            control=_whole_tokens(tokens, kinds, CONTROL, strips_right=is_phi3),
            user_defined=tuple(t for t in user_defined if t.text.strip(" ")),
            hidden=_hidden(kinds),
            raw_bytes=raw_bytes,
            bos_id=_stated_id(metadata, "bos_token_id", len(tokens)),
            eos_id=_stated_id(metadata, "eos_token_id", len(tokens)),
            eos_ids=_eos_ids(metadata, tokens, kinds),
            adds_bos=metadata.flag("tokenizer.ggml.add_bos_token", True),
            space_prefix=prefix,
        ),
    )


def _merge_order(metadata: Metadata, kinds: list[int]) -> array[int]:
    """Return the ids of tokens that merges may build, the first to be built first.

    SentencePiece builds the piece with the best score first, and what the user defined before all else.
    """
    key = "tokenizer.ggml.scores"
    scores = metadata.values.get(key)
    if not isinstance(scores, np.ndarray) or len(scores) != len(kinds) or not np.isfinite(scores).all():
        raise metadata.wrong(key, scores, f"one finite score for each of the {len(kinds)} tokens")
    kind = np.array(kinds)
    ranks = np.lexsort((np.arange(len(kinds)), -scores, kind != USER_DEFINED))
    return array("q", ranks[np.isin(kind[ranks], (NORMAL, USER_DEFINED))].tolist())


def _merges_from_scores(tokens: list[str], order: array[int], vocab: dict[str, int]) -> list[tuple[str, str]]:
    """Return every way to build each token from two others, in the order of building.

    Of one token's splits the one with the longer left half comes first, as in the tokenizer.json files that
    Google and Hugging Face publish.
    """
    merges: list[tuple[str, str]] = []
    append, find = merges.append, vocab.get
    for index in order:
        token = tokens[index]
        for cut in range(len(token) - 1, 0, -1):
            left, right = find(token[:cut]), find(token[cut:])
            if left is not None and right is not None:
                # The vocabulary's own strings, not the slices: for Gemma this saves 70 MB.
                append((tokens[left], tokens[right]))
    return merges


def _byte_ids(metadata: Metadata, tokens: list[str], kinds: list[int]) -> list[int]:
    """Return the id of each byte's token. Raises when one is missing: some text could not be encoded."""
    found = {token: index for index, token in enumerate(tokens) if kinds[index] == BYTE}
    names = [f"<0x{value:02X}>" for value in range(256)]
    missing = [name for name in names if name not in found]
    if missing:
        raise ModelFileError(
            f"{metadata.path}: the vocabulary has no token for {len(missing)} bytes (first {missing[0]}), so "
            "not every text can be encoded; convert the model again"
        )
    return [found[name] for name in names]


def _whole_tokens(
    tokens: Sequence[str], kinds: Sequence[int], kind: int, strips_right: bool = False
) -> tuple[WholeToken, ...]:
    """Return the tokens of one kind. Phi-3's marks swallow the whitespace behind them, but for three."""
    keeps = {"<unk>", "<s>", "<|endoftext|>"}
    return tuple(
        WholeToken(token, index, strips_right=strips_right and token not in keeps)
        for index, token in enumerate(tokens)
        if kinds[index] == kind
    )


def _hidden(kinds: Sequence[int]) -> frozenset[int]:
    return frozenset(index for index, kind in enumerate(kinds) if kind in (CONTROL, UNKNOWN, UNUSED))


def _stated_id(metadata: Metadata, name: str, vocab_size: int) -> int | None:
    key = f"tokenizer.ggml.{name}"
    return metadata.integer(key, low=0, high=vocab_size - 1) if metadata.has(key) else None


def _eos_ids(metadata: Metadata, tokens: Sequence[str], kinds: Sequence[int]) -> frozenset[int]:
    stated = {_stated_id(metadata, name, len(tokens)) for name in ("eos_token_id", "eot_token_id")}
    marks = {i for i, token in enumerate(tokens) if token in END_MARKS and kinds[i] == CONTROL}
    return frozenset(marks | {index for index in stated if index is not None})
