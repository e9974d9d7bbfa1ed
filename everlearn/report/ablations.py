"""Ablations: one agent with several values of a setting that the paper varies."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.container import ErrorbarContainer

from everlearn.report.figures import Drawing, Row, estimate_row, finish_axes, legend_below
from everlearn.results.methods import Method, Study
from everlearn.results.statistics import Estimate, Floats, Resampling, estimate
from everlearn.support.plotting import MARKERS, LineStyle, label_axes, new_figure

BUDGET, BINS = "capacity", "bins"
ABLATIONS = {
    BUDGET: (
        "Performance against buffer budget",
        "transitions kept",
        "Final average performance by the number of transitions that a replaying agent may keep. "
        "Lines across: methods without such a limit.",
    ),
    BINS: (
        "Number of bins",
        "bins of each grid",
        "Final average performance by the bins of each grid, and the share of the model's cells "
        "that were ever active: more bins make a wider, sparser model.",
    ),
}
"""Settings whose ablation the paper shows: title, axis and caption."""


def draw_ablations(study: Study, resampling: Resampling) -> list[Drawing]:
    """Draw every setting of which the study has several values, all else equal."""
    main = {method.label for method in study.main}
    drawings = []
    for setting in ABLATIONS:
        families = ablations(study, setting, resampling)
        if families:
            known = references(study, setting, resampling)
            others = {label: one for label, one in known.items() if label in main}
            drawings.append(_draw_ablation(study, families, others, study.styles))
    return drawings


@dataclass(frozen=True, eq=False)
class Ablation:
    """One agent with several values of one setting, all else equal.

    Attributes
    ----------
    setting, agent
        Which, of whom.
    methods
        By their value, from the smallest on.
    values
        Of the setting.
    performance, utilization
        At the end of the run, for each value.
    """

    setting: str
    agent: str
    methods: tuple[Method, ...]
    values: tuple[float, ...]
    performance: tuple[Estimate, ...]
    utilization: tuple[Estimate, ...]


def ablations(study: Study, setting: str, resampling: Resampling) -> list[Ablation]:
    """Return every agent of which at least two methods differ by this one setting."""
    families: dict[tuple[str, str], dict[float, Method]] = {}
    for method in study.methods:
        path = method.path_of(setting)
        value = None if path is None else method.settings[path]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = {name: held for name, held in method.settings.items() if name != path}
            origin = method.runs[0].origin
            agent = f"{origin}: {method.agent}" if origin else method.agent
            family = families.setdefault((agent, repr(sorted(rest.items()))), {})
            family[float(value)] = method
    performance = study.protocol.performance
    drawn = []
    for (agent, _), by_value in families.items():
        if len(by_value) < 2:
            continue
        values = tuple(sorted(by_value))
        methods = tuple(by_value[value] for value in values)
        drawn.append(
            Ablation(
                setting,
                agent,
                methods,
                values,
                tuple(method.estimate(performance, resampling) for method in methods),
                tuple(estimate(_last_utilization(method), resampling) for method in methods),
            )
        )
    return drawn


def references(study: Study, setting: str, resampling: Resampling) -> dict[str, Estimate]:
    """Return the final performance of the methods without the setting, by label."""
    known = {
        method.label: method.estimate(study.protocol.performance, resampling)
        for method in study.methods
        if method.path_of(setting) is None
    }
    return {label: value for label, value in known.items() if value.runs}


def _last_utilization(method: Method) -> Floats:
    last = [
        float(run.columns["model"]["utilization"][-1])
        for run in method.complete
        if "utilization" in run.columns["model"]
    ]
    return np.array([value for value in last if not math.isnan(value)]).reshape(-1, 1)


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
                | estimate_row(other)
            )
    values = sorted({value for family in families for value in family.values})
    final = "final average performance" if percent else "final average return"
    for axes, y, shares in zip(panels, (final, "cells ever active"), (percent, True), strict=False):
        finish_axes(axes, percent=shares, logarithmic=False)
        if setting == BUDGET:
            axes.set_xscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.minorticks_off()
        label_axes(axes, x, y, title, legend=False)
    handles = panels[0].get_legend_handles_labels()[0]
    handles.sort(key=lambda handle: not isinstance(handle, ErrorbarContainer))
    legend_below(figure, handles)
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
        | estimate_row(one)
        for value, one in zip(family.values, values, strict=True)
    ]
