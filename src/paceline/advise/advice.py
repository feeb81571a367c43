"""From measurements to one recommendation, with its reason; as TOML for ``--config`` and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from paceline.advise.candidates import Candidate
from paceline.advise.measure import PLAIN, Entrant, Runs, speedup, speedup_interval
from paceline.advise.predict import Prediction, predict
from paceline.control.drift import Baseline
from paceline.theory.cost_table import CostTable

NEAR_BEST = 0.97
"""``auto`` is preferred when it has this share of the best speed: it adapts when the traffic changes."""
FEW_TURNS = 5
"""With fewer the interval is too narrow to be believed (a bootstrap of so few is)."""
MARK = "# Written by `paceline advise`"


@dataclass(frozen=True, slots=True)
class Finding:
    """What was measured of one entrant. ``interval``: 99 %, of the speed-up; ``None`` with too few turns."""

    entrant: Entrant
    num_turns: int
    tokens_per_second: float
    tokens_per_step: float
    speedup: float
    interval: tuple[float, float] | None
    prediction: Prediction | None
    baseline: Baseline | None

    @property
    def is_faster(self) -> bool:
        """Whether it beats plain decoding beyond noise."""
        return self.interval is not None and self.interval[0] > 1.0 and self.num_turns >= FEW_TURNS


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, why, and everything it rests on. ``plain_tokens_per_second``: without drafting."""

    model: str
    machine: str
    chosen: Entrant
    reason: str
    plain_tokens_per_second: float
    candidates: tuple[Candidate, ...]
    findings: tuple[Finding, ...]

    @property
    def finding(self) -> Finding | None:
        """What was measured of the chosen drafter; ``None`` for plain decoding."""
        return next((f for f in self.findings if f.entrant == self.chosen), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain data for ``json.dump``."""
        return {"kind": "advice", **asdict(self)}


def findings_of(runs: Sequence[Runs], table: CostTable | None) -> list[Finding]:
    """Return a finding for each entrant, fastest first. ``runs[0]`` is plain decoding."""
    plain = runs[0]
    found = [
        Finding(
            run.entrant,
            len(run.turns),
            run.tokens_per_second,
            run.tokens_per_step,
            speedup(run, plain),
            speedup_interval(run, plain),
            predict(run, table) if table is not None else None,
            run.baseline(),
        )
        for run in runs[1:]
    ]
    return sorted(found, key=lambda finding: -finding.speedup)


def choose(findings: Sequence[Finding]) -> tuple[Entrant, str]:
    """Return the entrant to recommend and the reason; plain decoding unless something beats it beyond noise.

    ``findings``: fastest first.
    """
    faster = [finding for finding in findings if finding.is_faster]
    if not faster:
        return Entrant(PLAIN), _why_plain(findings)
    best = faster[0]
    auto = next((f for f in faster if f.entrant.drafter == "auto"), None)
    if auto is not None and auto is not best and auto.speedup >= NEAR_BEST * best.speedup:
        return auto.entrant, (
            f"{auto.entrant} is {_figures(auto)}, within {1 - NEAR_BEST:.0%} of the fastest, {best.entrant} "
            f"({best.speedup:.2f}x), and adapts to other text"
        )
    return best.entrant, f"{best.entrant} is {_figures(best)}, the fastest of what was measured"


def _why_plain(findings: Sequence[Finding]) -> str:
    if not findings:
        return "plain decoding is best: no drafter fits this model"
    best = findings[0]
    if best.num_turns < FEW_TURNS or best.interval is None:
        return (
            f"plain decoding, because {best.num_turns} turns tell nothing apart (the best was {best.entrant} "
            f"at {best.speedup:.2f}x): give more time with --seconds, or shorter replies with --max-tokens"
        )
    if best.interval[1] < 1.0:
        return (
            f"plain decoding is best: every drafter is slower, the least slow {best.entrant} {_figures(best)}"
        )
    return f"plain decoding is best: no drafter is faster beyond noise ({best.entrant} is {_figures(best)})"


def _figures(finding: Finding) -> str:
    text = f"{finding.speedup:.2f}x plain decoding"
    if finding.interval is not None:
        text += f" (99 %: {finding.interval[0]:.2f} to {finding.interval[1]:.2f})"
    return text


# ---- TOML ----


def as_toml(advice: Advice, settings: Mapping[str, str | int]) -> str:
    """Return the settings file that ``--config`` reads. ``settings``: others that the advice holds for."""
    lines = [
        f"{MARK}, for {advice.machine}.",
        f"# {advice.reason}.",
        "# Options on the command line override it.",
    ]
    drafting: dict[str, str | int] = {"model": advice.model, "drafter": advice.chosen.drafter}
    if advice.chosen.num_draft_tokens is not None:
        drafting["num_draft_tokens"] = advice.chosen.num_draft_tokens
    lines += [f"{key} = {toml_value(value)}" for key, value in (drafting | dict(settings)).items()]
    finding = advice.finding
    if finding is not None and finding.baseline is not None:
        base = finding.baseline
        lines += [
            "",
            "# Acceptance as measured; `generate`, `chat` and `serve` warn when it falls (docs/drift.md).",
            '# Add fallback = "none" to switch drafting off then.',
            "[drift]",
            "",
            f"[drift.baseline.{toml_value(advice.chosen.drafter)}]",
            f"accepted = {toml_value(list(base.accepted))}",
            f"tried = {toml_value(list(base.tried))}",
            f"dispersion = {base.dispersion:.3f}",
        ]
    return "\n".join(lines) + "\n"


def toml_value(value: str | int | list[int]) -> str:
    """Return a value as TOML writes it (its strings, whole numbers and lists of these are JSON's)."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
