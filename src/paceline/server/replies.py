"""The parts that replies are made of, whole or streamed: choices, log-probabilities, usage, metrics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paceline.drafters.prediction import PredictionOptions, PredictionSession
from paceline.engine.outputs import CompletionOutput, Logprob, RequestMetrics
from paceline.models.tokenizer import Tokenizer
from paceline.records import StepObservation
from paceline.server.job import Part
from paceline.server.pieces import Piece

LEAST_LOGPROB = -9999.0
"""What stands for minus infinity, which JSON cannot say; the value is OpenAI's."""


@dataclass(frozen=True, slots=True)
class Head:
    """What each chunk of a reply repeats."""

    reply_id: str
    created: int
    model: str
    fingerprint: str

    def object(self, name: str) -> dict[str, Any]:
        """Return the beginning of a reply or chunk."""
        return {
            "id": self.reply_id,
            "object": name,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


def finish_reason(reply: CompletionOutput) -> str:
    """Return OpenAI's word: a reply that a deadline cut has a length limit of another kind."""
    return "stop" if reply.finish_reason == "stop" else "length"


def stop_reason(reply: CompletionOutput) -> str | int | None:
    """Return what ended the reply: the stop string or id, ``deadline``, ``None`` for EOS or the length."""
    return reply.stop_reason


def chat_logprobs(
    pieces: Sequence[Piece], tokenizer: Tokenizer, wanted: int, skip_special: bool
) -> dict[str, Any]:
    """Return ``choices[].logprobs`` of a chat, for the tokens whose text is shown.

    ``bytes`` are those that a token adds to the text: none for a special one, with ``skip_special``.
    """
    content = []
    for piece in pieces:
        if piece.logprob is None:
            continue
        entry = _entry(piece.token_id, piece.logprob[piece.token_id], tokenizer, skip_special)
        best = sorted(piece.logprob.items(), key=lambda item: item[1].rank)[:wanted]
        entry["top_logprobs"] = [_entry(token, logprob, tokenizer, skip_special) for token, logprob in best]
        content.append(entry)
    return {"content": content, "refusal": None}


def _entry(token: int, logprob: Logprob, tokenizer: Tokenizer, skip_special: bool) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token, skip_special=skip_special)
    return {"token": logprob.decoded_token, "logprob": _finite(logprob.logprob), "bytes": list(raw)}


def completion_logprobs(
    pieces: Sequence[Piece], tokenizer: Tokenizer, wanted: int, offset: int
) -> dict[str, Any]:
    """Return ``choices[].logprobs`` of a plain completion. ``offset``: characters in front of the pieces.

    Tokens that hold a part of a character are told by their bytes (``bytes:\\xe2``, OpenAI's way): they would
    all look the same, and the most likely ones are told apart by how they look.
    """
    result: dict[str, Any] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
    for piece in pieces:
        if piece.logprob is not None:
            own = piece.logprob[piece.token_id]
            best = sorted(piece.logprob.items(), key=lambda item: item[1].rank)[:wanted]
            result["tokens"].append(_word(piece.token_id, own, tokenizer))
            result["token_logprobs"].append(_finite(own.logprob))
            result["top_logprobs"].append(
                {_word(token, other, tokenizer): _finite(other.logprob) for token, other in best}
            )
            result["text_offset"].append(offset)
        offset += len(piece.text)
    return result


def _word(token: int, logprob: Logprob, tokenizer: Tokenizer) -> str:
    raw = tokenizer.token_bytes(token, skip_special=False)
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in raw)
    return logprob.decoded_token


def origins(pieces: Iterable[Piece]) -> list[dict[str, str]]:
    """Return where each piece of shown text came from: accepted, recovered or bonus."""
    return [{"text": piece.text, "origin": piece.origin} for piece in pieces if piece.text]


