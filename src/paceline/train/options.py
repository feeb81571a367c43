"""What a training run is asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from paceline.config import Settings, check_float, check_int
from paceline.errors import ConfigError, nearest_name
from paceline.models.loading import Quant
from paceline.sampling.params import SamplingParams
from paceline.train.capture import DEFAULT_SHARD_BYTES
from paceline.train.regenerate import ReplySettings

STAGES = ("regenerate", "capture", "vocabulary", "fit", "evaluate", "parity", "export")
"""In the order in which they run; each has a folder of this name in the run's folder."""
DEFAULT_DRAFT_VOCAB = 8192
Kind = Literal["eagle3", "draft-model"]


@dataclass(frozen=True, slots=True)
class FitOptions(Settings):
    """What of the fit is chosen here; the rest are the defaults of ``FitConfig``.

    ``epochs``: passes over the supervised tokens, rounded to whole steps of ``tokens_per_step``.
    ``num_layers``: of the head. ``settings``: further fields of ``FitConfig`` by name.
    """

    epochs: float = 3.0
    tokens_per_step: int = 2048
    num_layers: int = 1
    seed: int = 0
    settings: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_float("epochs", self.epochs, 0.001, 10_000)
        check_int("tokens_per_step", self.tokens_per_step, 1)
        check_int("head_layers", self.num_layers, 1, 8)
        check_int("seed", self.seed, 0)


@dataclass(frozen=True, slots=True)
class TrainOptions(Settings):
    """One run. Either ``prompts``, files to regenerate from, or ``replies``, files of regenerated rows to
    take as they are. ``quant``: of a target that is a folder. ``state_layers``: layers whose inputs the
    head reads, 2, L // 2, L - 3 unless given. ``draft_vocab``: 8192, or all of a smaller target's, unless
    given (of a draft model: all). ``held_out``: share of the rows kept from training; ``num_eval``: most of
    their prompts that are served in evaluate, unless ``eval_prompts`` names a file. ``eval_temperatures``: of
    the replies there.
    ``max_disk``: most bytes of captured states. ``num_requests``: replies made at once. ``kind``: what is
    trained. ``parallel``: an EAGLE-3 head that drafts in one pass; it is measured, not served.
    """

    target: str
    out: Path
    prompts: tuple[Path, ...] = ()
    replies: tuple[Path, ...] = ()
    quant: Quant = "none"
    threads: int | None = None
    reply: ReplySettings = field(default_factory=ReplySettings)
    num_requests: int = 64
    state_layers: tuple[int, ...] | None = None
    draft_vocab: int | None = None
    held_out: float = 0.02
    num_eval: int = 64
    eval_prompts: Path | None = None
    eval_temperatures: tuple[float, ...] = (0.0,)
    head_quant: Quant = "q8"
    max_disk: int | None = None
    shard_bytes: int = DEFAULT_SHARD_BYTES
    fit: FitOptions = field(default_factory=FitOptions)
    kind: Kind = "eagle3"
    parallel: bool = False

    def __post_init__(self) -> None:
        if bool(self.prompts) == bool(self.replies):
            raise ConfigError(
                "give --prompts (the target answers them) or --replies (it has done so already), one of them"
            )
        if self.parallel and self.kind != "eagle3":
            raise ConfigError(f"parallel: a {self.kind} drafts one token after another; leave it out")
        check_float("held_out", self.held_out, 0.0, 0.5)
        check_int("eval_prompts", self.num_eval, 1)
        check_int("num_requests", self.num_requests, 1)
        check_int("shard_bytes", self.shard_bytes, 1)
        if self.draft_vocab is not None:
            check_int("draft_vocab", self.draft_vocab, 16)
        for temperature in self.eval_temperatures:
            check_float("eval_temperatures", temperature, 0.0, 100.0)
            SamplingParams(temperature=temperature)  # knows which of them can be served

    @property
    def max_model_len(self) -> int:
        """Longest prompt and reply."""
        return self.reply.max_prompt_tokens + self.reply.max_tokens


def stage_named(name: str, option: str) -> str:
    """Return ``name`` if it is a stage. Raises ``ConfigError``."""
    if name not in STAGES:
        raise ConfigError(f"{option} {name!r}{nearest_name(name, STAGES)}: give one of {', '.join(STAGES)}")
    return name
