"""Names that requests must not use: what is wrong with each, or which valid one is meant."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from paceline.errors import nearest_name
from paceline.server import schema
from paceline.server.errors import ApiError, bad_request
from paceline.server.unsupported import UNSUPPORTED

_NESTED: Mapping[str, type[BaseModel]] = {
    "speculative": schema.Speculative,
    "stream_options": schema.StreamOptions,
    "prediction": schema.Prediction,
    "messages": schema.Message,
    "response_format": schema.ResponseFormat,
    "structured_outputs": schema.StructuredOutputs,
    "tools": schema.Tool,
    "tool_choice": schema.NamedTool,
}
_WANTED = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
    "finite_number": "a finite number",
    "string_unicode": "valid Unicode (it holds a lone surrogate)",
}
_BRANCHES = frozenset({"str", "int", "float", "bool", "TextPart", "NamedTool"})
_BRANCH_STARTS = ("list[", "dict[", "literal[", "function-", "constrained-", "nullable[")
"""What pydantic calls the branches of a union; nobody wrote that into the request."""


def explain(errors: Sequence[Any], model: type[BaseModel]) -> ApiError:
    """Return the answer to pydantic's ``errors`` about a body that should have been a ``model``."""
    error = _most_telling(errors)
    path = [part for part in error["loc"] if part != "body"]
    kind = error["type"]
    if kind == "json_invalid":
        where = path[0] if path else 0
        return bad_request(f"the body is not JSON: {error['ctx']['error']} at character {where}")
    if not path:
        return bad_request(
            "the body is empty or no JSON object: send one, with Content-Type application/json"
        )
    param = _plain_path(path)
    if kind == "extra_forbidden":
        return _unknown(str(path[-1]), param, _fields(path, model))
    if kind == "missing":
        return bad_request(f"{param} is missing", param)
    wanted = _WANTED.get(kind) or _size_wanted(error)
    said = f"give {wanted}" if wanted else str(error["msg"])
    return bad_request(f"{param}={_short(repr(error.get('input')))}: {said}", param)


def _size_wanted(error: Any) -> str | None:
    """Return how long a list may be, if its length is wrong."""
    for kind, word, bound in (("too_short", "least", "min_length"), ("too_long", "most", "max_length")):
        if error["type"] == kind:
            count = int(error["ctx"][bound])
            return f"at {word} {count} {'entry' if count == 1 else 'entries'}"
    return None


def _most_telling(errors: Sequence[Any]) -> Any:
    """Return one error: of a union every branch complains, and the one that came furthest knows best."""
    first = errors[0]["loc"][:2]
    same = [error for error in errors if error["loc"][:2] == first]
    return max(same, key=lambda error: (len(error["loc"]), error["type"] not in _WANTED))


def _unknown(name: str, param: str, known: Iterable[str]) -> ApiError:
    if name in UNSUPPORTED:
        return bad_request(f"{param} is not honoured: {UNSUPPORTED[name]}", param, "unsupported_parameter")
    valid = sorted(known)
    near = nearest_name(name, valid)
    hint = near or f"; valid are {', '.join(valid)}"
    return bad_request(f"unknown parameter {_short(param)}{hint}", _short(param), "unknown_parameter")


def _fields(path: Sequence[Any], model: type[BaseModel]) -> Iterable[str]:
    if len(path) == 1:
        return model.model_fields
    inner = _NESTED.get(str(path[0]))
    if inner is None or (path[0] in ("messages", "prediction") and "content" in path):
        return schema.TextPart.model_fields
    return inner.model_fields


def _plain_path(path: Sequence[Any]) -> str:
    """Return ``messages[0].content`` for pydantic's location, without its names of union branches."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part}]"
        elif not text:
            text = part
        elif part not in _BRANCHES and not part.startswith(_BRANCH_STARTS):
            text += f".{part}"
    return text


def _short(text: str) -> str:
    text = text.encode("ascii", "backslashreplace").decode()
    return text if len(text) <= 60 else text[:57] + "..."
