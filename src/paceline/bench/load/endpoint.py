"""Where a server is, and what it says it is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import urlsplit, urlunsplit

import httpx2

from paceline.bench.load.failures import ReplyError, endpoint_error, failed_status, failed_transport
from paceline.bench.load.local import LocalTransport
from paceline.errors import ConfigError, EndpointError

Api = Literal["chat", "completions"]
Dialect = Literal["paceline", "vllm", "llama.cpp", "other"]

PATHS: Mapping[Api, str] = {"chat": "/chat/completions", "completions": "/completions"}
APIS: tuple[Api, ...] = get_args(Api)
CONNECT_SECONDS = 10.0
"""A host that is there answers a connection at once; `--timeout` may be minutes, for its replies."""

_OWNERS: Mapping[str, Dialect] = {"paceline": "paceline", "vllm": "vllm", "llamacpp": "llama.cpp"}
_EXTRAS: Mapping[Dialect, Mapping[str, Any]] = {
    # Counts in every chunk, so that a chunk of several tokens is known as such.
    "vllm": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "paceline": {"stream_options": {"include_usage": True, "continuous_usage_stats": True}},
    "llama.cpp": {"stream_options": {"include_usage": True}, "timings_per_token": True},
    "other": {"stream_options": {"include_usage": True}},
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """``base``: address up to and with ``/v1``. ``root``: the server's own, where ``/metrics`` lies."""

    base: str
    root: str
    api: Api

    @property
    def url(self) -> str:
        """The address that replies are asked from."""
        return self.base + PATHS[self.api]


@dataclass(frozen=True, slots=True)
class Server:
    """What answers at an endpoint. ``model``: the name requests use. ``extras``: what they ask beyond it."""

    endpoint: Endpoint
    dialect: Dialect
    model: str
    extras: Mapping[str, Any]


def parse_endpoint(text: str, api: str = "chat") -> Endpoint:
    """Return the endpoint for ``http://host:port``, ``…/v1`` or the full address of an interface.

    A full address decides the interface whatever ``api`` says. Raises ``ConfigError``.
    """
    if api not in APIS:
        raise ConfigError(f"--api {api!r}: give one of {', '.join(APIS)}")
    url = text.strip() if "://" in text else f"http://{text.strip()}"
    parts = urlsplit(url)
    try:
        has_host = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:  # a port that is none
        has_host = False
    if parts.scheme not in ("http", "https") or not has_host:
        raise ConfigError(f"--endpoint {text!r}: give the address of a server, such as http://127.0.0.1:8000")
    if parts.query or parts.fragment:
        raise ConfigError(f"--endpoint {text!r}: leave out what follows {'?' if parts.query else '#'}")
    path = parts.path.rstrip("/")
    chosen: Api = "completions" if api == "completions" else "chat"
    for name in APIS:  # chat first: its path ends with that of completions
        if path.endswith(PATHS[name]):
            path, chosen = path.removesuffix(PATHS[name]), name
            break
    else:
        path = path if path.endswith("/v1") else path + "/v1"
    base = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
    return Endpoint(base, base.removesuffix("/v1"), chosen)


def make_client(endpoint: Endpoint, api_key: str | None, timeout: float) -> httpx2.AsyncClient:
    """Return a client without a limit of its own on connections: the loop decides how many there are.

    A proxy from the environment is not asked for addresses of this machine, nor a general transport.
    """
    host = urlsplit(endpoint.base).hostname or ""
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx2.AsyncClient(
        headers=headers,
        timeout=httpx2.Timeout(timeout, connect=min(CONNECT_SECONDS, timeout), pool=None),
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=None),
        trust_env=not is_local,
        mounts={"http://": LocalTransport()} if is_local else None,
        follow_redirects=True,
    )


async def find_server(
    client: httpx2.AsyncClient, endpoint: Endpoint, model: str | None, timeout: float
) -> Server:
    """Ask ``/v1/models`` what is served. Raises ``EndpointError`` when nothing or something else answers.

    With ``model`` given, a server that lists no models is taken as it is.
    """
    url = endpoint.base + "/models"
    try:
        entries, banner = await _list_models(client, url, timeout)
    except ReplyError as failure:
        if model is None or failure.kind not in ("http_404", "http_405", "http_501"):
            raise endpoint_error(url, "a list of models as JSON", failure) from None
        entries, banner = [], ""
    dialect = _dialect(entries, banner)
    names = [str(entry.get("id")) for entry in entries]
    if model is None and not names:
        raise EndpointError(f"{url} lists no model; expected at least one: name one with --model")
    if model is not None and names and model not in names:
        # llama.cpp answers to any name; the others refuse, and then say so themselves.
        known = dialect == "llama.cpp" or any(model in (entry.get("aliases") or ()) for entry in entries)
        if not known:
            raise EndpointError(f"{url} does not list model {model!r}; it serves {', '.join(names)}")
    return Server(endpoint, dialect, model or names[0], _EXTRAS[dialect])


async def _list_models(
    client: httpx2.AsyncClient, url: str, timeout: float
) -> tuple[Sequence[Mapping[str, Any]], str]:
    try:
        answer = await client.get(url)
    except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
        raise failed_transport(error, timeout) from error
    content_type = answer.headers.get("content-type", "")
    if answer.status_code != 200:
        raise failed_status(answer.status_code, content_type, answer.text)
    try:
        plain = json.loads(answer.text)
    except ValueError:
        what = "an HTML page" if "html" in content_type else "something that is not JSON"
        raise ReplyError("bad_json", f"answers {what}") from None
    entries = plain.get("data") if isinstance(plain, dict) else None
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ReplyError("bad_json", "answers JSON without a list of models in `data`")
    return entries, answer.headers.get("server", "")


def _dialect(entries: Sequence[Mapping[str, Any]], banner: str) -> Dialect:
    for entry in entries:
        owner = str(entry.get("owned_by", "")).lower()
        if owner in _OWNERS:
            return _OWNERS[owner]
    return "llama.cpp" if banner.lower().startswith("llama.cpp") else "other"
