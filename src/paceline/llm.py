"""The public class: from a model's name to text, with the names of vLLM's offline API.

llm = LLM("smollm2-135m", drafter="auto")
(reply,) = llm.generate("The capital of France is", SamplingParams(temperature=0, max_tokens=32))
reply.outputs[0].text, reply.metrics.tokens_per_step
for piece in llm.stream("Once upon a time", SamplingParams(max_tokens=200)):
    print(piece, end="", flush=True)
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paceline.config import Acceptance, EngineConfig, SpecConfig, check_int, check_names
from paceline.control.draft_clock import DraftClock
from paceline.control.drift_watch import DriftWatch
from paceline.drafters.base import Drafter
from paceline.drafters.draft_model import DraftModel, DraftModelDrafter
from paceline.engine.engine import Engine
from paceline.engine.outputs import RequestOutput
from paceline.engine.prompts import (
    Conversation,
    Params,
    Prompt,
    as_batch,
    as_conversations,
    paired,
    prepare,
    prepare_chat,
)
from paceline.engine.runner import ReplyStream, Runner
from paceline.errors import ConfigError, PacelineError
from paceline.models.shipped_heads import shipped_head, target_fingerprint
from paceline.models.vocabulary import shared_vocabulary_size
from paceline.profiling import costs as profiled
from paceline.sampling.params import SamplingParams

if TYPE_CHECKING:
    from paceline.control.drift import DriftOptions
    from paceline.drafters.eagle3 import Eagle3Head
    from paceline.executors.cpu import CpuExecutor
    from paceline.models.loading import ModelFiles, Quant
    from paceline.models.tokenizer import Tokenizer
    from paceline.profiling.store import Profile

logger = logging.getLogger("paceline")

DEFAULT_CONTEXT = 8192
"""Longest sequence and size of the KV cache unless asked for otherwise, in tokens."""


class LLM:
    """A model, its cache, its drafters, and the loop that runs them.

    ``model``: a catalog name, a GGUF file, a Hugging Face folder or ``hf:org/repo[:file]``. ``drafter``: a
    name (``none``, ``ngram``, ``suffix``, ``recycle``, ``prediction``, ``auto``, ``draft_model:MODEL``,
    ``draft_model:self:N``, ``eagle3``, ``eagle3:HEAD``) or a :class:`~paceline.drafters.base.Drafter`;
    ``auto`` uses the EAGLE-3 head that comes with Paceline for the model, if there is one.
    ``num_draft_tokens``, ``acceptance``, ``guard``: see :class:`~paceline.config.SpecConfig`. ``quant``:
    ``q4`` or ``q8`` quantise a folder's weights on load. ``threads``: all processors unless given.
    ``max_model_len``: longest prompt and reply together; the model's own context, at most 8192, unless given.
    ``kv_cache_tokens``: size of the cache, shared by all requests; at least 8192 and ``max_model_len`` unless
    given. ``enable_prefix_caching``, ``max_batch_tokens``, ``max_num_requests``, ``record_logit_hashes``,
    ``record_decisions``, ``draft_timeout``: see :class:`~paceline.config.EngineConfig`. ``drift``: watch
    acceptance and raise an alarm when it falls (see docs/drift.md); it is counted in any case, in
    ``llm.engine.watch``. ``profile``: the costs that drafts are planned by: ``auto`` measures them at first
    use of a model on a machine, under ten seconds, and keeps them; ``off`` assumes careful ones; or the path
    of a profile (docs/profile.md). ``None`` stands for ``PACELINE_PROFILE``, else ``auto``. No reply depends
    on it, only its speed.

    Raises ``ConfigError``, ``ModelNotFoundError``, ``ModelFileError``, ``DrafterError`` and
    ``VocabularyMismatchError``. Not thread-safe.
    """

    def __init__(
        self,
        model: str | Path,
        drafter: str | Drafter = "auto",
        num_draft_tokens: int | None = None,
        acceptance: Acceptance = "auto",
        *,
        quant: Quant = "none",
        threads: int | None = None,
        max_model_len: int | None = None,
        kv_cache_tokens: int | None = None,
        max_batch_tokens: int = 512,
        max_num_requests: int = 32,
        record_logit_hashes: bool = False,
        guard: bool | None = None,
        record_decisions: bool = False,
        draft_timeout: float | None = None,
        enable_prefix_caching: bool = True,
        drift: DriftOptions | None = None,
        profile: str | Path | None = None,
        **unknown: object,
    ) -> None:
        check_names("LLM", unknown, _SETTINGS)
        if not isinstance(drafter, str | Drafter):
            raise ConfigError(f"drafter={drafter!r:.60}: give a name, for example 'auto', or a Drafter")
        name = drafter if isinstance(drafter, str) else drafter.name
        spec = SpecConfig(name, num_draft_tokens, acceptance, guard)
        context, cache_tokens = _context_sizes(max_model_len, kv_cache_tokens)
        self._ready_made = {} if isinstance(drafter, str) else {name: drafter}
        self.model_files: ModelFiles = _open_model(model, quant, context)
        with self.model_files as files:
            context, self._cache_tokens = _fitting_sizes(context, cache_tokens, files.spec.max_context)
            config = EngineConfig(
                context,
                max_batch_tokens,
                max_num_requests,
                record_logit_hashes,
                enable_prefix_caching=enable_prefix_caching,
                draft_timeout=draft_timeout,
                record_decisions=record_decisions,
            )
            self.executor: CpuExecutor = _load_executor(files, self._cache_tokens, threads)
            self._fingerprint = target_fingerprint(files.spec, files.source)
        self._heads: dict[str, Eagle3Head] = {}
        tokenizer, watch = files.tokenizer, DriftWatch(drift)
        target = profiled.Target(self.executor, tokenizer, self._fingerprint, files.spec.name, files.name)
        self.costs = profiled.MachineCosts(target, profile)
        self.engine = Engine(
            self.executor, tokenizer, tokenizer.eos_token_ids, self._build_drafter, spec, config, watch=watch
        )
        for needed in (name, drift.fallback or name if drift else name):
            self.engine.drafter(needed)  # an error now, not at the first request or the alarm
        self.runner = Runner(self.engine)
        logger.info("paceline: %s", ", ".join(f"{key}={value}" for key, value in self.settings.items()))

    def __repr__(self) -> str:
        name, drafter, executor = self.model_files.name, self.engine.spec.drafter, self.executor
        return f"LLM({name!r}, drafter={drafter!r}, {executor.num_threads} threads, {executor.path})"

    @property
    def tokenizer(self) -> Tokenizer:
        return self.model_files.tokenizer

    @property
    def settings(self) -> dict[str, Any]:
        """The effective settings."""
        spec, config = self.engine.spec, self.engine.config
        return {
            "model": str(self.model_files.path),
            "drafter": spec.drafter,
            "num_draft_tokens": spec.draft_limit,
            "acceptance": spec.acceptance,
            "threads": self.executor.num_threads,
            "instruction_path": self.executor.path,
            "max_model_len": config.max_model_len,
            "kv_cache_tokens": self.executor.num_blocks * self.executor.block_size,
            "max_batch_tokens": config.max_batch_tokens,
            "max_num_requests": config.max_num_requests,
            "profile": self.costs.setting,
            "enable_prefix_caching": config.enable_prefix_caching,
            "draft_timeout": config.draft_timeout,
        }

    def generate(
        self, prompts: Prompt | Sequence[Prompt], sampling_params: Params = None, use_tqdm: bool | None = None
    ) -> list[RequestOutput]:
        """Complete one or more prompts; the results come in their order.

        A prompt is text (which may spell special tokens), token ids, or vLLM's ``{"prompt": …}`` and
        ``{"prompt_token_ids": …}``. ``sampling_params``: one for all or one per prompt. ``use_tqdm``: whether
        to show a progress bar; ``None`` decides by the length of the run.

        Raises ``PromptError``, ``ConfigError`` or ``CacheFullError``, and then nothing of the call goes on.
        """
        pairs = paired(as_batch(prompts), sampling_params)
        return self.runner.run([prepare(self.model_files, *pair) for pair in pairs], use_tqdm)

    def chat(
        self,
        messages: Conversation | Sequence[Conversation],
        sampling_params: Params = None,
        use_tqdm: bool | None = None,
    ) -> list[RequestOutput]:
        """Answer conversations (lists of ``{"role": …, "content": …}``) with the model's template.

        Text in messages is never parsed for special tokens. Raises as ``generate``, and ``PromptError`` for a
        base model.
        """
        pairs = paired(as_conversations(messages), sampling_params)
        return self.runner.run([prepare_chat(self.model_files, *pair) for pair in pairs], use_tqdm)

    def stream(self, prompt: Prompt, sampling_params: SamplingParams | None = None) -> ReplyStream:
        """Return an iterator over the text of one completion. Raises as ``generate``."""
        return self.runner.open_stream(prepare(self.model_files, prompt, sampling_params or SamplingParams()))

    def stream_chat(
        self, messages: Conversation, sampling_params: SamplingParams | None = None
    ) -> ReplyStream:
        """Return an iterator over the text of one answer. Raises as ``chat``."""
        return self.runner.open_stream(
            prepare_chat(self.model_files, messages, sampling_params or SamplingParams())
        )

    def start_afresh(self) -> None:
        """Forget what drafters learnt from earlier requests, and what the prefix cache holds of them.

        Raises ``ConfigError`` while any runs.
        """
        self.engine.forget_drafters()
        self.engine.clear_prefix_cache()
        for head in self._heads.values():
            head.prefix.clear()

    def measure_costs(self) -> Profile:
        """Measure again what drafts are planned by, the default drafter included, keep it and use it.

        Raises ``ConfigError`` while any request runs, or when there is no memory to measure in.
        """
        self.engine.forget_drafters()
        name = self.engine.spec.drafter
        parts, drafter = self._head_parts(name), self.engine.drafter(name)
        if isinstance(drafter, DraftModelDrafter):
            parts = (profiled.draft_model_part(drafter, self.executor),)
        profile = self.costs.refresh(*parts)
        self.engine.forget_drafters()
        return profile

    def _build_drafter(self, name: str) -> Drafter:
        from paceline.drafters.registry import build_drafter

        costs = None if name == "none" else self.costs.table(*self._head_parts(name))
        drafter = build_drafter(
            self._ready_made.get(name, name),
            target=self.executor,
            target_vocabulary=self.tokenizer.tokens,
            num_draft_tokens=self.engine.spec.draft_limit,
            target_pool=self.engine.pool,
            load_draft_model=self._load_draft_model,
            load_head=self._load_head,
            costs=costs,
        )
        if isinstance(drafter, DraftModelDrafter):
            costs = self.costs.table(profiled.draft_model_part(drafter, self.executor))
        if costs is not None:
            self.engine.costs = costs
            if self.costs.setting == "auto":
                self.engine.draft_clock = self.engine.draft_clock or DraftClock()
        return drafter

    def _head_parts(self, name: str) -> tuple[profiled.DrafterPart, ...]:
        """Return what there is to measure of the head that drafter ``name`` uses."""
        kind, _, argument = name.partition(":")
        if name in self._ready_made or kind not in ("auto", "eagle3"):
            return ()
        try:
            head = self._load_head(argument)
        except (PacelineError, OSError):
            return ()  # building the drafter fails in the same way, or says what it does without
        return () if head is None else (profiled.head_part(head),)

    def _load_draft_model(self, name: str) -> DraftModel:
        with _open_model(name, "none", None) as files:
            shared_vocabulary_size(self.tokenizer.tokens, files.tokenizer.tokens, name)
            executor = _load_executor(files, self._cache_tokens, self.executor.num_threads)
        return DraftModel(name, executor, files.tokenizer.tokens)

    def _load_head(self, name: str) -> Eagle3Head | None:
        """Load an EAGLE-3 head, once; without a name the one that comes with Paceline for this model."""
        from paceline.drafters.head_loading import open_head

        shipped = None if name else shipped_head(self._fingerprint)
        if not name and shipped is None:
            return None
        path = name or str(shipped)
        if path not in self._heads:
            label = name if shipped is None else shipped.name
            most = self.engine.config.max_num_requests
            self._heads[path] = open_head(path, label, self.executor, self.tokenizer.tokens, most)
            logger.info("paceline: draft head %s from %s", label, path)
        return self._heads[path]


_SETTINGS = tuple(name for name in LLM.__init__.__annotations__ if name not in ("unknown", "return"))


_MOST_CACHE_TOKENS = 2**31 - 1
"""Slots are counted in 32 bits."""


def _context_sizes(max_model_len: int | None, cache_tokens: int | None) -> tuple[int | None, int | None]:
    """Check the two sizes and that they fit each other."""
    if max_model_len is not None:
        check_int("max_model_len", max_model_len, 2)
    if cache_tokens is not None:
        check_int("kv_cache_tokens", cache_tokens, 2, _MOST_CACHE_TOKENS)
    if max_model_len is not None and cache_tokens is not None and cache_tokens < max_model_len:
        raise ConfigError(
            f"kv_cache_tokens={cache_tokens} cannot hold max_model_len={max_model_len} tokens: raise it"
        )
    return max_model_len, cache_tokens


def _fitting_sizes(context: int | None, cache_tokens: int | None, most: int) -> tuple[int, int]:
    """Return the longest sequence and the size of the cache: as wanted, else what model and cache hold."""
    length = context or min(most, cache_tokens or DEFAULT_CONTEXT, DEFAULT_CONTEXT)
    if length > most:
        raise ConfigError(
            f"max_model_len={length} is more than the {most} tokens this model was made for: lower it"
        )
    return length, cache_tokens or max(length, DEFAULT_CONTEXT)


def _open_model(model: str | Path, quant: Quant, max_context: int | None) -> ModelFiles:
    from paceline.models.loading import load_model_files

    return load_model_files(model, quant=quant, max_context=max_context)


def _load_executor(files: ModelFiles, cache_tokens: int, threads: int | None) -> CpuExecutor:
    from paceline.executors.cpu import CpuExecutor

    blocks = -(-cache_tokens // CpuExecutor.block_size)
    return CpuExecutor.load(files.spec, files.source, num_blocks=blocks, num_threads=threads)
