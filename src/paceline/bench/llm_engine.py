"""The bench's view of :class:`paceline.llm.LLM`."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from paceline.bench.records import Measured
from paceline.llm import LLM
from paceline.sampling.params import SamplingParams


def prompt_ids(llm: LLM, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Return a conversation as token ids: by the chat template, or as plain text for a base model.

    A base model has no template; it continues the text of the messages, an empty line between two and the end
    of a line after the last. Training's prompts (``paceline train``) have the same form.
    """
    if llm.model_files.chat_template_text is not None:
        return llm.model_files.chat_template.encode(messages)
    return llm.tokenizer.encode("\n\n".join(message["content"] for message in messages) + "\n")


class LlmEngine:
    """Answers conversations one at a time, each with the drafter asked for."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    @property
    def model_name(self) -> str:
        """The name the model file gives itself, and the file's own."""
        files = self._llm.model_files
        return f"{files.spec.name} ({files.path.name})"

    def start_afresh(self, drafters: Sequence[str]) -> None:
        """Forget what was learnt and build ``drafters``, so that no reply pays for it."""
        self._llm.start_afresh()
        for name in drafters:
            self._llm.engine.drafter(name)

    def reply(
        self,
        drafter: str,
        messages: Sequence[Mapping[str, str]],
        max_tokens: int,
        temperature: float,
        seed: int | None,
    ) -> Measured:
        """Answer one conversation; the clock covers the template, the tokenizer and the engine."""
        params = SamplingParams(
            temperature=temperature,
            max_tokens=max_tokens,
            seed=seed if temperature > 0.0 else None,
            drafter=drafter,
        )
        begin = time.perf_counter()
        (output,) = self._llm.generate([prompt_ids(self._llm, messages)], params, use_tqdm=False)
        seconds = time.perf_counter() - begin
        reply, metrics = output.outputs[0], output.metrics
        return Measured(
            token_ids=reply.token_ids,
            text=reply.text,
            seconds=seconds,
            num_steps=metrics.num_verify_steps,
            num_drafts=metrics.num_drafts,
            num_draft_tokens=metrics.num_draft_tokens,
            num_accepted_tokens=metrics.num_accepted_tokens,
            accepted_at=metrics.accepted_at,
            draft_seconds=metrics.draft_seconds,
            verify_seconds=metrics.verify_seconds,
        )
