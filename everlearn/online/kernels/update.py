"""Compiled parts of the online update (equation 5; see ridge.py).

Symbols as in the paper: ``A = sum phi phi^T``, ``B = sum phi y^T``, ``W`` the weights, ``s``
the active cells. A cell in use has a position, in the order of first use, and ``A`` over
positions is symmetric: its lower half is stored, in tiles of 4 x 4 numbers (a cache line in
float32), one row of tiles after the other. A new cell adds to the end and moves nothing::

    tile (I, J), J <= I, is number I (I + 1) / 2 + J and holds A[4 I + a, 4 J + b] at 4 a + b

An update touches ``A_ss`` (1200 x 1200 numbers in the paper) and the rows of ``A`` whose residual
is not known. Both wait for memory, not for arithmetic. A sample adds to a tile with one
multiplication of vectors; cells that came into use together share tiles, and are often active
together. Tiles to come are prefetched, and four rows are multiplied by ``W`` together, which reads
it once.

Sums over many cells are gathered in short runs of the storage type and added up in float64:
in float32 a plain sum over ten thousand cells would bury the residual it computes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import prange
from numba.core import cgutils, types
from numba.extending import intrinsic

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import FAST
from everlearn.world_model.vectors import LANES, Vectors

SIDE = 4
"""Rows and columns of a tile: a vector holds one."""

RUN = 64
"""Cells summed in the storage type before the sum goes to float64."""

ROWS = 4
"""Rows of A handled together, so that weights are loaded once for all of them."""

AHEAD = 8
"""Rows between the one that is worked on and the one that is called up from memory."""

ALONG, DOWN, EITHER = (), (0,), (0, 0)
"""How tiles of a run are read; the lengths are known when kernels are compiled."""

BLOCK = 32
"""Rows and columns of a dense matrix transposed at a time."""


@njit(cache=True)
def first_tile(row: Any) -> Any:
    """Return the number of the first tile in a row of tiles: how many come before."""
    return row * (row + 1) // 2


def prefetching(builder: Any) -> Callable[[Any, int], None]:
    """Return what calls up an address for reading (0) or writing (1), into the nearest cache."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")

    def prefetch(pointer: Any, write: int) -> None:
        flags = [ir.Constant(flag, n) for n in (write, 3, 1)]
        builder.call(function, [builder.bitcast(pointer, byte), *flags])

    return prefetch


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
def subtract_tiles(
    typingctx: Any,
    out: Any,
    tiles: Any,
    positions: Any,
    coming: Any,
    further: Any,
    first: Any,
    last: Any,
    weights: Any,
    vectors: Any,
    lie: Any,
) -> Any:
    """``out[n] -= A[positions[n], run] . weights`` over the columns of tiles `first` to `last`.

    ``weights[RUN, L]`` are those of the run alone. As in `subtract_run`, the run is summed in the
    type of the weights. Rows of tiles up to the row's own are read along the row, later ones
    down the column, and lie far apart: `lie` is `ALONG` or `DOWN` where all do, or `EITHER`.
    Those of the rows `coming` are called up meanwhile, in the run that begins `further` on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_, tiles_, positions_, coming_, further_, first_, last_, weights_, _, _ = args
        v = Vectors(context, builder, weights.dtype)
        index = first_.type

        def number(value: int) -> Any:
            return ir.Constant(index, value)

        def before(row: Any) -> Any:
            """Tiles before a row of them."""
            return builder.lshr(builder.mul(row, builder.add(row, number(1))), number(1))

        lanes = [number(n * LANES) for n in range(len(vectors))]
        base = v.pointer(tiles, tiles_, [number(0), number(0)])
        table = v.pointer(weights, weights_, [number(0), number(0)])
        coming_last = builder.add(last_, further_)
        rows = []
        for position in cgutils.unpack_tuple(builder, positions_):
            row = builder.lshr(position, number(2))
            rows.append((row, before(row), builder.and_(position, number(SIDE - 1))))
        called = []
        for position in cgutils.unpack_tuple(builder, coming_):
            row = builder.lshr(position, number(2))
            called.append((row, before(row), builder.icmp_signed("<=", coming_last, row)))
        totals = [[cgutils.alloca_once(builder, v.vector) for _ in lanes] for _ in rows]
        for total in (one for line in totals for one in line):
            builder.store(v.constant(0.0), total)
        prefetch = prefetching(builder)
        with cgutils.for_range(builder, last_, start=first_) as loop:
            column = loop.index
            column_before = before(column)
            coming_column = builder.add(column, further_)
            coming_before = before(coming_column)
            for row, row_before, along in called:
                tile = builder.select(
                    along,
                    builder.add(row_before, coming_column),
                    builder.add(coming_before, row),
                )
                prefetch(builder.gep(base, [builder.mul(tile, number(LANES))]), 0)
            sources, steps = [], []
            for row, row_before, place in rows:
                in_row = builder.add(row_before, column)
                in_column = builder.add(column_before, row)
                place_in_row = builder.mul(place, number(SIDE))
                if len(lie) == len(ALONG):
                    tile, offset, step = in_row, place_in_row, number(1)
                elif len(lie) == len(DOWN):
                    tile, offset, step = in_column, place, number(SIDE)
                else:
                    along = builder.icmp_signed("<=", column, row)
                    tile = builder.select(along, in_row, in_column)
                    offset = builder.select(along, place_in_row, place)
                    step = builder.select(along, number(1), number(SIDE))
                entry = builder.add(builder.mul(tile, number(LANES)), offset)
                sources.append(builder.gep(base, [entry]))
                steps.append(step)
            inside = builder.mul(builder.sub(column, first_), number(SIDE))
            for n in range(SIDE):
                cell = builder.mul(builder.add(inside, number(n)), number(len(vectors) * LANES))
                loaded = [v.load(builder.gep(table, [builder.add(cell, lane)])) for lane in lanes]
                for source, step, line in zip(sources, steps, totals, strict=True):
                    entry = builder.gep(source, [builder.mul(step, number(n))])
                    splat = v.splat(builder.load(entry))
                    for value, total in zip(loaded, line, strict=True):
                        builder.store(v.fma(splat, value, builder.load(total)), total)
        wide = ir.VectorType(ir.DoubleType(), LANES)
        for n, line in enumerate(totals):
            for lane, total in zip(lanes, line, strict=True):
                target = v.pointer(out, out_, [number(n), lane])
                value = builder.load(total)
                value = value if v.double else builder.fpext(value, wide)
                v.store(builder.fsub(v.load(target, wide), value), target)
        return context.get_dummy_value()

    whole = types.intp
    given = (out, tiles, positions, coming, whole, whole, whole, weights, vectors, lie)
    return types.void(*given), codegen


@intrinsic
def add_to_tiles(
    typingctx: Any, tiles: Any, row: Any, following: Any, columns: Any, left: Any, right: Any
) -> Any:
    """``tiles[row + columns[n]] += left * right[n]``, all n; `row` and `following` are first tiles.

    Rows of tiles are far apart in memory: those of `following` are called up meanwhile.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tiles_, row_, following_, columns_, left_, right_ = args
        v = Vectors(context, builder, tiles.dtype)
        zero = ir.Constant(row_.type, 0)
        line = v.pointer(tiles, tiles_, [row_, zero])
        coming = v.pointer(tiles, tiles_, [following_, zero])
        numbers = v.pointer(columns, columns_, [zero])
        factor = v.load(v.pointer(left, left_, [zero]))
        others = v.pointer(right, right_, [zero, zero])
        lanes = ir.Constant(row_.type, LANES)
        prefetch = prefetching(builder)
        with cgutils.for_range(builder, v.shape(columns, columns_, 0)) as loop:
            place = builder.mul(builder.load(builder.gep(numbers, [loop.index])), lanes)
            pointer = builder.gep(line, [place])
            other = v.load(builder.gep(others, [builder.mul(loop.index, lanes)]))
            v.store(v.fma(factor, other, v.load(pointer)), pointer)
            prefetch(builder.gep(coming, [place]), 1)
        return context.get_dummy_value()

    return types.void(tiles, types.intp, types.intp, columns, left, right), codegen


