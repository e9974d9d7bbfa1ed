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

from everlearn.report.curves import FIELDS, Curve, CurveFigure, RegretArea, regret_areas
from everlearn.results.methods import Study
from everlearn.results.statistics import Estimate, Resampling, estimate
from everlearn.support.plotting import (
    GREY,
    SHADE,
    LineStyle,
    label_axes,
    new_figure,
    show_names_as_they_are,
)

Row = dict[str, Any]

BAND = "Lines: mean over seeds; bands: standard error; dotted where not all seeds have a value."


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
    timed = speeds(study, resampling)
    if any(speed.steps_per_second.runs for speed in timed.values()):
        drawings.append(_draw_speeds(timed, styles))
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
    _share_legend(figure, {curve.method for curve in drawn}, study, styles)
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


def _share_legend(
    figure: Figure, labels: Iterable[str], study: Study, styles: Mapping[str, LineStyle]
) -> None:
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
    """How long runs took.

    Attributes
    ----------
    steps_per_second, hours, evaluation_hours
        Over the runs: steps of training a second, and hours of training and of evaluation a run.
    threads
        With how many threads, by run.
    """

    steps_per_second: Estimate
    hours: Estimate
    evaluation_hours: Estimate
    threads: str


def speeds(study: Study, resampling: Resampling) -> Mapping[str, Speed]:
    """Speed of every method, by its label."""
    by_label = {}
    for method in study.methods:
        timed = [run for run in method.runs if run.training_seconds > 0]
        finished = [run for run in timed if run.finished]
        evaluated = [run for run in finished if not math.isnan(run.evaluation_seconds)]
        threads = sorted({run.config.threads or 0 for run in method.runs})
        by_label[method.label] = Speed(
            _over([run.steps / run.training_seconds for run in timed], resampling),
            _over([run.training_seconds / 3600 for run in finished], resampling),
            _over([run.evaluation_seconds / 3600 for run in evaluated], resampling),
            ", ".join(str(number) if number else "?" for number in threads),
        )
    return by_label


def _over(values: list[float], resampling: Resampling) -> Estimate:
    return estimate(np.array(values).reshape(-1, 1), resampling)


def _draw_speeds(timed: Mapping[str, Speed], styles: Mapping[str, LineStyle]) -> Drawing:
    figure, (left, right) = new_figure(1, 2, 4.4, 0.9 + 0.32 * len(timed))
    for row, (label, speed) in enumerate(timed.items()):
        _draw_bars(left, row, styles[label], speed.steps_per_second)
        _draw_bars(right, row, styles[label], speed.hours, speed.evaluation_hours)
    for axes in (left, right):
        axes.set_yticks(range(len(timed)), list(timed), fontsize=8)
        axes.invert_yaxis()
        axes.margins(x=0.3)
    label_axes(left, "steps a second", "", "Training speed", legend=False)
    label_axes(right, "hours a run", "", "Wall time", legend=False)
    right.set_yticklabels([])
    left.tick_params(colors=GREY, axis="x")
    numbers = [
        {"method": label, "threads": speed.threads, "metric": metric}
        | estimate_row(getattr(speed, metric))
        for label, speed in timed.items()
        for metric in ("steps_per_second", "hours", "evaluation_hours")
    ]
    caption = (
        "Steps of training a second, and hours of training a finished run. Hatched: hours of "
        "evaluation on top, of runs that say how long it took. Bars: mean over seeds; whiskers: "
        "standard error. It depends on the machine and its load, which the list of runs has."
    )
    return Drawing("speed", "Wall time and speed", caption, figure, numbers)


def _draw_bars(axes: Axes, row: int, style: LineStyle, *parts: Estimate) -> None:
    """Draw a row of bars, each on top of the one before, and what they say behind them."""
    known = [part for part in parts if part.runs]
    end = error = 0.0
    for part in known:
        error = 0.0 if math.isnan(part.standard_error) else part.standard_error
        look: dict[str, Any] = {"color": style.color}
        if part is not known[0]:
            look = {"facecolor": "none", "edgecolor": style.color, "hatch": "////"}
        axes.barh(row, part.mean, left=end, xerr=error, height=0.62, **look)
        end += part.mean
    said = " + ".join(f"{part.mean:.3g} (n={part.runs})" for part in known) or "no finished run"
    axes.text(end + error, row, f" {said}", va="center", fontsize=7)


def estimate_row(values: Estimate) -> Row:
    """Return an estimate as cells of a row."""
    return {name: float(getattr(values, name)) for name in FIELDS}
