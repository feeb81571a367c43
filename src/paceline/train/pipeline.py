"""The training run: seven stages, each resumed or taken from disk (see ``stage``).

regenerate → capture → vocabulary → fit → evaluate → parity → export
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from paceline.errors import ConfigError
from paceline.train.capture import MAX_ROWS, capture
from paceline.train.captured import CapturedData
from paceline.train.loops import LoopCounts
from paceline.train.options import STAGES, TrainOptions
from paceline.train.preflight import preflight
from paceline.train.progress import Reporter, Silent
from paceline.train.prompts import PromptSet, read_prompts
from paceline.train.regenerate import regenerate
from paceline.train.split import held_out_indices, training_rows
from paceline.train.stage import Json, StageResult, only_run_in, redo, run_stage
from paceline.train.storage import sha256_of
from paceline.train.supervision import count_supervised
from paceline.train.vocabulary import DraftVocabulary, choose_vocabulary, count_responses
from paceline.train.workplace import Workplace, file_digests

CAPTURE_TOKENS = 2 * MAX_ROWS
"""Size of the cache that captures, at least: room for a full pass of short sequences."""
REPLIES = "replies.jsonl"
VOCABULARY = "vocabulary.json"


def require_torch() -> None:
    """Raise ``ConfigError`` that says how to install PyTorch where it is missing."""
    if importlib.util.find_spec("torch") is None:
        raise ConfigError(
            "training needs PyTorch, which is not installed: pip install 'paceline[train]' (for a machine "
            "without a GPU add --extra-index-url https://download.pytorch.org/whl/cpu)"
        )


class TokenRate:
    """Reports prompts, and the tokens a second of their replies; the first report is of what was on disk."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter
        self._started: float | None = None
        self._tokens = 0

    def __call__(self, prompts: int, tokens: int) -> None:
        now = time.monotonic()
        if self._started is None:
            self._started = now
            self._reporter.advance(prompts)
            return
        self._tokens += tokens
        rate = self._tokens / max(now - self._started, 1e-9)
        self._reporter.advance(prompts, f"{rate:.0f} tokens/s")


