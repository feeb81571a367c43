"""A fit of a second on random sequences, the same in every process; for tests that stop it the hard way.

>>> python -c "from support.tiny_fit import *; die_while_saving(2); make_fit(folder).run()"
"""

from __future__ import annotations

import io
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from paceline.train import fit, fusing
from paceline.train.captured import CapturedSequence, to_bfloat16
from paceline.train.fit_config import FitConfig
from paceline.train.head import Eagle3Head
from paceline.train.target import TargetHead
from support.eagle3_heads import tiny_spec

NUM_STEPS = 12
EVERY = 3
SPEC = tiny_spec()


class RandomSequences:
    """Eight sequences of twelve tokens, replies from the fourth on."""

    def __init__(self) -> None:
        rng = np.random.default_rng(3)
        shape = (12, (SPEC.num_states + 1) * SPEC.target_hidden_size)
        self.all = [
            CapturedSequence(
                str(index),
                "test",
                rng.integers(0, SPEC.vocab_size, 12).astype(np.int32),
                to_bfloat16(rng.standard_normal(shape).astype(np.float32)),
                4,
            )
            for index in range(8)
        ]

    def __len__(self) -> int:
        return len(self.all)

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        return np.full(len(self), 12, np.int64)

    @property
    def response_starts(self) -> npt.NDArray[np.int64]:
        return np.full(len(self), 4, np.int64)

    def sequence(self, index: int) -> CapturedSequence:
        return self.all[index]


def make_fit(folder: Path) -> fit.Fit:
    """Return a fit of ``NUM_STEPS`` steps with a checkpoint after every third."""
    fusing.can_fuse = lambda: False  # type: ignore[assignment]
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(1)
    embedding = torch.randn((SPEC.vocab_size, SPEC.hidden_size), generator=generator)
    weight = torch.randn((SPEC.draft_vocab_size, SPEC.target_hidden_size), generator=generator)
    config = FitConfig(NUM_STEPS, tokens_per_step=14, dtype="float32", evaluate_every=EVERY,
                       checkpoint_every=EVERY)  # fmt: skip
    target = TargetHead(torch.ones(SPEC.target_hidden_size), weight, SPEC.norm_eps)
    return fit.Fit(Eagle3Head(SPEC), RandomSequences(), [0], embedding, target, config, folder)


def half_saved(state: dict[str, Any], file: io.BufferedWriter) -> None:
    """Write the first half of a checkpoint."""
    whole = io.BytesIO()
    torch.serialization.save(state, whole)
    file.write(whole.getvalue()[: whole.tell() // 2])
    file.flush()


def die_while_saving(number: int) -> None:
    """Kill this process (kill -9) while it writes its ``number``-th checkpoint."""
    save, seen = torch.save, []

    def deadly(state: dict[str, Any], file: Any) -> None:
        if "optimizers" in state:
            seen.append(state["step"])
            if len(seen) == number:
                half_saved(state, file)
                os.kill(os.getpid(), signal.SIGKILL)
        save(state, file)

    torch.save = deadly
