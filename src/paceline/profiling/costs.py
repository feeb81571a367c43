"""The costs that a model's drafts are planned by: kept from an earlier run, measured now, or assumed.

costs = MachineCosts(target, "auto")
table = costs.table()                          # what every drafter needs; measured at first use
table = costs.table(head_part(head, options))  # and what this head costs
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import numpy as np

from paceline.control.default_costs import CONSERVATIVE_COSTS
from paceline.drafters.draft_model import DraftModelDrafter
from paceline.drafters.eagle3 import Eagle3Head, Eagle3Options
from paceline.drafters.registry import build_drafter
from paceline.engine.text import TokenDecoder
from paceline.errors import ConfigError
from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CpuExecutor
from paceline.profiling.drafting import BUDGET, DraftTimes, measure_cheap, measure_draft_model, measure_head
from paceline.profiling.machine import ProfileKey, cpu_name, paceline_version
from paceline.profiling.progress import Progress, measuring
from paceline.profiling.store import Profile, load_stored, read_profile, require_key, save, stored_path
from paceline.profiling.timing import interleaved, typical
from paceline.profiling.verify_curve import measure_forward, slots_wanted
from paceline.records import FloatArray
from paceline.theory.cost_table import CostTable, DraftCost

logger = logging.getLogger("paceline.profiling")

PROFILE_VARIABLE = "PACELINE_PROFILE"
CHEAP = ("ngram", "suffix", "recycle", "prediction", "auto")
Row = Callable[[], FloatArray]
Setting = Literal["auto", "off"] | Path

# Seconds of each part; together with loading and the first warm forwards they stay under ten.
_FORWARD_SECONDS, _CHEAP_SECONDS, _PART_SECONDS = 3.6, 0.25, 1.2
_SCRATCH_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """``fingerprint``: see ``shipped_heads``. ``name``: the file's own. ``label``: what users call it."""

    executor: CpuExecutor
    decoder: TokenDecoder
    fingerprint: str
    name: str
    label: str

    @property
    def key(self) -> ProfileKey:
        """What its profile belongs to, on this machine."""
        executor = self.executor
        return ProfileKey(
            cpu_name(),
            executor.num_threads,
            executor.path,
            self.fingerprint,
            executor.weight_bytes,
            paceline_version(),
        )


@dataclass(frozen=True, slots=True)
class DrafterPart:
    """A drafter with weights.

    ``identity``: tells another one of the same name. ``measure`` takes a one-row forward of the target, to
    run in between, and the seconds it may take; ``None`` where it cannot be measured now.
    """

    name: str
    identity: str
    measure: Callable[[Row, float], DraftTimes | None]


def head_part(head: Eagle3Head, options: Eagle3Options | None = None) -> DrafterPart:
    """Return what measures an EAGLE-3 head."""
    chosen = options or Eagle3Options()
    identity = f"{head.executor.weight_bytes} bytes"
    return DrafterPart(
        f"eagle3:{head.name}", identity, lambda row, seconds: measure_head(head, chosen, row, seconds)
    )


def draft_model_part(drafter: DraftModelDrafter, target: CpuExecutor) -> DrafterPart:
    """Return what measures a draft model."""
    executor = drafter.model.executor
    size = getattr(executor, "weight_bytes", 0)
    return DrafterPart(
        drafter.name,
        f"{size} bytes",
        lambda row, seconds: measure_draft_model(drafter, target.vocab_size, row, seconds),
    )


def profile_setting(given: str | Path | None) -> Setting:
    """Return what ``profile=`` says; ``None`` stands for ``PACELINE_PROFILE``, and without it for ``auto``.

    Raises ``ConfigError`` for a path that leads to no file.
    """
    wanted = os.environ.get(PROFILE_VARIABLE, "") or "auto" if given is None else given
    if not isinstance(wanted, str | Path) or not str(wanted):
        raise ConfigError(f"profile={wanted!r:.80}: give 'auto', 'off' or the path of a profile")
    if wanted == "auto":
        return "auto"
    if wanted == "off":
        return "off"
    if not Path(wanted).is_file():
        raise ConfigError(
            f"profile={str(wanted)!r}: give 'auto', 'off' or the path of a profile; no such file"
        )
    return Path(wanted)


