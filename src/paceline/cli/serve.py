"""``paceline serve``: the OpenAI-compatible server."""

from __future__ import annotations

import errno
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paceline.cli import options
from paceline.cli.config_file import loaded_drift
from paceline.errors import ConfigError

if TYPE_CHECKING:
    from paceline.server.settings import ServerSettings

LEAST_KEY_LENGTH = 16
"""Of a key, from wherever: shorter ones can be guessed."""
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
"""Of an address that this machine does not have."""


def serve(
    model: options.Model = options.DEFAULT_MODEL,
    drafter: options.DrafterName = "auto",
    num_draft_tokens: options.NumDraftTokens = None,
    host: Annotated[
        str,
        typer.Option(
            "--host", metavar="HOST", help="Address to listen on; 0.0.0.0 for all, which needs a key."
        ),
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", "-p", metavar="PORT", help="Port to listen on; 0 picks one.")
    ] = 8000,
    api_key: Annotated[
        list[str] | None,
        typer.Option(
            "--api-key",
            metavar="KEY",
            help="Key that requests must send, of 16 characters or more; several may be given.",
        ),
    ] = None,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file", metavar="FILE", help="File with one key a line; `ps` does not show it."
        ),
    ] = None,
    open_to_all: Annotated[
        bool, typer.Option("--no-key", help="Listen beyond this machine without any key.")
    ] = False,
    served_model_name: Annotated[
        list[str] | None,
        typer.Option(
            "--served-model-name", metavar="NAME", help="What requests call the model (default: its name)."
        ),
    ] = None,
    threads: options.Threads = None,
    context: options.Context = None,
    kv_cache_tokens: Annotated[
        int | None,
        typer.Option("--kv-cache-tokens", metavar="N", help="Tokens in the cache, of all requests together."),
    ] = None,
    max_num_requests: Annotated[
        int, typer.Option("--max-num-requests", metavar="N", help="Requests that run at once.")
    ] = 32,
    max_batch_tokens: Annotated[
        int, typer.Option("--max-batch-tokens", metavar="N", help="Most rows of a forward.")
    ] = 512,
    max_queue: Annotated[
        int, typer.Option("--max-queue", metavar="N", help="Requests that may wait; more are answered 429.")
    ] = 256,
    max_queue_time: Annotated[
        float | None,
        typer.Option("--max-queue-time", metavar="S", help="Seconds a request may wait to begin."),
    ] = None,
    request_timeout: Annotated[
        float | None,
        typer.Option("--request-timeout", metavar="S", help="Seconds after which a reply ends as it is."),
    ] = None,
    drain_seconds: Annotated[
        float,
        typer.Option("--drain-seconds", metavar="S", help="On SIGTERM, seconds for replies to end."),
    ] = 30.0,
    stuck_seconds: Annotated[
        float,
        typer.Option("--stuck-seconds", metavar="S", help="/health fails when one step takes longer."),
    ] = 60.0,
    draft_timeout: Annotated[
        float,
        typer.Option(
            "--draft-timeout",
            metavar="S",
            help="Longest call to a drafter from outside; then without drafts.",
        ),
    ] = 2.0,
    max_body_bytes: Annotated[
        int, typer.Option("--max-body-bytes", metavar="N", help="Largest body of a request.")
    ] = 4 * 1024 * 1024,
    metrics_compat: Annotated[
        str, typer.Option("--metrics-compat", metavar="NAME", help="vllm: metrics also under vLLM's names.")
    ] = "none",
    allow_origin: Annotated[
        list[str] | None,
        typer.Option("--allow-origin", metavar="URL", help="Web page that may call the server (CORS)."),
    ] = None,
    log_format: Annotated[
        str, typer.Option("--log-format", metavar="FORM", help="json or text, on standard error.")
    ] = "json",
    log_level: Annotated[
        str, typer.Option("--log-level", metavar="LEVEL", help="debug, info, warning or error.")
    ] = "info",
    log_prompts: Annotated[
        bool, typer.Option("--log-prompts", help="Write prompts and replies into the log.")
    ] = False,
    quant: options.QuantName = "none",
) -> None:
    """Serve a model over OpenAI's interface: chat and plain completions, streamed or whole, and metrics.

    Examples:
    paceline serve --model smollm2-135m --port 8000
    paceline serve --host 0.0.0.0 --api-key-file keys.txt --metrics-compat vllm

    SIGTERM and Ctrl-C let running replies end and leave with status 0.
    """
    _require_extra()
    from paceline.llm import LLM
    from paceline.server.run import serve as run
    from paceline.server.settings import ServerSettings

    keys = _keys(api_key or [], api_key_file)
    _check_address(host, port, has_key=bool(keys), open_to_all=open_to_all)
    settings = ServerSettings(
        model_names=_names(model, served_model_name),
        api_keys=keys,
        max_queue=max_queue,
        max_queue_time=max_queue_time,
        request_timeout=request_timeout,
        drain_seconds=drain_seconds,
        stuck_seconds=stuck_seconds,
        max_body_bytes=max_body_bytes,
        metrics_compat=metrics_compat,
        log_prompts=log_prompts,
        allow_origins=tuple(allow_origin or ()),
    )
    _set_up_log(log_format, log_level)
    sizes = {
        "quant": options.quant_named(quant),
        "threads": threads,
        "max_model_len": context,
        "kv_cache_tokens": kv_cache_tokens,
        "max_batch_tokens": max_batch_tokens,
        "max_num_requests": max_num_requests,
    }
    watch = {"draft_timeout": draft_timeout, "drift": loaded_drift()}
    llm = LLM(model, drafter, num_draft_tokens, **sizes, **watch)  # type: ignore[arg-type]
    _greet(settings, host, port)
    run(llm, settings, host, port)


