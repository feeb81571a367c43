"""The stages of a run that need PyTorch: fit, evaluate, parity, export."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paceline.executors.cpu import CpuExecutor
from paceline.executors.eagle3 import Eagle3Executor
from paceline.models.eagle3 import open_eagle3
from paceline.models.eagle3_export import export_speculators
from paceline.train.captured import CapturedData, CapturedSequence, to_bfloat16
from paceline.train.evaluate import ALL
from paceline.train.fit import Fit, Progress, load_best
from paceline.train.fit_config import FitConfig
from paceline.train.head import Eagle3Head
from paceline.train.model_card import model_card
from paceline.train.options import STAGES
from paceline.train.parallel import ParallelHead, ParallelUnrolled
from paceline.train.parity import check_drafts, check_states, require_parity
from paceline.train.pipeline_evaluate import evaluate_drafter
from paceline.train.provenance import describe
from paceline.train.resources import check_memory, fit_memory
from paceline.train.split import held_out_indices
from paceline.train.stage import Json
from paceline.train.storage import whole_file
from paceline.train.supervision import supervised_positions
from paceline.train.teacher import Teacher, fresh_head, load_teacher, read_head
from paceline.train.ttt import Unrolled

if TYPE_CHECKING:
    from paceline.train.pipeline import Pipeline

HEAD = "head"
PARITY_SEQUENCES = 32
DRAFT_MODEL_RATE = 3e-3
"""Below a head's: layers copied from the target are not to be forgotten."""
PARITY_DEPTH = 5
VERIFIERS = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma2": "Gemma2ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
    "phi3": "Phi3ForCausalLM",
}
"""What other engines call the target's architecture."""


def check_fit(run: Pipeline) -> None:
    """Refuse settings of the fit that are wrong, or need more memory than there is, before hours of work."""
    config = FitConfig(**{**fit_settings(run), "num_steps": 1})
    need = fit_memory(
        run.place.head_spec, run.place.spec.vocab_size, config.tokens_per_step, len(config.keep)
    )
    check_memory(need, "fit", "lower --tokens-per-step or --draft-vocab")
    run.reporter.say(f"fit: memory: {need.describe()}")


def fit_head(run: Pipeline) -> None:
    """Optimise the head; its best checkpoint becomes ``fit/head``, in the format that is served."""
    inputs = {
        "states": run.results["capture"].digest,
        "vocabulary": run.results["vocabulary"].digest,
        "held_out": run.options.held_out,
        "fit": asdict(run.options.fit),
    }
    if run.options.parallel:
        inputs["parallel"] = True
    run.stage("fit", inputs, lambda folder: _fit(run, folder))


def _lesson(run: Pipeline) -> tuple[type[Eagle3Head], type[Unrolled]]:
    return (ParallelHead, ParallelUnrolled) if run.options.parallel else (Eagle3Head, Unrolled)


def _fit(run: Pipeline, folder: Path) -> Json:
    data, vocabulary = run.captured(), run.draft_vocabulary()
    validation = held_out_indices(sequence_ids(data), run.options.held_out)
    config = fit_config(run, data, validation)
    spec = replace(run.place.head_spec, draft_vocab_size=len(vocabulary.draft_to_target))
    run.reporter.say(f"fit: {config.num_steps} steps of {config.tokens_per_step} supervised tokens")
    teacher = open_teacher(run, vocabulary.draft_to_target, config.torch_dtype)
    kind, unrolled = _lesson(run)
    head = fresh_head(spec, teacher, data, config.seed, kind)
    fit = Fit(head, data, validation, teacher.embedding, teacher.head, config, folder, unrolled)
    run.reporter.start("fit", config.num_steps, "steps")
    fit.run(StepReport(run))
    best = load_best(head, folder)
    if not run.options.parallel:
        write_head(run, folder / HEAD, head, vocabulary.draft_to_target, {"step": best["step"]})
    return {"num_steps": config.num_steps, "best_step": best["step"], "validation": best["evaluation"]}


class StepReport:
    """Tells the reporter about steps; those of an earlier run count as done with the first one."""

    def __init__(self, run: Pipeline) -> None:
        self._reporter = run.reporter
        self._step = 0

    def __call__(self, progress: Progress) -> None:
        note = f"loss {progress.loss:.3f}, {progress.tokens / max(progress.seconds, 1e-9):.0f} tokens/s"
        self._reporter.advance(progress.step - self._step, note)
        self._step = progress.step
        if progress.evaluation is not None:
            at = ", ".join(f"{share:.2f}" for share in progress.evaluation.agreement)
            self._reporter.say(
                f"fit: step {progress.step}: simulated tokens_per_step "
                f"{progress.evaluation.tokens_per_step:.3f}; agreement {at}"
            )


def fit_config(run: Pipeline, data: CapturedData, validation: Iterable[int]) -> FitConfig:
    """Return the settings of the fit: its steps follow from the epochs and the supervised tokens."""
    options, held = run.options.fit, set(validation)
    starts, lengths = data.response_starts.tolist(), data.lengths.tolist()
    tokens = sum(
        len(supervised_positions(length, start))
        for index, (length, start) in enumerate(zip(lengths, starts, strict=True))
        if index not in held
    )
    num_steps = max(1, round(options.epochs * tokens / options.tokens_per_step))
    return FitConfig(**{"num_steps": num_steps, **fit_settings(run)})


def fit_settings(run: Pipeline) -> dict[str, Any]:
    """Return the fields of ``FitConfig`` that were chosen."""
    options = run.options.fit
    given = {"tokens_per_step": options.tokens_per_step, "seed": options.seed, **options.settings}
    if run.options.kind == "draft-model":
        return {"learning_rate": DRAFT_MODEL_RATE, **given}
    return given


