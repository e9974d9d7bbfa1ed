"""What runs in an endless world say: their episodes are visits of goals that come again and again.

Pure functions on the ``episode`` lines of a run whose lines have a ``goal``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everlearn.results import metrics
from everlearn.results.read import RunRecord

Floats = npt.NDArray[np.float64]

WINDOW = 50
"""Visits over which success is averaged."""

NUMBERED = 5
"""Visits of a goal that are told apart; later ones count as one."""


@dataclass(frozen=True, eq=False)
class Visits:
    """The visits of a life, in order.

    Attributes
    ----------
    goals
        What each was about.
    success, steps
        Whether it was solved, and how long it took.
    put_backs
        Lost objects that had been put back by then, in all.
    number
        Which visit of its goal it was, from 1 on.
    """

    goals: npt.NDArray[np.str_]
    success: Floats
    steps: Floats
    put_backs: Floats
    number: npt.NDArray[np.int64]


def visits_of(run: RunRecord) -> Visits | None:
    """Return the visits of a run; None for one whose episodes have no goals."""
    goals = run.episode_column("goal")
    if not len(goals) or goals.dtype.kind != "U":
        return None
    seen: dict[str, int] = {}
    numbers = []
    for goal in goals.tolist():
        seen[goal] = seen.get(goal, 0) + 1
        numbers.append(seen[goal])
    put_backs = run.episode_column("put_backs").astype(np.float64)
    return Visits(
        goals,
        run.episode_column("success").astype(np.float64),
        run.episode_column("length").astype(np.float64),
        put_backs if len(put_backs) else np.full(len(goals), math.nan),
        np.array(numbers, dtype=np.int64),
    )


def recent_success(success: npt.ArrayLike, window: int = WINDOW) -> Floats:
    """Success over the last `window` visits after each visit; NaN until there are as many."""
    values = np.asarray(success, dtype=np.float64)
    mean = np.full(len(values), math.nan)
    total = np.concatenate([[0.0], np.cumsum(values)])
    mean[window - 1 :] = (total[window:] - total[:-window]) / window
    return mean


def by_number(visits: Visits, values: Floats, numbered: int = NUMBERED) -> Floats:
    """Mean of the values of first, second, ... visits of a goal, and of all later ones.

    NaN where there is none, or no value.
    """
    means = []
    for number in range(1, numbered + 2):
        chosen = visits.number == number if number <= numbered else visits.number > numbered
        known = values[chosen & ~np.isnan(values)]
        means.append(float(known.mean()) if len(known) else math.nan)
    return np.array(means)


def steps_to_success(visits: Visits) -> Floats:
    """Return the steps of each visit that was solved, NaN for the others."""
    return np.where(visits.success > 0, visits.steps, math.nan)


def life_scores(visits: Visits) -> dict[str, float]:
    """Numbers of a whole life.

    ``recent``: success in the last `WINDOW` visits, or in all if they are fewer. ``first``,
    ``later``: success in the first visit of each goal, and in all others. ``steps``: median steps
    of the visits that were solved. ``put_backs``: how often something lost was put back.
    ``regret_steps``: share of the steps that were spent in visits that were not solved.
    """
    first = visits.number == 1
    solved = steps_to_success(visits)
    solved = solved[~np.isnan(solved)]
    return {
        "recent": float(visits.success[-WINDOW:].mean()),
        "first": float(visits.success[first].mean()),
        "later": float(visits.success[~first].mean()) if (~first).any() else math.nan,
        "steps": float(np.median(solved)) if len(solved) else math.nan,
        "put_backs": float(visits.put_backs[-1]),
        "regret_steps": metrics.regret_online(visits.success, visits.steps),
    }


def by_goal(visits: Visits) -> dict[str, tuple[int, float, float]]:
    """Of each goal: its visits, its success in all, and its median steps where it was solved."""
    found = {}
    steps = steps_to_success(visits)
    for goal in dict.fromkeys(visits.goals.tolist()):
        chosen = visits.goals == goal
        solved = steps[chosen & ~np.isnan(steps)]
        median = float(np.median(solved)) if len(solved) else math.nan
        found[goal] = int(chosen.sum()), float(visits.success[chosen].mean()), median
    return found