class MachineCosts:
    """The costs of one target.

    ``setting``: as for :func:`profile_setting`. ``auto`` keeps the profile in the cache folder and measures
    what is missing; ``off`` measures and reads nothing, and plans by careful assumptions; a path takes that
    profile as it is.

    Raises ``ConfigError`` at once for a profile that is damaged or belongs to another machine or model.
    """

    def __init__(self, target: Target, setting: str | Path | None) -> None:
        self._target = target
        self._setting = profile_setting(setting)
        self._profile: Profile | None = None
        self._has_measured = False
        if isinstance(self._setting, Path):
            self._profile = require_key(read_profile(self._setting), target.key, self._setting)

    @property
    def setting(self) -> str:
        """``auto``, ``off`` or a path."""
        return str(self._setting)

    @property
    def key(self) -> ProfileKey:
        """What a profile must have been measured for."""
        return self._target.key

    @property
    def path(self) -> Path:
        """Where the profile is kept."""
        if isinstance(self._setting, Path):
            return self._setting
        return stored_path(self._target.key, self._target.name)

    @property
    def profile(self) -> Profile | None:
        """What is known, nothing measured for it."""
        if self._profile is None and self._setting == "auto":
            self._profile = load_stored(self.path, self._target.key)
        return self._profile

    def table(self, *parts: DrafterPart) -> CostTable:
        """Return the costs, ``parts`` included; measures what is missing if the setting says so.

        What was not measured is assumed: see ``control/default_costs``.
        """
        if self._setting == "auto":
            self._complete(parts)
        profile = self.profile
        if profile is None:
            return CONSERVATIVE_COSTS
        table = profile.table
        return replace(table, draft_costs={**CONSERVATIVE_COSTS.draft_costs, **table.draft_costs})

    def refresh(self, *parts: DrafterPart) -> Profile:
        """Measure everything again, keep and return it."""
        self._profile = measure_profile(self._target, parts, None)
        self._has_measured = True
        _warn_if_disturbed(self._profile)
        save(self._profile, self.path)
        return self._profile

    def _complete(self, parts: Sequence[DrafterPart]) -> None:
        known = self.profile
        missing = [part for part in parts if not known or known.drafters.get(part.name) != part.identity]
        is_again = known is not None and known.is_provisional and not self._has_measured
        if known is not None and not missing and not is_again:
            return
        try:
            if known is None or is_again:
                self._profile = _better(known, measure_profile(self._target, parts, None))
                _warn_if_disturbed(self._profile)
            else:
                self._profile = measure_profile(self._target, missing, known)
            self._has_measured = True
        except ConfigError as error:  # no memory for the scratch cache
            logger.warning("costs cannot be measured (%s); drafts are planned by careful assumptions", error)
            self._setting = "off"
            return
        if self._profile != known:
            save(self._profile, self.path)


def _better(known: Profile | None, new: Profile) -> Profile:
    """Return what to keep of two measurements: noise only adds time, so the one with the faster row."""
    if known is None:
        return new
    if not new.is_disturbed or new.table.row_seconds <= known.table.row_seconds:
        return replace(new, tries=known.tries + 1)
    drafts = {name: new.table.draft_costs[name] for name in new.drafters}  # in rows measured beside them
    return replace(
        known,
        table=replace(known.table, draft_costs={**known.table.draft_costs, **drafts}),
        drafters={**known.drafters, **new.drafters},
        parts={**known.parts, **new.parts},
        tries=known.tries + 1,
    )


