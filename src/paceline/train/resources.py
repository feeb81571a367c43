"""What a training run will need of memory and disk, said (and refused) before it starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from paceline.errors import ConfigError
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.spec import ModelSpec
from paceline.train.storage import free_bytes

RESERVE = 1 << 30
"""Bytes of the disk left to others."""
_ROW_BYTES = 2000
"""Of a regenerated row besides its ids, and per id some eight."""
_ID_BYTES = 8
_OPTIMISER_COPIES = 4
"""float32 weights, gradients and the two moments of AdamW."""
_TORCH_BYTES = 600 << 20
"""PyTorch itself, its allocator and compiled kernels."""


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes by purpose."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        return sum(self.parts.values())

    def describe(self) -> str:
        """Return ``3.2 GB (capture 3.0 GB, …)``, largest first."""
        parts = sorted(self.parts.items(), key=lambda item: -item[1])
        return f"{gigabytes(self.total)} ({', '.join(f'{name} {gigabytes(size)}' for name, size in parts)})"


def gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 50e6 else f"{size / 1e6:.1f} MB"


def parse_size(text: str) -> int:
    """Return the bytes of ``20GB``, ``512MB`` or a plain number. Raises ``ConfigError``."""
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12, "b": 1, "": 1}
    number = text.strip().rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ ")
    unit = text.strip()[len(number) :].strip().lower()
    try:
        size = float(number) * units[unit]
    except (ValueError, KeyError) as error:
        raise ConfigError(f"size {text!r}: give a number with MB, GB or TB, such as 20GB") from error
    if not 0 < size < 2**62:
        raise ConfigError(f"size {text!r}: give a number above 0, such as 20GB")
    return int(size)


def head_parameters(spec: Eagle3Spec) -> int:
    """Return the number of trained weights of a head in the trainer's plain form."""
    hidden, queries, keys = (
        spec.hidden_size,
        spec.num_heads * spec.head_dim,
        spec.num_kv_heads * spec.head_dim,
    )
    total = hidden * spec.num_states * spec.target_hidden_size + hidden + spec.draft_vocab_size * hidden
    for layer in range(spec.num_layers):
        width = 2 * hidden if layer == 0 else hidden
        total += width * (queries + 2 * keys) + queries * hidden + 3 * hidden * spec.ffn_size + 3 * hidden
    return total


def draft_model_parameters(target: ModelSpec, num_layers: int) -> int:
    """Return the number of trained weights of a draft model with layers of the target's size."""
    hidden, queries, keys = (
        target.hidden_size,
        target.num_heads * target.head_dim,
        target.num_kv_heads * target.head_dim,
    )
    layer = hidden * (2 * queries + 2 * keys + 3 * target.ffn_size + 2)
    return num_layers * layer + hidden


def disk_need(
    num_rows: int, num_tokens: int, state_width: int, head_weights: int, max_capture: int | None
) -> Need:
    """Return the disk a run needs at most.

    ``num_tokens``: prompts and replies. ``state_width``: values captured per token. ``head_weights``:
    see :func:`head_parameters`. ``max_capture``: bound on the captured states in bytes.
    """
    captured = num_tokens * (2 * state_width + 4)
    checkpoint = 3 * 4 * head_weights
    return Need(
        {
            "replies": num_rows * _ROW_BYTES + num_tokens * _ID_BYTES,
            "states": captured if max_capture is None else min(captured, max_capture),
            "checkpoints": 3 * checkpoint,
        }
    )


def generation_memory(weight_bytes: int, cache_bytes: int) -> Need:
    """Return the memory of regenerate, capture and evaluate."""
    return Need({"target": weight_bytes, "cache": cache_bytes, "program": 300 << 20})


def fit_memory(
    spec: Eagle3Spec, vocab_size: int, tokens_per_step: int, num_steps: int, sequence_share: float = 2.0
) -> Need:
    """Return the memory of the fit stage, with activations in bfloat16.

    ``tokens_per_step``: supervised tokens of a batch. ``num_steps``: training-time-test steps.
    ``sequence_share``: tokens of a batch ÷ supervised ones (prompts give keys and values too).
    """
    weights = head_parameters(spec)
    # Kept for the backward pass, per supervised token and step: inputs of the matrices and the gated halves.
    per_step = 2 * (8 * spec.hidden_size + 3 * spec.num_heads * spec.head_dim + 5 * spec.ffn_size)
    rows = int(tokens_per_step * sequence_share)
    states = 2 * rows * (spec.num_states + 2) * spec.target_hidden_size
    return Need(
        {
            "head and optimiser": weights * (_OPTIMISER_COPIES * 4 + 2 * 2),
            "target embedding": 2 * vocab_size * spec.target_hidden_size,
            "activations": tokens_per_step * num_steps * per_step + states,
            "target laws": tokens_per_step * spec.draft_vocab_size * 2,
            "program": _TORCH_BYTES,
        }
    )


def draft_fit_memory(target: ModelSpec, num_layers: int, tokens_per_step: int, columns: int) -> Need:
    """Return the memory of a draft model's fit; ``columns``: tokens the loss is over."""
    weights = draft_model_parameters(target, num_layers)
    per_row = 2 * (8 * target.hidden_size + 3 * target.num_heads * target.head_dim + 5 * target.ffn_size)
    matrices = (2 if target.tied_head else 4) * target.vocab_size * target.hidden_size
    return Need(
        {
            "draft model and optimiser": weights * (_OPTIMISER_COPIES * 4 + 2 * 2),
            "target matrices": matrices + (2 + 4) * columns * target.hidden_size,
            "activations": 2 * tokens_per_step * num_layers * per_row,
            "program": _TORCH_BYTES,
        }
    )


def check_disk(need: Need, folder: Path) -> None:
    """Raise ``ConfigError`` when the disk of ``folder`` has not enough room.

    What an earlier run wrote to ``folder`` is not needed a second time.
    """
    files = folder.rglob("*") if folder.exists() else ()
    written = sum(path.stat().st_size for path in files if path.is_file())
    free = free_bytes(folder)
    if need.total - written + RESERVE > free:
        raise ConfigError(
            f"training needs up to {need.describe()} on the disk of {folder}, of which {gigabytes(written)} "
            f"are there, and {gigabytes(RESERVE)} to spare, but {gigabytes(free)} are free: bound the states "
            "with --max-disk, use fewer prompts, or choose an --out on another disk"
        )


def check_memory(need: Need, what: str, remedy: str) -> None:
    """Raise ``ConfigError`` when the machine has not enough free memory (where it says how much)."""
    free = available_memory()
    if free is not None and need.total > free:
        raise ConfigError(
            f"{what} needs about {need.describe()} of memory, but {gigabytes(free)} are free: {remedy}"
        )


def available_memory(
    meminfo: Path = Path("/proc/meminfo"), group: Path = Path("/sys/fs/cgroup")
) -> int | None:
    """Return the bytes of memory this process may still take, ``None`` where the system does not say.

    A container's limit counts as well as the machine's free memory.
    """
    if not meminfo.exists():
        return None
    lines = dict(
        line.split(":", 1) for line in meminfo.read_text(encoding="utf-8").splitlines() if ":" in line
    )
    free = int(lines["MemAvailable"].split()[0]) * 1024
    limit, used = group / "memory.max", group / "memory.current"
    if limit.exists() and used.exists() and (bound := limit.read_text().strip()).isdecimal():
        free = min(free, max(0, int(bound) - int(used.read_text())))
    return free
