"""What the stages of one run share: the target, opened when needed; digests; the reporter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.executors.cpu import CpuExecutor
from paceline.models.catalog import resolve_model
from paceline.models.eagle3_spec import Eagle3Spec
from paceline.models.loading import ModelFiles, load_model_files
from paceline.models.spec import ModelSpec, TensorInfo
from paceline.train.capture import capture_layers
from paceline.train.design import head_spec
from paceline.train.options import DEFAULT_DRAFT_VOCAB, TrainOptions
from paceline.train.progress import Reporter
from paceline.train.provenance import target_digest
from paceline.train.resources import draft_model_parameters, head_parameters
from paceline.train.storage import sha256_of

if TYPE_CHECKING:
    from paceline.llm import LLM


class Workplace:
    """Options and everything that follows from them alone. Raises what opening the target raises."""

    def __init__(self, options: TrainOptions, reporter: Reporter) -> None:
        self.options = options
        self.reporter = reporter
        self.target_path = resolve_model(options.target)
        with self.open_files() as files:
            self.spec: ModelSpec = files.spec
            self.weight_bytes = sum(stored_bytes(info) for info in files.source.tensors.values())
            is_head = options.kind == "eagle3"
            last = (files.spec.num_layers,)
            self.layers = capture_layers(files.spec, options.state_layers) if is_head else last
            self.has_template = files.chat_template_text is not None
            self.tokenizer = files.tokenizer

    @cached_property
    def target_sha256(self) -> str:
        return target_digest(self.target_path, self.options.quant)

    @property
    def draft_vocab(self) -> int:
        """Size of the draft vocabulary."""
        if self.options.draft_vocab is not None:
            return self.options.draft_vocab
        wanted = DEFAULT_DRAFT_VOCAB if self.options.kind == "eagle3" else self.spec.vocab_size
        return min(wanted, self.spec.vocab_size)

    @property
    def head_spec(self) -> Eagle3Spec:
        """The head to train."""
        fit = self.options.fit
        return head_spec(self.spec, self.draft_vocab, self.layers[:-1], num_layers=fit.num_layers)

    @property
    def num_weights(self) -> int:
        """Weights that are trained."""
        if self.options.kind == "eagle3":
            return head_parameters(self.head_spec)
        return draft_model_parameters(self.spec, self.options.fit.num_layers)

    @property
    def longest(self) -> int:
        """Longest sequence that is generated, in tokens."""
        return min(self.options.max_model_len, self.spec.max_context)

    def cache_bytes(self, num_requests: int) -> int:
        """Return the memory of the cache that generates ``num_requests`` at once, in float16."""
        slots = num_requests * (self.longest + CpuExecutor.block_size)
        return slots * self.spec.num_layers * 2 * self.spec.num_kv_heads * self.spec.head_dim * 2

    @cached_property
    def controls(self) -> frozenset[int]:
        """Ids that belong into the draft vocabulary wherever they occur: EOS and control tokens."""
        return self.tokenizer.eos_token_ids | frozenset(self.tokenizer.control_tokens.values())

    def open_files(self) -> ModelFiles:
        """Open the target's files; to be closed by the caller."""
        return load_model_files(self.target_path, quant=self.options.quant)

    def open_llm(self, drafter: str, num_requests: int) -> LLM:
        """Load the target to generate with ``num_requests`` at once."""
        from paceline.llm import LLM

        return LLM(
            self.target_path,
            drafter,
            quant=self.options.quant,
            threads=self.options.threads,
            max_model_len=self.longest,
            kv_cache_tokens=num_requests * (self.longest + CpuExecutor.block_size),
            max_num_requests=num_requests,
        )

    def open_executor(self, num_tokens: int) -> CpuExecutor:
        """Load the target alone, with a cache of ``num_tokens`` tokens."""
        blocks = -(-num_tokens // CpuExecutor.block_size)
        with self.open_files() as files:
            return CpuExecutor.load(
                files.spec, files.source, num_blocks=blocks, num_threads=self.options.threads
            )


def stored_bytes(info: TensorInfo) -> int:
    """Return the bytes of a stored tensor; repacking for the executor keeps them about the same."""
    return info.row_bytes * (info.shape[0] if len(info.shape) == 2 else 1)


def file_digests(paths: Sequence[Path]) -> list[list[str]]:
    """Return [name, SHA-256] of each file."""
    return [[path.name, sha256_of(path)] for path in paths]