def _require_extra() -> None:
    """Raise ``ConfigError`` when the packages of the server are not installed."""
    from importlib.util import find_spec

    missing = [
        name for name in ("fastapi", "llguidance", "prometheus_client", "uvicorn") if find_spec(name) is None
    ]
    if missing:
        raise ConfigError(
            f"serving needs {', '.join(missing)}: install them with  pip install 'paceline[server]'"
        )


def _keys(given: list[str], file: Path | None) -> tuple[str, ...]:
    keys = {"--api-key": given, f"--api-key-file {file}": [] if file is None else _keys_in(file)}
    for source, some in keys.items():
        if any(len(key) < LEAST_KEY_LENGTH for key in some):
            raise ConfigError(
                f"{source}: a key has fewer than {LEAST_KEY_LENGTH} characters; make one with  "
                "python -c 'import secrets; print(secrets.token_urlsafe())'"
            )
    return tuple(key for some in keys.values() for key in some)


def _keys_in(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in file.read_text(encoding="utf-8").splitlines()]
    except OSError as error:
        raise ConfigError(f"--api-key-file {file} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--api-key-file {file} cannot be read: {error}") from error
    keys = [line for line in lines if line and not line.startswith("#")]
    if not keys:
        raise ConfigError(f"--api-key-file {file} holds no key: write one a line")
    return keys


def _check_address(host: str, port: int, *, has_key: bool, open_to_all: bool) -> None:
    """Raise ``ConfigError`` for an open door that nobody asked for, and where nobody can listen."""
    if not 0 <= port <= 65535:
        raise ConfigError(f"--port {port}: give a number from 0 to 65535")
    is_local = host in ("localhost", "::1") or host.startswith("127.")
    if not is_local and not has_key and not open_to_all:
        raise ConfigError(
            f"--host {host} lets other machines in: give --api-key or --api-key-file, or say --no-key"
        )
    if open_to_all and has_key:
        raise ConfigError("--no-key contradicts the keys that were given: drop one of them")
    _check_free(host, port)


def _check_free(host: str, port: int) -> None:
    """Raise ``ConfigError`` where nobody can listen: before the model is loaded, and in words.

    A name may stand for several addresses (``localhost``); those the machine lacks count only when all do.
    """
    try:
        places = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise ConfigError(
            f"--host {host!r} is no address ({error.strerror}): give one of this machine"
        ) from error
    failures = [failure for place in places if (failure := _bind_failure(place[0], place[4]))]
    busy = [failure for failure in failures if failure.errno not in ABSENT]
    if busy:
        raise ConfigError(
            f"nobody can listen on --host {host} --port {port}: {busy[0].strerror}; stop the program that "
            "does, or give another --port (0 picks one)"
        )
    if len(failures) == len(places):
        raise ConfigError(f"--host {host}: {failures[0].strerror}; give an address of this machine")


def _bind_failure(family: int, address: tuple[object, ...]) -> OSError | None:
    """Return why a socket cannot be bound there as a server binds it; ``None`` when it can."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            probe.bind(address)
    except OSError as error:
        return error
    return None


def _set_up_log(form: str, level: str) -> None:
    from paceline.config import check_choice
    from paceline.server import logs

    check_choice("--log-format", form, logs.FORMATS)
    check_choice("--log-level", level, ("debug", "info", "warning", "error"))
    logs.set_up(form, level)


def _names(model: str, given: list[str] | None) -> tuple[str, ...]:
    """Return what requests may call the model: of a file or folder its own name, not where it lies."""
    if given:
        return tuple(given)
    return (Path(model).stem if Path(model).exists() else model,)


def _greet(settings: ServerSettings, host: str, port: int) -> None:
    """Say where what is served, where a person reads it."""
    address = f"http://{f'[{host}]' if ':' in host else host}:{port or '(a free port)'}"
    count = len(settings.api_keys)
    keys = "no API key" if not count else "1 API key" if count == 1 else f"{count} API keys"
    print(
        f"paceline: serving {settings.model_names[0]} at {address} ({keys}); page at /, interface at /docs",
        file=sys.stderr,
        flush=True,
    )
