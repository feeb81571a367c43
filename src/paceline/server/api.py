"""The endpoints. Each says in its docstring what it answers; the application puts them together."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from functools import partial
from importlib import metadata
from typing import Any

from fastapi import Request
from fastapi.responses import JSONResponse, Response
from prometheus_client import CONTENT_TYPE_LATEST

from paceline.server.compose import Composer
from paceline.server.constraints import Constraints
from paceline.server.errors import bad_request, stopping
from paceline.server.job import Job
from paceline.server.params import Chosen, choose, queue_terms
from paceline.server.prompts import PromptReader, Prompts
from paceline.server.replies import Head
from paceline.server.schema import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeRequest
from paceline.server.service import Service
from paceline.server.tools import ToolUse, tool_use
from paceline.server.watch import EventStream, unless_gone

GONE = 499
"""The client went away before the answer: nobody sees this status but the log (nginx's number for it)."""


class Api:
    """Endpoints of one service."""

    def __init__(self, service: Service) -> None:
        self.service = service
        llm = service.llm
        self._reader = PromptReader(llm.model_files, llm.engine.config.max_model_len)
        self._constraints = Constraints(llm.tokenizer)
        self._version = metadata.version("paceline")
        about = f"{self._version} {llm.settings['model']} {llm.settings['instruction_path']}"
        self._fingerprint = "fp_" + hashlib.blake2b(about.encode(), digest_size=5).hexdigest()

    # ---- replies ----

    async def chat_completions(self, body: ChatRequest, request: Request) -> Response:
        """Answer a conversation."""
        use = tool_use(body, self._reader.form)
        return await self._reply(request, body, 1, partial(self._reader.chat, body, use), use)

    async def completions(self, body: CompletionRequest, request: Request) -> Response:
        """Continue one or more plain prompts."""
        return await self._reply(request, body, len(body.prompts), partial(self._reader.completion, body))

    async def _reply(
        self,
        request: Request,
        body: ChatRequest | CompletionRequest,
        num_prompts: int,
        read: Callable[[], Prompts],
        use: ToolUse | None = None,
    ) -> Response:
        service, state = self.service, request.state
        model = service.model_named(body.model)
        choose(body, service.drafters)  # what is wrong with the parameters is told before work is done
        service.check_room(num_prompts * (body.n or 1))
        grammar = await service.prepare(partial(self._constraints.of, body, use))
        prompts = await service.prepare(read)
        chosen = choose(body, service.drafters, prompts.prediction, grammar)
        terms = queue_terms(body, service.settings, state.client)
        job = await service.open(state.request_id, _requests(prompts, chosen), terms, state.arrived)
        prefix = "chatcmpl-" if isinstance(body, ChatRequest) else "cmpl-"
        head = Head(prefix + state.request_id, int(time.time()), model, self._fingerprint)
        composer = Composer(body, job, head, service.llm.tokenizer, use, prompts.echoes)
        close = partial(self._close, job, state.log)
        if body.stream:
            return EventStream(composer.stream(), close, composer.lend)
        try:
            reply = await unless_gone(request, composer.whole())
        finally:
            close()
        return Response(status_code=GONE) if reply is None else JSONResponse(reply)

    def _close(self, job: Job, log: dict[str, Any]) -> None:
        """Let go of a job, and leave a note of it for the log."""
        self.service.close(job)
        done = [part.done for part in job.parts if part.done is not None]
        log["prompt_tokens"] = sum(len(part.prompt) for part in job.parts)
        log["output_tokens"] = sum(part.num_tokens for part in job.parts)
        log["finish_reasons"] = [reply.finish_reason for reply in done] or ["abort"]
        log["draft_tokens"] = sum(reply.metrics.num_draft_tokens for reply in done)
        log["accepted_tokens"] = sum(reply.metrics.num_accepted_tokens for reply in done)
        if done:
            log["ttft_seconds"] = round(min(reply.metrics.ttft_seconds for reply in done), 4)
        if self.service.settings.log_prompts:
            decode = self.service.llm.tokenizer.decode
            log["prompts"] = [decode(part.prompt, skip_special=False) for part in job.parts]
            log["replies"] = [reply.text for reply in done]

    async def embeddings(self) -> Response:
        """Refuse: a language model that generates has no embeddings to give."""
        raise bad_request(
            "this server generates text and has no embedding model: send embeddings elsewhere",
            code="unsupported_endpoint",
        )

    # ---- tokens ----

    async def tokenize(self, body: TokenizeRequest) -> dict[str, Any]:
        """Return the token ids of a text, or of messages under the model's template."""
        self.service.model_named(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise bad_request("give one of prompt and messages", "prompt")
        if body.tools and body.messages is None:
            raise bad_request("tools does nothing without messages: leave it out", "tools")
        ids = await self.service.prepare(partial(self._tokenize, body))
        result = {
            "count": len(ids),
            "max_model_len": self.service.llm.engine.config.max_model_len,
            "tokens": list(ids),
        }
        if body.return_token_strs:
            result["token_strs"] = [self.service.llm.tokenizer.tokens[token] for token in ids]
        return result

    def _tokenize(self, body: TokenizeRequest) -> tuple[int, ...]:
        if body.messages is not None:
            variables = {"add_generation_prompt": body.add_generation_prompt}
            shown = ToolUse(self._reader.form, tuple(body.tools)) if body.tools else None
            return self._reader.conversation(body.messages, variables, shown)
        return self._reader.plain(body.prompt or "", None if body.add_special_tokens else False)

    async def detokenize(self, body: DetokenizeRequest) -> dict[str, str]:
        """Return the text of token ids, special tokens included."""
        self.service.model_named(body.model)
        tokenizer = self.service.llm.tokenizer
        text = await self.service.prepare(lambda: tokenizer.decode(body.tokens, skip_special=False))
        return {"prompt": text}

    # ---- the server itself ----

    async def models(self) -> dict[str, Any]:
        """List what requests may name as model."""
        return {"object": "list", "data": [self._model(name) for name in self.service.settings.model_names]}

    async def model(self, name: str) -> dict[str, Any]:
        """Describe one model."""
        self.service.model_named(name)
        return self._model(name)

    def _model(self, name: str) -> dict[str, Any]:
        return {
            "id": name,
            "object": "model",
            "created": int(self.service.started),
            "owned_by": "paceline",
            "max_model_len": self.service.llm.engine.config.max_model_len,
        }

    async def health(self) -> Response:
        """Say whether the engine makes progress: 200, or 503 with what is wrong."""
        wrong = self.service.unhealthy
        status = {"status": "unhealthy", "reason": wrong} if wrong else {"status": "ok"}
        return JSONResponse(status, 503 if wrong else 200)

    async def ready(self) -> Response:
        """Say whether new requests are taken: 200, or 503 while the server stops or is unhealthy."""
        if self.service.draining:
            raise stopping()
        return await self.health()

    async def metrics(self) -> Response:
        """Answer Prometheus."""
        text = self.service.metrics.text(self.service.settings.metrics_compat)
        return Response(text, headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def config(self) -> dict[str, Any]:
        """Return the effective settings, and why drafting is on or off."""
        service = self.service
        settings = service.settings
        own = {name: getattr(settings, name) for name in settings.__dataclass_fields__}
        own["api_keys"] = len(settings.api_keys)
        load = service.thread.load
        return {
            "version": self._version,
            "engine": service.llm.settings,
            "server": own,
            "speculation": {
                "drafters": service.drafters,
                **_why(service),
                "alarms": [str(alarm) for alarm in service.llm.engine.watch.alarms],
            },
            "tool_calls": {"form": self._reader.form.name, "is_native": self._reader.form.is_native},
            "load": {name: getattr(load, name) for name in load.__dataclass_fields__},
        }


def _requests(prompts: Prompts, chosen: Chosen) -> list[tuple[tuple[int, ...], Any]]:
    return [(ids, chosen.completion(index)) for ids in prompts.ids for index in range(chosen.n)]


def _why(service: Service) -> dict[str, Any]:
    """Return whether requests are drafted for unless they say otherwise, and the reason."""
    spec = service.llm.engine.spec
    if spec.drafter == "none":
        return {"enabled": False, "why": "the server was started with drafter none"}
    if spec.draft_limit == 0:
        return {"enabled": False, "why": "the server was started with num_draft_tokens 0"}
    why = f"drafter {spec.drafter}, at most {spec.draft_limit} tokens per step"
    if spec.drafter in ("auto", "eagle3"):
        why += "; each step drafts as many as promise the most tokens per second, which may be none"
    return {"enabled": True, "why": why}
