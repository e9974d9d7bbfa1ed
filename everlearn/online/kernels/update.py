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

from everlearn.online.kernels.update_simd import accumulate_row, subtract_run
from everlearn.world_model.step_kernels import FAST

RUN = 64
"""Cells summed in the storage type before the sum goes to float64."""

ROWS = 4
"""Rows of A handled together, so that weights are loaded once for all of them."""


@njit(cache=True, parallel=True)
def accumulate(
    products: Any, rows: Any, cells: Any, values: Any, gathered: Any, factor: Any
) -> None:
    """``A_ss += phi phi^T``, and the new ``A_ss`` into `gathered` and (upper half) `factor`."""
    active = cells.shape[0]
    for r in prange(active):
        following = rows[min(r + 1, active - 1)]
        line = gathered[r]
        accumulate_row(products, rows[r], following, cells, values, values[r], line)
        for k in range(r, active):
            factor[r, k] = line[k]


@njit(cache=True, parallel=True)
def gather(products: Any, rows: Any, cells: Any, gathered: Any, factor: Any) -> None:
    """``A_ss`` into `gathered` and (upper half) `factor`, as `accumulate` without a sample."""
    active = cells.shape[0]
    for r in prange(active):
        row = products[rows[r]]
        for k in range(active):
            gathered[r, k] = row[np.uint32(cells[k])]
        for k in range(r, active):
            factor[r, k] = gathered[r, k]


@njit(cache=True, parallel=True)
def accumulate_batch(products: Any, rows: Any, cells: Any, values: Any, corners: int) -> None:
    """Add many samples, ``A += sum phi phi^T``; a thread owns all rows of a grid."""
    samples, active = cells.shape
    for grid in prange(active // corners):
        line = np.empty(active, products.dtype)
        for n in range(samples):
            for r in range(grid * corners, (grid + 1) * corners):
                following = rows[n, min(r + 1, active - 1)]
                accumulate_row(
                    products, rows[n, r], following, cells[n], values[n], values[n, r], line
                )


@njit(cache=True, parallel=True)
def subtract_products(
    matrix: Any, rows: Any, columns: Any, weights: Any, out: Any, vectors: Any
) -> None:
    """``out[n] -= matrix[rows[n]] . weights`` over `columns`, with ``out[N, L]`` in float64.

    `vectors` is a tuple as long as a row of weights has vectors.
    """
    count = rows.shape[0]
    used = columns.shape[0]
    for group in prange((count + ROWS - 1) // ROWS):
        start = group * ROWS
        # The last group may be short: it repeats its last row, into parts nobody reads.
        last = count - 1
        four = (
            rows[start],
            rows[min(start + 1, last)],
            rows[min(start + 2, last)],
            rows[min(start + 3, last)],
        )
        part = np.zeros((ROWS, out.shape[1]))
        for first in range(0, used, RUN):
            stop = min(first + RUN, used)
            subtract_run(part, matrix, four, columns, first, stop, weights, vectors)
        for n in range(start, min(start + ROWS, count)):
            for o in range(out.shape[1]):
                out[n, o] += part[n - start, o]


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
