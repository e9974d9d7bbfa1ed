"""Cholesky factorisation of an active block, and solutions with the factor.

``A = U^T U`` with U above the diagonal, in place, by rows::

    S = A[i, i:] - sum over rows k before i of U[k, i] U[k, i:]       U[i, i:] = S / sqrt(S[0])

The sums are products of tiles (world_model/products.py), first over all rows before a block, while
their columns are in a near cache, then over those within it. Rows are padded, with ones on the
diagonal. What is below the diagonal is neither read nor kept.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from numba import get_num_threads, prange

from everlearn.interfaces import FloatArray
from everlearn.support.compiled import njit
from everlearn.world_model.products import ROWS, SUBTRACT, Place, product
from everlearn.world_model.step_kernels import FAST
from everlearn.world_model.vectors import LANES, aligned_zeros, padded

NARROW, WIDE = 32, 96
"""Rows of a block: of few in the second cache or the third, what is above them is read once."""

DEEP = 192
"""Rows above a block that are subtracted in one run."""

NEAR = 512
"""Rows of a matrix that lies in the second cache."""


def padded_shape(rows: int) -> tuple[int, int]:
    """Rows and columns that a block takes up.

    Columns are an odd number of vectors: rows a power of two apart would share one line of a cache.
    """
    vectors = -(-rows // LANES)
    return padded(rows, 8), (vectors + 1 - vectors % 2) * LANES


def room_for(rows: int, dtype: npt.DTypeLike) -> FloatArray:
    """Room for a block of so many rows, all zeros."""
    return aligned_zeros(padded_shape(rows), dtype)


@njit(cache=True)
def pad(matrix: Any, rows: int) -> None:
    """Make a block of `rows` rows one of all rows that there are: ones on the diagonal."""
    for r in range(matrix.shape[0]):
        matrix[r, rows if r < rows else 0 :] = 0
    for r in range(rows, matrix.shape[0]):
        matrix[r, r] = 1


@njit(cache=True, fastmath=FAST)
def _subtract_rows(
    matrix: Any, row: int, height: int, first: int, last: int, part: int, parts: int
) -> None:
    """Subtract what rows `first` to `last` contribute to `height` rows from `row` on.

    In one of so many parts of their columns.
    """
    flat, width = matrix.reshape(-1), matrix.shape[1]
    column = row // LANES * LANES
    vectors = (width - column) // LANES
    begin, end = part * vectors // parts, (part + 1) * vectors // parts
    column += begin * LANES
    place = Place(
        first * width + row,
        1,
        width,
        first * width + column,
        width,
        0,
        row * width + column,
        0,
        width,
    )
    shape = (height, last - first, end - begin)
    product((flat, flat, flat), flat, flat, place, shape, False, SUBTRACT)


@njit(cache=True, fastmath=FAST, error_model="numpy")
def _finish_rows(matrix: Any, row: int) -> int:
    """Turn `ROWS` rows, from which all rows before were subtracted, into rows of U."""
    for r in range(row, row + ROWS):
        pivot = matrix[r, r]
        if not pivot > 0:  # NaN is not
            return r + 1
        line = matrix[r, r:]
        scale = 1 / math.sqrt(pivot)
        for c in range(line.shape[0]):
            line[c] *= scale
        for after in range(r + 1, row + ROWS):
            other, factor = matrix[after, r:], matrix[r, after]
            for c in range(line.shape[0]):
                other[c] -= factor * line[c]
    return 0


@njit(cache=True, fastmath=FAST)
def _finish_block(matrix: Any, top: int, bottom: int) -> int:
    """Turn rows, from which all rows before `top` were subtracted, into rows of U."""
    for row in range(top, bottom, ROWS):
        if row > top:
            _subtract_rows(matrix, row, ROWS, top, row, 0, 1)
        failed = _finish_rows(matrix, row)
        if failed:
            return failed
    return 0


@njit(cache=True, fastmath=FAST)
def _factorise_near(matrix: Any) -> int:
    """Factorise a matrix that lies in the second cache."""
    rows = matrix.shape[0]
    for top in range(0, rows, NARROW):
        bottom = min(top + NARROW, rows)
        if top:
            _subtract_rows(matrix, top, bottom - top, 0, top, 0, 1)
        failed = _finish_block(matrix, top, bottom)
        if failed:
            return failed
    return 0


@njit(cache=True, parallel=True, fastmath=FAST)
def _factorise_far(matrix: Any, threads: int) -> int:
    """Factorise a larger one; threads share the columns, which changes no bit."""
    rows = matrix.shape[0]
    for top in range(0, rows, WIDE):
        bottom = min(top + WIDE, rows)
        if top:
            for thread in prange(threads):
                # In runs that lie in the second cache; the order of the sums stays the same.
                for first in range(0, top, DEEP):
                    last = min(first + DEEP, top)
                    part = np.int64(thread)
                    _subtract_rows(matrix, top, bottom - top, first, last, part, threads)
        failed = _finish_block(matrix, top, bottom)
        if failed:
            return failed
    return 0


def factorise(matrix: FloatArray) -> int:
    """Factorise in place; return 0, or which row's pivot is not positive, counted from 1."""
    if len(matrix) <= NEAR:
        return int(_factorise_near(matrix))
    return int(_factorise_far(matrix, get_num_threads()))


@njit(cache=True, fastmath=FAST, error_model="numpy")
def solve(factor: Any, right: Any) -> None:
    """``right <- A^-1 right``, forwards through ``U^T`` and backwards through ``U``."""
    rows, width = factor.shape
    columns = right.shape[1]
    flat, out = factor.reshape(-1), right.reshape(-1)
    vectors = columns // LANES
    for row in range(0, rows, ROWS):
        place = Place(row, 1, width, 0, columns, 0, row * columns, 0, columns)
        product((flat, out, out), out, out, place, (ROWS, row, vectors), False, SUBTRACT)
        for r in range(row, row + ROWS):
            line = right[r]
            for k in range(row, r):
                factor_k, known = factor[k, r], right[k]
                for c in range(columns):
                    line[c] -= factor_k * known[c]
            scale = 1 / factor[r, r]
            for c in range(columns):
                line[c] *= scale
    for row in range(rows - ROWS, -1, -ROWS):
        after = row + ROWS
        place = Place(
            row * width + after, width, 1, after * columns, columns, 0, row * columns, 0, columns
        )
        if after < rows:
            shape = (ROWS, rows - after, vectors)
            product((flat, out, out), out, out, place, shape, False, SUBTRACT)
        for r in range(after - 1, row - 1, -1):
            line = right[r]
            for k in range(r + 1, after):
                factor_k, known = factor[r, k], right[k]
                for c in range(columns):
                    line[c] -= factor_k * known[c]
            scale = 1 / factor[r, r]
            for c in range(columns):
                line[c] *= scale


def solution(factor: FloatArray, right: FloatArray) -> FloatArray:
    """Return ``A^-1 right`` for ``right[N, L]``, L a number of whole vectors, in its precision."""
    rows, columns = right.shape
    out = np.zeros((len(factor), columns), factor.dtype)
    out[:rows] = right
    solve(factor, out)
    return out[:rows]
