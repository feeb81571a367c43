"""Text to token ids and back, for every vocabulary a model file can bring.

The merges run in the ``tokenizers`` package. Control tokens are kept out of its vocabulary altogether: text
can only become one where the caller says that special tokens are to be parsed, and a plain prompt that spells
``<|im_end|>`` stays text.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from paceline.errors import PromptError
from paceline.models.special_split import SpecialSplitter, WholeToken

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Backend

SpacePrefix = Literal["never", "first", "each"]


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Everything about a vocabulary but its merges.

    ``tokens``: each id's text as the file spells it. ``control``: tokens that only ``parse_special`` text can
    become and that decoding leaves out (``hidden`` lists all such ids). ``user_defined``: tokens matched
    whole in any text. ``raw_bytes(id)``: the bytes an ordinary id stands for. ``space_prefix``: whether a
    space is put before the first piece of text, before each (behind every special token), or never;
    ``spares_spaces``: not where the text starts with one already.
    """

    tokens: Sequence[str]
    control: tuple[WholeToken, ...]
    user_defined: tuple[WholeToken, ...]
    hidden: frozenset[int]
    raw_bytes: Callable[[int], bytes]
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    adds_bos: bool
    space_prefix: SpacePrefix = "never"
    spares_spaces: bool = False


class Tokenizer:
    """Encodes and decodes. Building one costs time and memory: ``ModelFiles.tokenizer`` is lazy."""

    def __init__(self, backend: Backend, vocabulary: Vocabulary) -> None:
        self._backend = backend
        self._vocabulary = vocabulary
        self._user_defined = SpecialSplitter(vocabulary.user_defined)
        self._all_special = SpecialSplitter((*vocabulary.user_defined, *vocabulary.control))
        self._bytes: dict[int, bytes] = {}

    @property
    def tokens(self) -> Sequence[str]:
        """The text of each id, as the model file spells it."""
        return self._vocabulary.tokens

    @property
    def vocab_size(self) -> int:
        """Number of ids that have a text (a model may have more rows, as padding)."""
        return len(self._vocabulary.tokens)

    @property
    def control_tokens(self) -> dict[str, int]:
        """Text → id of each control token."""
        return {token.text: token.token_id for token in self._vocabulary.control}

    @property
    def user_defined_tokens(self) -> dict[str, int]:
        """Text → id of each token that is matched whole in any text."""
        return {token.text: token.token_id for token in self._vocabulary.user_defined}

    @property
    def bos_token_id(self) -> int | None:
        return self._vocabulary.bos_id

    @property
    def eos_token_id(self) -> int | None:
        """The EOS token the model file names first; see ``eos_token_ids`` for all that end an answer."""
        return self._vocabulary.eos_id

    @property
    def eos_token_ids(self) -> frozenset[int]:
        """Ids that end an answer."""
        return self._vocabulary.eos_ids

    @property
    def adds_bos(self) -> bool:
        """Whether the model expects its BOS token before every prompt."""
        return self._vocabulary.adds_bos and self._vocabulary.bos_id is not None

    def encode(self, text: str, *, parse_special: bool = False, add_bos: bool | None = None) -> list[int]:
        """Return the ids of ``text``.

        ``parse_special``: text that spells a control token becomes that token. ``add_bos``: put BOS first
        (``None``: as the model expects; never twice). Raises ``PromptError`` for text that is not valid
        Unicode (lone surrogates).
        """
        ids = self.encode_pieces(self.split(text, parse_special=parse_special))
        bos = self._vocabulary.bos_id
        wants_bos = self.adds_bos if add_bos is None else add_bos
        if wants_bos and bos is not None and ids[:1] != [bos]:
            ids.insert(0, bos)
        return ids

    def split(self, text: str, *, parse_special: bool) -> list[str | int]:
        """Return ``text`` cut at user-defined (and control) tokens: pieces of text, and ids."""
        return list((self._all_special if parse_special else self._user_defined).split(text))

    def starts_user_defined(self, text: str, position: int) -> bool:
        """Return whether a user-defined token, and no longer control token, stands at ``position``."""
        match = self._all_special.match(text, position)
        return match is not None and match == self._user_defined.match(text, position)

    def encode_pieces(self, pieces: Iterable[str | int]) -> list[int]:
        """Return the ids of pieces of text, in which no control token is parsed, and of ids among them."""
        prefix = self._vocabulary.space_prefix
        ids: list[int] = []
        is_start = True
        for piece in pieces:
            if isinstance(piece, int):
                ids.append(piece)
                is_start = prefix == "each"
                continue
            spared = self._vocabulary.spares_spaces and piece.startswith((" ", "▁"))
            wants_space = is_start and prefix != "never" and not spared
            ids.extend(self._encode_text(" " + piece if wants_space else piece))
            is_start = False
        return ids

    def _encode_text(self, text: str) -> list[int]:
        try:
            ids: list[int] = self._backend.encode(text, add_special_tokens=False).ids
        except (UnicodeEncodeError, TypeError) as error:
            raise PromptError(
                f"the text {text[:40]!r} holds a lone surrogate, which is not valid Unicode: remove it"
            ) from error
        return ids

    def token_bytes(self, token_id: int, *, skip_special: bool = True) -> bytes:
        """Return the bytes ``token_id`` adds to the text: none for a control token unless asked for.

        Ids behind the vocabulary (padding rows of the model) add none. Raises ``PromptError`` below zero.
        """
        if token_id < 0:
            raise PromptError(f"token id {token_id} is negative")
        if token_id >= len(self._vocabulary.tokens):
            return b""
        if token_id in self._vocabulary.hidden:
            return b"" if skip_special else self._vocabulary.tokens[token_id].encode()
        piece = self._bytes.get(token_id)
        if piece is None:
            piece = self._bytes[token_id] = self._vocabulary.raw_bytes(token_id)
        return piece

    def decode(self, ids: Iterable[int], *, skip_special: bool = True) -> str:
        """Return the text of ``ids``; bytes that are no valid UTF-8 become U+FFFD.

        The space that encoding puts before a text (``space_prefix``) is taken off again.
        """
        text = b"".join(self.token_bytes(i, skip_special=skip_special) for i in ids).decode(errors="replace")
        strips = self._vocabulary.space_prefix != "never"
        return text.removeprefix(" ") if strips else text

    def stream(self, *, skip_special: bool = True) -> StreamDecoder:
        """Return a decoder for the tokens of an answer as they come."""
        return StreamDecoder(self, skip_special)


class StreamDecoder:
    """Turns tokens into text deltas, each of them whole characters.

    Bytes of a character that is not complete yet are kept back; the deltas and ``finish`` together are the
    decoded text of all tokens.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Return the text that ``token_id`` completes, possibly none."""
        return self._utf8.decode(self._tokenizer.token_bytes(token_id, skip_special=self._skip_special))

    def finish(self) -> str:
        """Return what was kept back, as U+FFFD where it is no character; the decoder starts afresh."""
        rest = self._utf8.decode(b"", final=True)
        self._utf8.reset()
        return rest
