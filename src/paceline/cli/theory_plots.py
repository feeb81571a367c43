"""The figures of ``paceline theory plot``. Matplotlib is imported when a figure is drawn, not before."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from paceline.errors import ConfigError, nearest_name
from paceline.theory import CostCurve, break_even_alpha, expected_tokens, speedup
from paceline.theory.laws import check_cost, check_count, check_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FigureName = Literal["tokens", "speedup", "break-even", "all"]
SUFFIXES = (".png", ".svg")


@dataclass(frozen=True, slots=True)
class PlotSettings:
    """What the figures show.

    ``alphas``: one line each in the tokens figure. ``draft_costs``: one line each in the other two.
    ``speedup_alpha``: acceptance of the speedup figure. ``longest``: last K on the axis. ``curve``: r(M).
    """

    alphas: list[float]
    draft_costs: list[float]
    speedup_alpha: float
    longest: int
    curve: CostCurve

    def __post_init__(self) -> None:
        for alpha in (*self.alphas, self.speedup_alpha):
            check_unit(alpha, "alpha")
        for cost in self.draft_costs:
            check_cost(cost, "draft cost")
        check_count(self.longest, "longest", 1, "the axis needs a length")
        measured = self.curve.longest_draft
        if measured is not None and self.longest > measured:
            raise ConfigError(
                f"longest is {self.longest}, but the cost curve was measured for drafts up to {measured}; "
                f"use --longest {measured} or measure more rows"
            )


def write_plot(path: Path, name: FigureName, settings: PlotSettings) -> None:
    """Draw one figure, or all side by side, into ``path``; PNG or SVG by its suffix.

    Raises ``ConfigError`` for another suffix, an unknown figure, a path that cannot be written, or when
    matplotlib is not installed.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"the file to write is {str(path)!r}; end its name in .png or .svg")
    if name not in get_args(FigureName):
        known = get_args(FigureName)
        raise ConfigError(f"figure is {name!r}{nearest_name(name, known)}; choose one of {', '.join(known)}")
    chosen = list(PANELS.values()) if name == "all" else [PANELS[name]]
    figure = _new_figure(len(chosen))
    for index, panel in enumerate(chosen, start=1):
        axes = figure.add_subplot(1, len(chosen), index)
        panel(axes, settings)
        axes.set_xlabel("draft length K")
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    try:
        figure.savefig(path, format=path.suffix.lower()[1:], dpi=150)
    except OSError as error:
        raise ConfigError(f"{path} cannot be written ({error.strerror}); name another file") from error


def _new_figure(panels: int) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError('plots need matplotlib; install it with: pip install "paceline[plot]"') from error
    return Figure(figsize=(5.2 * panels, 4.2), layout="constrained")


def _tokens(axes: Axes, settings: PlotSettings) -> None:
    lengths = range(settings.longest + 1)
    for alpha in settings.alphas:
        values = [expected_tokens(alpha, k) for k in lengths]
        axes.plot(lengths, values, marker="o", markersize=3, label=f"α = {alpha:g}")
    axes.set_ylabel("expected tokens per step")
    axes.set_title("Expected tokens")


def _speedup(axes: Axes, settings: PlotSettings) -> None:
    lengths = range(settings.longest + 1)
    for cost in settings.draft_costs:
        values = [speedup(settings.speedup_alpha, k, cost, settings.curve) for k in lengths]
        axes.plot(lengths, values, marker="o", markersize=3, label=f"c = {cost:g}")
    axes.axhline(1.0, color="grey", linestyle="--", linewidth=1)
    axes.set_ylabel("speedup over plain decoding")
    axes.set_title(f"Speedup at α = {settings.speedup_alpha:g}")


def _break_even(axes: Axes, settings: PlotSettings) -> None:
    lengths = range(1, settings.longest + 1)
    for cost in settings.draft_costs:
        limits = [break_even_alpha(k, cost, settings.curve) for k in lengths]
        paying = [(k, limit) for k, limit in zip(lengths, limits, strict=True) if limit is not None]
        xs, ys = [k for k, _ in paying], [limit for _, limit in paying]
        axes.plot(
            xs, ys, marker="o", markersize=3, label=f"c = {cost:g}" + ("" if paying else " (never pays)")
        )
    axes.set_ylim(-0.02, 1.02)
    axes.set_ylabel("acceptance α above which drafting pays")
    axes.set_title("Break-even")


PANELS: dict[str, Callable[[Axes, PlotSettings], None]] = {
    "tokens": _tokens,
    "speedup": _speedup,
    "break-even": _break_even,
}
