"""Build a tokenizer from a Hugging Face folder's tokenizer.json.

The file's own pipeline (normaliser, word split, merges) runs in the ``tokenizers`` package; its added
tokens, its BOS rule and its leading space are taken out and done by ``Tokenizer``, so that one law holds for
both kinds of model file: special tokens are parsed where the caller says so, and nowhere else.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paceline.errors import ModelFileError
from paceline.models.byte_alphabet import spelled_bytes
from paceline.models.safetensors_file import read_json_object
from paceline.models.spec import ModelSpec
from paceline.models.special_split import WholeToken
from paceline.models.tokenizer import SpacePrefix, Tokenizer, Vocabulary

_BYTE_TOKEN = re.compile(r"<0x([0-9A-F]{2})>")


def build_hf_tokenizer(folder: Path, spec: ModelSpec) -> Tokenizer:
    """Return the tokenizer of ``folder``. Raises ``ModelFileError`` when its files do not describe one."""
    from tokenizers import Tokenizer as Backend

    path = folder / "tokenizer.json"
    pipeline = read_json_object(path)
    try:
        parts = _take_apart(pipeline)
        backend = Backend.from_str(json.dumps(pipeline))
    except ModelFileError:
        raise
    except Exception as error:  # tokenizers raises bare Exception for whatever its parser refuses
        raise ModelFileError(f"{path} describes no tokenizer ({error}): download it again") from error
    highest = max(parts.texts, default=-1)
    if highest >= spec.vocab_size:
        raise ModelFileError(f"{path} has token id {highest}, but the model embeds only {spec.vocab_size}")
    tokens = [parts.texts.get(index, "") for index in range(highest + 1)]
    settings = _optional_json(folder / "tokenizer_config.json")
    ids = {text: index for index, text in parts.texts.items()}
    eos_id = _named_token(settings, "eos_token", ids)
    vocabulary = Vocabulary(
        tokens=tokens,
        control=parts.control,
        user_defined=parts.user_defined,
        hidden=frozenset(token.token_id for token in parts.control),
        raw_bytes=parts.raw_bytes,
        bos_id=_named_token(settings, "bos_token", ids) if parts.bos_id is None else parts.bos_id,
        eos_id=eos_id,
        eos_ids=_eos_ids(folder, eos_id, spec.vocab_size),
        adds_bos=bool(settings.get("add_bos_token", parts.bos_id is not None)),
        space_prefix=parts.space_prefix,
        spares_spaces=parts.spares_spaces,
    )
    return Tokenizer(backend, vocabulary)


@dataclass(frozen=True, slots=True)
class _Parts:
    """What was taken out of a tokenizer.json. ``texts``: id → text of every token."""

    texts: dict[int, str]
    control: tuple[WholeToken, ...]
    user_defined: tuple[WholeToken, ...]
    literal_ids: frozenset[int]
    is_byte_level: bool
    bos_id: int | None
    space_prefix: SpacePrefix
    spares_spaces: bool

    def raw_bytes(self, index: int) -> bytes:
        """Return the bytes an ordinary token stands for."""
        text = self.texts.get(index, "")
        if index in self.literal_ids:
            return text.encode()
        if self.is_byte_level:
            spelled = spelled_bytes(text)
            return text.encode() if spelled is None else spelled
        byte = _BYTE_TOKEN.fullmatch(text)
        return bytes([int(byte[1], 16)]) if byte else text.replace("▁", " ").encode()


def _take_apart(pipeline: dict[str, Any]) -> _Parts:
    """Remove from ``pipeline`` what ``Tokenizer`` does itself, and return it."""
    added: list[dict[str, Any]] = pipeline.get("added_tokens") or []
    pipeline["added_tokens"] = []
    model = pipeline["model"]
    texts = {index: text for text, index in _vocabulary(model).items()}
    texts |= {int(token["id"]): str(token["content"]) for token in added}
    for token in added:
        if token.get("special") and isinstance(model.get("vocab"), dict):
            _forget(model, token["content"])
    bos_id = _bos_of(pipeline.pop("post_processor", None))
    is_byte_level = any(step.get("type") == "ByteLevel" for step in _steps(pipeline, "decoder"))
    space_prefix, spares_spaces = _take_space_prefix(pipeline)
    control, user_defined = (
        tuple(
            WholeToken(t["content"], int(t["id"]), bool(t.get("lstrip")), bool(t.get("rstrip")))
            for t in added
            if bool(t.get("special")) is wanted
        )
        for wanted in (True, False)
    )
    literal_ids = frozenset(token.token_id for token in user_defined)
    return _Parts(
        texts, control, user_defined, literal_ids, is_byte_level, bos_id, space_prefix, spares_spaces
    )


def _vocabulary(model: dict[str, Any]) -> dict[str, int]:
    vocab = model["vocab"]
    if isinstance(vocab, dict):
        return vocab
    return {piece: index for index, (piece, _) in enumerate(vocab)}


def _forget(model: dict[str, Any], text: str) -> None:
    """Take a control token out of the vocabulary (but for ``unk``, which the model itself looks up)."""
    if text != model.get("unk_token"):
        model["vocab"].pop(text, None)


def _steps(pipeline: dict[str, Any], key: str) -> Iterator[dict[str, Any]]:
    """Yield the steps of a normaliser, word split or decoder, sequences flattened."""
    pending = [pipeline.get(key)]
    while pending:
        step = pending.pop(0)
        if isinstance(step, dict):
            yield step
            for name in ("normalizers", "pretokenizers", "decoders", "processors"):
                pending = [*step.get(name, []), *pending]


def _take_space_prefix(pipeline: dict[str, Any]) -> tuple[SpacePrefix, bool]:
    """Switch off the step that puts a space before the text; return where it does, and whether sparingly."""
    for step in _steps(pipeline, "normalizer"):
        if step.get("type") == "Prepend":
            step["prepend"] = ""
            return "each", False
    for step in _steps(pipeline, "pre_tokenizer"):
        if step.get("type") == "Metaspace":
            scheme = step.get("prepend_scheme", "always" if step.get("add_prefix_space") else "never")
            step["prepend_scheme"] = "never"
            step.pop("add_prefix_space", None)
            prefix: SpacePrefix = {"always": "each", "first": "first"}.get(scheme, "never")  # type: ignore[assignment]
            return prefix, True
        if step.get("type") == "ByteLevel" and step.get("add_prefix_space"):
            step["add_prefix_space"] = False
            return "each", True
    return "never", False


def _bos_of(post_processor: dict[str, Any] | None) -> int | None:
    """Return the id that the file's own template puts before a text."""
    for step in _steps({"post_processor": post_processor}, "post_processor"):
        if step.get("type") == "TemplateProcessing":
            first = step["single"][0] if step["single"] else {}
            if "SpecialToken" in first:
                ids = step["special_tokens"][first["SpecialToken"]["id"]]["ids"]
                return int(ids[0])
    return None


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json_object(path) if path.is_file() else {}


def _named_token(settings: dict[str, Any], name: str, ids: dict[str, int]) -> int | None:
    token = settings.get(name)
    text = token.get("content") if isinstance(token, dict) else token
    return ids.get(text) if isinstance(text, str) else None


def _eos_ids(folder: Path, eos_id: int | None, vocab_size: int) -> frozenset[int]:
    """Return the ids that end an answer: the tokenizer's, and generation_config's or else config's."""
    found: set[int] = set() if eos_id is None else {eos_id}
    for name in ("generation_config.json", "config.json"):
        stated = _optional_json(folder / name).get("eos_token_id")
        listed = stated if isinstance(stated, list) else [stated]
        valid = {i for i in listed if isinstance(i, int) and 0 <= i < vocab_size}
        if valid:
            return frozenset(found | valid)
    return frozenset(found)
