"""What is checked: a model on its executor, and the drafters in question."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from paceline.config import EngineConfig, SpecConfig
from paceline.drafters.base import Drafter
from paceline.drafters.none import NoneDrafter
from paceline.engine.accept import accept
from paceline.engine.engine import AcceptRule, ChanceFactory, Engine
from paceline.engine.outputs import CompletionOutput
from paceline.engine.text import TokenDecoder
from paceline.executors.base import Executor
from paceline.llm import LLM
from paceline.sampling.chance import SeededChance
from paceline.sampling.params import SamplingParams

MAX_REQUESTS = 32


@dataclass(frozen=True, slots=True)
class Subject:
    """The parts that engines for checks are made of.

    ``drafters``: those to check, by the name they were asked for. ``accept_rule``: the engine's own.
    ``num_draft_tokens``: most nodes of one draft. All engines use the same blocks of ``executor``: run one at
    a time, and nothing else on it meanwhile.
    """

    executor: Executor
    decoder: TokenDecoder
    eos_ids: frozenset[int]
    max_model_len: int
    num_draft_tokens: int
    drafters: Mapping[str, Drafter] = field(default_factory=dict)
    accept_rule: AcceptRule = accept

    @classmethod
    def of(cls, llm: LLM, drafters: Iterable[str]) -> Subject:
        """Return the parts of an idle ``llm``; raises what building a drafter does."""
        return cls(
            llm.executor,
            llm.tokenizer,
            frozenset(llm.tokenizer.eos_token_ids),
            llm.engine.config.max_model_len,
            SpecConfig("auto", llm.engine.spec.num_draft_tokens).draft_limit,
            {name: llm.engine.drafter(name) for name in drafters},
        )

    def engine(
        self,
        drafters: Mapping[str, Drafter] | None = None,
        executor: Executor | None = None,
        chance: ChanceFactory = SeededChance,
        hashes: bool = True,
    ) -> Engine:
        """Return an engine with its own bookkeeping. Requests name their drafter; ``none`` is known.

        ``hashes``: keep those of the logits behind each token.
        """
        known = {"none": NoneDrafter(), **(self.drafters if drafters is None else drafters)}
        config = EngineConfig(self.max_model_len, max_num_requests=MAX_REQUESTS, record_logit_hashes=hashes)
        return Engine(
            self.executor if executor is None else executor,
            self.decoder,
            self.eos_ids,
            known.__getitem__,
            SpecConfig("none"),
            config,
            chance,
            self.accept_rule,
        )

    def draft_limit(self, drafter: str) -> int | None:
        """Return what a request with ``drafter`` says of its draft length."""
        return None if drafter == "none" else self.num_draft_tokens

    def token_text(self, token: int | None) -> str:
        """Return a token as text, empty for ``None``."""
        if token is None:
            return ""
        return self.decoder.token_bytes(token, skip_special=False).decode("utf-8", "replace")


def run_to_end(
    engine: Engine, requests: Mapping[str, tuple[tuple[int, ...], SamplingParams]]
) -> dict[str, CompletionOutput]:
    """Run all requests (id → prompt and parameters) in one batch; return the replies by id."""
    done: dict[str, CompletionOutput] = {}
    for request_id, (prompt, params) in requests.items():
        engine.add_request(request_id, prompt, params)
    while engine.has_unfinished:
        for output in engine.step():
            if output.completion is not None:
                done[output.request_id] = output.completion
    return done