def usage(parts: Sequence[Part], num_completions: int, with_prediction: bool = False) -> dict[str, Any]:
    """Return the tokens so far. A prompt counts once, however many completions it has.

    ``with_prediction``: count predicted tokens too, which needs ended parts.
    """
    prompt = sum(len(part.prompt) for part in parts[::num_completions])
    output = sum(part.num_tokens for part in parts)
    result: dict[str, Any] = {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "total_tokens": prompt + output,
    }
    done = [part.done for part in parts[::num_completions] if part.done is not None]
    if done:
        cached = sum(reply.metrics.num_cached_tokens for reply in done)
        result["prompt_tokens_details"] = {"cached_tokens": cached}
    if with_prediction:
        counts = [_predicted(part) for part in parts]
        result["completion_tokens_details"] = {
            "accepted_prediction_tokens": sum(accepted for accepted, _ in counts),
            "rejected_prediction_tokens": sum(rejected for _, rejected in counts),
        }
    return result


def _predicted(part: Part) -> tuple[int, int]:
    """Return how many predicted tokens the reply followed, and how many it did not.

    Counted by the drafter's own alignment, whichever drafter ran: a token is accepted when it is the one that
    the prediction had next.
    """
    predicted = part.params.prediction
    if not isinstance(predicted, tuple) or part.done is None:
        return 0, 0
    session = PredictionSession(PredictionOptions(), predicted)
    accepted = 0
    for token in part.done.token_ids:
        accepted += session.cursor < len(predicted) and predicted[session.cursor] == token
        session.observe(StepObservation((token,), 0))
    accepted = min(accepted, len(predicted))
    return accepted, len(predicted) - accepted


def speculation(metrics: Sequence[RequestMetrics]) -> dict[str, Any]:
    """Return ``metrics.speculative_decoding``: counts summed over completions (glossary of the docs).

    ``num_spec_steps``: verify steps with a draft. ``mean_acceptance_length``: 1 + accepted ÷ spec steps, as
    vLLM has it. ``acceptance_histogram[i]``: spec steps that kept exactly i drafted tokens.
    """
    drafts = sum(m.num_drafts for m in metrics)
    drafted = sum(m.num_draft_tokens for m in metrics)
    accepted = sum(m.num_accepted_tokens for m in metrics)
    steps = sum(m.num_verify_steps for m in metrics)
    tokens = sum(m.num_output_tokens for m in metrics)
    return {
        "num_spec_steps": drafts,
        "num_draft_tokens": drafted,
        "num_accepted_draft_tokens": accepted,
        "mean_acceptance_length": 1.0 + accepted / drafts if drafts else 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": _histogram(metrics),
        "num_verify_steps": steps,
        "tokens_per_step": tokens / steps if steps else 0.0,
        "draft_seconds": sum(m.draft_seconds for m in metrics),
        "verify_seconds": sum(m.verify_seconds for m in metrics),
        "other_seconds": sum(max(0.0, m.other_seconds) for m in metrics),
    }


def _histogram(metrics: Sequence[RequestMetrics]) -> list[int]:
    depth = max((len(m.accepted_at) for m in metrics), default=0)
    counts = [0] * (depth + 1)
    for m in metrics:
        kept = [m.num_drafts, *m.accepted_at, *([0] * (depth + 1 - len(m.accepted_at)))]
        for level in range(depth + 1):
            counts[level] += kept[level] - kept[level + 1]
    return counts


def reply_metrics(parts: Sequence[Part]) -> dict[str, Any]:
    """Return ``metrics`` of a reply; times in seconds, of the first completion."""
    done = [part.done.metrics for part in parts if part.done is not None]
    return {
        "speculative_decoding": speculation(done),
        "queue_seconds": done[0].queue_seconds,
        "ttft_seconds": done[0].ttft_seconds,
        "total_seconds": done[0].total_seconds,
        "num_preemptions": sum(m.num_preemptions for m in done),
    }


def _finite(value: float) -> float:
    return max(value, LEAST_LOGPROB)
