"""Imagination with a network of dense layers, compiled: one pass for the whole horizon.

A block of up to `VECTORS` vectors of candidates goes through all layers and all steps while its
activations stay near the processor. Activations lie feature by feature, candidates side by side;
a tile of `ROWS` outputs times `VECTORS` vectors of candidates is summed up in registers, which
reads each number from memory once for many multiplications. Weights are packed in that order
beforehand. What is zero for a whole block, as rectified units often are where all candidates start
from one state, and inputs that a memory does not use, is left out of the next layer's sums, which
it would not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import get_num_threads, njit, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from everlearn.world_model.step_kernels import FAST, advance_step, aligned_empty, assemble_step
from everlearn.world_model.vectors import LANES, Vectors, aligned_zeros

ROWS, VECTORS = 5, 5
"""A tile: its 25 sums, 5 vectors of inputs and one of weights fill the 32 vector registers."""

_ROWS, _WIDE, _NARROW = (0,) * ROWS, (0,) * VECTORS, (0,) * (VECTORS - 1)
"""Their lengths are known when kernels are compiled: tiles are one vector narrower where that
is enough, as it is for two of the three blocks of 200 candidates."""

Floats = npt.NDArray[np.float32]


class DenseLayers(NamedTuple):
    """Weights of all layers in one array, packed tile by tile, and where each layer lies."""

    weights: Floats
    biases: Floats
    inputs: npt.NDArray[np.int64]
    """Inputs of each layer."""
    tiles: npt.NDArray[np.int64]
    """Tiles of `ROWS` outputs of each layer."""


def pack(matrices: Sequence[Floats], biases: Sequence[Floats]) -> DenseLayers:
    """Pack layers ``outputs = matrix[O, I] @ inputs + bias[O]``; all but the last are rectified."""
    inputs = np.array([matrix.shape[1] for matrix in matrices], np.int64)
    tiles = np.array([-(-len(matrix) // ROWS) for matrix in matrices], np.int64)
    total = int(np.sum(inputs * tiles) * ROWS)
    weights = aligned_zeros((1, total), np.float32)[0]
    offsets = np.zeros(int(tiles.sum()) * ROWS, np.float32)
    place = line = 0
    for matrix, bias, count in zip(matrices, biases, tiles, strict=True):
        outputs, width = matrix.shape
        rows = np.zeros((int(count) * ROWS, width), np.float32)
        rows[:outputs] = matrix
        tiled = rows.reshape(int(count), ROWS, width).transpose(0, 2, 1)
        weights[place : place + rows.size] = tiled.ravel()
        offsets[line : line + outputs] = bias
        place += rows.size
        line += len(rows)
    return DenseLayers(weights, offsets, inputs, tiles)


def imagine(
    states: Floats,
    actions: Floats,
    memories: Floats,
    layers: DenseLayers,
    scaling: Floats,
    limits: Floats,
    kind: int,
    whole: npt.NDArray[np.int64],
    real: Floats,
) -> None:
    """Fill ``states[N, 1:, S]`` from ``states[N, 0, S]`` along ``actions[N, H, A]``.

    ``scaling[2, I]`` holds centre and multiplier of the inputs; the last layer's outputs are
    changes of the state. ``memories[N, M]`` is advanced in place.
    """
    given = (states, actions, memories, *layers, scaling, limits, kind, whole, real)
    _imagine(_ROWS, _WIDE, _NARROW, get_num_threads(), given)


@intrinsic
def _tile(
    typingctx: Any,
    out: Any,
    row: Any,
    first: Any,
    weights: Any,
    place: Any,
    biases: Any,
    line: Any,
    inputs: Any,
    order: Any,
    count: Any,
    rectify: Any,
    names: Any,
    rows: Any,
    vectors: Any,
) -> Any:
    """``bias[line + r] + sum_k weights[place + order[k] R + r] inputs[k]``, all columns.

    The sums over `count` inputs, of all columns and of as many rows as the tuple `rows` is long;
    negative ones become zero if `rectify`, and NaN stays NaN. They follow each other in `out` from
    `row` on, without the rectified rows that are zero in all columns, and their numbers, the first
    of the tile's being `first`, in `names`. Returns the row after the last of them.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_, row_, first_, weights_, place_, biases_, line_ = args[:7]
        inputs_, order_, count_, rectify_, names_ = args[7:12]
        v = Vectors(context, builder, inputs.dtype)
        index = row_.type
        zero = ir.Constant(index, 0)
        width = ir.Constant(index, len(vectors) * LANES)
        height = ir.Constant(index, len(rows))
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        totals = []
        for r in range(len(rows)):
            at = builder.add(line_, ir.Constant(index, r))
            bias = v.splat(builder.load(v.pointer(biases, biases_, [at])))
            totals.append([cgutils.alloca_once(builder, v.vector) for _ in lanes])
            for total in totals[-1]:
                builder.store(bias, total)
        source = v.pointer(weights, weights_, [place_])
        table = v.pointer(inputs, inputs_, [zero, zero])
        places = v.pointer(order, order_, [zero])
        with cgutils.for_range(builder, count_) as loop:
            chosen = builder.load(builder.gep(places, [loop.index]))
            values = builder.gep(table, [builder.mul(loop.index, width)])
            loaded = [v.load(builder.gep(values, [lane])) for lane in lanes]
            factors = builder.gep(source, [builder.mul(chosen, height)])
            for r, sums in enumerate(totals):
                factor = v.splat(builder.load(builder.gep(factors, [ir.Constant(index, r)])))
                for value, total in zip(loaded, sums, strict=True):
                    builder.store(v.fma(factor, value, builder.load(total)), total)
        nothing = v.constant(0.0)
        for r, sums in enumerate(totals):
            target = v.pointer(out, out_, [row_, zero])
            seen = ir.Constant(ir.VectorType(ir.IntType(1), LANES), [0] * LANES)
            for lane, total in zip(lanes, sums, strict=True):
                value = builder.load(total)
                negative = builder.and_(
                    v.splat(rectify_), builder.fcmp_ordered("<", value, nothing)
                )
                value = builder.select(negative, nothing, value)
                v.store(value, builder.gep(target, [lane]))
                # True for NaN too.
                seen = builder.or_(seen, builder.fcmp_unordered("!=", value, nothing))
            number = builder.add(first_, ir.Constant(index, r))
            builder.store(number, v.pointer(names, names_, [row_]))
            bits = builder.bitcast(seen, ir.IntType(LANES))
            some = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            kept = builder.or_(some, builder.not_(rectify_))
            row_ = builder.add(row_, builder.zext(kept, index))
        return row_

    whole = types.intp
    given = (out, whole, whole, weights, whole, biases, whole, inputs, order, whole)
    return whole(*given, types.boolean, names, rows, vectors), codegen


