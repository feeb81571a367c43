"""Put the application together: endpoints, errors in OpenAI's form, the gate in front."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from paceline.server import schema
from paceline.server.api import Api
from paceline.server.errors import ApiError, bad_request
from paceline.server.gate import Gate
from paceline.server.openapi import describe
from paceline.server.page import add_page
from paceline.server.refused import explain
from paceline.server.service import Service
from paceline.server.settings import ServerSettings

if TYPE_CHECKING:
    from pydantic import BaseModel

    from paceline.llm import LLM

BODIES: dict[str, type[BaseModel]] = {
    "/v1/chat/completions": schema.ChatRequest,
    "/v1/completions": schema.CompletionRequest,
    "/tokenize": schema.TokenizeRequest,
    "/detokenize": schema.DetokenizeRequest,
}


def create_app(llm: LLM, settings: ServerSettings) -> tuple[ASGIApp, Service]:
    """Return the application that serves ``llm``, and its service, which owns the engine from its start."""
    service = Service(llm, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        service.start()
        yield
        service.stop()

    app = FastAPI(title="Paceline", docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)
    _add_routes(app, Api(service))
    app.add_exception_handler(ApiError, _answer_api_error)
    app.add_exception_handler(RequestValidationError, _answer_invalid)
    app.add_exception_handler(HTTPException, _answer_http)
    app.add_exception_handler(Exception, _answer_unforeseen)
    describe(app)
    add_page(app)
    gate: ASGIApp = Gate(app, settings, service.metrics)
    if settings.allow_origins:  # outermost: a browser asks beforehand without a key, and reads refusals too
        gate = CORSMiddleware(
            gate, allow_origins=settings.allow_origins, allow_methods=["GET", "POST"], allow_headers=["*"]
        )
    return gate, service


def _add_routes(app: FastAPI, api: Api) -> None:
    def add(method: str, path: str, endpoint: Callable[..., Any]) -> None:
        app.add_api_route(path, endpoint, methods=[method], response_model=None, name=endpoint.__name__)

    add("POST", "/v1/chat/completions", api.chat_completions)
    add("POST", "/v1/completions", api.completions)
    add("POST", "/v1/embeddings", api.embeddings)
    add("GET", "/v1/models", api.models)
    add("GET", "/v1/models/{name:path}", api.model)
    add("GET", "/v1/config", api.config)
    add("POST", "/tokenize", api.tokenize)
    add("POST", "/detokenize", api.detokenize)
    add("GET", "/health", api.health)
    add("GET", "/ready", api.ready)
    add("GET", "/metrics", api.metrics)


async def _answer_api_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, ApiError)
    return JSONResponse(error.body, error.status, error.headers)


async def _answer_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    model = BODIES.get(request.url.path, schema.ChatRequest)
    return await _answer_api_error(request, explain(error.errors(), model))


async def _answer_http(request: Request, error: Exception) -> Response:
    """Answer what the framework itself found: no such path, no such method, a body that is no JSON at all."""
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        answer = ApiError(404, "there is nothing at this path: see /docs", code="unknown_path")
    elif error.status_code == 405:
        allowed = {name.lower(): value for name, value in (error.headers or {}).items()}.get("allow", "")
        said = f"this path takes {allowed or 'another method'}"
        answer = ApiError(405, said, headers={"Allow": allowed} if allowed else None)
    elif error.status_code == 400:
        answer = bad_request("the body cannot be read as JSON: it is no UTF-8, or nested too deeply")
    else:
        answer = ApiError(error.status_code, str(error.detail))
    return await _answer_api_error(request, answer)


async def _answer_unforeseen(request: Request, _: Exception) -> Response:
    """Answer a bug of ours; the log has the traceback, the client learns nothing of the inside."""
    return await _answer_api_error(
        request, ApiError(500, "the server failed on this request", code="internal")
    )
