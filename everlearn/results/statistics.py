"""What several seeds say together: mean, interquartile mean, and how sure that is.

Scores of a method are a table ``[runs, strata]``, where a stratum is a task. The interquartile
mean is the mean of the middle half of all of them. Its interval is a stratified bootstrap
(Agarwal et al., "Deep RL at the edge of the statistical precipice", 2021): runs are drawn with
replacement, for each task on its own, and the interval holds 95 % of the means that come out.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from everlearn.support.checks import as_numbers, check_whole
from everlearn.support.errors import InvalidInputError

Floats = npt.NDArray[np.float64]

CUT = 0.25
"""Share of the scores left out at either end; with fewer than four of them that is none."""

LEVEL = 0.95
FEWEST = 2
"""Runs that an interval needs: one run says nothing about another."""


@dataclass(frozen=True)
class Resampling:
    """How intervals are drawn.

    Attributes
    ----------
    count
        Bootstrap samples.
    seed
        Of what is drawn.
    """

    count: int = 2000
    seed: int = 0

    def __post_init__(self) -> None:
        check_whole("resamples", self.count, 100, 1_000_000)
        check_whole("seed", self.seed, 0)


@dataclass(frozen=True)
class Estimate:
    """A number over several runs; NaN where they do not say.

    Attributes
    ----------
    mean, standard_error
        Of the runs; the error needs two of them.
    middle, low, high
        Interquartile mean and its 95 % interval, which needs two runs.
    runs
        How many there are.
    """

    mean: float
    standard_error: float
    middle: float
    low: float
    high: float
    runs: int


NOTHING = Estimate(math.nan, math.nan, math.nan, math.nan, math.nan, 0)


def interquartile_mean(scores: npt.ArrayLike) -> float:
    """Mean of what is left when a quarter of the scores is cut off at either end."""
    values = np.sort(as_numbers(scores, "scores").astype(np.float64), axis=None)
    if not len(values):
        return math.nan
    cut = int(CUT * len(values))
    return float(values[cut : len(values) - cut].mean())


# A model that has run away has errors whose squares are beyond all numbers; they are then inf.
_beyond = np.errstate(over="ignore", invalid="ignore")


@_beyond
def estimate(scores: npt.ArrayLike, resampling: Resampling | None = None) -> Estimate:
    """Estimate from a table ``[runs, strata]`` without gaps."""
    table = as_numbers(scores, "scores").astype(np.float64)
    if table.ndim != 2 or np.isnan(table).any():
        raise InvalidInputError(
            f"scores have shape {table.shape}; expected [runs, tasks] without NaN"
        )
    runs, strata = table.shape
    if not runs or not strata:
        return NOTHING
    low, high = _interval(table, resampling or Resampling())
    return Estimate(
        float(table.mean()),
        standard_error(table.mean(axis=1)),
        interquartile_mean(table),
        low,
        high,
        runs,
    )


def standard_error(values: Floats) -> float:
    """Return the standard error of the mean of `values`; NaN for fewer than two."""
    if len(values) < FEWEST:
        return math.nan
    return float(values.std(ddof=1) / math.sqrt(len(values)))


def difference_interval(
    first: npt.ArrayLike, second: npt.ArrayLike, resampling: Resampling | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of the mean of `second` minus that of `first`.

    Both are tables ``[runs, strata]`` with the same strata; runs are drawn in each on their own.
    NaN if one of them has a single run.
    """
    resampling = resampling or Resampling()
    tables = [as_numbers(one, "scores").astype(np.float64) for one in (first, second)]
    if min(len(table) for table in tables) < FEWEST:
        return math.nan, math.nan
    means = []
    for stream, table in enumerate(tables):
        runs, strata = table.shape
        drawn = _draws(runs, strata, resampling, stream).reshape(resampling.count, -1)
        means.append(drawn @ table.T.reshape(-1) / table.size)
    low, high = _bounds((means[1] - means[0])[:, None])
    return float(low[0]), float(high[0])


@_beyond
def column_estimates(
    values: npt.ArrayLike, resampling: Resampling | None = None
) -> dict[str, npt.NDArray[np.float64]]:
    """Estimate every column of ``[runs, points]`` alone; runs that are NaN there are left out.

    Returns
    -------
    dict
        The fields of `Estimate`, each ``[points]``.
    """
    table = as_numbers(values, "values").astype(np.float64)
    resampling = resampling or Resampling()
    present = ~np.isnan(table)
    counts = present.sum(axis=0)
    names = ("mean", "standard_error", "middle", "low", "high")
    estimates = {name: np.full(table.shape[1], np.nan) for name in names}
    for runs in np.unique(counts[counts > 0]):
        columns = np.flatnonzero(counts == runs)
        # NaN sorts to the end, so the first rows are the runs that are there.
        ordered = np.sort(table[:, columns], axis=0)[:runs]
        cut = int(CUT * runs)
        estimates["mean"][columns] = ordered.mean(axis=0)
        estimates["middle"][columns] = ordered[cut : runs - cut].mean(axis=0)
        if runs < FEWEST:
            continue
        estimates["standard_error"][columns] = ordered.std(axis=0, ddof=1) / math.sqrt(runs)
        # Runs are drawn alike whatever their order, so one set of draws serves every column.
        drawn = _draws(runs, 1, resampling)[:, 0]
        means = _middle_weights(drawn) @ ordered
        estimates["low"][columns], estimates["high"][columns] = _bounds(means)
    return {**estimates, "runs": counts.astype(np.float64)}


def _interval(table: Floats, resampling: Resampling) -> tuple[float, float]:
    runs, strata = table.shape
    if runs < FEWEST:
        return math.nan, math.nan
    drawn = _draws(runs, strata, resampling).reshape(resampling.count, -1)
    flat = table.T.reshape(-1)
    order = np.argsort(flat, kind="stable")
    low, high = _bounds((_middle_weights(drawn[:, order]) @ flat[order])[:, None])
    return float(low[0]), float(high[0])


@lru_cache(maxsize=32)  # every point of a curve asks for the same
def _draws(
    runs: int, strata: int, resampling: Resampling, stream: int = 0
) -> npt.NDArray[np.int64]:
    """How often each run is drawn, ``[resamples, strata, runs]``; streams are independent."""
    generator = np.random.default_rng([resampling.seed, stream])
    shares = np.full(runs, 1.0 / runs)
    drawn: npt.NDArray[np.int64] = generator.multinomial(
        runs, shares, size=(resampling.count, strata)
    )
    drawn.flags.writeable = False
    return drawn


def _middle_weights(drawn: npt.NDArray[np.int64]) -> Floats:
    """Weights that make the interquartile mean of each sample from the scores in order.

    `drawn` says how often each score, from the smallest on, is in the sample: so it fills the
    places up to its running total, of which those in the middle half count.
    """
    last = np.cumsum(drawn, axis=1)
    total = int(last[0, -1])
    cut = int(CUT * total)
    inside = np.clip(last, cut, total - cut)
    weights: Floats = np.diff(inside, axis=1, prepend=cut) / (total - 2 * cut)
    return weights


def _bounds(means: Floats) -> tuple[Floats, Floats]:
    tail = 100 * (1 - LEVEL) / 2
    low, high = np.percentile(means, [tail, 100 - tail], axis=0)
    return low, high
