"""What is measured, as pure functions on arrays.

``W`` evaluation points at times ``times[W]``, ``T`` tasks, ``p[W, T]`` success rates with NaN
where a task was not evaluated. ``periods`` lists ``(task column, start, end)`` of every entry of
the sequence, in the unit of ``times``: training episodes, or environment steps for versions that
weigh by steps. `mean_of_seen`, `forgetting` and `forward_transfer` also take returns; regret needs
a best value to compare with, which returns do not have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError

Floats = npt.NDArray[np.float64]
Period = tuple[int, float, float]

FIRST_SHARE = 0.1
"""Share of a task's period over which forward transfer is taken."""


def average_performance(p: npt.ArrayLike) -> Floats:
    """AP(w): mean of the success rates in each row, ``[W]``; NaN where there is none.

    `p` has NaN for tasks that had not been seen, also where they were evaluated.
    """
    return mean_of_seen(_rates(p))


def mean_of_seen(values: npt.ArrayLike) -> Floats:
    """Mean over the tasks of each row that is not NaN, ``[W]``, of rates or of returns."""
    table = _table(values)
    seen = ~np.isnan(table)
    count = seen.sum(axis=1)
    total = np.where(seen, table, 0.0).sum(axis=1)
    return np.divide(total, count, out=np.full(len(table), np.nan), where=count > 0)


def regret_online(success: npt.ArrayLike, lengths: npt.ArrayLike | None = None) -> float:
    """Mean over training episodes of 1 - success; weighted by their steps if `lengths` is given.

    NaN without episodes.
    """
    curve = regret_curve(success, lengths)
    return float(curve[-1]) if len(curve) else math.nan


def regret_curve(success: npt.ArrayLike, lengths: npt.ArrayLike | None = None) -> Floats:
    """Return `regret_online` after each training episode, ``[N]``."""
    missed = 1.0 - _numbers(success, "success")
    if missed.ndim != 1:
        raise InvalidInputError(f"success has shape {missed.shape}; expected one flag an episode")
    weights = np.ones_like(missed) if lengths is None else _numbers(lengths, "lengths")
    if weights.shape != missed.shape or (weights <= 0).any():
        raise InvalidInputError(
            f"lengths must be {len(missed)} positive numbers; got shape {weights.shape}"
        )
    curve: Floats = np.cumsum(missed * weights) / np.cumsum(weights)
    return curve


def regret_eval(times: npt.ArrayLike, p: npt.ArrayLike, periods: Sequence[Period]) -> float:
    """Return the paper's Reg(w): the mean over time of 1 - p of the current task.

    Inside a period p is linear between the evaluation points and constant before the first
    and after the last of them, so an agent that always succeeds has regret 0 and one that
    never does has regret 1. A task is evaluated just before its period, which gives its value
    at the start; older runs did so only for tasks that had been seen before, and are constant
    up to the first evaluation of the others. NaN if some period has no evaluation of its task.
    """
    times, table = _points(times, _rates(p), periods)
    area, duration = 0.0, 0.0
    for period in periods:
        line = performance_in(times, table, period)
        if line is None:
            return math.nan
        knots, value = line
        area += float(np.trapezoid(1.0 - value, knots))
        duration += knots[-1] - knots[0]
    return area / duration if duration else math.nan


def performance_in(
    times: npt.ArrayLike, p: npt.ArrayLike, period: Period
) -> tuple[Floats, Floats] | None:
    """Success rate of the task at hand over a period, as `regret_eval` reads it.

    Returns
    -------
    knots, values
        Corners of the line, from the start of the period to its end; None if the task was not
        evaluated in it.
    """
    times, table = _points(times, p, [period])
    task, start, end = period
    inside = (times >= start) & (times <= end) & ~np.isnan(table[:, task])
    if not inside.any() or end <= start:
        return None
    at, value = times[inside], table[inside, task]
    knots = np.unique(np.concatenate([[start], at, [end]]))
    return knots, np.interp(knots, at, value)


def forgetting(times: npt.ArrayLike, p: npt.ArrayLike, periods: Sequence[Period]) -> float:
    """F: p at the end of a task's own (last) period minus p at the end of the run.

    Mean over all tasks learned, the last one included, which forgets nothing; negative when
    tasks get better after their period. NaN if one of these evaluations is missing.
    """
    values = forgetting_by_task(times, p, periods)
    return float(np.mean(list(values.values()))) if values else math.nan


def forgetting_by_task(
    times: npt.ArrayLike, p: npt.ArrayLike, periods: Sequence[Period]
) -> dict[int, float]:
    """Forgetting of each task, by its column."""
    times, table = _points(times, p, periods)
    if not periods:
        return {}
    last_end = {task: end for task, _, end in periods}
    final = max(last_end.values())
    return {
        task: value_at(times, table, end, task) - value_at(times, table, final, task)
        for task, end in last_end.items()
    }


def forward_transfer(
    success: npt.ArrayLike, alone: npt.ArrayLike, budget: int, share: float = FIRST_SHARE
) -> float:
    """Success at the start of a task's period against the same agent that knows nothing else.

    Parameters
    ----------
    success
        Flags (or returns) of the task's first period in the sequence, in order.
    alone
        The same of the same agent trained on that task alone.
    budget
        Episodes of the whole period; the first ``share`` of it counts, at least one episode.

    Returns
    -------
    float
        Mean of the one minus mean of the other; NaN where too few episodes were run.
    """
    count = first_episodes(budget, share)
    first, second = (np.atleast_1d(_numbers(flags, "flags"))[:count] for flags in (success, alone))
    if len(first) < count or len(second) < count:
        return math.nan
    return float(first.mean() - second.mean())


def first_episodes(budget: int, share: float = FIRST_SHARE) -> int:
    """Episodes at the start of a period of `budget` that forward transfer looks at."""
    # Rounded first: 0.1 * 30 is a little more than 3.
    return max(1, math.ceil(round(budget * share, 9)))


def value_at(times: Floats, table: Floats, time: float, task: int) -> float:
    """Return the value of a task at a time, NaN if it was not evaluated then."""
    rows = np.flatnonzero(times == time)
    return float(table[rows[-1], task]) if len(rows) else math.nan


def _numbers(values: object, name: str) -> Floats:
    return as_numbers(values, name, flags=True).astype(np.float64, copy=False)


def _table(values: npt.ArrayLike) -> Floats:
    table = _numbers(values, "p")
    if table.ndim != 2:
        raise InvalidInputError(f"p has shape {table.shape}; expected [points, tasks]")
    return table


def _rates(p: npt.ArrayLike) -> Floats:
    table = _table(p)
    if ((table < 0) | (table > 1)).any():
        raise InvalidInputError(
            "success rates must lie between 0 and 1, or be NaN for unseen tasks"
        )
    return table


def _points(times: Any, p: npt.ArrayLike, periods: Sequence[Period]) -> tuple[Floats, Floats]:
    when, table = _numbers(times, "times"), _table(p)
    if when.shape != (len(table),) or (np.diff(when) < 0).any():
        raise InvalidInputError(
            f"times must be {len(table)} numbers in order, one a row of p; got shape {when.shape}"
        )
    if any(not 0 <= task < table.shape[1] for task, _, _ in periods):
        raise InvalidInputError(f"periods name tasks beyond the {table.shape[1]} columns of p")
    return when, table
