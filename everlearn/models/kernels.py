"""Compiled encoding and imagination.

Everything here is numba code over plain arrays, in float32 or float64 as the arrays are.
Notation: ``D`` cells, ``K`` active cells of one input, ``I`` inputs padded to a multiple of
`UNROLL`, ``L`` outputs padded to a multiple of `LANES`.

``fastmath`` is limited to reordering and contraction. NaN and infinity keep their meaning:
an imagined state may overflow, and then must reach the caller as NaN, not as a wild index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange, types
from numba.extending import overload

LANES = 16
"""Float32 numbers in a cache line; outputs and blocks of candidates are padded to it."""

UNROLL = 8
"""Inputs added in one pass of the projection; inputs are padded to a multiple of it."""

FAST = {"reassoc", "contract", "nsz", "arcp"}

NO_MEMORY, COMMAND_MEMORY, HISTORY_MEMORY, GIVEN_FEATURES = 0, 1, 2, 3

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453
_SATURATION_32, _SATURATION_64 = 15.0, 30.0


def logistic(x: Any) -> Any:
    """1 / (1 + exp(-x)) in a form that compiles to vector instructions.

    ``exp(-x) = 2^k exp(f)`` with ``|f| <= ln(2) / 2`` and the series of ``exp(f)``. Inputs
    saturate at +-15 (float32) and +-30 (float64), which keeps results inside (0, 1). The
    largest error is 4e-7 in float32 and 1e-13 in float64. Only callable from compiled code.
    """
    raise NotImplementedError("logistic is for compiled code; use `logistic_of`")


@overload(logistic)
def _compiled_logistic(x: Any) -> Any:
    if x == types.float32:

        def logistic_32(x: Any) -> Any:
            # Comparisons written so that NaN takes the bound: it must not become an index.
            x = x if x > np.float32(-_SATURATION_32) else np.float32(-_SATURATION_32)
            x = x if x < np.float32(_SATURATION_32) else np.float32(_SATURATION_32)
            k = np.floor(np.float32(0.5) - x * np.float32(_LOG2_E))
            f = -x - k * np.float32(_LN_2)
            p = np.float32(1 / 5040)
            p = p * f + np.float32(1 / 720)
            p = p * f + np.float32(1 / 120)
            p = p * f + np.float32(1 / 24)
            p = p * f + np.float32(1 / 6)
            p = p * f + np.float32(1 / 2)
            p = p * f + np.float32(1)
            p = p * f + np.float32(1)
            # The bits of 2^k: the exponent field alone.
            power = np.int32((np.int32(k) + np.int32(127)) << np.int32(23)).view(np.float32)
            return np.float32(1) / (np.float32(1) + p * power)

        return logistic_32

    def logistic_64(x: Any) -> Any:
        x = x if x > -_SATURATION_64 else -_SATURATION_64
        x = x if x < _SATURATION_64 else _SATURATION_64
        k = np.floor(0.5 - x * _LOG2_E)
        f = -x - k * _LN_2
        p = 1.0
        for n in range(13, 0, -1):
            p = 1.0 + p * f / n
        power = np.int64((np.int64(k) + np.int64(1023)) << np.int64(52)).view(np.float64)
        return 1.0 / (1.0 + p * power)

    return logistic_64


@njit(cache=True, fastmath=FAST)
def logistic_of(x: Any, out: Any) -> None:
    """`logistic` of every element, for tests and plots."""
    for n in range(x.shape[0]):
        out[n] = logistic(x[n])


@njit(cache=True, fastmath=FAST)
def _project(projection: Any, feature: int, inputs: Any, out: Any) -> None:
    """``out[c] = projection[feature] . inputs[:, c]``, `UNROLL` inputs a pass."""
    count = out.shape[0]
    for c in range(count):
        out[c] = 0
    for i in range(0, inputs.shape[0], 8):
        p0 = projection[feature, i]
        p1 = projection[feature, i + 1]
        p2 = projection[feature, i + 2]
        p3 = projection[feature, i + 3]
        p4 = projection[feature, i + 4]
        p5 = projection[feature, i + 5]
        p6 = projection[feature, i + 6]
        p7 = projection[feature, i + 7]
        for c in range(count):
            out[c] += (
                p0 * inputs[i, c]
                + p1 * inputs[i + 1, c]
                + p2 * inputs[i + 2, c]
                + p3 * inputs[i + 3, c]
                + p4 * inputs[i + 4, c]
                + p5 * inputs[i + 5, c]
                + p6 * inputs[i + 6, c]
                + p7 * inputs[i + 7, c]
            )


@njit(cache=True, fastmath=FAST)
def _locate(position: Any, bins: int, cell: Any, fraction: Any) -> None:
    """Place projections on a line of `bins` edges: lower edge and how far past it.

    ``location = (bins - 1) * logistic(projection)`` (paper, appendix on sparse features).
    """
    for c in range(position.shape[0]):
        location = logistic(position[c]) * position.dtype.type(bins - 1)
        lower = np.int32(location)
        lower = min(lower, np.int32(bins - 2))
        cell[c] = lower
        fraction[c] = location - position.dtype.type(lower)


@njit(cache=True, fastmath=FAST)
def encode_block(
    projection: Any, inputs: Any, bins: int, grid_dim: int, indices: Any, values: Any
) -> None:
    """Active cells and their values of the inputs in the columns of ``inputs[I, N]``.

    A grid of `grid_dim` dimensions has ``2^grid_dim`` active cells, the corners around the
    location, each with the product of its one-dimensional weights.
    """
    count = inputs.shape[1]
    corners = 1 << grid_dim
    grid_cells = bins**grid_dim
    position = np.empty(count, inputs.dtype)
    cell = np.empty(count, np.int32)
    fraction = np.empty(count, inputs.dtype)
    for grid in range(projection.shape[0] // grid_dim):
        first = grid * corners
        for c in range(count):
            for corner in range(corners):
                indices[c, first + corner] = 0
                values[c, first + corner] = 1
        for dim in range(grid_dim):
            _project(projection, grid * grid_dim + dim, inputs, position)
            _locate(position, bins, cell, fraction)
            for c in range(count):
                for corner in range(corners):
                    upper = (corner >> (grid_dim - 1 - dim)) & 1
                    k = first + corner
                    indices[c, k] = indices[c, k] * bins + cell[c] + upper
                    values[c, k] *= fraction[c] if upper else 1 - fraction[c]
        for c in range(count):
            for corner in range(corners):
                indices[c, first + corner] += grid * grid_cells


@njit(cache=True, fastmath=FAST)
def _add_grid_2d(
    weights: Any, first: int, bins: int, cells: Any, fractions: Any, change: Any
) -> None:
    """Add one two-dimensional grid's part of the prediction to ``change[c]``, all c."""
    one = change.dtype.type(1)
    for c in range(change.shape[0]):
        u = fractions[0, c]
        v = fractions[1, c]
        w00 = (one - u) * (one - v)
        w01 = (one - u) * v
        w10 = u * (one - v)
        w11 = u * v
        corner = np.uint32(first + cells[0, c] * bins + cells[1, c])
        below = corner + np.uint32(bins)
        for lane in range(0, change.shape[1], 16):
            for o in range(lane, lane + 16):
                change[c, o] += (
                    w00 * weights[corner, o]
                    + w01 * weights[corner + np.uint32(1), o]
                    + w10 * weights[below, o]
                    + w11 * weights[below + np.uint32(1), o]
                )


