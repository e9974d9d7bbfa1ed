"""How often truths lie within the bounds of a model's predictions, as a figure of the report."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import PercentFormatter

from everlearn.report.curves import Floats
from everlearn.results.methods import Method, Study
from everlearn.results.read import RunRecord
from everlearn.results.statistics import standard_error
from everlearn.runs.metrics_file import COVERAGE_SHARES, COVERAGE_STEPS, coverage_name
from everlearn.support.plotting import GREY, label_axes, new_figure

if TYPE_CHECKING:
    from everlearn.report.figures import Drawing

CAPTION = (
    "Share of the truths that lie within the bounds of the world model's predictions, against the "
    "share that the bounds are meant to hold, at the last evaluation of each run: on fixed "
    "transitions of each task that no run learns from, and without numbers that are predicted to "
    "rest exactly. On the diagonal bounds hold as often as they should; below it they are too "
    "narrow. Points: mean over seeds; whiskers: standard error."
)


def last_coverage(run: RunRecord, task: str, steps: int) -> Floats:
    """Coverage of every share at a run's last evaluation of `task`; NaN where it has none."""
    columns = run.columns["model"]
    found = np.full(len(COVERAGE_SHARES), np.nan)
    rows = np.flatnonzero(columns["task"] == task) if columns else np.zeros(0, int)
    for place, share in enumerate(COVERAGE_SHARES):
        name = coverage_name(share, steps)
        if name in columns and len(rows):
            found[place] = columns[name][rows[-1]]
    return found


def draw_calibration(study: Study) -> list[Drawing]:
    """Draw the coverage of the main methods, task by task; nothing where none is known."""
    from everlearn.report.figures import Drawing, finish_axes, legend_below

    tasks = study.protocol.names
    found = {
        (method.label, task, steps): values
        for method in study.main
        for task in tasks
        for steps in COVERAGE_STEPS
        for values in [_over_runs(method, task, steps)]
        if not np.isnan(values).all()
    }
    if not found:
        return []
    columns = min(3, len(tasks))
    figure, panels = new_figure(math.ceil(len(tasks) / columns), columns, 3.4, 2.9)
    fills = dict(zip(COVERAGE_STEPS, ("full", "none"), strict=True))
    rows: list[dict[str, Any]] = []
    handles: dict[tuple[str, int], Any] = {}
    for axes, task in zip(panels, tasks, strict=False):
        axes.plot([0, 1], [0, 1], color=GREY, lw=0.8, zorder=0)
        for method in study.main:
            style = study.styles[method.label]
            for steps in COVERAGE_STEPS:
                values = found.get((method.label, task, steps))
                if values is None:
                    continue
                drawn = axes.errorbar(
                    COVERAGE_SHARES,
                    np.nanmean(values, axis=0),
                    yerr=np.nan_to_num(
                        [standard_error(line[~np.isnan(line)]) for line in values.T]
                    ),
                    fmt=style.marker,
                    ls="-" if steps == 1 else ":",
                    fillstyle=fills[steps],
                    color=style.color,
                    ms=4,
                    lw=1.2,
                    label=f"{method.label}, {_ahead(steps)} ({method.seeds})",
                )
                handles.setdefault((method.label, steps), drawn)
                rows += [
                    {
                        "method": method.label,
                        "task": task,
                        "steps": steps,
                        "meant": share,
                        "covered": float(np.nanmean(line)),
                        "standard_error": standard_error(line[~np.isnan(line)]),
                        "seeds": int((~np.isnan(line)).sum()),
                    }
                    for share, line in zip(COVERAGE_SHARES, values.T, strict=True)
                    if not np.isnan(line).all()
                ]
        finish_axes(axes, percent=True)
        axes.xaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
        axes.set_xlim(0.4, 1.0)
        label_axes(axes, "share meant to hold", "truths within bounds", task, legend=False)
        axes.label_outer()
    for axes in panels[len(tasks) :]:
        axes.set_axis_off()
    legend_below(figure, list(handles.values()))
    return [Drawing("calibration", "Are the model's bounds right?", CAPTION, figure, rows)]


def _over_runs(method: Method, task: str, steps: int) -> Floats:
    """Coverage ``[runs, shares]`` of the runs of a method."""
    return np.array([last_coverage(run, task, steps) for run in method.runs])


def _ahead(steps: int) -> str:
    return "one step ahead" if steps == 1 else f"{steps} steps ahead"