class Pipeline:
    """One run of ``options``; results of finished stages by name in ``results``."""

    def __init__(self, options: TrainOptions, reporter: Reporter | None = None) -> None:
        self.options = options
        self.reporter: Reporter = reporter or Silent()
        self.place = Workplace(options, self.reporter)
        self.results: dict[str, StageResult] = {}

    def run(self, until: str = STAGES[-1], redo_from: str | None = None) -> dict[str, StageResult]:
        """Run all stages up to ``until``; delete what ``redo_from`` and later stages made first.

        Raises the errors of ``paceline.errors``; a run that was stopped goes on where it was.
        """
        require_torch()
        if self.options.kind == "eagle3":
            from paceline.train.pipeline_head import STEPS, check_fit
        else:
            from paceline.train.pipeline_draft_model import STEPS, check_fit
        steps: dict[str, Callable[[Pipeline], None]] = {
            "regenerate": Pipeline.regenerate,
            "capture": Pipeline.capture,
            "vocabulary": Pipeline.vocabulary,
            **STEPS,
        }
        last = "fit" if self.options.parallel and until in STEPS else until
        with only_run_in(self.options.out):
            if redo_from is not None:
                redo(self.options.out, STAGES, redo_from)
            preflight(self)
            check_fit(self)
            for name in STAGES[: STAGES.index(last) + 1]:
                steps[name](self)
        if last != until:
            self.reporter.say(self._parallel_refused())
        elif last != STAGES[-1]:
            self.reporter.say(f"stopped behind {last}: {self.options.out / last} holds what it made")
        return self.results

    def _parallel_refused(self) -> str:
        figures = self.results["fit"].values["validation"]
        return (
            f"parallel: simulated tokens_per_step {figures['tokens_per_step']:.3f}; stopped behind fit: the "
            "engine does not draft with masked inputs, so this head is not evaluated and its export "
            "is refused. "
            "Compare it with the fit of the same replies without --parallel."
        )

    def stage(self, name: str, inputs: Mapping[str, Any], work: Callable[[Path], Json]) -> StageResult:
        """Run one stage and keep its result."""
        try:
            result = run_stage(self.options.out, name, inputs, work)
        finally:
            self.reporter.stop()
        self.results[name] = result
        if result.was_done:
            self.reporter.say(f"{name}: done before, in {result.seconds:.0f} s")
        return result

    @property
    def reply_files(self) -> tuple[Path, ...]:
        """The files of regenerated rows."""
        return self.options.replies or (self.options.out / "regenerate" / REPLIES,)

    # ---- stages that need no PyTorch ----

    def regenerate(self) -> None:
        """Let the target answer the prompts, or take the replies that were given."""
        if self.options.replies:
            inputs = {"target": self.place.target_sha256, "replies": file_digests(self.options.replies)}
            self.stage("regenerate", inputs, lambda folder: {"rows": inputs["replies"]})
            return
        settings = {**asdict(self.options.reply), "prompts": file_digests(self.options.prompts)}
        self.stage("regenerate", {"target": self.place.target_sha256, **settings}, self._regenerate)

    def _regenerate(self, folder: Path) -> Json:
        found = read_prompts(self.options.prompts)
        llm = self.place.open_llm("none", self.options.num_requests)
        self.reporter.start("regenerate", len(found.prompts), "prompts")
        counts = regenerate(
            llm,
            found.prompts,
            folder / REPLIES,
            self.options.reply,
            progress=TokenRate(self.reporter),
        )
        if not counts.num_rows:
            raise ConfigError(
                f"none of {len(found.prompts)} prompts could be answered: {counts.skipped.num_too_long} are "
                f"longer than {self.options.reply.max_prompt_tokens} tokens (--max-prompt-tokens), "
                f"{counts.skipped.num_refused} are refused by the chat template"
            )
        self._tell_skipped(found, counts.skipped.num_too_long, counts.skipped.num_refused)
        return {
            "rows": [[REPLIES, sha256_of(folder / REPLIES)]],
            "num_prompts": len(found.prompts),
            "num_duplicates": found.num_duplicates,
            "num_replies": counts.num_rows,
            **asdict(counts.skipped),
        }

    def _tell_skipped(self, found: PromptSet, too_long: int, refused: int) -> None:
        reasons = {"duplicates": found.num_duplicates, "too long": too_long, "refused by template": refused}
        told = ", ".join(f"{count} {reason}" for reason, count in reasons.items() if count)
        if told:
            self.reporter.say(f"regenerate: left out {told}")

    def capture(self) -> None:
        """Run the target over the rows and keep its states."""
        inputs = {
            "rows": self.results["regenerate"].digest,
            "target": self.place.target_sha256,
            "layers": self.place.layers,
            "max_disk": self.options.max_disk,
            "shard_bytes": self.options.shard_bytes,
        }
        self.stage("capture", inputs, self._capture)

    def _capture(self, folder: Path) -> Json:
        counts = LoopCounts()
        sizes = [len(row.tokens) for row in training_rows(self.reply_files, counts)]
        count_supervised(training_rows(self.reply_files))
        self.reporter.say(
            f"capture: of {counts.num_rows} replies, {counts.num_cut} cut where they begin to loop, "
            f"{counts.num_dropped} dropped as loops; {counts.num_tokens} response tokens stay"
        )
        executor = self.place.open_executor(max(CAPTURE_TOKENS, *sizes))
        self.reporter.start("capture", sum(sizes), "tokens")
        result = capture(
            executor,
            training_rows(self.reply_files),
            folder / "states",
            layers=self.place.layers,
            target=self.place.target_sha256,
            shard_bytes=self.options.shard_bytes,
            max_disk=self.options.max_disk,
            progress=self.reporter.advance,
        )
        if result.num_left_out:
            self.reporter.say(
                f"capture: stopped at --max-disk; {result.num_left_out} of {len(sizes)} rows are left out"
            )
        return {
            "states": result.data.digest,
            "num_sequences": len(result.data),
            "num_left_out": result.num_left_out,
            "num_tokens": result.data.num_tokens,
            "num_response_tokens": result.data.num_response_tokens,
            "loops": asdict(counts),
        }

    def vocabulary(self) -> None:
        """Choose the draft vocabulary by what the training rows' responses use."""
        inputs = {
            "rows": self.results["regenerate"].digest,
            "size": self.place.draft_vocab,
            "held_out": self.options.held_out,
        }
        self.stage("vocabulary", inputs, self._vocabulary)

    def _vocabulary(self, folder: Path) -> Json:
        ids = [row.id for row in training_rows(self.reply_files)]
        held = set(held_out_indices(ids, self.options.held_out))
        rows = (row for index, row in enumerate(training_rows(self.reply_files)) if index not in held)
        counts = count_responses(rows, self.place.spec.vocab_size)
        chosen = choose_vocabulary(counts, self.place.draft_vocab, self.place.controls)
        chosen.write(folder / VOCABULARY)
        shares = ", ".join(f"{size}: {share:.2%}" for size, share in chosen.coverage_at)
        self.reporter.say(
            f"vocabulary: {len(chosen.draft_to_target)} of {self.place.spec.vocab_size} tokens cover "
            f"{chosen.coverage:.2%} of the responses ({shares})"
        )
        return {
            "size": len(chosen.draft_to_target),
            "coverage": chosen.coverage,
            "coverage_at": chosen.coverage_at,
            "sha256": sha256_of(folder / VOCABULARY),
        }

    # ---- what they made ----

    def captured(self) -> CapturedData:
        """Open the captured states."""
        return CapturedData(self.options.out / "capture" / "states")

    def draft_vocabulary(self) -> DraftVocabulary:
        """Read the chosen draft vocabulary."""
        return DraftVocabulary.read(self.options.out / "vocabulary" / VOCABULARY)
