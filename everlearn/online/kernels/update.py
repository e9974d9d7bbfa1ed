"""Compiled parts of the online update (equation 5; see ridge.py).

Symbols as in the paper: ``A = sum phi phi^T``, ``B = sum phi y^T``, ``W`` the weights, ``s``
the active cells. Rows of ``A`` are compact (one for each cell in use), columns are cells: a new
cell adds a row and moves nothing, and the corners of a grid come in pairs of neighbours, which
are read and written two at a time.

An update touches ``A_ss`` (1200 x 1200 numbers in the paper, spread over as many far-apart rows)
and the rows of ``A`` whose residual is not known. Both wait for memory, not for arithmetic: rows
to come are prefetched, and four rows are multiplied by ``W`` together, which reads it once.

Sums over many cells are gathered in short runs of the storage type and added up in float64:
in float32 a plain sum over ten thousand cells would bury the residual it computes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange
from numba.core import cgutils, types
from numba.extending import intrinsic

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import FAST
from everlearn.world_model.vectors import LANES, Vectors

RUN = 64
"""Cells summed in the storage type before the sum goes to float64."""

ROWS = 4
"""Rows of A handled together, so that weights are loaded once for all of them."""


@intrinsic
def subtract_run(
    typingctx: Any,
    out: Any,
    matrix: Any,
    rows: Any,
    columns: Any,
    first: Any,
    last: Any,
    weights: Any,
    vectors: Any,
) -> Any:
    """``out[n] -= sum_j matrix[rows[n], columns[j]] * weights[columns[j]]``, j in a run.

    The run is summed in the type of the weights, in registers, then subtracted in float64.
    `rows` and `vectors` are tuples: their lengths are known when this is compiled.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_, matrix_, rows_, columns_, first_, last_, weights_, _ = args
        v = Vectors(context, builder, weights.dtype)
        index = first_.type
        zero = ir.Constant(index, 0)
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        sources = [
            v.pointer(matrix, matrix_, [row, zero]) for row in cgutils.unpack_tuple(builder, rows_)
        ]
        table = v.pointer(weights, weights_, [zero, zero])
        width = ir.Constant(index, len(vectors) * LANES)
        totals = [
            [cgutils.alloca_once_value(builder, v.constant(0.0)) for _ in lanes] for _ in sources
        ]
        for total in (one for row in totals for one in row):
            builder.store(v.constant(0.0), total)
        pointer = v.pointer(columns, columns_, [zero])
        with cgutils.for_range(builder, last_, start=first_) as loop:
            column = builder.load(builder.gep(pointer, [loop.index]))
            source = builder.gep(table, [builder.mul(column, width)])
            loaded = [v.load(builder.gep(source, [lane])) for lane in lanes]
            for row, line in zip(sources, totals, strict=True):
                splat = v.splat(builder.load(builder.gep(row, [column])))
                for value, total in zip(loaded, line, strict=True):
                    builder.store(v.fma(splat, value, builder.load(total)), total)
        wide = ir.VectorType(ir.DoubleType(), LANES)
        for n, line in enumerate(totals):
            for lane, total in zip(lanes, line, strict=True):
                target = v.pointer(out, out_, [ir.Constant(index, n), lane])
                value = builder.load(total)
                value = value if v.double else builder.fpext(value, wide)
                v.store(builder.fsub(v.load(target, wide), value), target)
        return context.get_dummy_value()

    signature = types.void(out, matrix, rows, columns, types.intp, types.intp, weights, vectors)
    return signature, codegen


@intrinsic
def accumulate_row(
    typingctx: Any,
    products: Any,
    row: Any,
    following: Any,
    cells: Any,
    values: Any,
    value: Any,
    gathered: Any,
) -> Any:
    """``products[row, cells] += value * values``, and the sums into `gathered`, in order.

    Corners come in pairs of neighbouring cells, so two numbers go at a time. Rows are far
    apart in memory: the cells of row `following` are called up while this one is worked on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        products_, row_, following_, cells_, values_, value_, gathered_ = args
        v = Vectors(context, builder, products.dtype)
        index = row_.type
        zero, one = ir.Constant(index, 0), ir.Constant(index, 1)
        pair = ir.VectorType(v.scalar, 2)
        size = v.scalar
        line = v.pointer(products, products_, [row_, zero])
        coming = v.pointer(products, products_, [following_, zero])
        cell_pointer = v.pointer(cells, cells_, [zero])
        factors = v.pointer(values, values_, [zero])
        target = v.pointer(gathered, gathered_, [zero])
        splat = ir.Constant(pair, ir.Undefined)
        for n in range(2):
            splat = builder.insert_element(splat, value_, ir.Constant(ir.IntType(32), n))
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        muladd = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(pair, [pair] * 3),
            f"llvm.fmuladd.v2f{64 if str(size) == 'double' else 32}",
        )
        count = builder.lshr(v.shape(cells, cells_, 0), one)
        with cgutils.for_range(builder, count) as loop:
            k = builder.shl(loop.index, one)
            cell = builder.load(builder.gep(cell_pointer, [k]))
            pointer = builder.gep(line, [cell])
            added = v.load(builder.gep(factors, [k]), pair)
            total = builder.call(muladd, [splat, added, v.load(pointer, pair)])
            v.store(total, pointer)
            v.store(total, builder.gep(target, [k]))
            ahead = builder.bitcast(builder.gep(coming, [cell]), byte)
            # For writing, into the nearest cache, data.
            builder.call(prefetch, [ahead] + [ir.Constant(flag, n) for n in (1, 3, 1)])
        return context.get_dummy_value()

    signature = types.void(
        products, types.intp, types.intp, cells, values, products.dtype, gathered
    )
    return signature, codegen


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
