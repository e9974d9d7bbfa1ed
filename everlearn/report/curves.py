"""What is drawn over time: a curve for each method and task, and the area that is regret."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from everlearn.results import metrics
from everlearn.results.methods import Method, Study
from everlearn.results.read import RunRecord
from everlearn.results.statistics import Floats, Resampling, column_estimates, estimate
from everlearn.results.summary import periods

FIELDS = ("mean", "standard_error", "middle", "low", "high", "runs")
"""Of a curve at every point, as `statistics.Estimate` has them."""

Series = tuple[npt.NDArray[np.int64], Floats]
"""When, in training episodes or environment steps, and what: a run's points."""

GRID = 100
"""Points of a curve over steps where the episodes of the runs differ in length."""

OWN_PERIOD = (
    "Shaded: the episodes in which the task itself is learned; points before them are of an agent "
    "that never trained on it."
)


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
    times
        When, ``[W]``, in the unit of the figure.
    values
        The fields of `statistics.Estimate` at every point, ``[W]`` each.
    """

    method: str
    panel: str
    runs: int
    times: npt.NDArray[np.int64]
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
        Whether the vertical axis is.
    unit
        Of time: ``episode`` of training, or ``step`` of the environment.
    """

    name: str
    title: str
    y: str
    caption: str
    panels: tuple[str, ...]
    curves: tuple[Curve, ...]
    percent: bool = True
    logarithmic: bool = False
    unit: Literal["episode", "step"] = "episode"

    @property
    def x(self) -> str:
        """Name of the horizontal axis."""
        return "training episodes" if self.unit == "episode" else "environment steps"


def curve_figures(study: Study, resampling: Resampling) -> list[CurveFigure]:
    """All figures over time for which the runs have something to show."""
    by_measure = _success_figures if study.protocol.measure == "success" else _return_figures
    figures = by_measure(study, resampling) + _model_figures(study, resampling)
    return [figure for figure in figures if figure.curves]


def _success_figures(study: Study, resampling: Resampling) -> list[CurveFigure]:
    return [
        CurveFigure(
            "success",
            "Success of each task along training",
            "success rate",
            f"Success rate in evaluation episodes, with learning off. {OWN_PERIOD}",
            study.protocol.names,
            _by_task(study, resampling, _evaluated),
        ),
        CurveFigure(
            "average-performance",
            "Average performance",
            "AP x seen / all tasks",
            "Mean success rate of the tasks seen so far, times their share of all tasks, as in the "
            "paper. Dashed lines: another task begins.",
            ("",),
            _average(study, resampling, scaled=True),
        ),
        CurveFigure(
            "regret",
            "Regret so far",
            "online regret",
            "Share of training episodes so far that did not succeed. Dashed lines: another task "
            "begins.",
            ("",),
            at_once(study, resampling, _regret),
        ),
    ]


def _return_figures(study: Study, resampling: Resampling) -> list[CurveFigure]:
    tasks = study.protocol.names
    curves = (_over_steps(method, task, resampling) for task in tasks for method in study.methods)
    return [
        CurveFigure(
            "training-return",
            "Returns in training",
            "return of an episode",
            "Return of each training episode, exploration included, over environment steps. Where "
            "episodes differ in length, runs are joined by straight lines between their episodes.",
            tasks,
            tuple(filter(None, curves)),
            percent=False,
            unit="step",
        ),
        CurveFigure(
            "return",
            "Return of each task along training",
            "mean return",
            f"Mean return of evaluation episodes, with learning off. {OWN_PERIOD}",
            tasks,
            _by_task(study, resampling, _evaluated),
            percent=False,
        ),
        CurveFigure(
            "average-return",
            "Average return",
            "mean over seen tasks",
            "Mean return in evaluation of the tasks seen so far. Dashed lines: another task "
            "begins.",
            ("",),
            _average(study, resampling, scaled=False),
            percent=False,
        ),
    ]


def _model_figures(study: Study, resampling: Resampling) -> list[CurveFigure]:
    figures = [
        CurveFigure(
            "utilization",
            "Model utilization",
            "cells ever active",
            "Share of the sparse model's weights that some transition has activated. Networks have "
            "no such number.",
            ("",),
            at_once(study, resampling, _utilization),
        )
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
                study.protocol.names,
                _by_task(study, resampling, _model_column(column)),
                percent=False,
                logarithmic=True,
            )
        )
    return figures


def joined(series: list[Series]) -> tuple[npt.NDArray[np.int64], Floats]:
    """Put runs on one axis: ``[W]`` times and ``[runs, W]`` values, NaN where one has none."""
    times = np.unique(np.concatenate([when for when, _ in series] or [np.zeros(0, int)]))
    table = np.full((len(series), len(times)), np.nan)
    for row, (when, values) in zip(table, series, strict=True):
        row[np.searchsorted(times, when)] = values
    return times.astype(np.int64), table


def _evaluated(run: RunRecord, task: str) -> Series:
    table = run.evaluations
    return present(table.episodes, table.values[:, table.tasks.index(task)])


def _regret(run: RunRecord, _: str) -> Series:
    return present(
        run.episode_column("episode"), metrics.regret_curve(run.episode_column("success"))
    )


def _training_returns(run: RunRecord, task: str) -> Series:
    rows = run.episode_column("task") == task
    if "return" not in run.columns["episode"] or not np.any(rows):
        return np.zeros(0, np.int64), np.zeros(0)
    return present(run.episode_column("step")[rows], run.episode_column("return")[rows])


