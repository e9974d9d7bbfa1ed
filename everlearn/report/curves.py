"""What is drawn over time: one curve for each method and task, with everything about it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everlearn.results import metrics
from everlearn.results.methods import Method, Study
from everlearn.results.records import RunRecord
from everlearn.results.statistics import Floats, Resampling, column_estimates, estimate
from everlearn.runs.schedule import seen_tasks

FIELDS = ("mean", "standard_error", "middle", "low", "high", "runs")
"""Of a curve at every point, as `statistics.Estimate` has them."""

Series = tuple[npt.NDArray[np.int64], Floats]
"""When, in training episodes, and what: a run's points."""


@dataclass(frozen=True, eq=False)
class Curve:
    """A method over time.

    Attributes
    ----------
    method
        Its label.
    panel
        The task, or an empty word where there is one panel.
    runs
        Runs of the method; points that fewer have are drawn as such.
    episodes
        When, ``[W]``.
    values
        The fields of `statistics.Estimate` at every point, ``[W]`` each.
    """

    method: str
    panel: str
    runs: int
    episodes: npt.NDArray[np.int64]
    values: dict[str, Floats]


@dataclass(frozen=True, eq=False)
class CurveFigure:
    """A figure over time: its words and its curves.

    Attributes
    ----------
    name, title, y, caption
        Name of its files, and what stands above, beside and below it.
    panels
        Tasks, or one empty word.
    curves
        Of all methods and panels.
    percent
        Whether values are shares, drawn from 0 to 100 %.
    logarithmic
        Whether the axis is.
    """

    name: str
    title: str
    y: str
    caption: str
    panels: tuple[str, ...]
    curves: tuple[Curve, ...]
    percent: bool = True
    logarithmic: bool = False


def curve_figures(study: Study, resampling: Resampling) -> list[CurveFigure]:
    """All figures over time for which the runs have something to show."""
    tasks = study.protocol.names
    figures = [
        CurveFigure(
            "success",
            "Success of each task along training",
            "success rate",
            "Success rate in evaluation episodes, with learning off. Shaded: the episodes in which "
            "the task itself is learned.",
            tasks,
            _by_task(study, resampling, _success),
        ),
        CurveFigure(
            "average-performance",
            "Average performance",
            "AP x seen / all tasks",
            "Mean success rate of the tasks seen so far, times their share of all tasks, as in the "
            "paper. Dashed lines: another task begins.",
            ("",),
            tuple(filter(None, (_performance(method, resampling) for method in study.methods))),
        ),
        CurveFigure(
            "regret",
            "Regret so far",
            "online regret",
            "Share of training episodes so far that did not succeed. Dashed lines: another task "
            "begins.",
            ("",),
            _at_once(study, resampling, _regret),
        ),
        CurveFigure(
            "utilization",
            "Model utilization",
            "cells ever active",
            "Share of the sparse model's weights that some transition has activated. Networks have "
            "no such number.",
            ("",),
            _at_once(study, resampling, _utilization),
        ),
    ]
    for steps, column in ((1, "error_one_step"), (15, "error_15_steps")):
        ahead = "one step" if steps == 1 else f"{steps} steps"
        figures.append(
            CurveFigure(
                f"model-error-{steps}",
                f"World-model error, {ahead} ahead",
                "mean squared error",
                "On fixed transitions of each task that no run learns from. Shaded: the episodes "
                "in which the task itself is learned.",
                tasks,
                _by_task(study, resampling, _model_column(column)),
                percent=False,
                logarithmic=True,
            )
        )
    return [figure for figure in figures if figure.curves]


def joined(series: list[Series]) -> tuple[npt.NDArray[np.int64], Floats]:
    """Put runs on one axis: ``[W]`` episodes and ``[runs, W]`` values, NaN where one has none."""
    episodes = np.unique(np.concatenate([when for when, _ in series] or [np.zeros(0, int)]))
    table = np.full((len(series), len(episodes)), np.nan)
    for row, (when, values) in zip(table, series, strict=True):
        row[np.searchsorted(episodes, when)] = values
    return episodes.astype(np.int64), table


def _success(run: RunRecord, task: str) -> Series:
    table = run.evaluations
    values = table.p[:, table.tasks.index(task)]
    there = ~np.isnan(values)
    return table.episodes[there].astype(np.int64), values[there]


def _regret(run: RunRecord, _: str) -> Series:
    columns = run.columns["episode"]
    if not columns:
        return np.zeros(0, np.int64), np.zeros(0)
    return columns["episode"], metrics.regret_curve(columns["success"])


def _utilization(run: RunRecord, _: str) -> Series:
    columns = run.columns["model"]
    if "utilization" not in columns:
        return np.zeros(0, np.int64), np.zeros(0)
    # One line a task, each with the same number.
    when, first = np.unique(columns["episode"], return_index=True)
    return _present(when, columns["utilization"][first])


def _model_column(name: str) -> Callable[[RunRecord, str], Series]:
    def series(run: RunRecord, task: str) -> Series:
        columns = run.columns["model"]
        if name not in columns:
            return np.zeros(0, np.int64), np.zeros(0)
        rows = columns["task"] == task
        return _present(columns["episode"][rows], columns[name][rows])

    return series


def _present(when: npt.NDArray[np.int64], values: Floats) -> Series:
    there = ~np.isnan(values.astype(np.float64))
    return when[there].astype(np.int64), values[there].astype(np.float64)


def _by_task(
    study: Study, resampling: Resampling, series: Callable[[RunRecord, str], Series]
) -> tuple[Curve, ...]:
    curves = (
        _curve(method, task, series, resampling)
        for task in study.protocol.names
        for method in study.methods
    )
    return tuple(filter(None, curves))


def _at_once(
    study: Study, resampling: Resampling, series: Callable[[RunRecord, str], Series]
) -> tuple[Curve, ...]:
    curves = (_curve(method, "", series, resampling) for method in study.methods)
    return tuple(filter(None, curves))


def _curve(
    method: Method,
    panel: str,
    series: Callable[[RunRecord, str], Series],
    resampling: Resampling,
) -> Curve | None:
    episodes, table = joined([series(run, panel) for run in method.runs])
    if not len(episodes):
        return None
    values = column_estimates(table, resampling)
    return Curve(method.label, panel, len(method.runs), episodes, values)


def _performance(method: Method, resampling: Resampling) -> Curve | None:
    """Average performance, scaled by the share of tasks seen; intervals are over tasks too."""
    points: dict[int, list[Floats]] = {}
    for run in method.runs:
        for when, rates in zip(run.evaluations.episodes, run.evaluations.p, strict=True):
            seen = len(seen_tasks(run.config, int(when)))
            if not np.isnan(rates[:seen]).any():  # a mean of other tasks would be another number
                points.setdefault(int(when), []).append(rates[:seen])
    if not points:
        return None
    rows = []
    for when in sorted(points):
        found = estimate(np.array(points[when]), resampling)
        share = len(points[when][0]) / len(method.runs[0].evaluations.tasks)
        scaled = (found.mean, found.standard_error, found.middle, found.low, found.high)
        rows.append([*(value * share for value in scaled), found.runs])
    columns = np.array(rows, dtype=np.float64).T
    episodes = np.array(sorted(points), dtype=np.int64)
    return Curve(
        method.label, "", len(method.runs), episodes, dict(zip(FIELDS, columns, strict=True))
    )
