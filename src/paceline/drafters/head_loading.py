"""From the files of an EAGLE-3 head to a head that can draft for a loaded target."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.drafters.eagle3 import Eagle3Head
from paceline.executors.cpu import CpuExecutor
from paceline.executors.eagle3 import Eagle3Executor
from paceline.kv.block_pool import BlockPool
from paceline.models.catalog import resolve_model
from paceline.models.eagle3 import check_fit, open_eagle3


def open_head(
    path: str, label: str, target: CpuExecutor, vocabulary: Sequence[str], max_num_requests: int
) -> Eagle3Head:
    """Load the head at ``path``, a name, file or folder, and call it ``label``.

    ``vocabulary``: text of each token id of the target. Raises ``ModelNotFoundError``, ``ModelFileError``,
    ``VocabularyMismatchError`` and, when there is no memory for its cache, ``ConfigError``.
    """
    # A GGUF file has its storage types already.
    files = open_eagle3(path, target.spec, quant="q8" if resolve_model(path).is_dir() else "none")
    # A request's drafted nodes lie behind its pairs: a block or two more than it holds of the target.
    num_blocks = target.num_blocks + 2 * max_num_requests
    try:
        check_fit(files, target.spec, vocabulary)
        executor = Eagle3Executor.load(files, target, num_blocks=num_blocks)
    finally:
        files.source.close()
    return Eagle3Head(label, executor, BlockPool(executor.num_blocks))
