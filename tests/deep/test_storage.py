"""What is kept: everything, the current task, or an even sample."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from everlearn.deep.strategies import Coreset
from everlearn.deep.strategies.storage import CurrentTask, Reservoir, Storage
from everlearn.support.errors import InvalidInputError

WIDTHS = {"obs": 3, "reward": 1}


def fill(storage: Storage, count: int, first: int = 0) -> None:
    for i in range(first, first + count):
        storage.add(obs=[i, i, i], reward=i)


def test_everything_grows_and_keeps_order() -> None:
    storage = Storage(WIDTHS)
    fill(storage, 3000)
    storage.end_task()
    fill(storage, 500, 3000)
    assert len(storage) == storage.seen == 3500
    np.testing.assert_array_equal(storage.column("reward")[:, 0], np.arange(3500))
    np.testing.assert_array_equal(storage.column("obs"), np.arange(3500)[:, None] * np.ones(3))


def test_the_current_task_is_dropped_at_its_end() -> None:
    storage = CurrentTask(WIDTHS)
    fill(storage, 40)
    storage.end_task()
    assert len(storage) == 0
    fill(storage, 5, 100)
    np.testing.assert_array_equal(storage.column("reward")[:, 0], np.arange(100, 105))
    assert storage.seen == 45


def test_the_reservoir_is_even_over_the_stream() -> None:
    length, capacity, streams = 25, 5, 10_000
    kept = np.zeros(length)
    for stream in range(streams):
        storage = Reservoir({"item": 1}, stream, capacity=capacity)
        for item in range(length):
            storage.add(item=item)
        items = storage.column("item")[:, 0].astype(int)
        assert len(np.unique(items)) == capacity
        kept[items] += 1
    share = capacity / length
    # Draws without replacement: their counts are correlated, which the factor makes up for.
    statistic = np.sum((kept - streams * share) ** 2) / (streams * share * (1 - share))
    statistic *= (length - 1) / length
    assert 1e-4 < stats.chi2.sf(statistic, length - 1) < 1 - 1e-4


def test_a_coreset_never_grows_past_its_capacity() -> None:
    storage = Coreset(capacity=50).storage(WIDTHS, 1)
    for i in range(2000):
        storage.add(obs=[i, i, i], reward=i)
    assert len(storage) == 50
    assert storage.seen == 2000
    obs, reward = storage.column("obs"), storage.column("reward")
    np.testing.assert_array_equal(obs, reward * np.ones(3))  # rows stay together
    assert reward.min() < 500
    assert reward.max() > 1500


def test_samples_are_even_rows() -> None:
    storage = Storage(WIDTHS)
    fill(storage, 20)
    sample = storage.sample(20_000, np.random.default_rng(0))
    assert sample["obs"].shape == (20_000, 3)
    np.testing.assert_array_equal(sample["obs"], sample["reward"] * np.ones(3))
    counts = np.bincount(sample["reward"][:, 0].astype(int), minlength=20)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_bad_rows_change_nothing() -> None:
    storage = Storage(WIDTHS)
    fill(storage, 2)
    for row in ({"obs": [1, 2, 3]}, {"obs": [1, 2], "reward": 1}, {"obs": [1, 2, 3], "cost": 1}):
        with pytest.raises(InvalidInputError, match="columns"):
            storage.add(**row)
    assert len(storage) == storage.seen == 2
    with pytest.raises(ValueError, match="read-only"):
        storage.column("obs")[0] = 1
    with pytest.raises(InvalidInputError, match="empty"):
        CurrentTask(WIDTHS).sample(1, np.random.default_rng(0))
    with pytest.raises(InvalidInputError, match="capacity"):
        Coreset(capacity=0)
