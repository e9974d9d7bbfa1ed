"""What a report has of runs in an endless world: success along a life, and visit by visit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from everlearn.report.curves import CurveFigure, Series, at_once, present
from everlearn.report.tables import MISSING, Table, percent
from everlearn.results.life import (
    NUMBERED,
    WINDOW,
    Visits,
    by_goal,
    by_number,
    life_scores,
    recent_success,
    steps_to_success,
    visits_of,
)
from everlearn.results.methods import Method, Study
from everlearn.results.read import RunRecord
from everlearn.results.statistics import Resampling, column_estimates, standard_error

if TYPE_CHECKING:
    from everlearn.report.figures import Drawing

NAMES = (*(str(number) for number in range(1, NUMBERED + 1)), f"{NUMBERED + 1}+")
"""Visits of a goal as figures name them."""


def lives_of(method: Method) -> list[Visits]:
    """Return the visits of a method's runs, as far as they have come."""
    found = (visits_of(run) for run in method.runs)
    return [visits for visits in found if visits is not None]


def life_curves(study: Study, resampling: Resampling) -> list[CurveFigure]:
    """Success over the last visits, and what was put back, along a life."""
    figures = [
        CurveFigure(
            "life-success",
            "Success along a life",
            f"success in {WINDOW} visits",
            f"Share of the last {WINDOW} visits that were solved. An episode is a visit of a task; "
            "nothing is reset between two visits.",
            ("",),
            at_once(study, resampling, _recent),
        ),
        CurveFigure(
            "life-put-backs",
            "Lost objects that were put back",
            "put back so far",
            "How often a block or a peg was out of reach for good and was put back.",
            ("",),
            at_once(study, resampling, _put_backs),
            percent=False,
        ),
    ]
    return [figure for figure in figures if figure.curves]


def _recent(run: RunRecord, _: str) -> Series:
    visits = visits_of(run)
    if visits is None:
        return np.zeros(0, np.int64), np.zeros(0)
    return present(run.episode_column("episode"), recent_success(visits.success))


def _put_backs(run: RunRecord, _: str) -> Series:
    visits = visits_of(run)
    if visits is None:
        return np.zeros(0, np.int64), np.zeros(0)
    return present(run.episode_column("episode"), visits.put_backs)


def life_tables(study: Study) -> list[Table]:
    """Return the table of lives and that of their goals; none where runs have no goals."""
    methods = [(method, lives_of(method)) for method in study.methods]
    methods = [(method, lives) for method, lives in methods if lives]
    if not methods:
        return []
    return [_life_table(methods), _goal_table(methods)]


def _life_table(methods: Sequence[tuple[Method, list[Visits]]]) -> Table:
    headings = (
        *("method", "seeds", f"success, last {WINDOW} ↑", "first visits ↑", "later visits ↑"),
        *("steps to success ↓", "put back ↓", "regret over steps ↓"),
    )
    rows = []
    for method, lives in methods:
        scores = [life_scores(visits) for visits in lives]
        cells = [
            _mean([score[name] for score in scores], share)
            for name, share in (
                *(("recent", True), ("first", True), ("later", True)),
                *(("steps", False), ("put_backs", False), ("regret_steps", True)),
            )
        ]
        rows.append((method.label, method.seeds, *cells))
    note = (
        f"Means over seeds ± standard error; shares in percent. Success in the last {WINDOW} "
        "visits of the life, in the first visit of each task, and in all later ones. Steps: median "
        "of the visits that were solved. Put back: lost objects that were put back in the whole "
        "life. Regret over steps: share of the steps in visits that were not solved."
    )
    return Table("life", "Lives", headings, tuple(rows), note)


def _goal_table(methods: Sequence[tuple[Method, list[Visits]]]) -> Table:
    tables = [(method, [by_goal(visits) for visits in lives]) for method, lives in methods]
    goals = sorted({goal for _, lives in tables for life in lives for goal in life})
    rows = []
    for method, lives in tables:
        for goal in goals:
            found = [life[goal] for life in lives if goal in life]
            if found:
                count = sum(number for number, _, _ in found)
                solved = sum(number * share for number, share, _ in found) / count
                steps = _mean([median for _, _, median in found], False)
                rows.append((method.label, goal, str(count), percent(solved), steps))
    headings = ("method", "task", "visits", "success ↑", "steps to success ↓")
    note = "All visits of all runs. Steps: median of a run's visits that were solved, mean of runs."
    return Table("goals", "Tasks of the lives", headings, tuple(rows), note)


def _mean(values: list[float], share: bool) -> str:
    known = np.array([value for value in values if not math.isnan(value)])
    if not len(known):
        return MISSING
    mean, error = float(known.mean()), standard_error(known)
    words = percent(mean) if share else f"{mean:.1f}"
    if math.isnan(error):
        return words
    return f"{words} ± {percent(error) if share else f'{error:.1f}'}"


def draw_lives(study: Study, resampling: Resampling) -> list[Drawing]:
    """Draw success and speed by first, second, ... visit of a task."""
    from everlearn.report.figures import Drawing, finish_axes, share_legend
    from everlearn.support.plotting import label_axes, new_figure

    methods = [(method, lives_of(method)) for method in study.main]
    methods = [(method, lives) for method, lives in methods if lives]
    if not methods:
        return []
    figure, panels = new_figure(1, 2, 3.8, 3.2)
    numbers = np.arange(1, len(NAMES) + 1)
    rows = []
    for method, lives in methods:
        style = study.styles[method.label]
        for axes, name, table in zip(
            panels, ("success", "steps"), _tables_by_number(lives), strict=True
        ):
            values = column_estimates(table, resampling)
            axes.errorbar(
                numbers,
                values["mean"],
                yerr=np.nan_to_num(values["standard_error"]),
                color=style.color,
                ls=style.dash,
                marker=style.marker,
                ms=4,
                lw=1.3,
            )
            rows += [
                {"method": method.label, "visit": visit, "number": name}
                | {field: float(column[index]) for field, column in values.items()}
                for index, visit in enumerate(NAMES)
            ]
    for axes, words, share in zip(
        panels, ("success rate", "steps to success"), (True, False), strict=True
    ):
        axes.set_xticks(numbers, NAMES)
        finish_axes(axes, percent=share)
        label_axes(axes, "visit of the task", words, "", legend=False)
    share_legend(figure, {method.label for method, _ in methods}, study, study.styles)
    caption = (
        "First, second, ... visits of each task of a life: how many were solved, and the mean "
        "steps of those. Means over seeds; whiskers: standard error."
    )
    return [Drawing("life-visits", "Visit by visit", caption, figure, rows)]


def _tables_by_number(lives: list[Visits]) -> tuple[npt.NDArray[np.float64], ...]:
    success = np.array([by_number(visits, visits.success) for visits in lives])
    steps = np.array([by_number(visits, steps_to_success(visits)) for visits in lives])
    return success, steps
