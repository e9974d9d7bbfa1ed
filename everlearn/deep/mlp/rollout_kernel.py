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
from numba import get_num_threads, prange, types
from numba.core import cgutils
from numba.extending import intrinsic

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import (
    FAST,
    Limits,
    MemoryTables,
    StepTables,
    Trajectories,
    advance_step,
    aligned_empty,
    assemble_step,
)
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


def imagine(trajectories: Trajectories, tables: StepTables, layers: DenseLayers) -> None:
    """Fill ``states[1:, N, S]`` from ``states[0, N, S]`` along ``actions[N, H, A]``.

    The last layer's outputs are changes of the state.
    """
    _imagine(trajectories, tables, layers, (_WIDE, _NARROW), get_num_threads())


class Units(NamedTuple):
    """Activations that are not zero for a whole block of candidates."""

    values: Floats
    """``[units, columns]``, one after the other."""
    numbers: npt.NDArray[np.int64]
    """Number of each in its layer."""


class TileStart(NamedTuple):
    """Where a tile of outputs begins."""

    weight: int
    bias: int
    unit: int
    """Its first output's number in the layer."""


@intrinsic
def _tile(
    typingctx: Any,
    layers: Any,
    start: Any,
    before: Any,
    used: Any,
    after: Any,
    filled: Any,
    rectify: Any,
    size: Any,
) -> Any:
    """``bias[r] + sum_k weights[numbers[k] R + r] values[k]``, all columns: a tile of outputs.

    The sums over the first `used` units of `before`, for R rows of weights; `size` is a tuple of
    two tuples, as long as a tile has rows and vectors, which is known when this is compiled.
    Negative sums become zero if `rectify`, and NaN stays NaN. They follow each other in `after`
    from unit `filled` on, without the rectified rows that are zero in all columns. Returns how many
    units are filled then.
    """
    rows, vectors = size.types

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        layers_, start_, before_, used_, after_, filled_, rectify_, _ = args
        (inputs, inputs_), (order, order_) = (
            (before.types[n], builder.extract_value(before_, n)) for n in range(2)
        )
        (out, out_), (names, names_) = (
            (after.types[n], builder.extract_value(after_, n)) for n in range(2)
        )
        place_, line_, first_ = (builder.extract_value(start_, n) for n in range(3))
        v = Vectors(context, builder, inputs.dtype)
        biases = v.field(layers, layers_, "biases")
        index = filled_.type
        zero = ir.Constant(index, 0)
        width = ir.Constant(index, len(vectors) * LANES)
        height = ir.Constant(index, len(rows))
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        totals = []
        for r in range(len(rows)):
            at = builder.add(line_, ir.Constant(index, r))
            bias = v.splat(builder.load(v.pointer(*biases, [at])))
            totals.append([cgutils.alloca_once(builder, v.vector) for _ in lanes])
            for total in totals[-1]:
                builder.store(bias, total)
        source = v.pointer(*v.field(layers, layers_, "weights"), [place_])
        table = v.pointer(inputs, inputs_, [zero, zero])
        places = v.pointer(order, order_, [zero])
        with cgutils.for_range(builder, used_) as loop:
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
            target = v.pointer(out, out_, [filled_, zero])
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
            builder.store(number, v.pointer(names, names_, [filled_]))
            bits = builder.bitcast(seen, ir.IntType(LANES))
            some = builder.icmp_unsigned("!=", bits, ir.Constant(bits.type, 0))
            kept = builder.or_(some, builder.not_(rectify_))
            filled_ = builder.add(filled_, builder.zext(kept, index))
        return filled_

    whole = types.intp
    given = (layers, start, before, whole, after, whole, types.boolean, size)
    return whole(*given), codegen


@njit(cache=True, fastmath=FAST)
def _gather_used(units: Any, total: int, count: int) -> int:
    """Move units that are not zero in all of `count` columns to the front, with their numbers.

    Returns how many there are of the first `total`.
    """
    values, numbers = units
    used = 0
    for row in range(total):
        some = False
        for c in range(count):
            some |= values[row, c] != 0  # NaN too
        if some:
            values[used] = values[row]
            numbers[used] = row
            used += 1
    return used


@njit(cache=True, fastmath=FAST)
def _imagine_block(
    start: int, stop: int, trajectories: Any, tables: Any, layers: Any, size: Any
) -> None:
    """Imagine candidates ``start`` to ``stop``, which fit into a tile's vectors, to the horizon."""
    inputs, tiles = layers.inputs, layers.tiles
    height, columns = len(size[0]), len(size[1]) * LANES
    widest = max(inputs.max(), tiles.max() * height)
    before = Units(aligned_empty(widest, columns, layers.weights), np.empty(widest, np.int64))
    after = Units(aligned_empty(widest, columns, layers.weights), np.empty(widest, np.int64))
    # Columns without a candidate hold zero inputs; their predictions are never read.
    before.values[:], after.values[:] = 0, 0
    count = stop - start
    last = len(tiles) - 1
    for step in range(trajectories.actions.shape[1]):
        assemble_step(start, count, step, trajectories, tables, before.values)
        used = _gather_used(before, inputs[0], count)
        weight, bias = 0, 0
        for layer in range(len(tiles)):
            filled = 0
            for tile in range(tiles[layer]):
                at = TileStart(weight, bias, tile * height)
                filled = _tile(layers, at, before, used, after, filled, layer < last, size)
                weight += inputs[layer] * height
                bias += height
            # Rows that only fill the last tile are zero, but for what is not a number.
            while layer < last and filled and after.numbers[filled - 1] >= inputs[layer + 1]:
                filled -= 1
            before, after, used = after, before, filled
        advance_step(start, count, step, trajectories, tables, before.values.T)


@njit(cache=True, parallel=True, fastmath=FAST)
def _imagine(trajectories: Any, tables: Any, layers: Any, widths: Any, threads: int) -> None:
    wide, narrow = widths
    total = trajectories.states.shape[1]
    count = (total + LANES - 1) // LANES
    blocks = (count + len(wide) - 1) // len(wide)
    # Even shares, and as many for every thread: they should end together.
    blocks = min(count, (blocks + threads - 1) // threads * threads)
    # A parallel loop takes in no tuples that hold others: they are put together within.
    centre, multiplier, read = tables.centre, tables.multiplier, tables.read
    limits, memory = Limits(*tables.limits), MemoryTables(*tables.memory)
    for b in prange(blocks):
        start = b * count // blocks * LANES
        stop = min(total, (b + 1) * count // blocks * LANES)
        step = StepTables(centre, multiplier, limits, memory, read)
        if stop - start > len(narrow) * LANES:
            _imagine_block(start, stop, trajectories, step, layers, (_ROWS, wide))
        else:
            _imagine_block(start, stop, trajectories, step, layers, (_ROWS, narrow))
