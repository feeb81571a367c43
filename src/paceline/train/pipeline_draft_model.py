"""The stages that differ for a draft model: fit, evaluate, parity, export. See ``pipeline_head``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from paceline.executors.base import ForwardBatch
from paceline.executors.cpu import CpuExecutor
from paceline.models.loading import load_model_files
from paceline.train.batches import MIN_REPLY_TOKENS
from paceline.train.capture import MAX_ROWS
from paceline.train.captured import CapturedData, CapturedSequence
from paceline.train.draft_export import draft_model_place, export_draft_model
from paceline.train.draft_loss import DraftTarget
from paceline.train.draft_model import (
    DraftModelSpec,
    DraftModelTensors,
    TeacherForced,
    draft_model_spec,
    run_layers,
)
from paceline.train.draft_start import fresh_draft_model, load_draft_model
from paceline.train.fit import Fit, load_best
from paceline.train.fit_config import FitConfig
from paceline.train.model_card import draft_model_card
from paceline.train.parity import DraftParity, check_states, require_parity
from paceline.train.pipeline_evaluate import evaluate_drafter
from paceline.train.pipeline_head import (
    StepReport,
    export_inputs,
    fit_config,
    fit_settings,
    parity_sequences,
    provenance_of,
    sequence_ids,
    tell_export,
)
from paceline.train.resources import check_memory, draft_fit_memory
from paceline.train.split import held_out_indices
from paceline.train.stage import Json
from paceline.train.storage import whole_file
from paceline.train.teacher import load_matrix, load_teacher
from paceline.train.ttt import Rotary

if TYPE_CHECKING:
    from paceline.train.pipeline import Pipeline

NEAR_TIE = 0.05
"""Leads below this share of the logits' deviation are no choice: the engine's activations in 8 bits move
logits by 1.3 % of it, which flipped one of ten choices among 262,144 tokens of a hardly trained model."""


def check_fit(run: Pipeline) -> None:
    """Refuse settings of the fit that are wrong, or need more memory than there is, before hours of work."""
    config = FitConfig(**{**fit_settings(run), "num_steps": 1})
    place, layers = run.place, run.options.fit.num_layers
    need = draft_fit_memory(place.spec, layers, config.tokens_per_step, place.draft_vocab)
    check_memory(need, "fit", "lower --tokens-per-step, --draft-layers or --draft-vocab")
    run.reporter.say(f"fit: memory: {need.describe()}")


def _spec(run: Pipeline) -> DraftModelSpec:
    return draft_model_spec(run.place.spec, run.options.fit.num_layers)


def _candidate(run: Pipeline) -> Path:
    return draft_model_place(run.options.out / "fit", run.place.target_path)


def fit_draft_model(run: Pipeline) -> None:
    """Distil the draft model; its best checkpoint becomes ``fit/draft``, in the form that is served."""
    inputs = {
        "states": run.results["capture"].digest,
        "vocabulary": run.results["vocabulary"].digest,
        "held_out": run.options.held_out,
        "fit": asdict(run.options.fit),
        "kind": run.options.kind,
    }
    run.stage("fit", inputs, lambda folder: _fit(run, folder))


def _fit(run: Pipeline, folder: Path) -> Json:
    data = run.captured()
    validation = held_out_indices(sequence_ids(data), run.options.held_out)
    config = fit_config(run, data, validation)
    run.reporter.say(f"fit: {config.num_steps} steps of {config.tokens_per_step} supervised tokens")
    model, fit = _prepare(run, folder, data, validation, config)
    run.reporter.start("fit", config.num_steps, "steps")
    fit.run(StepReport(run))
    best = load_best(model, folder)
    _write(run, _candidate(run), model, {"step": best["step"]})
    return {"num_steps": config.num_steps, "best_step": best["step"], "validation": best["evaluation"]}


def _prepare(
    run: Pipeline, folder: Path, data: CapturedData, validation: Sequence[int], config: FitConfig
) -> tuple[DraftModelTensors, Fit]:
    ids, dtype = run.draft_vocabulary().draft_to_target, config.torch_dtype
    with run.place.open_files() as files:
        teacher = load_teacher(files.spec, files.source, ids, dtype)
        is_tied = files.spec.tied_head
        output = teacher.embedding if is_tied else load_matrix(files.source, "output.weight", dtype)
        model = fresh_draft_model(_spec(run), files.spec, files.source, config.seed)
    target = DraftTarget(teacher.head, output, torch.from_numpy(ids.astype(np.int64)))
    return model, Fit(model, data, validation, teacher.embedding, target, config, folder, TeacherForced)


def _write(run: Pipeline, out: Path, model: DraftModelTensors, provenance: dict[str, Any]) -> None:
    with run.place.open_files() as files:
        export_draft_model(out, model, run.place.target_path, files.source, provenance)


def evaluate_draft_model(run: Pipeline) -> None:
    """Serve held-out prompts with the draft model."""
    evaluate_drafter(run, f"draft_model:{_candidate(run)}")


# ---- parity ----


def parity_of_draft_model(run: Pipeline) -> None:
    """Compare trainer and engine; the run fails when they differ."""
    inputs = {"fit": run.results["fit"].digest}
    run.stage("parity", inputs, lambda folder: _parity(run))


def _parity(run: Pipeline) -> Json:
    sequences = parity_sequences(run, run.captured())
    longest = max(len(item.tokens) for item in sequences)
    run.reporter.start("parity", 2, "checks")
    states = check_states(run.place.open_executor(longest + 16), sequences, run.place.layers)
    run.reporter.advance(1, "states")
    drafts = _check_drafts(run, sequences)
    run.reporter.advance(1, "drafts")
    require_parity(states, drafts)
    run.reporter.say(
        f"parity: {states.num_rows} rows of equal states; {drafts.agreement_at[0]:.1%} of "
        f"{drafts.num_chains} drafted tokens alike"
    )
    return {"states": asdict(states), "drafts": drafts.to_json()}


@torch.no_grad()
def _check_drafts(run: Pipeline, sequences: Sequence[CapturedSequence]) -> DraftParity:
    """Draft a token behind each reply token by both: the engine from the file, PyTorch from its weights."""
    spec, result = _spec(run), DraftParity(1)
    with load_model_files(_candidate(run)) as files:
        executor = CpuExecutor.load(
            files.spec,
            files.source,
            num_blocks=-(-MAX_ROWS // CpuExecutor.block_size),
            num_threads=run.options.threads,
        )
        model = load_draft_model(spec, files.source, halves=files.spec.ropes[0].style == "half_split")
        embedding = load_matrix(files.source, "token_embd.weight", torch.float32)
        is_tied = files.spec.tied_head
        output = embedding if is_tied else load_matrix(files.source, "output.weight", torch.float32)
    weights, rotary = model.cast(torch.float32), Rotary(spec.rope.inverse_frequencies, MAX_ROWS)
    for item in sequences:
        tokens = item.tokens[:MAX_ROWS]
        count = len(tokens) - 1 - item.response_start
        if count < MIN_REPLY_TOKENS - 1:  # the reply lies behind what one pass holds
            continue
        blocks = np.arange(-(-len(tokens) // executor.block_size), dtype=np.int32)
        logits = executor.forward(ForwardBatch.chain(tokens[:-1], 0, blocks, count))
        read = torch.from_numpy(tokens[:-1].astype(np.int64))
        hidden = run_layers(weights, embedding[read], torch.arange(len(read)), [len(read)], rotary)
        ours, theirs = hidden[-count:] @ output.T, torch.from_numpy(logits.argmax(-1))
        for trainer, engine, truth in zip(
            ours.argmax(-1).tolist(), settled(ours, theirs).tolist(), tokens[-count:].tolist(), strict=True
        ):
            result.add([trainer], [engine], [truth])
    return result


def settled(logits: torch.Tensor, choices: torch.Tensor) -> torch.Tensor:
    """Return ``choices`` int64 [N], or the likeliest of ``logits`` [N, V] where that is nearly a tie."""
    best = logits.max(-1)
    lead = best.values - logits.gather(1, choices.unsqueeze(1)).squeeze(1)
    return torch.where(lead < NEAR_TIE * logits.std(-1), best.indices, choices)


# ---- export ----


def export_draft_model_of(run: Pipeline) -> None:
    """Write the draft model with where it comes from and how it serves, and its card."""
    run.stage("export", export_inputs(run), lambda folder: _export(run, folder))


def _export(run: Pipeline, folder: Path) -> Json:
    provenance = provenance_of(run)
    model = DraftModelTensors(_spec(run))
    load_best(model, run.options.out / "fit")
    out = draft_model_place(folder, run.place.target_path)
    _write(run, out, model, provenance)
    with whole_file(folder / "README.md") as file:
        file.write(draft_model_card(model.spec, provenance).encode())
    return {"model": out.name, "tokens_per_step": tell_export(run, f"draft_model:{out}")}


STEPS: dict[str, Callable[[Pipeline], None]] = {
    "fit": fit_draft_model,
    "evaluate": evaluate_draft_model,
    "parity": parity_of_draft_model,
    "export": export_draft_model_of,
}
"""The stages of a draft model."""