def _utilization(run: RunRecord, _: str) -> Series:
    columns = run.columns["model"]
    if "utilization" not in columns:
        return np.zeros(0, np.int64), np.zeros(0)
    # One line a task, each with the same number.
    when, first = np.unique(columns["episode"], return_index=True)
    return present(when, columns["utilization"][first])


def _model_column(name: str) -> Callable[[RunRecord, str], Series]:
    def series(run: RunRecord, task: str) -> Series:
        columns = run.columns["model"]
        if name not in columns:
            return np.zeros(0, np.int64), np.zeros(0)
        rows = columns["task"] == task
        return present(columns["episode"][rows], columns[name][rows])

    return series


def present(when: npt.NDArray[np.generic], values: npt.NDArray[np.generic]) -> Series:
    """Return the points of a run that have a value."""
    numbers = values.astype(np.float64)
    known = ~np.isnan(numbers)
    return when[known].astype(np.int64), numbers[known]


def _by_task(
    study: Study, resampling: Resampling, series: Callable[[RunRecord, str], Series]
) -> tuple[Curve, ...]:
    curves = (
        _curve(method, task, series, resampling)
        for task in study.protocol.names
        for method in study.methods
    )
    return tuple(filter(None, curves))


def at_once(
    study: Study, resampling: Resampling, series: Callable[[RunRecord, str], Series]
) -> tuple[Curve, ...]:
    """Return a curve for each method, of all tasks at once."""
    curves = (_curve(method, "", series, resampling) for method in study.methods)
    return tuple(filter(None, curves))


def _curve(
    method: Method,
    panel: str,
    series: Callable[[RunRecord, str], Series],
    resampling: Resampling,
) -> Curve | None:
    times, table = joined([series(run, panel) for run in method.runs])
    if not len(times):
        return None
    values = column_estimates(table, resampling)
    return Curve(method.label, panel, len(method.runs), times, values)


def _over_steps(method: Method, task: str, resampling: Resampling) -> Curve | None:
    """Training returns over steps; on a common grid where the episodes of runs do not coincide."""
    series = [_training_returns(run, task) for run in method.runs]
    times, table = joined(series)
    if not len(times):
        return None
    if len(times) > max(len(when) for when, _ in series):  # not those of the longest run
        times = np.unique(np.linspace(times[0], times[-1], GRID + 1).astype(np.int64))
        table = np.array(
            [np.interp(times, *one, left=np.nan, right=np.nan) for one in series if len(one[0])]
        )
    values = column_estimates(table, resampling)
    return Curve(method.label, task, len(method.runs), times, values)


def _average(study: Study, resampling: Resampling, scaled: bool) -> tuple[Curve, ...]:
    curves = (_average_curve(method, resampling, scaled) for method in study.methods)
    return tuple(filter(None, curves))


def _average_curve(method: Method, resampling: Resampling, scaled: bool) -> Curve | None:
    """Mean over the tasks seen, scaled by their share of all; intervals are over tasks too."""
    points: dict[int, list[Floats]] = {}
    for run in method.runs:
        table = run.evaluations
        for when, row, seen in zip(table.episodes, table.values, table.seen, strict=True):
            # A mean of other tasks would be another number.
            if seen.any() and not np.isnan(row[seen]).any():
                points.setdefault(int(when), []).append(row[seen])
    if not points:
        return None
    rows = []
    for when in sorted(points):
        values = estimate(np.array(points[when]), resampling)
        share = len(points[when][0]) / len(method.runs[0].evaluations.tasks) if scaled else 1.0
        fields = (values.mean, values.standard_error, values.middle, values.low, values.high)
        rows.append([*(value * share for value in fields), values.runs])
    columns = np.array(rows, dtype=np.float64).T
    times = np.array(sorted(points), dtype=np.int64)
    return Curve(method.label, "", len(method.runs), times, dict(zip(FIELDS, columns, strict=True)))


@dataclass(frozen=True, eq=False)
class RegretArea:
    """What regret is, for one method: the area between an oracle and it.

    Attributes
    ----------
    method
        Its label.
    episodes, performance
        Corners of the success rate of the task at hand, mean over the runs.
    regret
        The area's share of the whole.
    runs
        How many runs are in it.
    """

    method: str
    episodes: Floats
    performance: Floats
    regret: float
    runs: int


def regret_areas(study: Study) -> list[RegretArea]:
    """Return the area of every method with finished runs whose evaluations are all there."""
    if study.protocol.measure != "success":
        return []  # there is no best return to compare with
    areas = []
    for method in study.methods:
        lines = [_online_performance(run) for run in method.complete]
        complete = [line for line in lines if line is not None]
        if not complete:
            continue
        # Switches have two values at one time, so runs are put together period by period.
        merged = [joined_period(list(part)) for part in zip(*complete, strict=True)]
        episodes = np.concatenate([when for when, _ in merged])
        performance = np.concatenate([values for _, values in merged])
        area = sum(float(np.trapezoid(1 - values, when)) for when, values in merged)
        regret = area / study.protocol.episodes
        areas.append(RegretArea(method.label, episodes, performance, regret, len(complete)))
    return areas


def joined_period(lines: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean of piecewise linear functions over one period, at all their corners."""
    when, _ = joined([(times.astype(np.int64), values) for times, values in lines])
    mean = np.mean([np.interp(when, times, values) for times, values in lines], axis=0)
    return when.astype(np.float64), mean


def _online_performance(run: RunRecord) -> list[tuple[Floats, Floats]] | None:
    """Success rate of the task at hand, period by period; None if one was never evaluated."""
    table = run.evaluations
    lines = []
    for span in periods(run.config, run.episode_column("step"), by_steps=False):
        line = metrics.performance_in(table.episodes, table.values, span)
        if line is None:
            return None
        lines.append(line)
    return lines