@intrinsic
def gather(typingctx: Any, tiles: Any, tile: Any, place: Any, offsets: Any, out: Any) -> Any:
    """``out[k]`` is the number `place` plus ``offsets[k]`` numbers past the start of `tile`."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        tiles_, tile_, place_, offsets_, out_ = args
        v = Vectors(context, builder, tiles.dtype)
        zero = ir.Constant(tile_.type, 0)
        source = v.pointer(tiles, tiles_, [tile_, place_])
        numbers = v.pointer(offsets, offsets_, [zero])
        target = v.pointer(out, out_, [zero])
        with cgutils.for_range(builder, v.shape(offsets, offsets_, 0)) as loop:
            offset = builder.load(builder.gep(numbers, [loop.index]))
            value = builder.load(builder.gep(source, [offset]))
            builder.store(value, builder.gep(target, [loop.index]))
        return context.get_dummy_value()

    return types.void(tiles, types.intp, types.intp, offsets, out), codegen


@njit(cache=True)
def shares(positions: Any, values: Any) -> Any:
    """Rows of tiles that a sample touches, in descending order like `positions`.

    Returns their numbers ``[M]``, where in `positions` each begins ``[M + 1]``, and the values of
    each as factors of a tile, repeated by row and by column: ``left[M, 16]``, ``right[M, 16]``.
    """
    active = positions.shape[0]
    rows = np.empty(active, np.int64)
    starts = np.empty(active + 1, np.int64)
    left = np.zeros((active, SIDE * SIDE), values.dtype)
    right = np.zeros((active, SIDE * SIDE), values.dtype)
    count = 0
    for k in range(active):
        row, place = positions[k] // SIDE, positions[k] % SIDE
        if count == 0 or rows[count - 1] != row:
            rows[count] = row
            starts[count] = k
            count += 1
        for n in range(SIDE):
            left[count - 1, SIDE * place + n] = values[k]
            right[count - 1, SIDE * n + place] = values[k]
    starts[count] = active
    return rows[:count], starts[: count + 1], left[:count], right[:count]


@njit(cache=True)
def _accumulate_share(tiles: Any, m: Any, rows: Any, left: Any, right: Any) -> None:
    """Add a sample to row ``rows[m]`` of tiles."""
    following = rows[min(m + 1, rows.shape[0] - 1)]
    add_to_tiles(tiles, first_tile(rows[m]), first_tile(following), rows[m:], left[m], right[m:])


@njit(cache=True, parallel=True)
def accumulate(tiles: Any, positions: Any, values: Any, gathered: Any, factor: Any) -> None:
    """``A_ss += phi phi^T``, and the new ``A_ss`` into `gathered` and (upper half) `factor`.

    `positions` are in descending order, so that the upper half is read along rows of tiles.
    """
    active = positions.shape[0]
    rows, starts, left, right = shares(positions, values)
    offsets = np.empty(active, np.int64)
    for k in range(active):
        offsets[k] = SIDE * SIDE * (positions[k] // SIDE) + positions[k] % SIDE
    count = rows.shape[0]
    # The first rows have the most tiles: each thread takes some from both ends.
    for half in prange((count + 1) // 2):
        # A parallel index is unsigned, which would make floats of sums with signed ones.
        near = np.int64(half)
        for m in range(near, count - near, max(1, count - 1 - 2 * near)):
            _accumulate_share(tiles, m, rows, left, right)
            for r in range(starts[m], starts[m + 1]):
                place = SIDE * (positions[r] % SIDE)
                gather(tiles, first_tile(rows[m]), place, offsets[r:], gathered[r, r:])
                factor[r, r:active] = gathered[r, r:]
    for block in prange((active + BLOCK - 1) // BLOCK):
        start = np.int64(block) * BLOCK
        stop = min(start + BLOCK, active)
        for first in range(0, stop, BLOCK):
            for r in range(start, stop):
                for k in range(first, min(first + BLOCK, r)):
                    gathered[r, k] = gathered[k, r]


@njit(cache=True, parallel=True)
def accumulate_batch(tiles: Any, positions: Any, values: Any, parts: int) -> None:
    """Add many samples, ``A += sum phi phi^T``; each part owns rows of tiles.

    `positions` of each sample are in descending order.
    """
    for thread in prange(parts):
        part = np.int64(thread)
        for n in range(positions.shape[0]):
            rows, _, left, right = shares(positions[n], values[n])
            for m in range(rows.shape[0]):
                if rows[m] % parts == part:
                    _accumulate_share(tiles, m, rows, left, right)


@intrinsic
def copy_row(typingctx: Any, source: Any, row: Any, out: Any, place: Any, vectors: Any) -> Any:
    """``out[place] = source[row]``, both as wide as the tuple `vectors` is long."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source_, row_, out_, place_, _ = args
        v = Vectors(context, builder, source.dtype)
        read = v.pointer(source, source_, [row_, ir.Constant(row_.type, 0)])
        write = v.pointer(out, out_, [place_, ir.Constant(row_.type, 0)])
        for n in range(len(vectors)):
            lane = [ir.Constant(row_.type, n * LANES)]
            v.store(v.load(builder.gep(read, lane)), builder.gep(write, lane))
        return context.get_dummy_value()

    return types.void(source, types.intp, out, types.intp, vectors), codegen


