"""Bits stay the same when other programs fight for the processors and passes change their threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from paceline.executors.cpu import default_threads
from support.native_batches import Rows, load_executor, run
from support.tiny_models import write_tiny_gguf

BLOCKS = tuple(range(24))


def test_busy_processors_change_no_bit(tmp_path: Path) -> None:
    executor = load_executor(write_tiny_gguf(tmp_path / "m.gguf", "llama", "q4_1"), num_threads=4)
    tokens = tuple(int(t) for t in np.random.default_rng(0).integers(0, 300, 200))
    calm = run(executor, Rows(tokens, 0, BLOCKS))
    busy = [
        subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2 * default_threads())
    ]
    try:
        steps = [run(executor, Rows(tokens[i : i + 1], i, BLOCKS)) for i in range(len(tokens))]
    finally:
        for process in busy:
            process.kill()
            process.wait()
    assert np.concatenate(steps).tobytes() == calm.tobytes()