def _warn_if_disturbed(profile: Profile) -> None:
    if profile.is_disturbed:
        again = "a later start measures again" if profile.is_provisional else "it stays so"
        logger.warning(
            "the machine was busy while costs were measured (equal steps differ by %.0f %%): drafts may be "
            "planned badly; %s, or run `paceline profile --refresh` when it is quiet",
            100 * profile.spread,
            again,
        )


def measure_profile(target: Target, parts: Sequence[DrafterPart], known: Profile | None) -> Profile:
    """Measure ``parts``, and before them the forward, the step and the cheap drafters unless ``known``.

    Raises ``ConfigError`` when there is no memory to measure in.
    """
    with measuring(target.label) as progress:
        bench = _Bench(target)
        profile = known or bench.base(_share(progress, 0.0, 0.8))
        for number, part in enumerate(parts):
            profile = bench.add(profile, part)
            progress(0.8 + 0.2 * (number + 1) / len(parts))
    return profile


class _Bench:
    """A second cache of the target, small and used by nobody else, and what is measured with it."""

    def __init__(self, target: Target) -> None:
        spec, executor = target.executor.spec, target.executor
        self._target = target
        token_bytes = 2 * executor.cache_bytes // max(1, executor.num_blocks * executor.block_size)
        self._slots = slots_wanted(spec.max_context, token_bytes, _SCRATCH_BYTES)
        blocks = -(-self._slots // executor.block_size)
        self._scratch = executor.first_layers(spec.num_layers, blocks)
        self._one = ForwardBatch.chain(np.zeros(1, dtype=np.int32), 0, range(blocks), 1)

    def base(self, progress: Progress) -> Profile:
        """Return a profile of everything but drafters with weights."""
        target, scratch = self._target, self._scratch
        share = _share(progress, 0.0, 0.8)
        forward = measure_forward(scratch, target.decoder, self._slots, _FORWARD_SECONDS, share)
        drafts: dict[str, DraftCost] = {}
        seconds: dict[str, float] = {}
        for name, times in self._cheap().items():
            drafts[name] = times.cost(forward.row_seconds)
            seconds[name] = times.fixed
        table = CostTable(
            forward.verify,
            forward.row_seconds,
            forward.step_seconds,
            drafts,
            forward.context,
            forward.per_sequence_token,
            forward.per_row_token,
        )
        progress(1.0)
        return Profile(target.key, _now(), target.label, table, {}, seconds, forward.spread)

    def add(self, profile: Profile, part: DrafterPart) -> Profile:
        """Return ``profile`` with what ``part`` costs, in units of a row measured beside it."""
        row = typical(interleaved({"row": self._row}, 4, _PART_SECONDS / 4)["row"])
        try:
            times = part.measure(self._row, _PART_SECONDS)
        except Exception:  # it will fail in the engine too, which goes on without drafts
            logger.warning("the cost of %s cannot be measured; it is assumed", part.name, exc_info=True)
            return profile
        if times is None:
            return profile
        drafts = {**profile.table.draft_costs, part.name: times.cost(row)}
        return replace(
            profile,
            table=replace(profile.table, draft_costs=drafts),
            drafters={**profile.drafters, part.name: part.identity},
            parts={**profile.parts, **{f"{part.name}: {what}": t for what, t in times.parts.items()}},
        )

    def _row(self) -> FloatArray:
        return self._scratch.forward(self._one)

    def _cheap(self) -> Mapping[str, DraftTimes]:
        vocab = self._scratch.vocab_size
        times: dict[str, DraftTimes] = {}
        for name in CHEAP:
            drafter = build_drafter(name, target=self._scratch, target_vocabulary=(), num_draft_tokens=BUDGET)
            times[name] = measure_cheap(drafter, vocab, self._row, _CHEAP_SECONDS)
        return times


def _share(progress: Progress, start: float, end: float) -> Progress:
    return lambda share: progress(start + (end - start) * share)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
