"""Compiled parts of the online update.

Symbols as in the paper: ``A = sum phi phi^T``, ``B = sum phi y^T``, ``W`` the weights, ``s``
the active cells. Rows of ``A`` are compact (one for each cell in use), columns are cells, so
that the cells of one grid lie side by side and a row grows no longer.

Sums over many cells are gathered in short runs of the storage type and added up in float64:
in float32 a plain sum over ten thousand cells would bury the residual it computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange

from everlearn.models.kernels import FAST

RUN = 64
"""Cells summed in the storage type before the sum goes to float64."""

ROWS = 8
"""Rows of A handled together, so that a run of weights is loaded once for all of them."""


@njit(cache=True, parallel=True, fastmath=FAST)
def accumulate(
    products: Any, rows: Any, cells: Any, values: Any, gathered: Any, factor: Any
) -> None:
    """``A_ss += phi phi^T``, and the new ``A_ss`` into `gathered` and (lower half) `factor`."""
    active = cells.shape[0]
    for r in prange(active):
        row = products[rows[r]]
        value = values[r]
        for k in range(active):
            cell = np.uint32(cells[k])
            total = row[cell] + value * values[k]
            row[cell] = total
            gathered[r, k] = total
        for k in range(r + 1):
            factor[r, k] = gathered[r, k]


@njit(cache=True, parallel=True)
def gather(products: Any, rows: Any, cells: Any, gathered: Any, factor: Any) -> None:
    """``A_ss`` into `gathered` and (lower half) `factor`, as `accumulate` without a sample."""
    active = cells.shape[0]
    for r in prange(active):
        row = products[rows[r]]
        for k in range(active):
            gathered[r, k] = row[np.uint32(cells[k])]
        for k in range(r + 1):
            factor[r, k] = gathered[r, k]


@njit(cache=True, parallel=True, fastmath=FAST)
def accumulate_batch(products: Any, rows: Any, cells: Any, values: Any, corners: int) -> None:
    """Add many samples, ``A += sum phi phi^T``; a thread owns all rows of a grid."""
    samples, active = cells.shape
    for grid in prange(active // corners):
        for n in range(samples):
            for r in range(grid * corners, (grid + 1) * corners):
                row = products[rows[n, r]]
                value = values[n, r]
                for k in range(active):
                    row[np.uint32(cells[n, k])] += value * values[n, k]


@njit(cache=True, fastmath=FAST)
def _add_run(
    matrix: Any, row: int, columns: Any, first: int, last: int, weights: Any, out: Any
) -> None:
    """``out -= sum_j matrix[row, columns[j]] * weights[columns[j]]``, j from first to last."""
    width = weights.shape[1]
    part = np.zeros(width, weights.dtype)
    j = first
    while j + 4 <= last:
        c0 = np.uint32(columns[j])
        c1 = np.uint32(columns[j + 1])
        c2 = np.uint32(columns[j + 2])
        c3 = np.uint32(columns[j + 3])
        a0 = matrix[row, c0]
        a1 = matrix[row, c1]
        a2 = matrix[row, c2]
        a3 = matrix[row, c3]
        for lane in range(0, width, 16):
            for o in range(lane, lane + 16):
                part[o] += (
                    a0 * weights[c0, o]
                    + a1 * weights[c1, o]
                    + a2 * weights[c2, o]
                    + a3 * weights[c3, o]
                )
        j += 4
    while j < last:
        c0 = np.uint32(columns[j])
        a0 = matrix[row, c0]
        for o in range(width):
            part[o] += a0 * weights[c0, o]
        j += 1
    for o in range(width):
        out[o] -= part[o]


@njit(cache=True, parallel=True, fastmath=FAST)
def subtract_products(matrix: Any, rows: Any, columns: Any, weights: Any, out: Any) -> None:
    """``out[n] -= matrix[rows[n]] . weights`` over `columns`, with ``out[N, L]`` in float64."""
    count = rows.shape[0]
    used = columns.shape[0]
    for group in prange((count + 7) // 8):
        for first in range(0, used, 64):
            last = min(first + 64, used)
            for n in range(group * 8, min(group * 8 + 8, count)):
                _add_run(matrix, rows[n], columns, first, last, weights, out[n])


@njit(cache=True, fastmath=FAST)
def prediction(weights: Any, cells: Any, values: Any, out: Any) -> None:
    """``out = W^T phi`` of one input, in float64."""
    out[:] = 0
    for k in range(cells.shape[0]):
        for o in range(out.shape[0]):
            out[o] += np.float64(values[k]) * np.float64(weights[cells[k], o])


@njit(cache=True, fastmath=FAST)
def rounding_floor(matrix: Any, weights: Any, cells: Any) -> float:
    """``max_r sum_k |A_rk| max_o |W_ko|``: times epsilon, what rounding W can leave behind."""
    active = cells.shape[0]
    size = np.zeros(active, np.float32)
    for k in range(active):
        for o in range(weights.shape[1]):
            size[k] = max(size[k], np.float32(abs(weights[cells[k], o])))
    largest = 0.0
    for r in range(active):
        total = np.float32(0)
        for k in range(active):
            total += np.float32(abs(matrix[r, k])) * size[k]
        largest = max(largest, float(total))
    return largest
