"""Frozen settings of an engine, and the checks that every settings record makes.

An unknown name fails with the nearest valid one, and so does a value that would do nothing (design.md, law
9).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from paceline.errors import ConfigError, nearest_name

Acceptance = Literal["auto", "greedy", "rejection", "block", "coupled"]
DEFAULT_NUM_DRAFT_TOKENS = 7
"""Seven drafted nodes and the root are eight rows, which a CPU forward verifies for little more than one."""
MAX_DRAFT_TOKENS = 64


class Settings:
    """Base of settings records: unknown names are :class:`ConfigError`, not ``TypeError``."""

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __new__(cls, *args: object, **settings: object) -> Any:
        check_names(cls.__name__, settings, (field.name for field in dataclasses.fields(cls)))
        return super().__new__(cls)


def check_names(owner: str, given: Mapping[str, object], known: Any) -> None:
    """Raise ``ConfigError`` for the first of ``given`` that is not in ``known``."""
    names = list(known)
    for name in given:
        if name not in names:
            raise ConfigError(f"{owner} has no setting {name!r}{nearest_name(str(name), names)}")


def check_int(name: str, value: object, low: int, high: int | None = None, hint: str = "") -> None:
    """Raise ``ConfigError`` unless ``value`` is a whole number in low … high."""
    is_int = isinstance(value, int) and not isinstance(value, bool)
    if is_int and low <= value and (high is None or value <= high):  # type: ignore[operator]
        return
    bounds = f"at least {low}" if high is None else f"from {low} to {high}"
    raise ConfigError(f"{name}={value!r}: give a whole number {bounds}{hint and f' ({hint})'}")


def check_float(name: str, value: object, low: float, high: float, hint: str = "") -> None:
    """Raise ``ConfigError`` unless ``value`` is a finite number in low … high."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if is_number and math.isfinite(value) and low <= value <= high:  # type: ignore[arg-type, operator]
        return
    bounds = f"of at least {low:g}" if high == math.inf else f"from {low:g} to {high:g}"
    raise ConfigError(f"{name}={value!r}: give a number {bounds}{hint and f' ({hint})'}")


def check_bool(name: str, value: object) -> None:
    """Raise ``ConfigError`` unless ``value`` is True or False."""
    if not isinstance(value, bool):
        raise ConfigError(f"{name}={value!r}: give True or False")


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    """Raise ``ConfigError`` unless ``value`` is one of ``choices``."""
    if value not in choices:
        near = nearest_name(value, choices) if isinstance(value, str) else ""
        raise ConfigError(f"{name}={value!r}: give one of {', '.join(choices)}{near}")


@dataclass(frozen=True, slots=True)
class SpecConfig(Settings):
    """How an engine drafts and verifies, unless a request says otherwise.

    ``drafter``: a name of the registry. ``num_draft_tokens``: most nodes of one draft; ``None`` means 7, or 0
    for the drafter ``none``. ``acceptance``: see ``engine/accept.py``; ``auto`` picks by draft and request.
    At temperature 0 every rule keeps exactly the target's argmax, so requests at temperature 0 are always
    legal. ``guard``: silence a drafter that loses time in a request (control/guard.py); ``None``: only
    ``auto``, as whoever names another drafter gets what it drafts.
    """

    drafter: str = "auto"
    num_draft_tokens: int | None = None
    acceptance: Acceptance = "auto"
    guard: bool | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.drafter, str) or not self.drafter:
            raise ConfigError(f"drafter={self.drafter!r}: give a name, for example 'auto' or 'none'")
        if self.num_draft_tokens is not None:
            check_int("num_draft_tokens", self.num_draft_tokens, 0, MAX_DRAFT_TOKENS)
        if self.drafter == "none" and self.num_draft_tokens:
            raise ConfigError(
                f"num_draft_tokens={self.num_draft_tokens} does nothing with drafter='none': "
                f"choose a drafter or drop it"
            )
        check_choice("acceptance", self.acceptance, get_args(Acceptance))
        if self.guard is not None:
            check_bool("guard", self.guard)

    def is_guarded(self, drafter: str) -> bool:
        """Return whether requests with ``drafter`` are guarded against losing time."""
        return drafter == "auto" if self.guard is None else self.guard

    @property
    def draft_limit(self) -> int:
        """Most nodes of one draft."""
        if self.num_draft_tokens is not None:
            return self.num_draft_tokens
        return 0 if self.drafter == "none" else DEFAULT_NUM_DRAFT_TOKENS


@dataclass(frozen=True, slots=True)
class EngineConfig(Settings):
    """Sizes of an engine.

    ``max_model_len``: longest sequence (prompt and reply) in tokens. ``max_batch_tokens``: rows of one
    forward. ``max_draft_rows``: drafted tokens among them, shared evenly: a forward verifies drafts nearly
    for free only while it has few rows, and each one needs memory for its logits. ``max_num_requests``:
    requests that run at once; more wait. ``record_logit_hashes``: keep a BLAKE2b hash of the raw logits
    (float32 bits) that each committed token was chosen from. ``enable_prefix_caching``: keep what was
    computed of ended requests as long as there is room, for others that begin alike. ``max_queue``: requests
    that may wait; ``None`` for any number. ``prompt_stretch``: how many times longer a step may take because
    it reads prompts beside requests that decode; infinity fills every forward. ``draft_timeout``: seconds
    that a call of a drafter from outside may take before its request goes on without it; ``None`` waits.
    ``record_decisions``: keep what was drafted in each step and why (``paceline generate --explain``).
    """

    max_model_len: int
    max_batch_tokens: int = 512
    max_num_requests: int = 32
    record_logit_hashes: bool = False
    max_draft_rows: int = 32
    enable_prefix_caching: bool = True
    max_queue: int | None = None
    prompt_stretch: float = 2.5
    draft_timeout: float | None = None
    record_decisions: bool = False

    def __post_init__(self) -> None:
        check_int("max_model_len", self.max_model_len, 2)
        check_int("max_num_requests", self.max_num_requests, 1)
        check_int(
            "max_batch_tokens",
            self.max_batch_tokens,
            self.max_num_requests,
            hint="each running request needs a row",
        )
        check_int("max_draft_rows", self.max_draft_rows, 1)
        check_bool("record_logit_hashes", self.record_logit_hashes)
        check_bool("record_decisions", self.record_decisions)
        check_bool("enable_prefix_caching", self.enable_prefix_caching)
        if self.max_queue is not None:
            check_int("max_queue", self.max_queue, 1, hint="None for any number")
        if self.prompt_stretch != math.inf:
            check_float("prompt_stretch", self.prompt_stretch, 1.1, 1e3, "infinity fills every forward")
        if self.draft_timeout is not None:
            check_float("draft_timeout", self.draft_timeout, 0.001, 1e6, "None waits as long as it takes")