def sequence_ids(data: CapturedData) -> list[str]:
    return [name for shard in data.shards for name in shard.facts["ids"]]


def open_teacher(run: Pipeline, ids: np.ndarray[Any, np.dtype[np.int32]], dtype: torch.dtype) -> Teacher:
    with run.place.open_files() as files:
        return load_teacher(files.spec, files.source, ids, dtype)


def write_head(
    run: Pipeline,
    folder: Path,
    head: Eagle3Head,
    draft_to_target: np.ndarray[Any, np.dtype[np.int32]],
    provenance: dict[str, Any],
) -> None:
    """Export ``head`` in bfloat16."""
    tensors = {
        name: to_bfloat16(np.ascontiguousarray(values.detach().numpy()))
        for name, values in head.tensors.items()
    }
    verifier = {"name_or_path": run.options.target, "architectures": [VERIFIERS[run.place.spec.architecture]]}
    export_speculators(folder, head.spec, tensors, draft_to_target, verifier, provenance)


def candidate(run: Pipeline) -> Path:
    """The head that the fit wrote."""
    return run.options.out / "fit" / HEAD


# ---- evaluate ----


def evaluate_head(run: Pipeline) -> None:
    """Serve held-out prompts with the head."""
    evaluate_drafter(run, f"eagle3:{candidate(run)}")


# ---- parity ----


def parity_of_head(run: Pipeline) -> None:
    """Compare trainer and engine; the run fails when they differ."""
    inputs = {"fit": run.results["fit"].digest, "head_quant": run.options.head_quant}
    run.stage("parity", inputs, lambda folder: _parity(run))


def _parity(run: Pipeline) -> Json:
    data = run.captured()
    sequences = parity_sequences(run, data)
    longest = max(len(item.tokens) for item in sequences)
    executor = run.place.open_executor(longest + 16)
    run.reporter.start("parity", 2, "checks")
    states = check_states(executor, sequences, run.place.layers)
    run.reporter.advance(1, "states")
    native = _load_native(run, executor, longest + PARITY_DEPTH)
    head, ids = read_head(candidate(run), run.place.spec)
    teacher = open_teacher(run, ids, torch.float32)
    with torch.no_grad():
        drafts = check_drafts(
            native, head.cast(torch.float32), teacher.embedding, sequences, depth=PARITY_DEPTH
        )
    run.reporter.advance(1, "drafts")
    require_parity(states, drafts)
    alike = ", ".join(f"{share:.1%}" for share in drafts.agreement_at)
    run.reporter.say(f"parity: {states.num_rows} rows of equal states; drafts alike by position {alike}")
    return {"states": asdict(states), "drafts": drafts.to_json()}


def parity_sequences(run: Pipeline, data: CapturedData) -> list[CapturedSequence]:
    """Return the held-out sequences that trainer and engine are compared on."""
    indices = held_out_indices(sequence_ids(data), run.options.held_out)[:PARITY_SEQUENCES]
    return [data.sequence(index) for index in indices]


def _load_native(run: Pipeline, executor: CpuExecutor, num_tokens: int) -> Eagle3Executor:
    files = open_eagle3(candidate(run), run.place.spec, quant=run.options.head_quant)
    try:
        return Eagle3Executor.load(files, executor, num_blocks=num_tokens // executor.block_size + 1)
    finally:
        files.source.close()


# ---- export ----


def export_head(run: Pipeline) -> None:
    """Write the head with where it comes from and how it serves, and its card."""
    run.stage("export", export_inputs(run), lambda folder: _export(run, folder))


def export_inputs(run: Pipeline) -> dict[str, str]:
    """Return the digests of all stages before the export."""
    return {name: run.results[name].digest for name in STAGES[:-1]}


def _export(run: Pipeline, folder: Path) -> Json:
    provenance = provenance_of(run)
    head, ids = read_head(candidate(run), run.place.spec)
    out = folder / HEAD
    (out / "README.md").unlink(missing_ok=True)  # of an export that was interrupted
    write_head(run, out, head, ids, provenance)
    with whole_file(out / "README.md") as file:
        file.write(model_card(head.spec, provenance).encode())
    return {"head": HEAD, "tokens_per_step": tell_export(run, f"eagle3:{out}")}


def provenance_of(run: Pipeline) -> dict[str, Any]:
    """Return what an export says of where it comes from."""
    facts = describe(run.options.target, run.place.target_sha256, run.options.prompts or run.options.replies)
    return {
        **facts.to_json(),
        "seed": run.options.fit.seed,
        "stages": {name: result.values for name, result in run.results.items()},
        "seconds": {name: round(result.seconds, 1) for name, result in run.results.items()},
    }


def tell_export(run: Pipeline, drafter: str) -> float:
    """Say how to use the export; return its tokens_per_step on held-out prompts."""
    served = run.results["evaluate"].values["served"]
    tokens_per_step: float = next(row["tokens_per_step"] for row in served if row["source"] == ALL)
    run.reporter.say(
        f"export: tokens_per_step {tokens_per_step:.2f} on held-out prompts; use it with "
        f"--model {run.options.target} --drafter {drafter}"
    )
    return tokens_per_step


STEPS: dict[str, Callable[[Pipeline], None]] = {
    "fit": fit_head,
    "evaluate": evaluate_head,
    "parity": parity_of_head,
    "export": export_head,
}
"""The stages of an EAGLE-3 head."""
