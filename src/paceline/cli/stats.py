"""What speculation did for a reply, in one line."""

from __future__ import annotations

from paceline.engine.outputs import RequestMetrics


def describe_metrics(metrics: RequestMetrics) -> str:
    """Return tokens, speed, tokens per step, acceptance and forwards saved."""
    seconds = metrics.total_seconds - metrics.queue_seconds
    speed = metrics.num_output_tokens / seconds if seconds > 0 else 0.0
    parts = [
        f"{metrics.num_output_tokens} tokens in {seconds:.2f} s ({speed:.1f} tokens/s, "
        f"first after {metrics.ttft_seconds:.2f} s)",
        f"{metrics.tokens_per_step:.2f} tokens/step",
    ]
    if metrics.num_draft_tokens:
        parts.append(
            f"{metrics.num_accepted_tokens} of {metrics.num_draft_tokens} draft tokens accepted "
            f"({metrics.acceptance_rate:.0%})"
        )
        parts.append(f"{metrics.num_forwards_saved} forwards saved")
    else:
        parts.append("nothing was drafted")
    return " · ".join(parts)
