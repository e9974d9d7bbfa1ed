"""Compiled encoding and imagination of the online model.

Everything here is numba code over plain arrays, in float32 or float64 as the arrays are.
Notation: ``D`` cells, ``K`` active cells of one input, ``I`` inputs, followed by a constant
one and padded to a multiple of `UNROLL`, ``L`` outputs padded to a multiple of `LANES`.

A prediction is ``W^T phi(x)``: for each grid g of two dimensions, with ``u, v = (bins - 1)
logistic(P_g x)``, the four rows of ``W`` around ``(u, v)`` are interpolated bilinearly. That is
a few multiplications a number read, so memory is what costs time. Hence the order of loops: a
block of candidates is small enough for its inputs and sums to stay in the nearest cache, and
grid by grid all candidates of the block use the grid's rows of ``W`` while they are there too.
Inputs lie feature by feature (candidates side by side, as a vector multiplies them all by one
factor of ``P``), sums candidate by candidate (outputs side by side, as rows of ``W`` are).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba import prange

from everlearn.interfaces import FloatArray
from everlearn.online.kernels.simd import (
    CORNERS,
    add_grids,
    add_linear,
    add_row,
    locate_lanes,
    locate_plane,
    logistic_lanes,
    project_lanes,
)
from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import (
    FAST,
    Limits,
    MemoryTables,
    StepTables,
    advance_step,
    aligned_empty,
    assemble_step,
)
from everlearn.world_model.vectors import LANES

UNROLL = 2
"""Inputs are padded to a multiple of this; see `simd.project_lanes`."""

PANEL = (0,) * 3
"""As long as vectors are projected together."""

QUAD, PAIR, SINGLE = (0,) * 4, (0,) * 2, (0,)
"""Four, two or one: of vectors, rows or grids that are worked on together."""

NEAR_ROOM = 1e-4
"""By how much more than its reach, squared, a gate may be away and still be looked at."""

GROUP = len(QUAD)
"""Grids of two dimensions that are located, and then added, together."""


class Projection(NamedTuple):
    """Rows of a projection without their zeros."""

    sources: npt.NDArray[np.int64]
    """Inputs that each row reads, ``[R, most]``."""
    factors: FloatArray
    """What it multiplies them by, ``[R, most]``."""
    counts: npt.NDArray[np.int64]
    """How many there are, ``[R]``: a multiple of `UNROLL`."""
    alike: npt.NDArray[np.int64]
    """Rows from each one on that read the same inputs as it does, itself included, ``[R]``."""


class Gates(NamedTuple):
    """Which grids count only near something: the last ones, gate by gate."""

    distances: Projection
    """Rows whose results are coordinates of a relative position, as many for each gate."""
    firsts: npt.NDArray[np.int64]
    """First grid behind each gate, and one past the last; just that if there are no gates."""
    reach: np.floating[Any]
    """Distance from which on a gate is closed."""


class EncodingTables(NamedTuple):
    """An encoding as the kernels read it."""

    projection: Projection
    """`grid_dim` rows for each grid."""
    gates: Gates
    bins: int
    grid_dim: int
    first_linear: int
    """First input of the linear part; `inputs` if there is none."""
    inputs: int
    """Inputs with the constant and padding."""
    linear_gain: np.floating[Any]
    """What inputs of the linear part are multiplied by."""
    products: npt.NDArray[np.int64]
    """Inputs that are multiplied with each other, ``[P, degree]``, -1 for none: the last inputs."""
    product_scale: np.floating[Any]
    """What each factor of a product is multiplied by."""
    product_gain: np.floating[Any]
    """What a product is multiplied by."""


@njit(cache=True)
def logistic(x: Any, out: Any) -> None:
    """1 / (1 + exp(-x)) of arrays whose length is a multiple of `LANES`.

    The one logistic function of learning and predicting. Arguments saturate at +-15 (float32)
    and +-30 (float64), which keeps results inside (0, 1). The largest error is 4e-7 in float32
    and 1e-13 in float64.
    """
    for c in range(0, x.shape[0], LANES):
        logistic_lanes(x, c, out)


@njit(cache=True, fastmath=FAST)
def _project(projection: Any, row: int, inputs: Any, out: Any, target: int, rows: Any) -> None:
    """Project every candidate c by a few rows that read the same inputs: ``out[target + r, c]``.

    As many rows from `row` on as the tuple `rows` is long.
    """
    step = len(PANEL) * LANES
    wide = out.shape[1] // step * step
    for c in range(0, wide, step):
        project_lanes(projection, row, inputs, c, out, target, PANEL, rows)
    for c in range(wide, out.shape[1], LANES):
        project_lanes(projection, row, inputs, c, out, target, SINGLE, rows)


@njit(cache=True, fastmath=FAST)
def _project_rows(projection: Any, row: int, count: int, inputs: Any, out: Any) -> None:
    """Project every candidate c by `count` rows: ``out[r, c]``, r from 0 on.

    Rows that read the same inputs go together, so that these are read once for all of them.
    """
    alike = projection.alike
    done = 0
    while done < count:
        together = min(alike[row + done], count - done)
        if together >= len(QUAD):
            _project(projection, row + done, inputs, out, done, QUAD)
            done += len(QUAD)
        elif together >= len(PAIR):
            _project(projection, row + done, inputs, out, done, PAIR)
            done += len(PAIR)
        else:
            _project(projection, row + done, inputs, out, done, SINGLE)
            done += 1


@njit(cache=True, fastmath=FAST)
def _locate_grid(
    projection: Any, grid: int, bins: int, inputs: Any, position: Any, cells: Any, fractions: Any
) -> None:
    """Lower edges ``cells[dim, c]`` and ``fractions[dim, c]`` past them, of every candidate.

    Called for each grid, and so without the whole encoding: large tuples take time to hand on.
    """
    for dim in range(cells.shape[0]):
        _project(projection, grid * cells.shape[0] + dim, inputs, position, 0, SINGLE)
        for c in range(0, position.shape[1], LANES):
            locate_lanes(position[0], c, bins, cells[dim], fractions[dim])


@njit(cache=True, fastmath=FAST)
def _corner(corner: int, c: int, bins: int, cells: Any, fractions: Any) -> Any:
    """Cell in its grid, and weight, of one corner around a location (bit by dimension)."""
    index = 0
    weight = fractions.dtype.type(1)
    for dim in range(cells.shape[0]):
        upper = (corner >> (cells.shape[0] - 1 - dim)) & 1
        index = index * bins + cells[dim, c] + upper
        past = fractions[dim, c]
        weight *= past if upper else fractions.dtype.type(1) - past
    return index, weight


@njit(cache=True, fastmath=FAST)
def _open_gate(gates: Any, gate: int, inputs: Any, used: int, position: Any, out: Any) -> bool:
    """How far a gate is open for each candidate, ``out[c]`` in [0, 1]; False if for none.

    ``clip(2 (1 - distance / reach), 0, 1)``: open up to half the reach, closed beyond it.
    """
    distances, reach = gates.distances, gates.reach
    axes = distances.counts.shape[0] // (gates.firsts.shape[0] - 1)
    out[:] = 0
    for row in range(gate * axes, (gate + 1) * axes):
        _project(distances, row, inputs, position, 0, SINGLE)
        for c in range(used):
            out[c] += position[0, c] * position[0, c]
    zero, one = out.dtype.type(0), out.dtype.type(1)
    # Roots only if something is near; the limit has room for their rounding.
    limit = reach * reach * out.dtype.type(1 + NEAR_ROOM)
    any_near = False
    for c in range(used):
        any_near |= out[c] < limit
    if not any_near:
        out[:] = 0
        return False
    any_open = False
    for c in range(used):
        # NaN opens no gate; it reaches the prediction through the other grids.
        share = (one + one) * (one - np.sqrt(out[c]) / reach)
        out[c] = min(share, one) if share > zero else zero
        any_open |= out[c] > zero
    return any_open


@njit(cache=True, fastmath=FAST)
def multiply_inputs(encoding: Any, inputs: Any) -> None:
    """Fill the last inputs, the products of others, each factor kept inside [-1.5, 1.5]."""
    products = encoding.products
    first = inputs.shape[0] - products.shape[0]
    most = inputs.dtype.type(1.5)
    for p in range(products.shape[0]):
        for c in range(inputs.shape[1]):
            inputs[first + p, c] = encoding.product_gain
        for k in range(products.shape[1]):
            source = products[p, k]
            if source < 0:
                continue
            for c in range(inputs.shape[1]):
                factor = inputs[source, c] * encoding.product_scale
                inputs[first + p, c] *= min(max(factor, -most), most)


@njit(cache=True, fastmath=FAST)
def encode_block(encoding: Any, inputs: Any, indices: Any, values: Any) -> None:
    """Active cells and their values of the inputs in the columns of ``inputs[I, padded N]``.

    A grid of `grid_dim` dimensions has ``2^grid_dim`` active cells, the corners around the
    location, each with the product of its one-dimensional weights, times how far the gate is
    open that the grid is behind. The cells after the grids hold the inputs of the linear part, as
    they are; those beyond the inputs are padding.
    """
    projection, bins, grid_dim = encoding.projection, encoding.bins, encoding.grid_dim
    multiply_inputs(encoding, inputs)
    corners = 1 << grid_dim
    grids = projection.counts.shape[0] // grid_dim
    position = np.empty((1, inputs.shape[1]), inputs.dtype)
    cells = np.empty((grid_dim, inputs.shape[1]), np.int32)
    fractions = np.empty((grid_dim, inputs.shape[1]), inputs.dtype)
    for grid in range(grids):
        _locate_grid(projection, grid, bins, inputs, position, cells, fractions)
        for c in range(indices.shape[0]):
            for corner in range(corners):
                index, weight = _corner(corner, c, bins, cells, fractions)
                indices[c, grid * corners + corner] = grid * bins**grid_dim + index
                values[c, grid * corners + corner] = weight
    firsts = encoding.gates.firsts
    for gate in range(firsts.shape[0] - 1):
        _open_gate(encoding.gates, gate, inputs, indices.shape[0], position, fractions[0])
        for c in range(indices.shape[0]):
            for k in range(firsts[gate] * corners, firsts[gate + 1] * corners):
                values[c, k] *= fractions[0, c]
    for c in range(indices.shape[0]):
        for extra in range(indices.shape[1] - grids * corners):
            k, i = grids * corners + extra, encoding.first_linear + extra
            indices[c, k] = grids * bins**grid_dim + extra
            value = inputs[i, c] if i < inputs.shape[0] else inputs.dtype.type(0)
            values[c, k] = encoding.linear_gain * value


@njit(cache=True, fastmath=FAST)
def _locate_planes(
    projection: Any,
    grid: int,
    grids: int,
    bins: int,
    inputs: Any,
    positions: Any,
    cells: Any,
    corners: Any,
) -> None:
    """Place every candidate on so many two-dimensional grids from `grid` on; see `locate_plane`.

    Called for each group, and so without the whole encoding, as `_locate_grid`.
    """
    _project_rows(projection, 2 * grid, 2 * grids, inputs, positions)
    for g in range(grids):
        for c in range(0, inputs.shape[1], LANES):
            locate_plane(positions, g, c, bins, cells, corners)


@njit(cache=True, fastmath=FAST)
def _add_planes(
    encoding: Any, weights: Any, vectors: Any, inputs: Any, first: int, stop: int, change: Any
) -> None:
    """Add what the two-dimensional grids `first` to `stop` predict.

    Group by group: the rows of a few grids (81 x 32 floats each in the paper) stay in the nearest
    caches while all candidates of the block use them, and the sums of a candidate are read and
    written once for the group.
    """
    projection, bins, count = encoding.projection, encoding.bins, inputs.shape[1]
    positions = np.empty((2 * GROUP, count), inputs.dtype)
    cells = np.empty((GROUP, count), np.int32)
    corners = np.empty((CORNERS * GROUP, count), inputs.dtype)
    last_group = stop - (stop - first) % GROUP
    for grid in range(first, last_group, GROUP):
        _locate_planes(projection, grid, GROUP, bins, inputs, positions, cells, corners)
        add_grids(change, weights, grid * bins**2, bins, cells, corners, QUAD, vectors)
    for grid in range(last_group, stop):
        _locate_planes(projection, grid, 1, bins, inputs, positions, cells, corners)
        add_grids(change, weights, grid * bins**2, bins, cells, corners, SINGLE, vectors)


@njit(cache=True, fastmath=FAST)
def _add_grids(
    encoding: Any, weights: Any, vectors: Any, inputs: Any, first: int, stop: int, change: Any
) -> None:
    """Add what grids `first` to `stop` predict."""
    projection, bins, grid_dim = encoding.projection, encoding.bins, encoding.grid_dim
    if grid_dim == 2:
        _add_planes(encoding, weights, vectors, inputs, first, stop, change)
        return
    position = np.empty((1, inputs.shape[1]), inputs.dtype)
    cells = np.empty((grid_dim, inputs.shape[1]), np.int32)
    fractions = np.empty((grid_dim, inputs.shape[1]), inputs.dtype)
    for grid in range(first, stop):
        _locate_grid(projection, grid, bins, inputs, position, cells, fractions)
        start = grid * bins**grid_dim
        for c in range(change.shape[0]):
            for corner in range(1 << grid_dim):
                index, weight = _corner(corner, c, bins, cells, fractions)
                add_row(change, c, weights, start + index, weight)


@njit(cache=True, fastmath=FAST)
def predict_block(encoding: Any, weights: Any, vectors: Any, inputs: Any, change: Any) -> None:
    """``change[c] = W^T phi(inputs[:, c])`` for a block of candidates c.

    There may be more inputs than changes: candidates are located vector by vector, and predicted
    one by one. Grids behind a gate that is closed for all of them are not even looked at.
    `vectors` is a tuple as long as a row of weights has vectors: kernels compile for that width.
    """
    used, count = change.shape[0], inputs.shape[1]
    gates = encoding.gates
    firsts = gates.firsts
    change[:] = 0
    nothing = np.int64(0)  # no literal: kernels would compile once more for it
    _add_grids(encoding, weights, vectors, inputs, nothing, firsts[0], change)
    if firsts.shape[0] > 1:
        position = np.empty((1, count), inputs.dtype)
        share = np.empty(count, inputs.dtype)
        part = aligned_empty(used, weights.shape[1], weights)
        for gate in range(firsts.shape[0] - 1):
            if not _open_gate(gates, gate, inputs, used, position, share):
                continue
            part[:] = 0
            _add_grids(encoding, weights, vectors, inputs, firsts[gate], firsts[gate + 1], part)
            for c in range(used):
                for o in range(change.shape[1]):
                    change[c, o] += share[c] * part[c, o]
    start = (
        encoding.projection.counts.shape[0] // encoding.grid_dim * encoding.bins**encoding.grid_dim
    )
    # In place: every input is assembled anew for the next step, but for the constant.
    for i in range(encoding.first_linear, inputs.shape[0]):
        for c in range(count):
            inputs[i, c] *= encoding.linear_gain
    add_linear(change, weights, start, inputs, encoding.first_linear, inputs.shape[0], vectors)


@njit(cache=True, fastmath=FAST)
def _imagine_block(
    start: int,
    stop: int,
    trajectories: Any,
    tables: Any,
    encoding: Any,
    weights: Any,
    vectors: Any,
) -> None:
    """Imagine candidates ``start`` to ``stop`` along the whole horizon."""
    count = stop - start
    # Padding lanes hold zero inputs; nothing is predicted for them.
    padded = (count + LANES - 1) // LANES * LANES
    inputs = np.zeros((encoding.inputs, padded), weights.dtype)
    change = aligned_empty(count, weights.shape[1], weights)
    for step in range(trajectories.actions.shape[1]):
        assemble_step(start, count, step, trajectories, tables, inputs)
        inputs[tables.centre.shape[0]] = 1
        multiply_inputs(encoding, inputs)
        predict_block(encoding, weights, vectors, inputs, change)
        advance_step(start, count, step, trajectories, tables, change)


@njit(cache=True, parallel=True, fastmath=FAST)
def imagine(
    trajectories: Any, tables: Any, encoding: Any, weights: Any, vectors: Any, block: int
) -> None:
    """Fill ``states[1:, N, S]`` from ``states[0, N, S]`` along ``actions[N, H, A]``.

    One parallel region for the whole horizon: threads take blocks of candidates, which need
    nothing of each other, and meet once.
    """
    total = trajectories.states.shape[1]
    blocks = (total + block - 1) // block
    # A parallel loop takes in no tuples that hold others: they are put together within.
    centre, multiplier, read = tables.centre, tables.multiplier, tables.read
    limits, memory = Limits(*tables.limits), MemoryTables(*tables.memory)
    projection, distances = Projection(*encoding.projection), Projection(*encoding.gates.distances)
    firsts, reach = encoding.gates.firsts, encoding.gates.reach
    bins, grid_dim = encoding.bins, encoding.grid_dim
    first_linear, inputs = encoding.first_linear, encoding.inputs
    linear_gain = encoding.linear_gain
    products, scale, gain = encoding.products, encoding.product_scale, encoding.product_gain
    for b in prange(blocks):
        gates = Gates(distances, firsts, reach)
        _imagine_block(
            b * block,
            min(total, (b + 1) * block),
            trajectories,
            StepTables(centre, multiplier, limits, memory, read),
            EncodingTables(
                projection,
                gates,
                bins,
                grid_dim,
                first_linear,
                inputs,
                linear_gain,
                products,
                scale,
                gain,
            ),
            weights,
            vectors,
        )
