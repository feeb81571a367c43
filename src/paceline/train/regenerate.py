"""Regenerate: let the target answer the prompts, in batches, with the very engine and template that serve.

Rows are appended to a JSONL file chunk by chunk (see ``rows``). Temperature and seed of a row follow from its
id, so a run that was interrupted, or made in other chunks, gives the same replies.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.config import Settings, check_float, check_int
from paceline.errors import ConfigError, PromptError
from paceline.sampling.params import SamplingParams
from paceline.train.prompts import TrainPrompt, prompt_ids
from paceline.train.storage import append_lines, drop_torn_line, read_lines

if TYPE_CHECKING:
    from paceline.llm import LLM
    from paceline.models.loading import ModelFiles

DEFAULT_TEMPERATURES = ((0.0, 0.55), (0.7, 0.25), (1.0, 0.2))
CHUNK_PROMPTS = 1024


@dataclass(frozen=True, slots=True)
class ReplySettings(Settings):
    """How replies are made. ``temperatures``: (temperature, share) pairs; shares sum to one.
    ``max_prompt_tokens``: longer prompts are skipped."""

    temperatures: tuple[tuple[float, float], ...] = DEFAULT_TEMPERATURES
    max_tokens: int = 256
    max_prompt_tokens: int = 512
    seed: int = 0

    def __post_init__(self) -> None:
        check_int("max_tokens", self.max_tokens, 1)
        check_int("max_prompt_tokens", self.max_prompt_tokens, 1)
        check_int("seed", self.seed, 0)
        for temperature, share in self.temperatures:
            check_float("temperature", temperature, 0.0, 100.0)
            SamplingParams(temperature=temperature)  # knows which of them can be served
            check_float("share of a temperature", share, 0.0, 1.0)
        total = sum(share for _, share in self.temperatures)
        if abs(total - 1.0) > 1e-6:
            raise ConfigError(f"temperatures: the shares sum to {total:g}: they must sum to 1")


@dataclass(slots=True)
class Skipped:
    """Prompts left out: longer than the limit, or refused by the chat template."""

    num_too_long: int = 0
    num_refused: int = 0


@dataclass(frozen=True, slots=True)
class ReplyCounts:
    """``num_rows``: replies on disk. ``num_new``: made by this call. ``skipped``: prompts without a reply."""

    num_rows: int
    num_new: int
    skipped: Skipped


def parse_temperatures(text: str) -> tuple[tuple[float, float], ...]:
    """Return the pairs of ``0:0.55,0.7:0.45``. Raises ``ConfigError``."""
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return tuple((float(temperature), float(share)) for temperature, share in pairs)
    except ValueError as error:
        raise ConfigError(
            f"temperatures {text!r}: give pairs of temperature and share, such as 0:0.55,0.7:0.25,1:0.2"
        ) from error


def row_params(row_id: str, settings: ReplySettings) -> SamplingParams:
    """Return the parameters of a row, a function of its id and the seed."""
    digest = hashlib.sha256(f"{settings.seed}\0{row_id}".encode()).digest()
    point = int.from_bytes(digest[:8], "big") / 2.0**64
    temperature = settings.temperatures[-1][0]
    for candidate, share in settings.temperatures:
        if point < share:
            temperature = candidate
            break
        point -= share
    if temperature == 0.0:
        return SamplingParams(temperature=0.0, max_tokens=settings.max_tokens)
    # "rejection" draws with one uniform a token; the default of seeded requests needs one a vocabulary entry.
    return SamplingParams(
        temperature=temperature,
        max_tokens=settings.max_tokens,
        seed=int.from_bytes(digest[8:16], "big"),
        acceptance="rejection",
    )


def regenerate(
    llm: LLM,
    prompts: Sequence[TrainPrompt],
    path: Path,
    settings: ReplySettings,
    *,
    chunk: int = CHUNK_PROMPTS,
    progress: Callable[[int, int], None] = lambda prompts, tokens: None,
) -> ReplyCounts:
    """Append a reply to each prompt that ``path`` does not hold yet.

    ``llm``: opened with the drafter ``none``. ``progress``: called with prompts and response tokens done
    since the last call, what is on disk first. Raises ``ConfigError`` when ``path`` holds other prompts' ids.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    drop_torn_line(path)
    done = _done_ids(path) if path.exists() else {}
    foreign = next(iter(done.keys() - {prompt.id for prompt in prompts}), None)
    if foreign is not None:
        raise ConfigError(f"{path} holds the row {foreign!r}, which is not among the prompts: move it away")
    progress(len(done), sum(done.values()))
    waiting = [prompt for prompt in prompts if prompt.id not in done]
    num_new, skipped = 0, Skipped()
    for start in range(0, len(waiting), chunk):
        part = waiting[start : start + chunk]
        rows = _answer(llm, _encode(llm.model_files, part, settings, skipped), settings)
        append_lines(path, rows)
        num_new += len(rows)
        progress(len(part), sum(len(row["response_token_ids"]) for row in rows))
    return ReplyCounts(len(done) + num_new, num_new, skipped)


def _encode(
    files: ModelFiles, prompts: Iterable[TrainPrompt], settings: ReplySettings, skipped: Skipped
) -> list[tuple[TrainPrompt, list[int]]]:
    """Return prompts with their ids; count those that cannot be used."""
    ready = []
    for prompt in prompts:
        try:
            ids = prompt_ids(files, prompt)
        except PromptError:
            skipped.num_refused += 1
            continue
        if len(ids) > settings.max_prompt_tokens:
            skipped.num_too_long += 1
        else:
            ready.append((prompt, ids))
    return ready


def _done_ids(path: Path) -> dict[str, int]:
    """Return id → number of response tokens of the rows that are on disk."""
    done = {}
    for number, line in read_lines(path):
        try:
            row = json.loads(line)
            done[str(row["id"])] = len(row["response_token_ids"])
        except (ValueError, KeyError, TypeError) as error:
            raise ConfigError(f"{path}, line {number} is no regenerated row: {error!r}") from error
    return done


def _answer(
    llm: LLM, pairs: Sequence[tuple[TrainPrompt, list[int]]], settings: ReplySettings
) -> list[dict[str, Any]]:
    """Return the rows of one chunk, in order."""
    if not pairs:
        return []
    params = [row_params(prompt.id, settings) for prompt, _ in pairs]
    outputs = llm.generate([{"prompt_token_ids": ids} for _, ids in pairs], params, use_tqdm=False)
    rows = []
    for (prompt, ids), chosen, output in zip(pairs, params, outputs, strict=True):
        reply = output.outputs[0]
        rows.append(
            {
                "id": prompt.id,
                "source": prompt.source,
                "messages": prompt.as_messages(),
                "prompt_token_ids": ids,
                "response_token_ids": list(reply.token_ids),
                "temperature": chosen.temperature,
                "finish_reason": reply.finish_reason,
                "text": reply.text,
            }
        )
    return rows
