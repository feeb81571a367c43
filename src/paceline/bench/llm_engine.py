"""The bench's view of :class:`paceline.llm.LLM`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from paceline.bench.memory import peak_bytes, reset_peak
from paceline.bench.records import Delivery, Measured
from paceline.engine.interrupt import DeferredInterrupt
from paceline.engine.outputs import CompletionOutput
from paceline.llm import LLM
from paceline.models.loading import ModelFiles
from paceline.sampling.params import SamplingParams
from paceline.theory.cost_table import CostTable

Messages = Sequence[Mapping[str, str]]

_request_numbers = count()


def prompt_ids(model: LLM | ModelFiles, messages: Messages) -> list[int]:
    """Return a conversation as token ids: by the chat template, or as plain text for a base model.

    A base model has no template; it continues the text of the messages, an empty line between two and the end
    of a line after the last. Training's prompts (``paceline train``) have the same form.
    """
    files = model.model_files if isinstance(model, LLM) else model
    if files.chat_template_text is not None:
        return files.chat_template.encode(messages)
    return files.tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n")


def named_costs(llm: LLM, table: CostTable, drafters: Sequence[str]) -> CostTable:
    """Return ``table`` with the costs of ``drafters`` under the names they were asked for.

    A table has a head under the name of its file; ``eagle3`` asks for whichever comes with the model.
    """
    own = {name: llm.engine.drafter(name).name for name in drafters}
    costs = {name: table.cost_of(known) for name, known in own.items() if table.knows(known)}
    return replace(table, draft_costs={**table.draft_costs, **costs})


class LlmEngine:
    """Answers conversations, alone or several at once, with the drafter asked for."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def model_name(self) -> str:
        """What the model is called, and its file."""
        files = self._llm.model_files
        return f"{files.name} ({files.path.name})"

    def start_afresh(self, drafters: Sequence[str]) -> None:
        """Forget what was learnt and build ``drafters``, so that no reply pays for it."""
        self._llm.start_afresh()
        for name in drafters:
            self._llm.engine.drafter(name)

    def reply(
        self, drafter: str, messages: Messages, max_tokens: int, temperature: float, seed: int | None
    ) -> Measured:
        """Answer one conversation; see :meth:`replies`."""
        (measured,) = self.replies(drafter, [messages], max_tokens, temperature, [seed])
        return measured

    def replies(
        self,
        drafter: str,
        conversations: Sequence[Messages],
        max_tokens: int,
        temperature: float,
        seeds: Sequence[int | None],
    ) -> list[Measured]:
        """Answer conversations at once; the clock covers the template, the tokenizer and the engine.

        What the prefix cache holds is forgotten first: each drafter is to compute its own prompts.
        """
        params = [
            SamplingParams(
                temperature=temperature,
                max_tokens=max_tokens,
                seed=seed if temperature > 0.0 else None,
                drafter=drafter,
            )
            for seed in seeds
        ]
        self._llm.engine.clear_prefix_cache()
        can_tell_peak = reset_peak()
        run = _Run(self._llm)
        run.finish(conversations, params)
        peak = peak_bytes() if can_tell_peak else None
        return run.measured(peak)


class _Run:
    """Conversations answered at once, and when which tokens came."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm
        self._deliveries: dict[str, list[Delivery]] = {}
        self._done: dict[str, CompletionOutput] = {}
        self._begin = self._end = 0.0

    def finish(self, conversations: Sequence[Messages], params: Sequence[SamplingParams]) -> None:
        """Answer all. Ctrl-C stops within one step; on any error nothing of the run stays behind."""
        runner = self._llm.runner
        self._begin = time.perf_counter()
        with DeferredInterrupt() as interrupt:
            try:
                for messages, mine in zip(conversations, params, strict=True):
                    request_id = f"bench-{next(_request_numbers)}"
                    self._deliveries[request_id] = []
                    runner.submit(request_id, prompt_ids(self._llm, messages), mine)
                while len(self._done) < len(self._deliveries):
                    runner.step()
                    self._collect(time.perf_counter())
                    interrupt.check()
            finally:
                for request_id in self._deliveries:
                    runner.drop(request_id)

    def _collect(self, now: float) -> None:
        self._end = now
        for request_id, deliveries in self._deliveries.items():
            for output in self._llm.runner.take(request_id):
                if output.token_ids:
                    deliveries.append(Delivery(now - self._begin, len(output.token_ids)))
                if output.completion is not None:
                    self._done[request_id] = output.completion

    def measured(self, peak: int | None) -> list[Measured]:
        """Return what was measured of each reply.

        Forwards that several requests share count in full for each of them. The reply that sat through most
        of them stands for the batch's; those in which it only waited for its turn appear as other time.
        """
        size = len(self._done)
        verify = max(done.metrics.verify_seconds for done in self._done.values())
        return [
            Measured(
                token_ids=done.token_ids,
                text=done.text,
                seconds=(self._end - self._begin) / size,
                num_steps=done.metrics.num_verify_steps,
                num_drafts=done.metrics.num_drafts,
                num_draft_tokens=done.metrics.num_draft_tokens,
                num_accepted_tokens=done.metrics.num_accepted_tokens,
                accepted_at=done.metrics.accepted_at,
                draft_seconds=done.metrics.draft_seconds,
                verify_seconds=verify / size,
                deliveries=tuple(deliveries),
                drafts_at=done.metrics.drafts_at,
                peak_memory_bytes=peak,
            )
            for request_id, deliveries in self._deliveries.items()
            for done in (self._done[request_id],)
        ]
