"""Each flag of ``paceline serve``, from the command line and from a settings file, reaches what it sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from paceline import llm as library
from paceline.cli.main import app
from paceline.server import logs, run

KEY = "a-key-of-sixteen-letters"
TYPED = "another-key-of-such-length"
FLAGS: dict[str, tuple[str, str, Any]] = {
    "--model": ("tiny", "llm.model", "tiny"),
    "--drafter": ("ngram", "llm.drafter", "ngram"),
    "--num-draft-tokens": ("5", "llm.num_draft_tokens", 5),
    "--threads": ("1", "llm.threads", 1),
    "--context": ("512", "llm.max_model_len", 512),
    "--quant": ("q8", "llm.quant", "q8"),
    "--kv-cache-tokens": ("2048", "llm.kv_cache_tokens", 2048),
    "--max-num-requests": ("3", "llm.max_num_requests", 3),
    "--max-batch-tokens": ("99", "llm.max_batch_tokens", 99),
    "--draft-timeout": ("0.5", "llm.draft_timeout", 0.5),
    "--host": ("localhost", "host", "localhost"),
    "--port": ("8123", "port", 8123),
    "--api-key": (TYPED, "settings.api_keys", (TYPED, KEY)),
    "--served-model-name": ("mine", "settings.model_names", ("mine",)),
    "--max-queue": ("7", "settings.max_queue", 7),
    "--max-queue-time": ("8", "settings.max_queue_time", 8.0),
    "--request-timeout": ("9.5", "settings.request_timeout", 9.5),
    "--drain-seconds": ("3", "settings.drain_seconds", 3.0),
    "--stuck-seconds": ("4", "settings.stuck_seconds", 4.0),
    "--max-body-bytes": ("5000", "settings.max_body_bytes", 5000),
    "--metrics-compat": ("vllm", "settings.metrics_compat", "vllm"),
    "--allow-origin": ("https://a.example", "settings.allow_origins", ("https://a.example",)),
    "--log-format": ("text", "log.0", "text"),
    "--log-level": ("debug", "log.1", "debug"),
}
"""Flag: what is given, where it must arrive, and as what."""
SWITCHES = {"--log-prompts": ("settings.log_prompts", True)}
ELSEWHERE = {"--api-key-file", "--no-key", "--config"}
"""Tested by name below, and in test_program.py."""


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """What a start came to: instead of a model and a server there is this record."""
    found: dict[str, Any] = {}

    def load(model: str, drafter: str, num_draft_tokens: int | None, **settings: Any) -> str:
        named = {"model": model, "drafter": drafter, "num_draft_tokens": num_draft_tokens, **settings}
        found.update({f"llm.{name}": value for name, value in named.items()})
        return "an LLM"

    def serve(llm: Any, settings: Any, host: str, port: int) -> None:
        found.update({f"settings.{name}": getattr(settings, name) for name in settings.__dataclass_fields__})
        found.update(host=host, port=port)

    monkeypatch.setattr(library, "LLM", load)
    monkeypatch.setattr(run, "serve", serve)
    monkeypatch.setattr("paceline.cli.serve._check_free", lambda *_: None)  # of the machine, not of flags
    monkeypatch.setattr(logs, "set_up", lambda *given: found.update({"log.0": given[0], "log.1": given[1]}))
    return found


def start(*options: str) -> None:
    typer.main.get_command(app).main(["serve", *options], standalone_mode=False)


def test_every_flag_from_the_command_line(seen: dict[str, Any], tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(f"# ours\n{KEY}\n", encoding="utf-8")
    given = [word for flag, (value, _, _) in FLAGS.items() for word in (flag, value)]
    start(*given, *SWITCHES, "--api-key-file", str(keys))
    for _, place, expected in FLAGS.values():
        assert seen[place] == expected, place
    for place, expected in SWITCHES.values():
        assert seen[place] == expected


def test_every_flag_from_a_file(seen: dict[str, Any], tmp_path: Path) -> None:
    keys = tmp_path / "keys.txt"
    keys.write_text(KEY, encoding="utf-8")
    lines = [f'api-key-file = "{keys}"', "log-prompts = true", "[drift]", "min_ratio = 0.5"]
    for flag, (value, _, expected) in FLAGS.items():
        is_text = isinstance(expected, str | tuple)
        lines.insert(0, f"{flag.removeprefix('--')} = " + (f'"{value}"' if is_text else value))
    path = tmp_path / "settings.toml"
    path.write_text("\n".join(["[serve]", *lines]), encoding="utf-8")
    start("--config", str(path))
    for _, place, expected in FLAGS.values():
        assert seen[place] == expected, place
    assert seen["settings.log_prompts"] is True
    assert seen["llm.drift"].min_ratio == 0.5


def test_without_flags_the_defaults_are_those_of_the_guide(seen: dict[str, Any]) -> None:
    start()
    expected = {
        "host": "127.0.0.1",
        "port": 8000,
        "llm.max_num_requests": 32,
        "llm.max_batch_tokens": 512,
        "llm.draft_timeout": 2.0,
        "llm.drift": None,
        "settings.api_keys": (),
        "settings.max_queue": 256,
        "settings.max_queue_time": None,
        "settings.request_timeout": None,
        "settings.drain_seconds": 30.0,
        "settings.stuck_seconds": 60.0,
        "settings.max_body_bytes": 4 * 1024 * 1024,
        "settings.metrics_compat": "none",
        "settings.log_prompts": False,
        "log.0": "json",
        "log.1": "info",
    }
    assert {name: seen[name] for name in expected} == expected


def test_another_host_without_a_key_only_when_said(seen: dict[str, Any]) -> None:
    start("--host", "0.0.0.0", "--no-key")
    assert seen["host"] == "0.0.0.0"


def test_no_flag_is_left_out() -> None:
    command: Any = typer.main.get_command(app)
    known = {word for option in command.commands["serve"].params for word in option.opts if word[:2] == "--"}
    assert known == {*FLAGS, *SWITCHES, *ELSEWHERE}
