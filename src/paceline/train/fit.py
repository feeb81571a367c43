"""The fit: optimise a head over captured sequences; a run resumed from a checkpoint goes on bit for bit."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from paceline.errors import ConfigError
from paceline.train.batches import MIN_REPLY_TOKENS, Batch, Captured, batch_order
from paceline.train.captured import CapturedSequence
from paceline.train.fit_config import FitConfig
from paceline.train.layers import NamedTensors
from paceline.train.optimizers import Optimizers
from paceline.train.storage import whole_file
from paceline.train.ttt import Rotary, StepResult, Unrolled

CHECKPOINT = "checkpoint.pt"
BEST = "best.pt"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """``agreement[m]``: share of chains whose step m + 1 names the target's likeliest token, on the target's
    own text. ``tokens_per_step``: 1 + the mean number of leading steps that do, which a served greedy chain
    of as many tokens would reach."""

    loss: float
    agreement: tuple[float, ...]
    tokens_per_step: float


@dataclass(frozen=True, slots=True)
class Progress:
    """Told after every step. ``tokens``: supervised tokens of this run so far; ``seconds``: its time."""

    step: int
    num_steps: int
    loss: float
    agreement: tuple[float, ...]
    tokens: int
    seconds: float
    evaluation: Evaluation | None = None


class Lesson(Protocol):
    """How a batch becomes losses: :class:`~paceline.train.ttt.Unrolled` and others.

    ``weights``: the head's of this step. ``target``: what gives the target's laws.
    """

    def __init__(self, weights: Any, batch: Batch, target: Any, rotary: Rotary) -> None: ...

    @staticmethod
    def make_batch(sequences: Sequence[CapturedSequence], embedding: Tensor, target_width: int) -> Batch:
        """Pack sequences."""
        ...

    def steps(self, keep: Sequence[float], generator: torch.Generator) -> list[StepResult]:
        """Return up to ``len(keep)`` draft steps."""
        ...


class Fit:
    """One run. ``embedding`` [V, H] and ``target`` are the target's, in the dtype of ``config``.

    ``head``: whatever is trained. ``unrolled``: what its draft steps read and learn. ``validation``: indices
    of ``data`` held out of training. Raises ``ConfigError`` when no token is supervised.
    """

    def __init__(
        self,
        head: NamedTensors,
        data: Captured,
        validation: Sequence[int],
        embedding: Tensor,
        target: Any,
        config: FitConfig,
        folder: Path,
        unrolled: type[Lesson] = Unrolled,
    ) -> None:
        self.head, self.data, self.config, self.folder = head, data, config, folder
        self.embedding, self.target = embedding, target
        self.unrolled = unrolled
        self.step = 0
        held_out = set(validation)
        self.num_chains = np.maximum(0, data.lengths - data.response_starts - 1).tolist()
        usable = [index for index in range(len(data)) if self.num_chains[index] > 0]
        self.training = [index for index in usable if index not in held_out]
        self.validation = [index for index in usable if index in held_out]
        if not self.training:
            raise ConfigError(
                f"no token is supervised: none of {len(data)} sequences has a reply of "
                f"{MIN_REPLY_TOKENS} tokens outside the {len(held_out)} held out"
            )
        self.rotary = Rotary(head.spec.rope.inverse_frequencies, int(data.lengths.max()) + len(config.keep))
        self.optimizers = Optimizers(head, config)
        self.best = -math.inf
        self._batches: Iterator[list[int]] = iter(())
        self._epoch, self._taken = 0, 0

    def run(self, report: Callable[[Progress], None] = lambda progress: None) -> None:
        """Train up to ``config.num_steps``, from the last checkpoint if there is one."""
        self._resume()
        started, tokens = time.perf_counter(), 0
        while self.step < self.config.num_steps:
            batch = self._next_batch()
            loss, agreement = self._train(batch)
            tokens += batch.num_chains
            self.step += 1
            last = self.step == self.config.num_steps
            evaluation = None
            if self.validation and (last or self.step % self.config.evaluate_every == 0):
                evaluation = self.evaluate()
                if evaluation.tokens_per_step > self.best:
                    self.best = evaluation.tokens_per_step
                    self._save(
                        BEST,
                        {"head": self.head.state_dict(), "step": self.step, "evaluation": asdict(evaluation)},
                    )
            if last or self.step % self.config.checkpoint_every == 0:
                self._checkpoint()
            seconds = time.perf_counter() - started
            report(Progress(self.step, self.config.num_steps, loss, agreement, tokens, seconds, evaluation))

    @torch.no_grad()
    def evaluate(self) -> Evaluation:
        """Judge the head on the held-out sequences."""
        steps = len(self.config.keep)
        matched, alive, total = torch.zeros(steps), torch.zeros(steps), 0.0
        accepted, chains = 0.0, 0
        for part in batch_order(
            [self.num_chains[index] for index in self.validation], self.config.tokens_per_step, None
        ):
            batch = self._make([self.validation[place] for place in part])
            results = self._unroll(batch, (1.0,) * steps)
            kept = torch.ones(batch.num_chains, dtype=torch.bool)
            full = batch.chain_room >= steps
            for index, result in enumerate(results):
                matched[index] += result.matches.sum()
                alive[index] += len(result.rows)
                total += float(result.loss) if index == 0 else 0.0
                hit = torch.zeros_like(kept)
                hit[result.rows] = result.matches
                kept &= hit
                accepted += float(kept[full].sum())
            chains += int(full.sum())
        agreement = tuple((matched / alive.clamp(min=1)).tolist())
        return Evaluation(total / max(1.0, float(alive[0])), agreement, 1.0 + accepted / max(1, chains))

    def _train(self, batch: Batch) -> tuple[float, tuple[float, ...]]:
        config = self.config
        results = self._unroll(batch, config.keep_at(self.step))
        total = torch.zeros(())
        for index, result in enumerate(results):
            # Mean over the chains that took part: leaving chains out must not weaken a step.
            total = total + config.step_decay**index * result.loss / max(1, len(result.rows))
        if not bool(torch.isfinite(total)):
            raise ConfigError(f"the loss is {float(total)} at step {self.step}: lower the learning rate")
        self.optimizers.zero_grad()
        total.backward()  # type: ignore[no-untyped-call]
        self.optimizers.step(self.step)
        agreement = tuple(float(result.matches.float().mean()) for result in results)
        return float(total.detach()), agreement

    def _unroll(self, batch: Batch, keep: Sequence[float]) -> list[StepResult]:
        weights = self.head.cast(self.config.torch_dtype)
        generator = torch.Generator().manual_seed(self.config.seed * 1_000_003 + self.step)
        return self.unrolled(weights, batch, self.target, self.rotary).steps(keep, generator)

    def _make(self, indices: Sequence[int]) -> Batch:
        width = self.head.spec.target_hidden_size
        return self.unrolled.make_batch(
            [self.data.sequence(index) for index in indices], self.embedding, width
        )

    # ---- order of the data ----

    def _next_batch(self) -> Batch:
        """Return the next batch; its place follows from (seed, step) alone."""
        while True:
            for part in self._batches:
                self._taken += 1
                return self._make([self.training[place] for place in part])
            self._open_epoch(self._epoch + (1 if self._taken else 0))

    def _open_epoch(self, epoch: int, skip: int = 0) -> None:
        sizes = [self.num_chains[index] for index in self.training]
        self._epoch, self._taken = epoch, skip
        order = batch_order(sizes, self.config.tokens_per_step, (self.config.seed, epoch))
        self._batches = iter(list(order)[skip:])

    # ---- checkpoints ----

    def _checkpoint(self) -> None:
        state = {
            "head": self.head.state_dict(),
            "optimizers": self.optimizers.state_dict(),
            "step": self.step,
            "epoch": self._epoch,
            "taken": self._taken,
            "best": self.best,
            "config": asdict(self.config),
        }
        self._save(CHECKPOINT, state)

    def _save(self, name: str, state: dict[str, Any]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with whole_file(self.folder / name) as file:
            try:
                torch.save(state, file)
            except RuntimeError as error:
                # torch's archive writer hides what the disk said behind one of its own.
                raise (error.__context__ if isinstance(error.__context__, OSError) else error) from None

    def _resume(self) -> None:
        path = self.folder / CHECKPOINT
        if not path.is_file():
            self._open_epoch(0)
            return
        state = torch.load(path, weights_only=True)
        changed = [
            k for k, v in asdict(self.config).items() if k not in _MAY_CHANGE and state["config"].get(k) != v
        ]
        if changed:
            raise ConfigError(
                f"{path} was made with other settings ({', '.join(changed)}): give those, or another folder"
            )
        self.head.load_state_dict(state["head"])
        self.optimizers.load_state_dict(state["optimizers"])
        self.step, self.best = state["step"], state["best"]
        self._open_epoch(state["epoch"], state["taken"])


_MAY_CHANGE = ("evaluate_every", "checkpoint_every")


def load_best(head: NamedTensors, folder: Path) -> dict[str, Any]:
    """Load the best head of a run into ``head``; return its step and evaluation."""
    state: dict[str, Any] = torch.load(folder / BEST, weights_only=True)
    head.load_state_dict(state.pop("head"))
    return state
