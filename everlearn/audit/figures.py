"""Three figures of an audit: the regret, the gap to the exact leader, and the assumptions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from everlearn.audit.result import LEARNERS, Audit, Learner
from everlearn.audit.stream import Doubles
from everlearn.audit.theory import LATE, LAWS, required_active
from everlearn.support.plotting import (
    BLUE,
    GREY,
    PURPLE,
    VERMILLION,
    label_axes,
    new_figure,
    save_figure,
)

ONLINE, EXACT, LIMIT, OTHER = BLUE, VERMILLION, PURPLE, GREY
COLORS: dict[Learner, str] = {"online": ONLINE, "leader": EXACT}


def regret_figure(audit: Audit) -> Figure:
    """Regret over time with its best fit, and beside it losses and the bound on log axes."""
    figure, (left, right) = new_figure(1, 2)
    comparator = audit.strongest
    steps = [point.step for point in audit.points]
    for learner, label in LEARNERS.items():
        color = COLORS[learner]
        times, regrets = audit.regret(learner, comparator)
        if not times:
            continue
        left.plot(times, regrets, "o", ms=3, color=color, label=label)
        growth = audit.growth[f"{learner}/{comparator}"]
        if growth is not None:
            late = np.linspace(LATE * times[-1], times[-1], 200, dtype=np.float64)
            for law, style in ((growth.best, "-"), ("log T", ":")):
                fit = growth.fits[law]
                left.plot(late, fit.offset + fit.slope * LAWS[law](late), style, color=color)
        right.plot(times, np.maximum(regrets, 1e-300), color=color, label=f"regret, {label}")
    _mark_tasks(left, audit)
    best = "least squares" if comparator == "least_squares" else "ridge"
    label_axes(
        left, "step", f"regret against {best} in hindsight", "solid: best fit, dotted: log T"
    )
    right.plot(steps, [point.still_loss for point in audit.points], color=OTHER, label="no change")
    bounds = [audit.constants.bound(step) for step in steps]
    right.plot(steps, bounds, color=LIMIT, label="the paper's bound")
    _set_log_scales(right)
    label_axes(right, "step", "sum of squared errors", "the bound beside what it bounds")
    return figure


def gap_figure(audit: Audit) -> Figure:
    """How far the sparse model is from the exact leader, in loss and in weights."""
    figure, (left, right) = new_figure(1, 2)
    steps = [point.step for point in audit.points]
    left.plot(steps, [100 * point.gap.excess for point in audit.points], color=ONLINE)
    left.set_ylim(bottom=0)
    _mark_tasks(left, audit)
    label_axes(left, "step", "percent", "loss on all data seen: above the minimum", legend=False)
    moved = [point for point in audit.points if point.gap.change > 0]
    times = [point.step for point in moved]
    right.plot(
        times, [p.gap.norm / p.gap.change for p in moved], "o-", ms=3, color=ONLINE, label="sparse"
    )
    one_step = [(p.step, p.gap.one_step / p.gap.change) for p in moved if p.gap.one_step]
    if one_step:
        right.plot(*zip(*one_step, strict=True), "o-", ms=3, color=EXACT, label="one sparse step")
    right.axhline(audit.proposition.allowed, color=LIMIT, label=r"allowed, $K r_M$")
    _set_log_scales(right)
    label_axes(right, "step", r"$|\tilde W - W|_F \,/\, |\Delta_t|_F$", "proposition on the gap")
    return figure


def assumptions_figure(audit: Audit) -> Figure:
    """Assumption 1, what the proofs take from it, and assumption 3."""
    figure, (first, second, third) = new_figure(1, 3)
    steps = [point.step for point in audit.points]
    first.plot(steps, [p.stability.largest for p in audit.points], color=ONLINE, label="found")
    first.plot(steps, [p.stability.allowed for p in audit.points], color=LIMIT, label="allowed")
    _set_log_scales(first)
    label_axes(first, "step", r"$|\phi\phi^T - A/t|_2$", "assumption 1")
    if audit.losses.leverage is not None:
        scaled = audit.losses.leverage * np.arange(1, audit.steps + 1)
        second.plot(*_thinned(scaled), color=ONLINE, label="median of neighbours")
        second.axhline(1, color=LIMIT, label="allowed")
        _set_log_scales(second)
        label_axes(
            second, "step", r"$t\,\phi_t^T (A + r I)^{-1}\phi_t$", "what the proofs need of it"
        )
    else:
        second.set_axis_off()
    square = audit.constants.target_norm**2
    for label, color, matrix in (
        ("spectral norm", ONLINE, [p.spectral for p in audit.points]),
        ("trace, as in the proof", OTHER, [p.trace for p in audit.points]),
    ):
        asked = [
            required_active(square, size, p.feature_square, p.coupling)
            for size, p in zip(matrix, audit.points, strict=True)
        ]
        third.plot(steps, np.minimum(asked, audit.constants.cells), color=color, label=label)
    third.axhline(audit.constants.active, color=LIMIT, label="K")
    _set_log_scales(third)
    label_axes(third, "step", "K must be at least", "assumption 3")
    return figure


FIGURES: dict[str, Callable[[Audit], Figure]] = {
    "regret.png": regret_figure,
    "gap.png": gap_figure,
    "assumptions.png": assumptions_figure,
}


def save_figures(audit: Audit, folder: Path) -> None:
    """Write all figures into `folder`, which is there."""
    for name, draw in FIGURES.items():
        save_figure(draw(audit), folder / name, dots_per_inch=110)


def _set_log_scales(axes: Axes) -> None:
    """Set log scales, unless there is nothing above zero because nothing moved."""
    if np.isfinite(axes.dataLim.minpos).all():
        axes.set(xscale="log", yscale="log")


def _mark_tasks(axes: Axes, audit: Audit) -> None:
    """Thin lines where another task begins."""
    for step, name in audit.marks:
        axes.axvline(step, color="#dddddd", lw=1, zorder=0)
        axes.annotate(
            name,
            (step, 0),
            xycoords=("data", "axes fraction"),
            xytext=(2, 3),
            textcoords="offset points",
            rotation=90,
            fontsize=7,
            color=OTHER,
            va="bottom",
        )


def _thinned(values: Doubles, count: int = 60) -> tuple[list[float], list[float]]:
    """Medians over runs of neighbours that are evenly long on a logarithmic axis."""
    borders = np.unique(np.geomspace(1, len(values) + 1, count + 1).astype(np.int64)) - 1
    pairs = list(pairwise(borders))
    return (
        [float(first + end + 1) / 2 for first, end in pairs],
        [float(np.median(values[first:end])) for first, end in pairs],
    )
