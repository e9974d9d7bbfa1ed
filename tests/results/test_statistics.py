"""Means and intervals against scipy, and against samples whose answer is known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from everlearn.results.statistics import (
    NOTHING,
    Resampling,
    column_estimates,
    difference_interval,
    estimate,
    interquartile_mean,
)
from everlearn.support.errors import InvalidInputError

MANY = Resampling(20_000, seed=1)


def table(runs: int, tasks: int, seed: int = 0) -> np.ndarray:
    """Success rates: many are equal, as 5 episodes give 6 values only."""
    generator = np.random.default_rng(seed)
    return generator.binomial(5, generator.uniform(0.1, 0.9, tasks), (runs, tasks)) / 5


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 7, 8, 42])
def test_the_interquartile_mean_is_scipys_trimmed_mean(count: int):
    values = np.random.default_rng(count).normal(size=count)
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25))


@pytest.mark.parametrize(("runs", "tasks"), [(2, 6), (3, 1), (7, 6), (20, 3)])
def test_the_stratified_interval_agrees_with_scipys_bootstrap(runs: int, tasks: int):
    scores = table(runs, tasks, seed=runs)
    found = estimate(scores, MANY)

    # scipy draws several samples independently: with one a task that is stratified.
    def middle(*columns: np.ndarray, axis: int) -> np.ndarray:
        return stats.trim_mean(np.concatenate(columns, axis=axis), 0.25, axis=axis)

    theirs = stats.bootstrap(
        tuple(scores.T),
        middle,
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=np.random.default_rng(2),
    ).confidence_interval
    # Two bootstraps differ by chance alone: here by up to a step between possible means.
    step = 0.4 / (scores.size - 2 * int(0.25 * scores.size))
    assert found.low == pytest.approx(theirs.low, abs=step)
    assert found.high == pytest.approx(theirs.high, abs=step)
    assert found.low < found.middle < found.high


def test_intervals_of_continuous_scores_agree_closely_with_scipy():
    scores = np.random.default_rng(3).normal(size=(12, 1))
    found = estimate(scores, MANY)
    theirs = stats.bootstrap(
        (scores[:, 0],),
        lambda x, axis: stats.trim_mean(x, 0.25, axis=axis),
        n_resamples=20_000,
        method="percentile",
        rng=np.random.default_rng(4),
    ).confidence_interval
    assert found.low == pytest.approx(theirs.low, abs=0.03)
    assert found.high == pytest.approx(theirs.high, abs=0.03)


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(5)
    inside = 0
    for trial in range(300):
        found = estimate(generator.normal(1.0, 1.0, (20, 6)), Resampling(300, trial))
        inside += found.low <= 1.0 <= found.high
    assert 0.90 <= inside / 300 <= 0.98


def test_mean_and_error_are_those_of_the_runs():
    scores = table(7, 6)
    found = estimate(scores)
    assert found.mean == pytest.approx(scores.mean())
    assert found.standard_error == pytest.approx(stats.sem(scores.mean(axis=1)))
    assert found.runs == 7


def test_one_run_has_no_error_and_no_interval():
    found = estimate([[0.2, 0.4]])
    assert (found.mean, found.runs) == (pytest.approx(0.3), 1)
    assert math.isnan(found.standard_error)
    assert math.isnan(found.low)
    assert math.isnan(found.high)
    assert estimate(np.zeros((0, 6))) == NOTHING


def test_equal_seeds_give_equal_intervals():
    scores = table(7, 6)
    assert estimate(scores, Resampling(500, 1)) == estimate(scores, Resampling(500, 1))
    assert estimate(scores, Resampling(500, 1)) != estimate(scores, Resampling(500, 2))


def test_columns_are_estimated_like_tables_of_one_task():
    values = np.random.default_rng(6).normal(size=(9, 5))
    values[7:, 1] = np.nan
    values[:, 2] = np.nan
    values[1:, 3] = np.nan
    found = column_estimates(values, MANY)
    np.testing.assert_array_equal(found["runs"], [9, 7, 0, 1, 9])
    for place, column in enumerate(values.T):
        there = column[~np.isnan(column)]
        if not len(there):
            assert all(math.isnan(found[name][place]) for name in ("mean", "middle", "low"))
            continue
        alone = estimate(there[:, None], MANY)
        for name in ("mean", "standard_error", "middle"):
            wanted = getattr(alone, name)
            assert found[name][place] == pytest.approx(wanted, nan_ok=True)
        assert found["low"][place] == pytest.approx(alone.low, abs=0.05, nan_ok=True)
        assert found["high"][place] == pytest.approx(alone.high, abs=0.05, nan_ok=True)


def test_differences_agree_with_scipy():
    generator = np.random.default_rng(7)
    first, second = generator.normal(size=(8, 1)), generator.normal(1.0, 1.0, (11, 1))
    low, high = difference_interval(first, second, MANY)
    theirs = stats.bootstrap(
        (first[:, 0], second[:, 0]),
        lambda a, b, axis: b.mean(axis=axis) - a.mean(axis=axis),
        n_resamples=20_000,
        method="percentile",
        vectorized=True,
        rng=generator,
    ).confidence_interval
    assert low == pytest.approx(theirs.low, abs=0.05)
    assert high == pytest.approx(theirs.high, abs=0.05)
    assert all(map(math.isnan, difference_interval(first[:1], second)))


@pytest.mark.parametrize("wrong", [[1.0, 2.0], [[np.nan]], [["a"]]])
def test_what_is_no_table_is_refused(wrong: object):
    with pytest.raises(InvalidInputError):
        estimate(wrong)  # type: ignore[arg-type]


def test_too_few_resamples_are_refused():
    with pytest.raises(InvalidInputError, match="resamples is 10"):
        Resampling(10)
