"""r(M), and the draft that the planner takes on it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from paceline.bench.html.charts import Line, line_chart
from paceline.bench.html.figure import Chart, Figure, Palette, Table, cell, depth_means
from paceline.bench.html.source import Case, Profile, Sources
from paceline.theory.planner import DraftPlan, Offer, best_plan

LEAD = (
    "Time of a forward with M rows ÷ time with one row. A draft of k tokens needs k + 1 rows: the flatter "
    "the curve, the cheaper a rejected draft. Rings: the chain that the planner takes for each drafter, "
    "from its acceptance per depth and its measured cost."
)
TITLE = "Cost of rows r(M), and the plan's choice"


def cost_figure(sources: Sources, palette: Palette) -> Figure:
    """A curve for each profile (equal ones once), and the plan for each drafter whose costs it knows."""
    profiles = list({(p.model, p.table.verify): p for p in sources.profiles}.values())
    if not profiles:
        absent = (
            "No file holds r(M): write one with paceline profile --json FILE, or run paceline bench on a "
            "machine that has a profile."
        )
        return Figure("cost", TITLE, LEAD, missing=[absent])
    charts: list[Chart] = []
    tables: list[Table] = []
    missing: list[str] = []
    for profile in profiles:
        plans, gaps = _plans(profile, sources.cases)
        missing += gaps
        charts.append(_chart(profile, plans, palette))
        rows = [
            [str(m), cell(r, ".3f"), cell(1e3 * r * profile.table.row_seconds, ".2f")]
            for m, r in profile.table.verify
        ]
        tables.append(Table(f"r(M), {_name(profile)}", ("rows M", "r(M)", "ms"), rows))
        if plans:
            tables.append(_plan_table(profile, plans))
    return Figure("cost", TITLE, LEAD, charts, tables, missing)


def _name(profile: Profile) -> str:
    return " · ".join(part for part in (profile.model, profile.file) if part)


def _plans(profile: Profile, cases: Sequence[Case]) -> tuple[list[tuple[str, DraftPlan]], list[str]]:
    """Return the plan of each drafter alone in the batch, and what kept others from having one."""
    alone = [c for c in cases if c.batch == 1 and c.drafter != "none" and _fits(profile, c)]
    plans, missing, unknown = [], [], []
    for name in dict.fromkeys(case.drafter for case in alone):
        rates = [rate for rate, _, _ in depth_means([c for c in alone if c.drafter == name])]
        if not profile.table.knows(name):
            unknown.append(name)
        elif rates:
            # Path probabilities; counting noise cannot make a deeper one likelier.
            paths = tuple(accumulate((min(1.0, rate) for rate in rates), min))
            offer = Offer(name, paths, tuple(range(-1, len(paths) - 1)))
            plans.append((name, best_plan(profile.table, [offer])))
    if unknown:
        missing.append(
            f"{profile.file} has no cost of drafting for {', '.join(unknown)}, so there is no plan for it."
        )
    if not alone:
        missing.append(
            f"{profile.file}: no offline run at batch 1 tells acceptance, so there is no plan to show."
        )
    return plans, missing


def _fits(profile: Profile, case: Case) -> bool:
    """Return whether a run is of the profile's model, as far as names tell.

    A profile may have the model's own name, one of the catalog or a path; a run has its own and its file's.
    """
    mine, theirs = _letters(profile.model.rsplit("/", 1)[-1]), _letters(case.model)
    return mine in theirs or theirs in mine


def _letters(text: str) -> str:
    return "".join(char for char in text.lower() if char.isalnum())


def _chart(profile: Profile, plans: Sequence[tuple[str, DraftPlan]], palette: Palette) -> Chart:
    curve = profile.table.verify
    points = [(float(m), r, f"{m} rows: r = {r:.2f}") for m, r in curve]
    rings = []
    for name, plan in plans:
        rows = 1 + len(plan.nodes)
        text = f"{name}: {rows} rows, {plan.gain:.2f}×"
        rings.append((float(rows), profile.table.r(rows), palette.numbers[name], text))
    said = "; ".join(ring[3] for ring in rings) or "no plan"
    last = curve[-1]
    svg = line_chart(
        f"r(M), {_name(profile)}",
        f"{len(curve)} measured points from 1 row to {last[0]} rows at {last[1]:.2f}. {said}.",
        [Line(0, points)],
        ("rows of a forward, M", "r(M)"),
        x_ticks=[float(m) for m, _ in curve if m in (1, 4, 8, 16, 24, 32, 48, 64)],
        highlights=rings,
    )
    return Chart(_name(profile), svg, palette.legend(name for name, _ in plans))


def _plan_table(profile: Profile, plans: Sequence[tuple[str, DraftPlan]]) -> Table:
    head = ("drafter", "draft tokens", "rows", "r", "expected tokens a step", "planned speed-up")
    rows = [
        [
            name if plan.nodes else f"{name} (drafts nothing)",
            str(len(plan.nodes)),
            str(1 + len(plan.nodes)),
            cell(profile.table.r(1 + len(plan.nodes)), ".2f"),
            cell(plan.expected_tokens, ".2f"),
            cell(plan.gain, ".2f"),
        ]
        for name, plan in plans
    ]
    return Table(f"The plan's choice, {_name(profile)}", head, rows)
