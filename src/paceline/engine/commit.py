"""Append accepted tokens one at a time, exactly as plain decoding does, until the first stop rule fires.

Everything behind that token is dropped: from ids, text, logprobs, statistics and cache (design.md, law 4).
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from paceline.control.acceptance_log import judge
from paceline.control.drift_watch import DriftWatch
from paceline.engine.accept import Acceptance
from paceline.engine.outputs import Logprob
from paceline.engine.request import Request
from paceline.engine.scheduler import Plan
from paceline.engine.verify import Verified
from paceline.executors.base import Executor
from paceline.records import Draft, FloatArray, HiddenStates, IntArray, Origin, StepObservation
from paceline.sampling import kernels


@dataclass(frozen=True, slots=True)
class CommitRules:
    """What commit needs to know of the engine. ``token_text``: the text of one token, for logprobs."""

    eos_ids: frozenset[int]
    token_text: Callable[[int], str]
    record_logit_hashes: bool


def commit(
    request: Request, draft: Draft, acceptance: Acceptance, rows: FloatArray, rules: CommitRules
) -> tuple[int, ...]:
    """Commit the step's tokens and return those kept; ``rows`` as in ``accept``."""
    count_step(request, draft)
    path = acceptance.path
    row_of = (0, *(node + 1 for node in path))
    tokens = (*(draft.tree.tokens[node] for node in path), acceptance.final)
    committed = 0
    for depth, token in enumerate(tokens):
        origin: Origin = "accepted" if depth < len(path) else acceptance.origin
        append(request, token, origin, rows[row_of[depth]], rules)
        if origin == "accepted":
            request.counts.num_accepted_tokens += 1
            request.counts.accepted_at[depth] += 1
        committed += 1
        apply_stop_rules(request, token, rules)
        if not request.is_running:
            break
    assert 1 <= committed <= len(path) + 1
    return tokens[:committed]


def count_step(request: Request, draft: Draft) -> None:
    """Count one verify step."""
    counts = request.counts
    counts.num_verify_steps += 1
    if counts.first_token is None:
        counts.first_token = time.perf_counter()
    if len(draft):
        counts.count_draft(len(draft), max(draft.tree.depths))


def append(request: Request, token: int, origin: Origin, row: FloatArray, rules: CommitRules) -> None:
    """Append one token to everything that follows the reply. ``row``: the logits it was chosen from."""
    request.tokens.append(token)
    request.origins.append(origin)
    request.sampler.append(token)
    if request.params.logprobs is not None:
        entry = logprobs_of(row, token, request.params.logprobs, rules.token_text)
        request.logprobs.append(entry)
        request.cumulative_logprob += entry[token].logprob
    if rules.record_logit_hashes:
        request.logit_hashes.append(hashlib.blake2b(row.tobytes(), digest_size=16).hexdigest())


def apply_stop_rules(request: Request, token: int, rules: CommitRules) -> None:
    """End the request if ``token`` completes a stop rule: EOS, stop ids, stop strings, then lengths."""
    params = request.params
    may_stop = request.num_output_tokens > params.min_tokens
    is_eos = may_stop and not params.ignore_eos and token in rules.eos_ids
    if is_eos or (may_stop and token in params.stop_ids):
        request.finish_reason = "stop"
        request.stop_reason = None if is_eos else token
        if params.include_stop_str_in_output:
            request.text.push(token)
        request.text.finish()
        return
    new = request.text.push(token)
    stop = request.text.find_stop(new) if may_stop and params.stop_strings else None
    if stop is not None:
        request.finish_reason, request.stop_reason = "stop", stop
    elif request.known >= request.length_limit:
        request.finish_reason = "length"
        request.text.finish()


def logprobs_of(
    row: FloatArray, token: int, wanted: int, token_text: Callable[[int], str]
) -> dict[int, Logprob]:
    """Return raw log-softmax of the chosen token, which comes first, and of the ``wanted`` best ones."""
    total = kernels.log_sum_exp(row)
    rank = 1 + int((row > row[token]).sum())
    entries = {token: Logprob(float(row[token]) - total, rank, token_text(token))}
    best = kernels.top_ids(row[None], wanted)[0].tolist() if wanted else []
    for place, other in enumerate(best, start=1):
        if other != token:
            entries[other] = Logprob(float(row[other]) - total, place, token_text(other))
    return entries


def settle_cache(request: Request, acceptance: Acceptance, executor: Executor) -> None:
    """Keep the accepted path in the cache, close up behind the committed tokens, and give back the rest.

    Call it once after ``commit``. A request that has ended releases all its blocks elsewhere.
    """
    base = request.computed
    request.table.compact(executor, base, acceptance.path)
    request.computed = base + len(acceptance.path)
    request.table.truncate(request.computed)


def observe(
    plan: Plan,
    draft: Draft,
    acceptance: Acceptance,
    committed: tuple[int, ...],
    root: int,
    verified: Verified,
) -> None:
    """Tell the drafter what happened. ``root``: the token whose row stands first in the logits.

    Call it before ``settle_cache``.
    """
    request = plan.request
    if request.session is None or (request.pacing is not None and request.pacing.keeps(committed)):
        return
    path = acceptance.path[: len(committed)]
    tokens: IntArray | None = None
    top: IntArray | None = None
    if request.num_top_tokens:
        tokens = np.array((root, *draft.tree.tokens), dtype=np.int32)
        top = kernels.top_ids(verified.logits, request.num_top_tokens)
    step = StepObservation(committed, len(path), draft, tokens, top, kept_states(plan, path, verified))
    request.with_session(lambda session: session.observe(step))


def tell_watch(
    watch: DriftWatch, request: Request, draft: Draft, path: tuple[int, ...], num_tokens: int
) -> None:
    """Count a verified draft for the drift watch. ``path``: its accepted nodes, ``num_tokens``: committed."""
    watch.record(
        request.drafter_name,
        request.params.workload,
        request.request_id,
        judge(draft.tree, path, num_tokens),
        num_draft_tokens=len(draft),
        num_tokens=num_tokens,
        temperature=request.params.temperature,
    )


def observe_prompt(plan: Plan, verified: Verified) -> None:
    """Give the drafter the hidden states of a piece of the prompt, if it wants them."""
    states = kept_states(plan, (), verified)
    if states is not None:
        step = StepObservation((), 0, states=states)
        plan.request.with_session(lambda session: session.observe(step))


def kept_states(plan: Plan, path: tuple[int, ...], verified: Verified) -> HiddenStates | None:
    """Return the states of the pending tokens and of the accepted ``path``, without the rejected nodes."""
    if verified.states is None:
        return None
    start = plan.request.computed - plan.num_pending
    if not path or path[-1] == len(path) - 1:  # nothing in between was rejected
        return HiddenStates(start, verified.states[: plan.num_pending + len(path)].copy())
    kept = [*range(plan.num_pending), *(plan.num_pending + node for node in path)]
    return HiddenStates(start, verified.states[kept])
