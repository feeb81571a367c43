"""The README of an exported head: what it is, from what it was made, how it serves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from paceline.models.eagle3_spec import Eagle3Spec
from paceline.train.resources import head_parameters

if TYPE_CHECKING:
    from paceline.train.draft_model import DraftModelSpec


def model_card(spec: Eagle3Spec, provenance: Mapping[str, Any], *, form: str = "speculators") -> str:
    """Return the card as Markdown. ``provenance``: as the export stage stores it. ``form``: of the file."""
    return "\n".join(_lines(spec, provenance, form)) + "\n"


def _lines(spec: Eagle3Spec, provenance: Mapping[str, Any], form: str) -> Iterator[str]:
    layers = ", ".join(map(str, spec.state_layers or ()))
    yield f"# EAGLE-3 head for {provenance['target']}"
    yield ""
    yield (
        f"A draft head of {head_parameters(spec) / 1e6:.1f} M parameters ({spec.num_layers} layer, width "
        f"{spec.hidden_size}, draft vocabulary {spec.draft_vocab_size} of {spec.vocab_size}). It reads the "
        f"states entering layers {layers} of the target and drafts; the "
        f"target checks every token, so replies do not change. Format: {form}."
    )
    yield ""
    yield f'    paceline generate --model {provenance["target"]} --drafter eagle3:THIS_FOLDER "…"'
    yield ""
    yield from _measured(provenance)


def draft_model_card(spec: DraftModelSpec, provenance: Mapping[str, Any]) -> str:
    """Return the card of a draft model as Markdown."""
    return "\n".join(_draft_model_lines(spec, provenance)) + "\n"


def _draft_model_lines(spec: DraftModelSpec, provenance: Mapping[str, Any]) -> Iterator[str]:
    yield f"# Draft model for {provenance['target']}"
    yield ""
    yield (
        f"A Llama of {spec.num_layers} layers, width {spec.hidden_size}, with the vocabulary and the "
        "embedding of its target, distilled from the target's own replies. The target checks every token it "
        "drafts, so replies do not change."
    )
    yield ""
    yield f'    paceline generate --model {provenance["target"]} --drafter draft_model:THIS_MODEL "…"'
    yield ""
    yield from _measured(provenance)


def _measured(provenance: Mapping[str, Any]) -> Iterator[str]:
    stages = provenance["stages"]
    yield "## How it serves"
    yield ""
    yield "Held-out prompts through the engine; a *varied* reply has at least 0.5 distinct 4-grams."
    yield ""
    yield "| prompts | temperature | replies | tokens_per_step | varied | acceptance by position |"
    yield "|---|---|---|---|---|---|"
    yield from (_served_row(row) for row in stages["evaluate"]["served"])
    yield ""
    yield "## How it was made"
    yield ""
    yield from _recipe(stages)
    yield f"- target: SHA-256 {provenance['target_sha256']}"
    for name, digest in provenance["data"].items():
        yield f"- data: {name}, SHA-256 {digest}"
    yield f"- command: `{provenance['command']}`"
    yield f"- code: commit {provenance['commit'] or 'unknown (installed package)'}, {provenance['created']}"
    versions = ", ".join(f"{name} {version}" for name, version in provenance["versions"].items())
    yield f"- versions: {versions}; seed {provenance['seed']}"


def _served_row(row: Mapping[str, Any]) -> str:
    at = " ".join(f"{share:.2f}" for share in row["conditional_acceptance_at"])
    return (
        f"| {row['source']} | {row['temperature']:g} | {row['num_replies']} | {row['tokens_per_step']:.2f} | "
        f"{row['varied_tokens_per_step']:.2f} | {at} |"
    )


def _recipe(stages: Mapping[str, Any]) -> Iterator[str]:
    captured, vocabulary, fit, parity = (stages[name] for name in ("capture", "vocabulary", "fit", "parity"))
    yield (
        f"- {captured['num_response_tokens']} response tokens of {captured['num_sequences']} replies that "
        f"the target gave itself ({captured['loops']['num_cut']} cut where they began to loop, "
        f"{captured['loops']['num_dropped']} dropped as loops)"
    )
    sizes = ", ".join(f"{size}: {share:.2%}" for size, share in vocabulary["coverage_at"])
    yield f"- draft vocabulary covers {vocabulary['coverage']:.2%} of the response tokens ({sizes})"
    yield (
        f"- {fit['num_steps']} steps, best at {fit['best_step']}: simulated tokens_per_step "
        f"{fit['validation']['tokens_per_step']:.3f} on held-out replies"
    )
    alike = " ".join(f"{share:.3f}" for share in parity["drafts"]["agreement_at"])
    yield f"- trainer and engine draft alike, by position: {alike}; all states equal bit for bit"
