"""Figures of a study for print: each with its caption and every number in it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from everlearn.report.curves import FIELDS, Curve, CurveFigure, Floats, RegretArea, regret_areas
from everlearn.report.life import draw_lives
from everlearn.results.methods import Method, Study
from everlearn.results.read import RunRecord
from everlearn.results.statistics import Estimate, Resampling, estimate, standard_error
from everlearn.runs.metrics_file import COVERAGE_SHARES, COVERAGE_STEPS, coverage_name
from everlearn.support.plotting import (
    GREY,
    SHADE,
    LineStyle,
    label_axes,
    line_style,
    new_figure,
    show_names_as_they_are,
)

Row = dict[str, Any]

BAND = "Lines: mean over seeds; bands: standard error; dotted where not all seeds have a value."


CALIBRATION = (
    "Share of the truths that lie within the bounds of the world model's predictions, against the "
    "share that the bounds are meant to hold, at the last evaluation of each run: on fixed "
    "transitions of each task that no run learns from, and without numbers that are predicted to "
    "rest exactly. On the diagonal bounds hold as often as they should; below it they are too "
    "narrow. Points: mean over seeds; whiskers: standard error."
)


@dataclass(frozen=True, eq=False)
class Drawing:
    """A figure with its words and its numbers.

    Attributes
    ----------
    name, title, caption
        Name of its files, and its words.
    figure
        The picture.
    rows
        Every plotted number, one row a point.
    """

    name: str
    title: str
    caption: str
    figure: Figure
    rows: list[Row]


def draw_study(
    study: Study, curves: Iterable[CurveFigure], resampling: Resampling
) -> list[Drawing]:
    """Draw everything that the runs of a study have to show; `curves` are theirs over time."""
    styles = study.styles
    drawings = [_draw_curves(figure, study, styles) for figure in curves]
    main = {method.label for method in study.main}
    areas = [area for area in regret_areas(study) if area.method in main]
    if areas:
        drawings.append(_draw_areas(areas, study, styles))
    if len({method.agent for method in study.methods}) < len(study.methods):
        from everlearn.report.ablations import draw_ablations  # some agent has several settings

        drawings += draw_ablations(study, resampling)
    drawings += draw_lives(study, resampling)
    drawings += _draw_calibration(study)
    timed = speeds(study, resampling)
    if any(speed.steps_per_second.runs for several in timed.values() for speed in several):
        drawings.append(_draw_speeds(timed))
    for drawing in drawings:
        show_names_as_they_are(drawing.figure)
    return drawings


def _draw_curves(spec: CurveFigure, study: Study, styles: Mapping[str, LineStyle]) -> Drawing:
    columns = min(3, len(spec.panels))
    rows = math.ceil(len(spec.panels) / columns)
    single = len(spec.panels) == 1
    figure, panels = new_figure(rows, columns, *((5.6, 3.7) if single else (3.4, 2.6)))
    main = {method.label for method in study.main}
    drawn = [curve for curve in spec.curves if curve.method in main]
    caption = f"{spec.caption} {BAND}"
    if not drawn:
        drawn = list(spec.curves)
    elif len(drawn) < len(spec.curves):
        caption += " Variations of settings are on the page and in the CSV file."
    for axes, panel in zip(panels, spec.panels, strict=False):
        if spec.unit == "episode":
            _mark_periods(axes, study, panel)
            axes.set_xlim(0, study.protocol.episodes)
        for curve in drawn:
            if curve.panel == panel:
                _draw_curve(axes, curve, styles[curve.method])
        finish_axes(axes, spec.percent, spec.logarithmic)
        label_axes(axes, spec.x, spec.y, panel or spec.title, legend=False)
        if spec.percent or spec.logarithmic:  # all panels have one scale
            axes.label_outer()
    for axes in panels[len(spec.panels) :]:
        axes.set_axis_off()
    if spec.logarithmic:
        limits = [axes.get_ylim() for axes in panels[: len(spec.panels)]]
        for axes in panels[: len(spec.panels)]:
            axes.set_ylim(min(low for low, _ in limits), max(high for _, high in limits))
    share_legend(figure, {curve.method for curve in drawn}, study, styles)
    numbers = [row for curve in spec.curves for row in _curve_rows(curve, spec)]
    return Drawing(spec.name, spec.title, caption, figure, numbers)


def _draw_curve(axes: Axes, curve: Curve, style: LineStyle) -> None:
    x, mean, error = curve.times, curve.values["mean"], curve.values["standard_error"]
    all_runs = curve.values["runs"] == curve.runs
    # A segment is solid if both its ends have every run.
    solid = np.where(all_runs, mean, np.nan)
    axes.plot(x, solid, style.dash, color=style.color, lw=1.4)
    first, every = style.marked(len(x))
    axes.plot(x[first::every], mean[first::every], style.marker, color=style.color, ms=3.2, mew=0)
    if not all_runs.all():
        partial = ~all_runs
        partial[:-1] |= ~all_runs[1:]
        partial[1:] |= ~all_runs[:-1]
        axes.plot(x, np.where(partial, mean, np.nan), ":", color=style.color, lw=1.2)
    axes.fill_between(x, mean - error, mean + error, color=style.color, alpha=0.16, lw=0)


def _mark_periods(axes: Axes, study: Study, task: str) -> None:
    protocol = study.protocol
    for start, end in protocol.periods(task) if task else ():
        axes.axvspan(start, end, color=SHADE, zorder=0, lw=0)
    if not task:
        for entry in range(1, len(protocol.tasks)):
            at = entry * protocol.episodes_per_task
            axes.axvline(at, color="#C9CCD1", ls="--", lw=0.8, zorder=0)


def finish_axes(axes: Axes, percent: bool, logarithmic: bool = False) -> None:
    """Set scale, ticks and grid of the values of a panel."""
    axes.tick_params(labelsize=8)
    if percent:
        axes.set_ylim(-0.03, 1.03)
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    if logarithmic:
        axes.set_yscale("log")
    axes.grid(axis="y", color="#EEEEEE", lw=0.6)
    axes.set_axisbelow(True)


def share_legend(
    figure: Figure, labels: Iterable[str], study: Study, styles: Mapping[str, LineStyle]
) -> None:
    """Put one legend of some methods, by their labels, below a figure."""
    present = set(labels)
    methods = [method for method in study.methods if method.label in present]
    blank = figure.axes[0]
    handles = [
        blank.plot(
            [],
            [],
            styles[method.label].dash,
            marker=styles[method.label].marker,
            ms=4,
            mew=0,
            color=styles[method.label].color,
            label=f"{method.label} ({method.seeds})",
        )[0]
        for method in methods
    ]
    legend_below(figure, handles)


def legend_below(figure: Figure, handles: list[Any]) -> None:
    """Put the legend of a figure below it, in as many columns as fit."""
    widest = max((len(str(handle.get_label())) for handle in handles), default=1)
    # An entry takes its text and the line beside it, at about 14 characters an inch.
    fitting = int(figure.get_figwidth() * 14 / (widest + 7))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=max(1, min(4, fitting, len(handles))),
        fontsize=8,
        frameon=False,
    )


def _curve_rows(curve: Curve, spec: CurveFigure) -> Iterable[Row]:
    for index, time in enumerate(curve.times):
        row: Row = {"method": curve.method}
        if spec.panels != ("",):
            row["task"] = curve.panel
        row |= {spec.unit: int(time), "seeds": curve.runs}
        yield row | {name: float(curve.values[name][index]) for name in FIELDS}


def _draw_areas(areas: list[RegretArea], study: Study, styles: Mapping[str, LineStyle]) -> Drawing:
    columns = min(3, len(areas))
    figure, panels = new_figure(math.ceil(len(areas) / columns), columns, 3.6, 2.5)
    for axes, area in zip(panels, areas, strict=False):
        _mark_periods(axes, study, "")
        color = styles[area.method].color
        axes.axhline(1, color="black", lw=1.2)
        axes.plot(area.episodes, area.performance, color=color, lw=1.4)
        axes.fill_between(area.episodes, area.performance, 1, color=color, alpha=0.25, lw=0)
        finish_axes(axes, percent=True, logarithmic=False)
        axes.set_xlim(0, study.protocol.episodes)
        count = "1 seed" if area.runs == 1 else f"{area.runs} seeds"
        title = f"{area.method}: {area.regret:.1%} ({count})"
        label_axes(axes, "training episodes", "success, task at hand", title, legend=False)
    for axes in panels[len(areas) :]:
        axes.set_axis_off()
    rows = [
        {"method": area.method, "seeds": area.runs, "regret": area.regret}
        | {"episode": float(episode), "performance": float(value)}
        for area in areas
        for episode, value in zip(area.episodes, area.performance, strict=True)
    ]
    caption = (
        "Success rate in evaluation of the task that is being learned, mean over seeds, against an "
        "oracle that always succeeds. The area between them, as a share of the whole, is the "
        "paper's regret."
    )
    return Drawing("regret-area", "What regret measures", caption, figure, rows)


@dataclass(frozen=True)
class Speed:
    """How long the runs of a method took on one sort of processor.

    Attributes
    ----------
    processor
        As the runs name it; times on different processors do not compare.
    steps_per_second, hours, evaluation_hours
        Over the runs: training steps per second, and hours of training and of evaluation per run.
    threads
        Numbers of threads of the runs.
    """

    processor: str
    steps_per_second: Estimate
    hours: Estimate
    evaluation_hours: Estimate
    threads: str


def speeds(study: Study, resampling: Resampling) -> Mapping[str, list[Speed]]:
    """Speed of every method, by its label: one entry for each sort of processor."""
    by_label = {}
    for method in study.methods:
        by_processor: dict[str, list[RunRecord]] = {}
        for run in method.runs:
            by_processor.setdefault(run.processor, []).append(run)
        by_label[method.label] = [
            _speed_on(processor, runs, resampling)
            for processor, runs in sorted(by_processor.items())
        ]
    return by_label


def _speed_on(processor: str, runs: list[RunRecord], resampling: Resampling) -> Speed:
    timed = [run for run in runs if run.training_seconds > 0]
    finished = [run for run in timed if run.finished]
    evaluated = [run for run in finished if not math.isnan(run.evaluation_seconds)]
    threads = sorted({run.config.threads or 0 for run in runs})
    return Speed(
        processor,
        _over([run.steps / run.training_seconds for run in timed], resampling),
        _over([run.training_seconds / 3600 for run in finished], resampling),
        _over([run.evaluation_seconds / 3600 for run in evaluated], resampling),
        ", ".join(str(number) if number else "?" for number in threads),
    )


def _over(values: list[float], resampling: Resampling) -> Estimate:
    return estimate(np.array(values).reshape(-1, 1), resampling)


def _draw_speeds(timed: Mapping[str, list[Speed]]) -> Drawing:
    """Draw a point for each method and processor: times of several processors never mix."""
    figure, (left, right) = new_figure(1, 2, 4.4, 1.2 + 0.32 * len(timed))
    processors = sorted({speed.processor for several in timed.values() for speed in several})
    looks = {processor: line_style(number) for number, processor in enumerate(processors)}
    for row, several in enumerate(timed.values()):
        for speed in several:
            # Points of one row beside each other, so that their numbers can be read.
            lifted = row + 0.3 * (processors.index(speed.processor) - (len(processors) - 1) / 2)
            look = looks[speed.processor]
            _draw_time(left, lifted, look, speed.steps_per_second)
            _draw_time(right, lifted, look, speed.hours)
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yticks(range(len(timed)), list(timed), fontsize=8)
        axes.set_ylim(len(timed) - 0.4, -0.6)
        axes.margins(x=0.3)
        axes.grid(color="#EEEEEE", lw=0.6)
        axes.set_axisbelow(True)
    label_axes(left, "training steps per second", "method", "Training speed", legend=False)
    label_axes(right, "hours of training per run", "", "Wall time", legend=False)
    right.set_yticklabels([])
    handles = [
        left.plot(
            [], [], look.marker, color=look.color, ms=5, mew=0, label=processor.replace("$", r"\$")
        )[0]
        for processor, look in looks.items()
    ]
    legend_below(figure, handles)
    numbers = [
        {"method": label, "processor": speed.processor, "threads": speed.threads, "metric": metric}
        | estimate_row(getattr(speed, metric))
        for label, several in timed.items()
        for speed in several
        for metric in ("steps_per_second", "hours", "evaluation_hours")
    ]
    caption = (
        "Training steps per second, and hours of training of a finished run, without evaluation; "
        "logarithmic scales. Points: mean over seeds; whiskers: standard error. Times depend on "
        "the machine and on what else ran on it."
    )
    if len(processors) > 1:
        caption += (
            f" The runs used {len(processors)} sorts of processors: compare only points of one "
            "marker."
        )
    return Drawing("speed", "Wall time and speed", caption, figure, numbers)


def _draw_time(axes: Axes, row: float, look: LineStyle, value: Estimate) -> None:
    if not value.runs:
        return
    error = 0.0 if math.isnan(value.standard_error) else value.standard_error
    # A whisker that reaches below zero has no place on a logarithmic axis.
    bounds = [[min(error, 0.9 * value.mean)], [error]]
    axes.errorbar(
        value.mean, row, xerr=bounds, fmt=look.marker, color=look.color, ms=5, mew=0, lw=1.2
    )
    axes.annotate(
        f"{value.mean:.3g} (n={value.runs})",
        (value.mean + error, row),
        (6, 0),
        textcoords="offset points",
        va="center",
        fontsize=7,
    )


def _last_coverage(run: RunRecord, task: str, steps: int) -> Floats:
    """Coverage of every share at a run's last evaluation of `task`; NaN where it has none."""
    columns = run.columns["model"]
    found = np.full(len(COVERAGE_SHARES), np.nan)
    rows = np.flatnonzero(columns["task"] == task) if columns else np.zeros(0, int)
    for place, share in enumerate(COVERAGE_SHARES):
        name = coverage_name(share, steps)
        if name in columns and len(rows):
            found[place] = columns[name][rows[-1]]
    return found


def _draw_calibration(study: Study) -> list[Drawing]:
    """Draw the coverage of the main methods, task by task; nothing where none is known."""
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
    return [Drawing("calibration", "Are the model's bounds right?", CALIBRATION, figure, rows)]


def _over_runs(method: Method, task: str, steps: int) -> Floats:
    """Coverage ``[runs, shares]`` of the runs of a method."""
    return np.array([_last_coverage(run, task, steps) for run in method.runs])


def _ahead(steps: int) -> str:
    return "one step ahead" if steps == 1 else f"{steps} steps ahead"


def estimate_row(values: Estimate) -> Row:
    """Return an estimate as cells of a row."""
    return {name: float(getattr(values, name)) for name in FIELDS}
