"""Performance profiles, and the probability that one method beats another."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.report.figures import Drawing, finish_axes, legend_below
from everlearn.results.methods import Method, Study
from everlearn.results.profiles import (
    Improvement,
    performance_profile,
    probability_of_improvement,
)
from everlearn.results.statistics import Resampling
from everlearn.support.plotting import label_axes, new_figure

POINTS = 101
"""Thresholds of a profile."""

SHOWN = 10
"""Most methods in a matrix that can still be read."""


def draw_profiles(study: Study, resampling: Resampling) -> list[Drawing]:
    """Draw both for the main methods of a study that have finished runs."""
    metric = study.protocol.performance
    known = [(method, np.array(method.score_rows(metric))) for method in study.main]
    tables = [(method, table) for method, table in known if table.size]
    if not tables:
        return []
    drawings = [_draw_profile(study, tables, resampling)]
    if len(tables) > 1:
        drawings.append(_draw_improvement(study, tables[:SHOWN], resampling))
    return drawings


Tables = list[tuple[Method, Any]]


def _draw_profile(study: Study, tables: Tables, resampling: Resampling) -> Drawing:
    percent = study.protocol.measure == "success"
    every = np.concatenate([table.ravel() for _, table in tables])
    low, high = (0.0, 1.0) if percent else (float(every.min()), float(every.max()))
    thresholds = np.linspace(low, high, POINTS)
    figure, (axes,) = new_figure(1, 1, 5.6, 3.6)
    rows, lines = [], []
    for method, table in tables:
        profile = performance_profile(table, thresholds, resampling)
        style = study.styles[method.label]
        (line,) = axes.step(
            thresholds,
            profile.share,
            where="post",
            color=style.color,
            linestyle=style.dash,
            label=method.label,
        )
        lines.append(line)
        if len(table) > 1:
            axes.fill_between(
                thresholds, profile.low, profile.high, step="post", color=style.color, alpha=0.15
            )
        parts = zip(thresholds, profile.share, profile.low, profile.high, strict=True)
        rows += [
            {
                "method": method.label,
                "threshold": float(at),
                "share": float(share),
                "low": float(below),
                "high": float(above),
                "runs": len(table),
            }
            for at, share, below, above in parts
        ]
    what = "success rate" if percent else "return"
    label_axes(axes, f"{what} at the end", "share of runs and tasks", "", legend=False)
    finish_axes(axes, percent=True)
    legend_below(figure, lines)
    caption = (
        f"Share of runs and tasks whose {what} at the end is at least what the axis says. Bands: "
        "95 % stratified bootstrap, of methods with two seeds or more."
    )
    return Drawing("profiles", "Performance profiles", caption, figure, rows)


def _draw_improvement(study: Study, tables: Tables, resampling: Resampling) -> Drawing:
    count = len(tables)
    figure, (axes,) = new_figure(1, 1, 2.0 + 0.62 * count, 1.2 + 0.5 * count)
    values = np.full((count, count), np.nan)
    rows = []
    for row, (method, table) in enumerate(tables):
        for column, (other, against) in enumerate(tables):
            if row == column or table.shape[1] != against.shape[1]:
                continue
            found = probability_of_improvement(table, against, resampling)
            values[row, column] = found.probability
            axes.text(column, row, _said(found), ha="center", va="center", fontsize=7)
            rows.append(
                {
                    "method": method.label,
                    "other": other.label,
                    "probability": found.probability,
                    "low": found.low,
                    "high": found.high,
                }
            )
    axes.imshow(values, vmin=0, vmax=1, cmap="coolwarm_r", alpha=0.6, aspect="auto")
    names = [method.label for method, _ in tables]
    axes.set_xticks(range(count), names, rotation=40, ha="right", fontsize=8)
    axes.set_yticks(range(count), names, fontsize=8)
    caption = (
        "How likely a run of the row's method does better at the end than one of the column's, "
        "averaged over tasks, in percent; equal scores count half. In brackets the 95 % interval, "
        "where both have two seeds or more."
    )
    return Drawing("improvement", "Probability of improvement", caption, figure, rows)


def _said(found: Improvement) -> str:
    said = f"{100 * found.probability:.0f}"
    if np.isnan(found.low):
        return said
    return f"{said}\n[{100 * found.low:.0f}, {100 * found.high:.0f}]"