@njit(cache=True)
def _gather_used(rows: Any, total: int, count: int, order: Any) -> int:
    """Move rows that are not zero in all of `count` columns to the front, with their numbers.

    Returns how many there are of the first `total`.
    """
    used = 0
    for row in range(total):
        some = False
        for c in range(count):
            some |= rows[row, c] != 0  # NaN too
        if some:
            rows[used] = rows[row]
            order[used] = row
            used += 1
    return used


@njit(cache=True)
def _imagine_block(
    start: int,
    stop: int,
    rows: Any,
    vectors: Any,
    states: Any,
    actions: Any,
    memories: Any,
    weights: Any,
    biases: Any,
    inputs: Any,
    tiles: Any,
    scaling: Any,
    limits: Any,
    kind: int,
    whole: Any,
    real: Any,
) -> None:
    """Imagine candidates ``start`` to ``stop``, which fit into `vectors`, to the horizon."""
    height, columns = len(rows), len(vectors) * LANES
    widest = max(inputs.max(), tiles.max() * height)
    # Columns without a candidate hold zero inputs; their predictions are never read.
    before, after = (
        aligned_empty(widest, columns, weights),
        aligned_empty(widest, columns, weights),
    )
    before[:], after[:] = 0, 0
    order, names = np.empty(widest, np.int64), np.empty(widest, np.int64)
    count = stop - start
    for step in range(actions.shape[1]):
        assemble_step(
            start, count, step, states, actions, memories, scaling, kind, whole, real, before
        )
        used = _gather_used(before, inputs[0], count, order)
        place = 0
        line = 0
        for layer in range(len(tiles)):
            filled = 0
            for tile in range(tiles[layer]):
                filled = _tile(
                    after,
                    filled,
                    tile * height,
                    weights,
                    place,
                    biases,
                    line,
                    before,
                    order,
                    used,
                    layer < len(tiles) - 1,
                    names,
                    rows,
                    vectors,
                )
                place += inputs[layer] * height
                line += height
            # Rows that only fill the last tile are zero, but for what is not a number.
            while layer < len(tiles) - 1 and filled and names[filled - 1] >= inputs[layer + 1]:
                filled -= 1
            before, after, order, names, used = after, before, names, order, filled
        advance_step(
            start, count, step, states, actions, memories, before.T, limits, kind, whole, real
        )


@njit(cache=True, parallel=True, fastmath=FAST)
def _imagine(rows: Any, wide: Any, narrow: Any, threads: int, given: Any) -> None:
    total = given[0].shape[0]
    count = (total + LANES - 1) // LANES
    blocks = (count + len(wide) - 1) // len(wide)
    # Even shares, and as many for every thread: they should end together.
    blocks = min(count, (blocks + threads - 1) // threads * threads)
    for b in prange(blocks):
        start = b * count // blocks * LANES
        stop = min(total, (b + 1) * count // blocks * LANES)
        if stop - start > len(narrow) * LANES:
            _imagine_block(start, stop, rows, wide, *given)
        else:
            _imagine_block(start, stop, rows, narrow, *given)
