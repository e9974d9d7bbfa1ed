"""Profiles and probabilities of improvement, against tables worked out by hand."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from everlearn.results.profiles import performance_profile, probability_of_improvement
from everlearn.results.statistics import Resampling
from everlearn.support.errors import InvalidInputError


def test_a_profile_by_hand() -> None:
    scores = [[0.0, 0.5], [1.0, 0.5]]
    profile = performance_profile(scores, [0.0, 0.25, 0.5, 0.75, 1.0])
    np.testing.assert_allclose(profile.share, [1, 0.75, 0.75, 0.25, 0.25])
    assert (profile.low <= profile.share).all()
    assert (profile.share <= profile.high).all()
    single = performance_profile(scores[:1], [0.25])
    assert single.share == [0.5]
    assert np.isnan(single.low).all()


def test_a_probability_by_hand() -> None:
    # Task one: 3 beats 1 and 2, 1 ties with 1 and loses to 2. Task two: always better.
    found = probability_of_improvement([[3, 9], [1, 8]], [[1, 0], [2, 1]])
    assert found.probability == pytest.approx(((1 + 1 + 0.5 + 0) / 4 + 1) / 2)
    other = probability_of_improvement([[1, 0], [2, 1]], [[3, 9], [1, 8]])
    assert other.probability == pytest.approx(1 - found.probability)
    assert np.isnan(probability_of_improvement([[1.0]], [[0.0], [2.0]]).low)


def test_intervals_are_those_of_all_resamples() -> None:
    """With two runs and one task there are few resamples, which can be listed."""
    mine, theirs = np.array([[0.2], [0.8]]), np.array([[0.1], [0.5]])
    draws = list(itertools.product(range(2), repeat=2))
    means = sorted(
        np.mean([mine[i, 0] > theirs[j, 0] for i in first for j in second])
        for first in draws
        for second in draws
    )
    found = probability_of_improvement(mine, theirs, Resampling(20_000))
    low, high = np.percentile(means, [2.5, 97.5], method="inverted_cdf")
    assert (found.low, found.high) == (low, high)


@pytest.mark.parametrize("scores", [[], [1.0, 2.0], [[np.nan]]])
def test_tables_with_gaps_are_refused(scores: object) -> None:
    with pytest.raises(InvalidInputError, match=r"\[runs, tasks\]"):
        performance_profile(scores, [0.5])
    with pytest.raises(InvalidInputError, match="tasks"):
        probability_of_improvement([[1.0, 2.0]], [[1.0]])
