"""``--config FILE``: settings from a TOML file, for every command that opens a model.

What counts, strongest first: the command line, the file's table of the command's name, the file's top level,
the command's own default. Nothing else is read: no environment variable, no file that was not named.

    model = "smollm2-135m"      # the options in SHARED, for every command that has them
    drafter = "eagle3"

    [bench]                     # any option of that command, by its long name
    workload = ["chat", "code"]

    [drift]                     # what to watch acceptance against, see docs/drift.md

The option is added here to commands that lack it (:func:`accept_config`): a command does not know whether a
value was typed or read.
"""

from __future__ import annotations

import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer

from paceline.errors import ConfigError, nearest_name

if TYPE_CHECKING:
    from paceline.control.drift import DriftOptions

SHARED = (
    "model",
    "drafter",
    "num_draft_tokens",
    "threads",
    "quant",
    "context",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "system",
)
"""Options that may stand at the top level: those that mean the same in every command that has them."""
DRIFT = "drift"
_WORDS = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "one text",
    Path: "a path in quotes",
}


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """A settings file as read. ``shared``: its top level; ``tables``: by command; ``drift``: that table."""

    path: Path
    shared: Mapping[str, Any]
    tables: Mapping[str, Mapping[str, Any]]
    drift: Mapping[str, Any] | None


_loaded: ContextVar[ConfigFile | None] = ContextVar("config_file", default=None)


def accept_config(app: typer.Typer, but: tuple[str, ...] = ()) -> None:
    """Give ``--config`` to every command of ``app`` and its groups that has ``--model`` (``but``: groups left
    out).
    """
    for command in app.registered_commands:
        if command.callback is not None and "model" in inspect.signature(command.callback).parameters:
            command.callback = _with_option(command.callback)
    for group in app.registered_groups:
        if group.typer_instance is not None and group.name not in but:
            accept_config(group.typer_instance)


def loaded_drift() -> DriftOptions | None:
    """Return the settings of the ``[drift]`` table, ``None`` without one. Raises ``ConfigError``."""
    file = _loaded.get()
    if file is None or file.drift is None:
        return None
    from paceline.control.drift import drift_options

    try:
        return drift_options(file.drift)
    except ConfigError as error:
        raise ConfigError(f"{file.path}: [{DRIFT}]: {error}") from error


def read_config(path: Path) -> ConfigFile:
    """Read a settings file. Raises ``ConfigError`` naming the file and, for bad TOML, the line."""
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"--config {path} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"--config {path} is not UTF-8 ({error}): save it as such") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"--config {path} is not TOML: {error}") from error
    shared = {_plain(key): value for key, value in data.items() if not isinstance(value, dict)}
    tables = {key: value for key, value in data.items() if isinstance(value, dict) and key != DRIFT}
    drift = data.get(DRIFT)
    if drift is not None and not isinstance(drift, dict):
        raise ConfigError(f"{path}: {DRIFT} = {drift!r}: write a table, [{DRIFT}]")
    for key in shared:
        if key not in SHARED:
            raise ConfigError(
                f"{path}: {key!r} is no shared setting{nearest_name(key, (*SHARED, DRIFT))}; shared are "
                f"{', '.join(SHARED)}; options of one command belong into its table, e.g. [bench]"
            )
    return ConfigFile(path, shared, tables, drift)


# ---- the option ----


def _with_option(command: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(command, eval_str=True)
    if "config" in signature.parameters:
        return command

    @functools.wraps(command)
    def run(*args: Any, config: Path | None = None, **options: Any) -> Any:
        return command(*args, **options)

    def apply(ctx: typer.Context, value: Path | None) -> Path | None:
        _apply(ctx, value, signature)
        return value

    option = typer.Option(
        "--config",
        metavar="FILE",
        is_eager=True,
        callback=apply,
        help="TOML file with settings, such as `paceline advise` writes; options given here override it.",
    )
    kind = Annotated[Path | None, option]
    parameters = [
        *signature.parameters.values(),
        inspect.Parameter("config", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind),
    ]
    run.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def _apply(context: typer.Context, path: Path | None, signature: inspect.Signature) -> None:
    """Make the file's values the defaults of the command being parsed."""
    if context.resilient_parsing:
        return
    _loaded.set(None)
    if path is None:
        return
    file = read_config(path)
    _check_tables(file, context)
    own = _options(context.command)
    table = file.tables.get(_command_name(context), {})
    values = {**file.shared, **{_plain(key): value for key, value in table.items()}}
    context.default_map = {
        own[key]: _checked(f"{file.path}: {key}", value, signature.parameters[own[key]].annotation)
        for key, value in values.items()
        if key in own
    }
    _loaded.set(file)


def _checked(where: str, value: object, annotation: Any) -> object:
    """Return ``value`` in the form an option of this annotation takes. Raises ``ConfigError``.

    Ranges are the command's to check, as for values from the command line.
    """
    if get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    kinds = [kind for kind in get_args(annotation) or (annotation,) if kind is not type(None)]
    kind = kinds[0]
    if get_origin(kind) is list or annotation in (list[str], list[int]):
        given = value if isinstance(value, list) else [value]
        return [_checked(where, item, str) for item in given]
    is_text = kind in (str, Path)
    fits = (
        isinstance(value, bool)
        if kind is bool
        else isinstance(value, int | float | str if is_text else int | float if kind is float else int)
        and not isinstance(value, bool)
    )
    if not fits:
        raise ConfigError(f"{where} = {value!r}: write {_WORDS[kind]}")
    return str(value) if is_text else value


def _check_tables(file: ConfigFile, context: typer.Context) -> None:
    """Raise ``ConfigError`` for a table of no command, or a key in one that its command lacks."""
    commands = {
        name: _options(command)
        for name, command in context.find_root().command.commands.items()  # type: ignore[attr-defined]
        if "config" in _options(command)
    }
    for table, values in file.tables.items():
        if table not in commands:
            known = (*commands, DRIFT)
            raise ConfigError(
                f"{file.path}: [{table}] is no command that takes --config{nearest_name(table, known)}; "
                f"tables are {', '.join(known)}"
            )
        valid = [name for name in commands[table] if name != "config"]
        for key in values:
            if _plain(key) not in valid:
                raise ConfigError(
                    f"{file.path}: [{table}] has no option {key!r}{nearest_name(_plain(key), valid)}; valid: "
                    f"{', '.join(sorted(valid))}"
                )


def _command_name(context: typer.Context) -> str:
    """Return the first word behind ``paceline``: the command's name, or its group's."""
    root = context.find_root()
    while context.parent is not None and context.parent is not root:
        context = context.parent  # type: ignore[assignment]
    return context.info_name or ""


def _options(command: Any) -> dict[str, str]:
    """Return the parameter behind each long option (``num_draft_tokens``); of a group, all of them."""
    if hasattr(command, "commands"):
        members = reversed(list(command.commands.values()))
        return {name: parameter for member in members for name, parameter in _options(member).items()}
    return {
        _plain(word): option.name
        for option in command.params
        for word in getattr(option, "opts", ())
        if word.startswith("--")
    }


def _plain(name: str) -> str:
    return name.removeprefix("--").replace("-", "_")
