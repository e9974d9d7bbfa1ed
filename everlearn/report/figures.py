"""Figures of a study for print: each with its caption and every number in it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from everlearn.report.comparisons import (
    ABLATIONS,
    BINS,
    BUDGET,
    Ablation,
    RegretArea,
    Speed,
    ablations,
    references,
    regret_areas,
    speeds,
)
from everlearn.report.curves import FIELDS, Curve, CurveFigure
from everlearn.results.methods import Study
from everlearn.results.statistics import Estimate, Resampling
from everlearn.support.plotting import GREY, MARKERS, SHADE, LineStyle, label_axes, new_figure

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
    for setting in (BUDGET, BINS):
        families = ablations(study, setting, resampling)
        if families:
            known = references(study, setting, resampling)
            others = {label: one for label, one in known.items() if label in main}
            drawings.append(_draw_ablation(study, families, others, styles))
    timed = speeds(study, resampling)
    if any(speed.steps_per_second.runs for speed in timed.values()):
        drawings.append(_draw_speeds(timed, styles))
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
        _finish(axes, spec.percent, spec.logarithmic)
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


def _finish(axes: Axes, percent: bool, logarithmic: bool) -> None:
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
    _legend_below(figure, handles)


def _legend_below(figure: Figure, handles: list[Any]) -> None:
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
        _finish(axes, percent=True, logarithmic=False)
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


def _draw_ablation(
    study: Study,
    families: list[Ablation],
    others: Mapping[str, Estimate],
    styles: Mapping[str, LineStyle],
) -> Drawing:
    setting = families[0].setting
    performance, percent = study.protocol.performance, study.protocol.measure == "success"
    title, x, caption = ABLATIONS[setting]
    two = any(values.runs for family in families for values in family.utilization)
    figure, panels = new_figure(1, 1 + two, *((4.4, 3.4) if two else (5.6, 4.2)))
    rows: list[Row] = []
    for family in families:
        style = _family_style(family, styles)
        rows += _draw_values(panels[0], family, family.performance, style, performance.name)
        if two:
            rows += _draw_values(panels[1], family, family.utilization, style, "utilization")
    if setting == BUDGET:
        for label, other in others.items():
            _draw_across(panels[0], other.mean, styles[label], f"{label} (n={other.runs})")
            rows.append(
                {"agent": label, "setting": "", "value": "", "metric": performance.name}
                | _estimate_row(other)
            )
    values = sorted({value for family in families for value in family.values})
    final = "final average performance" if percent else "final average return"
    for axes, y, shares in zip(panels, (final, "cells ever active"), (percent, True), strict=False):
        _finish(axes, percent=shares, logarithmic=False)
        if setting == BUDGET:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        label_axes(axes, x, y, title, legend=False)
    handles = panels[0].get_legend_handles_labels()[0]
    handles.sort(key=lambda handle: not isinstance(handle, ErrorbarContainer))
    _legend_below(figure, handles)
    caption += " Bars: standard error over seeds; n: their number."
    name = "budget" if setting == BUDGET else "bins"
    return Drawing(name, title, caption, figure, rows)


def _family_style(family: Ablation, styles: Mapping[str, LineStyle]) -> LineStyle:
    """Return the style of the agent as it is, or of the first value where nobody ran that."""
    plain = [method for method in family.methods if not method.varied]
    return dataclasses.replace(styles[(plain or family.methods)[0].label], dash="-")


def _draw_across(axes: Axes, value: float, style: LineStyle, label: str) -> None:
    """Draw a value that does not depend on the axis, with two markers at points of its own."""
    across = np.linspace(0, 1, 2 * len(MARKERS) + 2)
    first = 1 + style.number % len(MARKERS)
    axes.plot(
        across,
        np.full_like(across, value),
        style.dash,
        marker=style.marker,
        markevery=[first, first + len(MARKERS)],
        transform=axes.get_yaxis_transform(),
        ms=4,
        mew=0,
        lw=1.0,
        color=style.color,
        label=label,
    )


def _draw_values(
    axes: Axes, family: Ablation, values: tuple[Estimate, ...], style: LineStyle, metric: str
) -> list[Row]:
    counts = sorted({one.runs for one in values})
    label = f"{family.agent} (n={'-'.join(map(str, counts))})"
    if len(counts) > 1:
        for value, one in zip(family.values, values, strict=True):
            axes.annotate(
                f"n={one.runs}", (value, one.mean), (5, 4), textcoords="offset points", fontsize=7
            )
    axes.errorbar(
        family.values,
        [one.mean for one in values],
        [one.standard_error for one in values],  # NaN, for one seed, draws no bar
        fmt=f"{style.marker}{style.dash}",
        ms=4,
        lw=1.4,
        capsize=3,
        color=style.color,
        label=label,
    )
    return [
        {"agent": family.agent, "setting": family.setting, "value": value, "metric": metric}
        | _estimate_row(one)
        for value, one in zip(family.values, values, strict=True)
    ]


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
        | _estimate_row(getattr(speed, metric))
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


def _estimate_row(values: Estimate) -> Row:
    return {name: float(getattr(values, name)) for name in FIELDS}
