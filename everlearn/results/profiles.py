"""Two ways to compare methods beside the interquartile mean (Agarwal et al., 2021).

A performance profile says which share of all scores, over seeds and tasks, is above each threshold:
where one method's is above another's at every threshold, it is better whatever one asks for. The
probability of improvement says how likely a run of one method beats a run of another, averaged over
tasks; equal scores count half. Both resample runs for each task on its own, like `statistics.py`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from everlearn.results.statistics import FEWEST, Floats, Resampling, _bounds, _draws
from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class Profile:
    """Share of scores above thresholds, with its 95 % interval, NaN for a single run."""

    thresholds: Floats
    share: Floats
    low: Floats
    high: Floats


def performance_profile(
    scores: npt.ArrayLike, thresholds: npt.ArrayLike, resampling: Resampling | None = None
) -> Profile:
    """Return the share of scores ``[runs, tasks]`` at or above each threshold."""
    table, at = _table(scores), as_numbers(thresholds, "thresholds").astype(np.float64)
    above = (table[:, :, None] >= at).astype(np.float64)  # [runs, tasks, thresholds]
    share = above.mean(axis=(0, 1))
    if len(table) < FEWEST:
        unknown = np.full(len(at), math.nan)
        return Profile(at, share, unknown, unknown)
    drawn = _draws(*table.shape, resampling or Resampling())  # [count, tasks, runs]
    low, high = _bounds(np.einsum("ctr,rtk->ck", drawn, above, optimize=True) / table.size)
    return Profile(at, share, low, high)


@dataclass(frozen=True)
class Improvement:
    """How likely a run of one method beats one of another, with its 95 % interval."""

    probability: float
    low: float
    high: float


def probability_of_improvement(
    scores: npt.ArrayLike, others: npt.ArrayLike, resampling: Resampling | None = None
) -> Improvement:
    """Return how likely a score of `scores` is above one of `others`, both ``[runs, tasks]``."""
    mine, theirs = _table(scores), _table(others)
    if mine.shape[1] != theirs.shape[1]:
        raise InvalidInputError(
            f"scores are of {mine.shape[1]} and of {theirs.shape[1]} tasks; expected the same"
        )
    # [runs of mine, runs of theirs, tasks]
    wins = (mine[:, None] > theirs[None]) + 0.5 * (mine[:, None] == theirs[None])
    probability = float(wins.mean())
    if min(len(mine), len(theirs)) < FEWEST:
        return Improvement(probability, math.nan, math.nan)
    first, second = (
        _draws(*table.shape, resampling or Resampling(), stream)
        for stream, table in enumerate((mine, theirs))
    )
    sampled = np.einsum("cti,ctj,ijt->c", first, second, wins, optimize=True)
    low, high = _bounds((sampled / wins.size)[:, None])
    return Improvement(probability, float(low[0]), float(high[0]))


def _table(scores: npt.ArrayLike) -> Floats:
    table = as_numbers(scores, "scores").astype(np.float64)
    if table.ndim != 2 or not table.size or np.isnan(table).any():
        raise InvalidInputError(
            f"scores have shape {table.shape}; expected [runs, tasks] without NaN"
        )
    return table
