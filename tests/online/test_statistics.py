"""The statistics against dense sums of outer products."""

from __future__ import annotations

import numpy as np
import pytest

from everlearn.online.statistics import Statistics
from everlearn.support.errors import MemoryLimitError

CELLS, OUTPUTS = 301, 16


def samples(count: int, active: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Cells, values and targets; later samples reach further, so that cells keep coming."""
    rng = np.random.default_rng(seed)
    reach = np.linspace(active, CELLS, count).astype(int)
    cells = np.array([rng.permutation(most)[:active] for most in reach])
    return cells, rng.uniform(0, 1, cells.shape), rng.normal(size=(count, OUTPUTS))


def dense(cells: np.ndarray, values: np.ndarray) -> np.ndarray:
    features = np.zeros((len(cells), CELLS))
    np.put_along_axis(features, cells, values, axis=1)
    return features.T @ features


@pytest.mark.parametrize("active", [1, 6, 23])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_and_files_hold_the_sums_of_the_cells_in_use(active: int, threads: int) -> None:
    statistics = Statistics(CELLS, OUTPUTS, np.float64, None)
    cells, values, targets = samples(40, active)
    for part in np.array_split(np.arange(40), 7):  # new cells come in the middle of a tile
        statistics.add(cells[part], values[part], targets[part], threads)
    used = statistics.cells
    np.testing.assert_array_equal(np.sort(used), np.unique(cells))
    expected = dense(cells, values)[np.ix_(used, used)]
    np.testing.assert_allclose(statistics.rows(), expected, atol=1e-12)
    np.testing.assert_allclose(statistics.rows(3, 5), expected[3:5], atol=1e-12)
    np.testing.assert_allclose(np.tril(statistics.lower_half()), np.tril(expected), atol=1e-12)
    upper = np.zeros(expected.shape)
    statistics.copy_upper_half(upper)
    np.testing.assert_allclose(upper, np.triu(expected), atol=1e-12)
    weights = np.random.default_rng(1).normal(size=(len(used), statistics.targets.shape[1]))
    residual = statistics.targets[: len(used)] - expected @ weights - 0.5 * weights
    np.testing.assert_allclose(statistics.residual(0.5, weights), residual, atol=1e-10)
    diagonal = statistics.diagonal(np.arange(len(used)))
    np.testing.assert_allclose(diagonal, np.diag(expected), atol=1e-12)
    # What files of every version hold: the upper half, row by row.
    packed = statistics.packed()
    np.testing.assert_allclose(packed, expected[np.triu_indices(len(used))], atol=1e-12)
    again = Statistics(CELLS, OUTPUTS, np.float64, None)
    again.unpack(used, packed, statistics.targets[: len(used)])
    np.testing.assert_array_equal(again.tiles, statistics.tiles)
    np.testing.assert_array_equal(again.targets, statistics.targets)
    single = Statistics(CELLS, OUTPUTS, np.float32, None)
    single.take_over(statistics)
    np.testing.assert_array_equal(single.rows(), statistics.rows().astype(np.float32))


def test_memory_grows_with_the_cells_in_use_and_stops_at_the_limit() -> None:
    free = Statistics(CELLS, OUTPUTS, np.float32, None)
    half_of_all = 4 * CELLS * CELLS / 2 + 8 * CELLS * OUTPUTS
    assert free.bytes_of(CELLS) < 1.05 * half_of_all
    assert free.bytes_of(CELLS // 3) < free.bytes_of(CELLS) / 5
    limited = Statistics(CELLS, OUTPUTS, np.float32, free.bytes_of(20))
    assert len(limited.admit(np.arange(20))) == 20
    with pytest.raises(MemoryLimitError, match="24 cells in use"):
        limited.admit(np.arange(4, 24))
    assert limited.used == 20
    assert not (limited.position_of[20:] >= 0).any()