@njit(cache=True)
def _four(positions: Any, start: Any, end: Any) -> Any:
    """Positions from `start` on; the last one before `end` again where there are fewer."""
    last = end - 1
    return (
        positions[min(start, last)],
        positions[min(start + 1, last)],
        positions[min(start + 2, last)],
        positions[min(start + 3, last)],
    )


@njit(cache=True, parallel=True)
def subtract_rows(
    tiles: Any, cells: Any, positions: Any, weights: Any, out: Any, vectors: Any, parts: int
) -> None:
    """``out[n] -= A[positions[n]] . W``, with ``out[N, L]`` in float64 and W by cell.

    `cells` are those in use, by position. Parts are for threads; a row is summed by one of them,
    in the same order whatever their number.
    """
    count, used, width = positions.shape[0], cells.shape[0], out.shape[1]
    share = -(-count // (parts * ROWS)) * ROWS
    for thread in prange(parts):
        part = np.int64(thread)
        block = np.empty((RUN, width), weights.dtype)
        begin, end = part * share, min((part + 1) * share, count)
        sums = np.zeros((max(end - begin, 0) + ROWS, width))
        for first in range(0, used, RUN):
            filled = min(RUN, used - first)
            for k in range(filled):
                copy_row(weights, cells[first + k], block, k, vectors)
            block[filled:] = 0
            stop = (first + filled + SIDE - 1) // SIDE
            start_tile = first // SIDE
            for start in range(begin, end, ROWS):
                # The last four may be fewer: they repeat the last row, into parts nobody reads.
                here = _four(positions, start, end)
                ahead, further = start + AHEAD, 0
                if ahead >= end:  # the first rows again, in the run to come
                    ahead, further = begin + (ahead - begin) % (end - begin), stop - start_tile
                coming = _four(positions, ahead, end)
                part_sums = sums[start - begin :]
                low, high = min(here) // SIDE, max(here) // SIDE
                if stop <= low + 1:
                    subtract_tiles(
                        part_sums,
                        tiles,
                        here,
                        coming,
                        further,
                        start_tile,
                        stop,
                        block,
                        vectors,
                        ALONG,
                    )
                elif start_tile > high:
                    subtract_tiles(
                        part_sums,
                        tiles,
                        here,
                        coming,
                        further,
                        start_tile,
                        stop,
                        block,
                        vectors,
                        DOWN,
                    )
                else:
                    subtract_tiles(
                        part_sums,
                        tiles,
                        here,
                        coming,
                        further,
                        start_tile,
                        stop,
                        block,
                        vectors,
                        EITHER,
                    )
        for n in range(begin, end):
            for o in range(width):
                out[n, o] += sums[n - begin, o]


@njit(cache=True, parallel=True)
def copy_rows(tiles: Any, first: int, out: Any, whole: bool) -> None:
    """Rows of A from `first` on into ``out[N, used]``; only up to the diagonal unless `whole`."""
    flat = tiles.reshape(-1)
    for n in prange(out.shape[0]):
        number = first + np.int64(n)
        row, place = number // SIDE, number % SIDE
        base = SIDE * SIDE * first_tile(row) + SIDE * place
        for k in range(number + 1):
            out[n, k] = flat[base + SIDE * SIDE * (k // SIDE) + k % SIDE]
        if whole:
            for k in range(number + 1, out.shape[1]):
                tile = first_tile(k // SIDE) + row
                out[n, k] = flat[SIDE * SIDE * tile + SIDE * (k % SIDE) + place]


@njit(cache=True, parallel=True)
def copy_upper_half(tiles: Any, used: int, out: Any) -> None:
    """Upper half of A into the upper left of a matrix."""
    flat = tiles.reshape(-1)
    for index in prange((used + SIDE - 1) // SIDE):
        column: Any = np.int64(index)
        # As in `pack`: four rows of the upper half are read down one column of tiles.
        for k in range(SIDE * column, used):
            base = SIDE * SIDE * (first_tile(k // SIDE) + column) + SIDE * (k % SIDE)
            for row in range(SIDE * column, min(SIDE * (column + 1), k + 1)):
                out[row, k] = flat[base + row - SIDE * column]


@njit(cache=True, parallel=True, fastmath=FAST)
def subtract_product(tiles: Any, weights: Any, out: Any) -> None:
    """``out -= A W`` over all cells in use, with ``W`` by position, all in float64.

    `weights` has rows for whole tiles, zeros at the end. A row of A is summed by one thread, in the
    same order whatever their number.
    """
    flat = tiles.reshape(-1)
    used, width = out.shape
    rows_of_tiles = weights.shape[0] // SIDE
    for index in prange(rows_of_tiles):
        row = np.int64(index)
        sums = np.zeros((SIDE, width))
        for column in range(rows_of_tiles):
            # Beyond the diagonal a tile is stored as its mirror image.
            along = column <= row
            tile = first_tile(row) + column if along else first_tile(column) + row
            down, right = (SIDE, 1) if along else (1, SIDE)
            k = SIDE * column
            for a in range(SIDE):
                entry = SIDE * SIDE * tile + down * a
                first, second = np.float64(flat[entry]), np.float64(flat[entry + right])
                third = np.float64(flat[entry + 2 * right])
                fourth = np.float64(flat[entry + 3 * right])
                # Four at once: sums are read and written once for a row of a tile.
                for o in range(width):
                    sums[a, o] += (
                        first * weights[k, o]
                        + second * weights[k + 1, o]
                        + third * weights[k + 2, o]
                        + fourth * weights[k + 3, o]
                    )
        for a in range(min(SIDE, used - SIDE * row)):
            for o in range(width):
                out[SIDE * row + a, o] -= sums[a, o]


@njit(cache=True, parallel=True)
def pack(tiles: Any, used: int, packed: Any) -> None:
    """Upper half of A, row by row, from tiles."""
    flat = tiles.reshape(-1)
    for index in prange((used + SIDE - 1) // SIDE):
        column: Any = np.int64(index)
        # Four rows of the upper half are read down one column of tiles.
        for k in range(SIDE * column, used):
            base = SIDE * SIDE * (first_tile(k // SIDE) + column) + SIDE * (k % SIDE)
            for row in range(SIDE * column, min(SIDE * (column + 1), k + 1)):
                place = row - SIDE * column
                packed[row * used - row * (row - 1) // 2 + k - row] = flat[base + place]


@njit(cache=True, parallel=True)
def unpack(tiles: Any, used: int, packed: Any) -> None:
    """Tiles from what `pack` gave."""
    flat = tiles.reshape(-1)
    for index in prange((used + SIDE - 1) // SIDE):
        column: Any = np.int64(index)
        for k in range(SIDE * column, used):
            base = SIDE * SIDE * (first_tile(k // SIDE) + column) + SIDE * (k % SIDE)
            for row in range(SIDE * column, min(SIDE * (column + 1), k + 1)):
                place = row - SIDE * column
                value = packed[row * used - row * (row - 1) // 2 + k - row]
                flat[base + place] = value
                if k // SIDE == column:  # on the diagonal both halves of a tile are stored
                    flat[SIDE * SIDE * (first_tile(column) + column) + SIDE * place + k % SIDE] = (
                        value
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


@njit(cache=True)
def add_target(targets: Any, positions: Any, values: Any, target: Any) -> None:
    """``B_s += phi y^T``."""
    for k in range(positions.shape[0]):
        line, value = targets[positions[k]], np.float64(values[k])
        for o in range(target.shape[0]):
            line[o] += value * target[o]


@njit(cache=True)
def largest_entry(tiles: Any, positions: Any, values: Any) -> float:
    """Largest entry of the diagonal of ``A_ss`` after a sample; new cells are at position -1."""
    largest = 0.0
    for k in range(positions.shape[0]):
        entry = np.float64(values[k]) ** 2
        if positions[k] >= 0:
            row, place = positions[k] // SIDE, positions[k] % SIDE
            entry += tiles[first_tile(row) + row, place * (SIDE + 1)]
        largest = max(largest, entry)
    return largest


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
