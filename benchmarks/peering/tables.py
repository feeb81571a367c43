"""Results as markdown tables (printed as they are) and as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from peering.measure import Plan, Results

OURS = "paceline"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cells[0].ljust(widths[0]),
            *(c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)),
        ]
        return "| " + " | ".join(padded) + " |"

    rule = "|" + "|".join([":" + "-" * (widths[0] + 1), *("-" * (w + 1) + ":" for w in widths[1:])]) + "|"
    return "\n".join([line(header), rule, *(line(row) for row in rows)])


def _ratio(ours: float | None, theirs: float) -> str:
    return "–" if ours is None else f"{ours / theirs:.2f}"


def forward_table(plan: Plan, results: Results) -> str:
    """Milliseconds per forward and r(M), one line for each engine."""
    rows = []
    for name, by_rows in results.forward_ms.items():
        one = by_rows.get(1)
        cells = [f"{by_rows[r]:.2f}" + (f" ({by_rows[r] / one:.2f})" if one else "") for r in plan.rows]
        rows.append([name, *cells])
    title = (
        f"Milliseconds per forward, logits for every row, {plan.depth} tokens in the cache; r(M) in brackets"
    )
    return title + "\n\n" + _table(["rows", *map(str, plan.rows)], rows)


def prompt_table(plan: Plan, results: Results) -> str:
    """Prompt tokens per second."""
    ours = results.prompt_tokens_per_s.get(OURS)
    rows = [[n, f"{v:.0f}", _ratio(ours, v)] for n, v in results.prompt_tokens_per_s.items()]
    title = f"Prompt processing, {plan.prompt_tokens} tokens"
    return title + "\n\n" + _table(["engine", "tokens/s", f"{OURS} ÷ engine"], rows)


def same_as_plain(results: Results, name: str) -> str:
    """Return how many of a mode's replies equal the engine's own plain ones, token by token."""
    plain = results.replies.get(name.removesuffix(" (speculative)"))
    if plain is None or results.replies[name] is plain:
        return "–"
    pairs = list(zip(plain.texts, results.replies[name].texts, strict=True))
    return f"{sum(a == b for a, b in pairs)} of {len(pairs)}"


def reply_table(plan: Plan, results: Results) -> str:
    """Tokens per second of whole replies, plain and speculative."""
    best = results.replies.get(OURS)
    fast = results.replies.get(f"{OURS} (speculative)")
    rows = []
    for name, replies in results.replies.items():
        speed = replies.tokens_per_s()
        spread = [n / s for n, s in zip(replies.num_tokens, replies.seconds, strict=True)]
        rows.append(
            [
                name,
                str(replies.num_tokens[-1]),
                f"{speed:.1f}",
                f"{min(spread):.1f} … {max(spread):.1f}",
                _ratio(best.tokens_per_s() if best else None, speed),
                _ratio(fast.tokens_per_s() if fast else None, speed),
                same_as_plain(results, name),
            ]
        )
    title = f"Greedy replies of at most {plan.max_tokens} tokens, prompt processing included"
    ratios = [f"{OURS} ÷ engine", f"{OURS} (speculative) ÷ engine"]
    header = ["engine", "tokens", "tokens/s", "spread", *ratios, "replies as plain"]
    return title + "\n\n" + _table(header, rows)


def markdown(plan: Plan, results: Results, facts: Mapping[str, Any]) -> str:
    """Return the whole report."""
    parts = [
        f"{facts['model']} · {facts['cpu']} · {facts['threads']} threads · medians of {plan.repeats} rounds"
    ]
    parts += [f"- {name} {d['version']}: {d['system']}" for name, d in facts["peers"].items()]
    parts = ["\n".join(parts)]
    if results.forward_ms:
        parts.append(forward_table(plan, results))
    if results.prompt_tokens_per_s:
        parts.append(prompt_table(plan, results))
    if results.replies:
        parts.append(reply_table(plan, results))
    if results.notes:
        parts.append("\n".join(f"- not measured: {note}" for note in results.notes))
    return "\n\n".join(parts) + "\n"


def as_json(plan: Plan, results: Results, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return what ``--json`` writes: medians, and for replies each repeat."""
    return {
        **facts,
        "depth": plan.depth,
        "prompt_tokens": plan.prompt_tokens,
        "max_tokens": plan.max_tokens,
        "repeats": plan.repeats,
        "forward_ms": results.forward_ms,
        "r": {n: {r: ms / v[1] for r, ms in v.items()} for n, v in results.forward_ms.items() if 1 in v},
        "prompt_tokens_per_s": results.prompt_tokens_per_s,
        "replies": {
            name: {"tokens": r.num_tokens, "seconds": r.seconds, "tokens_per_s": r.tokens_per_s()}
            for name, r in results.replies.items()
        },
        "notes": results.notes,
    }
