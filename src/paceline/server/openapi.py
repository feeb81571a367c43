"""The description of the interface at ``/openapi.json``, and a page that shows it at ``/docs``."""

from __future__ import annotations

from importlib import metadata, resources
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.responses import HTMLResponse, JSONResponse, Response

_ERROR = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
_OTHER_TYPES = {
    "/metrics": ("text/plain",),
    "/v1/chat/completions": ("application/json", "text/event-stream"),
    "/v1/completions": ("application/json", "text/event-stream"),
}
"""What answers are that are not, or not always, JSON."""
_STATUSES = {
    "400": "A parameter is unknown, not honoured, or out of range.",
    "401": "No valid API key.",
    "404": "No such model or path.",
    "408": "The body took too long to come.",
    "413": "The body is too large.",
    "415": "The body is not JSON.",
    "429": "As many requests wait as may; see Retry-After.",
    "500": "The engine failed.",
    "503": "The server stops, or makes no progress.",
}


def describe(app: FastAPI) -> None:
    """Add ``/openapi.json`` and ``/docs``. The page asks nothing of other servers."""
    cached: list[dict[str, Any]] = []

    async def schema() -> Response:
        if not cached:
            cached.append(_build(app))
        return JSONResponse(cached[0])

    async def docs() -> Response:
        page = resources.files("paceline.server").joinpath("static/docs.html")
        return HTMLResponse(page.read_text(encoding="utf-8"))

    app.add_api_route("/openapi.json", schema, include_in_schema=False)
    app.add_api_route("/docs", docs, include_in_schema=False)


def _build(app: FastAPI) -> dict[str, Any]:
    """Return FastAPI's description with our answers to mistakes in place of its own."""
    result = get_openapi(
        title="Paceline",
        version=metadata.version("paceline"),
        summary="OpenAI-compatible serving with exact speculative decoding",
        routes=app.routes,
    )
    components = result.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["Error"] = _ERROR
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    for path, methods in result["paths"].items():
        for operation in methods.values():
            answers = operation["responses"]
            if path in _OTHER_TYPES:
                answers["200"]["content"] = {kind: {"schema": {}} for kind in _OTHER_TYPES[path]}
            answers.pop("422", None)
            content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
            answers |= {
                status: {"description": text, "content": content} for status, text in _STATUSES.items()
            }
            operation["security"] = [{"key": []}, {}]
    return result
