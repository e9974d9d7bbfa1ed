"""Factors and solutions of the kernel, against LAPACK in float64."""

from __future__ import annotations

import numpy as np
import pytest

from everlearn.online.kernels import cholesky


def block(rows: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """A positive definite matrix, and its upper half with room for whole vectors."""
    values = np.random.default_rng(rows).normal(size=(rows, rows + 5))
    matrix = (values @ values.T + np.eye(rows)).astype(dtype)
    room = cholesky.room_for(rows, dtype)
    room[:rows, :rows] = np.triu(matrix)
    cholesky.pad(room, rows)
    return matrix, room


# Less than a tile, whole vectors, a power of two, more than one block, and a matrix that is far.
@pytest.mark.parametrize("rows", [1, 7, 16, 64, 100, 530])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("float64", 1e-11)])
def test_factor_and_solution_are_lapacks(rows: int, dtype: str, tolerance: float) -> None:
    matrix, room = block(rows, dtype)
    assert cholesky.factorise(room) == 0
    expected = np.linalg.cholesky(matrix.astype(np.float64)).T
    scale = np.abs(expected).max()
    np.testing.assert_allclose(np.triu(room[:rows, :rows]), expected, atol=tolerance * scale)
    right = np.random.default_rng(0).normal(size=(rows, 32))
    found = cholesky.solution(room, right)
    assert found.dtype == dtype
    left = matrix.astype(np.float64) @ found - right
    assert np.abs(left).max() < tolerance * np.abs(matrix).max() * np.abs(found).max()


@pytest.mark.parametrize("rows", [100, 530])
@pytest.mark.parametrize("wrong", [-1e6, np.nan])
def test_a_matrix_that_is_not_positive_definite_has_no_factor(rows: int, wrong: float) -> None:
    _, room = block(rows, "float32")
    room[50, 50] = wrong
    assert cholesky.factorise(room) == 51  # counted from 1


@pytest.mark.parametrize("threads", [2, 3])
def test_bits_do_not_depend_on_threads(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    factors = []
    for count in (1, threads):
        monkeypatch.setattr(cholesky, "get_num_threads", lambda count=count: count)
        _, room = block(530, "float32")
        assert cholesky.factorise(room) == 0
        factors.append(np.triu(room))
    np.testing.assert_array_equal(*factors)
