"""Evaluate: how a head serves, measured through the engine on prompts it was not trained on.

Agreement on the target's own text says little about serving, where a head reads its own drafts and the engine
chooses how far to draft; tokens_per_step of served replies is what counts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from paceline.sampling.params import SamplingParams
from paceline.train.loops import distinct_share

if TYPE_CHECKING:
    from paceline.engine.outputs import CompletionOutput
    from paceline.llm import LLM

VARIED_SHARE = 0.5
"""Replies with fewer distinct 4-grams are loops, which any drafter predicts; they are counted apart."""
ALL = "all"


@dataclass(frozen=True, slots=True)
class EvalPrompt:
    """``ids``: the whole prompt."""

    source: str
    ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Served:
    """Replies to the prompts of one source (or all) at one temperature; counts as in design.md §7.

    ``tokens_per_step`` is over all replies, ``varied_tokens_per_step`` over those without loops (0 when there
    is none). ``acceptance_rate_at[i]``: share of all drafts whose token at depth i + 1 was kept;
    ``conditional_acceptance_at[i]``: of those that were kept at depth i and went on.
    """

    source: str
    temperature: float
    num_replies: int
    num_varied: int
    num_tokens: int
    num_steps: int
    tokens_per_step: float
    varied_tokens_per_step: float
    acceptance_rate: float
    acceptance_rate_at: tuple[float, ...]
    conditional_acceptance_at: tuple[float, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    llm: LLM,
    prompts: Sequence[EvalPrompt],
    temperature: float,
    max_tokens: int,
    *,
    seed: int = 0,
    chunk: int = 32,
    progress: Callable[[int, int], None] = lambda replies, tokens: None,
) -> list[Served]:
    """Return the figures over all prompts first, then per source. ``llm``: opened with the head to judge.

    At temperature 0 replies are greedy; above, prompt i has the seed ``seed`` + i.
    """
    replies: list[tuple[str, CompletionOutput]] = []
    for start in range(0, len(prompts), chunk):
        part = prompts[start : start + chunk]
        params = [_params(temperature, max_tokens, seed + start + place) for place in range(len(part))]
        outputs = llm.generate([{"prompt_token_ids": p.ids} for p in part], params, use_tqdm=False)
        done = [output.outputs[0] for output in outputs]
        replies += zip((prompt.source for prompt in part), done, strict=True)
        progress(len(done), sum(len(reply.token_ids) for reply in done))
    sources = dict.fromkeys(prompt.source for prompt in prompts)
    groups = {ALL: [reply for _, reply in replies]}
    groups |= {name: [reply for source, reply in replies if source == name] for name in sources}
    return [summarize(name, temperature, group) for name, group in groups.items()]


def _params(temperature: float, max_tokens: int, seed: int) -> SamplingParams:
    seeded = seed if temperature else None
    return SamplingParams(temperature=temperature, max_tokens=max_tokens, seed=seeded)


def summarize(source: str, temperature: float, replies: Sequence[CompletionOutput]) -> Served:
    """Return the figures of ``replies``."""
    metrics = [reply.metrics for reply in replies]
    varied = [r.metrics for r in replies if distinct_share(r.token_ids) >= VARIED_SHARE]
    drafts = sum(m.num_drafts for m in metrics)
    drafted, accepted = (sum(getattr(m, f"num_{k}_tokens") for m in metrics) for k in ("draft", "accepted"))
    kept = [sum(column) for column in zip_longest(*(m.accepted_at for m in metrics), fillvalue=0)]
    reached = [sum(column) for column in zip_longest(*(m.drafts_at for m in metrics), fillvalue=0)]
    went_on = [min(before, at) for before, at in zip([drafts, *kept], reached, strict=False)]
    return Served(
        source=source,
        temperature=temperature,
        num_replies=len(replies),
        num_varied=len(varied),
        num_tokens=sum(m.num_output_tokens for m in metrics),
        num_steps=sum(m.num_verify_steps for m in metrics),
        tokens_per_step=_ratio(metrics),
        varied_tokens_per_step=_ratio(varied),
        acceptance_rate=accepted / drafted if drafted else 0.0,
        acceptance_rate_at=tuple(count / drafts for count in kept) if drafts else (),
        conditional_acceptance_at=tuple(
            count / among if among else 0.0 for count, among in zip(kept, went_on, strict=False)
        ),
    )


def _ratio(metrics: Sequence[Any]) -> float:
    steps = sum(m.num_verify_steps for m in metrics)
    return sum(m.num_output_tokens for m in metrics) / steps if steps else 0.0