@njit(cache=True, fastmath=FAST)
def _add_grid(weights: Any, first: int, bins: int, cells: Any, fractions: Any, change: Any) -> None:
    """As `_add_grid_2d`, for grids of any dimension."""
    grid_dim = cells.shape[0]
    for c in range(change.shape[0]):
        for corner in range(1 << grid_dim):
            index = 0
            weight = change.dtype.type(1)
            for dim in range(grid_dim):
                upper = (corner >> (grid_dim - 1 - dim)) & 1
                index = index * bins + cells[dim, c] + upper
                u = fractions[dim, c]
                weight *= u if upper else change.dtype.type(1) - u
            row = np.uint32(first + index)
            for lane in range(0, change.shape[1], 16):
                for o in range(lane, lane + 16):
                    change[c, o] += weight * weights[row, o]


@njit(cache=True, fastmath=FAST)
def predict_block(
    projection: Any, weights: Any, inputs: Any, bins: int, grid_dim: int, change: Any
) -> None:
    """``change[c] = W^T phi(inputs[:, c])`` for a block of candidates c.

    Grid by grid: the rows of one grid (81 x 32 floats in the paper) stay in the nearest
    cache while all candidates of the block use them.
    """
    count = inputs.shape[1]
    grid_cells = bins**grid_dim
    position = np.empty(count, inputs.dtype)
    cells = np.empty((grid_dim, count), np.int32)
    fractions = np.empty((grid_dim, count), inputs.dtype)
    change[:] = 0
    for grid in range(projection.shape[0] // grid_dim):
        for dim in range(grid_dim):
            _project(projection, grid * grid_dim + dim, inputs, position)
            _locate(position, bins, cells[dim], fractions[dim])
        if grid_dim == 2:
            _add_grid_2d(weights, grid * grid_cells, bins, cells, fractions, change)
        else:
            _add_grid(weights, grid * grid_cells, bins, cells, fractions, change)


@njit(cache=True)
def memory_features(kind: int, whole: Any, real: Any, memory: Any, obs: Any, out: Any) -> None:
    """Features of one memory state; the layout of `whole` and `real` is that of memory.py."""
    if kind == COMMAND_MEMORY:
        axes = memory.shape[0]
        for m in range(axes):
            out[m] = real[1] * (memory[m] - obs[whole[axes + m]])
    elif kind == HISTORY_MEMORY:
        for m in range(memory.shape[0]):
            out[m] = (memory[m] - real[2 * m]) * real[2 * m + 1]
    elif kind == GIVEN_FEATURES:
        for m in range(memory.shape[0]):
            out[m] = memory[m]


@njit(cache=True)
def memory_advance(
    kind: int, whole: Any, real: Any, memory: Any, obs: Any, action: Any, next_obs: Any
) -> None:
    """Advance one memory state in place by one step."""
    if kind == COMMAND_MEMORY:
        axes = memory.shape[0]
        for m in range(axes):
            one = real.dtype.type(1)
            moved = memory[m] + real[0] * min(max(action[whole[m]], -one), one)
            memory[m] = min(max(moved, real[2 + m]), real[2 + axes + m])
    elif kind == HISTORY_MEMORY:
        count = action.shape[0]
        for m in range(count):
            memory[m] = action[m]
        for m in range(obs.shape[0]):
            memory[count + m] = next_obs[m] - obs[m]


@njit(cache=True, fastmath=FAST)
def _imagine_block(
    start: int,
    stop: int,
    states: Any,
    actions: Any,
    memories: Any,
    projection: Any,
    scaling: Any,
    weights: Any,
    bins: int,
    grid_dim: int,
    bounds: Any,
    kind: int,
    whole: Any,
    real: Any,
) -> None:
    """Imagine candidates ``start`` to ``stop`` along the whole horizon."""
    size = states.shape[2]
    action_size = actions.shape[2]
    feature_count = scaling.shape[1] - size - action_size
    count = stop - start
    # Padding lanes hold zero inputs; their predictions are never read.
    padded = (count + 15) // 16 * 16
    inputs = np.zeros((projection.shape[1], padded), weights.dtype)
    change = np.empty((padded, weights.shape[1]), weights.dtype)
    feature = np.empty(feature_count, weights.dtype)
    for step in range(actions.shape[1]):
        for c in range(count):
            n = start + c
            for i in range(size):
                inputs[i, c] = (states[n, step, i] - scaling[0, i]) * scaling[1, i]
            for a in range(action_size):
                i = size + a
                inputs[i, c] = (actions[n, step, a] - scaling[0, i]) * scaling[1, i]
            memory_features(kind, whole, real, memories[n], states[n, step], feature)
            for m in range(feature_count):
                i = size + action_size + m
                inputs[i, c] = (feature[m] - scaling[0, i]) * scaling[1, i]
        predict_block(projection, weights, inputs, bins, grid_dim, change)
        for c in range(count):
            n = start + c
            for i in range(size):
                value = states[n, step, i] + change[c, i]
                # NaN passes both comparisons unchanged.
                if value < bounds[0, i]:
                    value = bounds[0, i]
                if value > bounds[1, i]:
                    value = bounds[1, i]
                states[n, step + 1, i] = value
            memory_advance(
                kind,
                whole,
                real,
                memories[n],
                states[n, step],
                actions[n, step],
                states[n, step + 1],
            )


@njit(cache=True, parallel=True, fastmath=FAST)
def imagine(
    states: Any,
    actions: Any,
    memories: Any,
    projection: Any,
    scaling: Any,
    weights: Any,
    bins: int,
    grid_dim: int,
    bounds: Any,
    kind: int,
    whole: Any,
    real: Any,
    block: int,
) -> None:
    """Fill ``states[N, 1:, S]`` from ``states[N, 0, S]`` along ``actions[N, H, A]``.

    One parallel region for the whole horizon; ``memories[N, M]`` is advanced in place.
    """
    total = states.shape[0]
    blocks = (total + block - 1) // block
    for b in prange(blocks):
        _imagine_block(
            b * block,
            min(total, (b + 1) * block),
            states,
            actions,
            memories,
            projection,
            scaling,
            weights,
            bins,
            grid_dim,
            bounds,
            kind,
            whole,
            real,
        )
