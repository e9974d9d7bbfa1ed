"""Training of a network of dense layers, compiled: loss, gradient and Adam of one minibatch.

A minibatch is gathered and goes through all layers and back, in products of tiles
(world_model/products.py). Layer l maps rows ``X`` of activations to::

    Z = X W^T + b       next X = max(Z, 0), but for the last layer
    dW = dZ^T X         db = sum of the rows of dZ
    dX = dZ W           dZ of the layer before = dX where X > 0

All rows are padded with zeros to vectors, and the weights are packed for each minibatch in the
order in which the products read them. Each thread takes a share of the rows, and the sums over them
are added in a fixed order: bits depend on the number of threads, as PyTorch's do.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import prange, types
from numba.extending import intrinsic

from everlearn.support.compiled import njit
from everlearn.world_model.products import (
    ALL,
    POSITIVE,
    ROWS,
    VECTORS,
    WHERE_POSITIVE,
    Place,
    product,
    vectors_of,
)
from everlearn.world_model.step_kernels import FAST
from everlearn.world_model.vectors import LANES, Vectors

Floats = npt.NDArray[np.float32]


class Minibatch(NamedTuple):
    """Which rows of which data."""

    inputs: Floats
    targets: Floats
    rows: npt.NDArray[np.int64]


@intrinsic
def _transpose(
    typingctx: Any, source: Any, place: Any, row: Any, out: Any, target: Any, step: Any
) -> Any:
    """Write a square of `LANES` rows at ``source[place]``, `row` apart, as columns of `out`.

    Interleaves rows r and r + half in every round, which after log2(LANES) rounds is a transpose.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        source_, place_, row_, out_, target_, step_ = args
        v = Vectors(context, builder, source.dtype)
        read = v.pointer(source, source_, [place_])
        write = v.pointer(out, out_, [target_])
        index = place_.type
        numbers = [ir.Constant(index, r) for r in range(LANES)]
        lines = [v.load(builder.gep(read, [builder.mul(r, row_)])) for r in numbers]
        half = LANES // 2
        masks = [
            ir.Constant(
                ir.VectorType(ir.IntType(32), LANES),
                [side * half + n // 2 + n % 2 * LANES for n in range(LANES)],
            )
            for side in range(2)
        ]
        for _ in range(LANES.bit_length() - 1):
            lines = [
                builder.shuffle_vector(lines[r], lines[r + half], mask)
                for r in range(half)
                for mask in masks
            ]
        for r, line in zip(numbers, lines, strict=True):
            v.store(line, builder.gep(write, [builder.mul(r, step_)]))
        return context.get_dummy_value()

    whole = types.intp
    return types.void(source, whole, whole, out, whole, whole), codegen


@njit(cache=True, fastmath=FAST)
def _pack_panels(matrix: Any, transposed: bool, out: Any) -> None:
    """Pack a matrix, or its transpose, into panels as wide as a tile, one after the other."""
    rows, columns = matrix.shape
    terms, count = (columns, rows) if transposed else (rows, columns)
    vectors = vectors_of(count)
    panels = (vectors + VECTORS - 1) // VECTORS
    for panel in range(panels):
        start = panel * vectors // panels * LANES
        width = (panel + 1) * vectors // panels * LANES - start
        used = min(count - start, width)
        part = out[start * terms : (start + width) * terms].reshape((terms, width))
        if transposed:
            squares = used // LANES * LANES, terms // LANES * LANES
            flat, target = matrix.reshape(-1), part.reshape(-1)
            for c in range(0, squares[0], LANES):
                for k in range(0, squares[1], LANES):
                    place = (start + c) * columns + k
                    _transpose(flat, place, columns, target, k * width + c, width)
            for c in range(used):
                for k in range(squares[1] if c < squares[0] else 0, terms):
                    part[k, c] = matrix[start + c, k]
        else:
            for k in range(terms):
                source, line = matrix[k, start : start + used], part[k]
                for c in range(used):
                    line[c] = source[c]


@njit(cache=True, fastmath=FAST)
def pack(parameters: Any, layers: Any, packed: Any) -> None:
    """Lay out the weights of all layers as the products read them."""
    for layer in range(layers.inputs.shape[0]):
        inputs, outputs, first = layers.inputs[layer], layers.outputs[layer], layers.weights[layer]
        size = outputs * inputs
        matrix = parameters[first : first + size].reshape((outputs, inputs))
        _pack_panels(matrix, True, packed[layers.forward[layer] :])
        if layer:
            _pack_panels(matrix, False, packed[layers.backward[layer] :])
        target = layers.biases[layer]
        packed[target : target + outputs] = parameters[first + size : first + size + outputs]


@njit(cache=True, fastmath=FAST)
def _predict(batch: Any, start: int, count: int, layers: Any, packed: Any, room: Any) -> int:
    """Take `count` rows of a minibatch through all layers; return how many rows were filled."""
    given, rows = batch.inputs, batch.rows
    size, width = layers.inputs[0], vectors_of(layers.inputs[0]) * LANES
    filled = (count + ROWS - 1) // ROWS * ROWS
    for r in range(filled):
        target = layers.values[0] + r * width
        line = room[target : target + size]
        if r < count:
            line[:] = given[rows[start + r]]
        else:
            line[:] = 0
    last = layers.inputs.shape[0] - 1
    for layer in range(last + 1):
        inputs = layers.inputs[layer]
        vectors = vectors_of(layers.outputs[layer])
        place = Place(
            layers.values[layer],
            vectors_of(inputs) * LANES,
            1,
            layers.forward[layer],
            0,
            layers.biases[layer],
            layers.values[layer + 1],
            0,
            vectors * LANES,
        )
        shape = (filled, inputs, vectors)
        if layer < last:
            product((room, packed, packed), room, room, place, shape, True, POSITIVE)
        else:
            product((room, packed, packed), room, room, place, shape, True, ALL)
    return filled


@njit(cache=True, fastmath=FAST)
def _differentiate(
    batch: Any, start: int, count: int, scale: float, layers: Any, packed: Any, own: Any
) -> None:
    """Sum up the gradient over `count` rows of a minibatch, as one thread does it."""
    room, sums = own
    filled = _predict(batch, start, count, layers, packed, room)
    last = layers.inputs.shape[0] - 1
    zeros = packed.shape[0] - vectors_of(max(layers.inputs.max(), layers.outputs.max())) * LANES
    targets, rows = batch.targets, batch.rows
    here = layers.slopes[last % 2]
    width = vectors_of(layers.outputs[last]) * LANES
    for r in range(filled):
        slopes = room[here + r * width : here + (r + 1) * width]
        slopes[:] = 0
        if r < count:
            wanted, place = targets[rows[start + r]], layers.values[last + 1] + r * width
            found = room[place : place + width]
            for o in range(wanted.shape[0]):
                slopes[o] = scale * (found[o] - wanted[o])
    for step in range(last + 1):
        layer = last - step
        inputs, outputs = layers.inputs[layer], layers.outputs[layer]
        wide_inputs, wide_outputs = vectors_of(inputs) * LANES, vectors_of(outputs) * LANES
        here, before = layers.slopes[layer % 2], layers.slopes[(layer + 1) % 2]
        matrix = layers.gradients[layer]
        bias = matrix + wide_outputs * wide_inputs
        place = Place(
            here, 1, wide_outputs, layers.values[layer], wide_inputs, zeros, matrix, 0, wide_inputs
        )
        shape = ((outputs + ROWS - 1) // ROWS * ROWS, filled, wide_inputs // LANES)
        product((room, room, packed), sums, sums, place, shape, False, ALL)
        offsets = sums[bias : bias + wide_outputs]
        offsets[:] = 0
        for r in range(filled):
            line = room[here + r * wide_outputs : here + (r + 1) * wide_outputs]
            for o in range(wide_outputs):
                offsets[o] += line[o]
        if layer:
            gate = layers.values[layer]
            packed_at = layers.backward[layer]
            place = Place(here, wide_outputs, 1, packed_at, 0, zeros, before, gate, wide_inputs)
            shape = (filled, outputs, wide_inputs // LANES)
            product((room, packed, packed), room, room, place, shape, True, WHERE_POSITIVE)


@njit(cache=True, parallel=True, fastmath=FAST)
def gradient(batch: Any, parameters: Any, layers: Any, buffers: Any, out: Any) -> None:
    """Gradient of the mean squared error over ``batch.rows``, in the order of the parameters."""
    packed, room, sums = buffers
    pack(parameters, layers, packed)
    threads, total = room.shape[0], len(batch.rows)
    scale = np.float32(2.0 / (total * layers.outputs[-1]))
    given, targets, rows = batch
    for t in prange(threads):
        first, stop = t * total // threads, (t + 1) * total // threads
        part = Minibatch(given, targets, rows)
        _differentiate(part, first, stop - first, scale, layers, packed, (room[t], sums[t]))
    for layer in range(layers.inputs.shape[0]):
        inputs, outputs = layers.inputs[layer], layers.outputs[layer]
        wide = vectors_of(inputs) * LANES
        target, source = layers.weights[layer], layers.gradients[layer]
        bias = source + vectors_of(outputs) * LANES * wide
        for o in range(outputs):
            place = target + o * inputs
            _add_up(sums[:, source + o * wide :], out[place : place + inputs])
        place = target + outputs * inputs
        _add_up(sums[:, bias:], out[place : place + outputs])


@njit(cache=True, fastmath=FAST)
def _add_up(parts: Any, out: Any) -> None:
    """Sum the first columns of ``parts[threads]``, first thread to last."""
    out[:] = parts[0, : out.shape[0]]
    for t in range(1, parts.shape[0]):
        part = parts[t]
        for i in range(out.shape[0]):
            out[i] += part[i]


@njit(cache=True, parallel=True, fastmath=FAST)
def mean_squared_error(batch: Any, parameters: Any, layers: Any, buffers: Any) -> float:
    """Mean squared error over ``batch.rows``, however many they are."""
    packed, room, _ = buffers
    pack(parameters, layers, packed)
    threads, total = room.shape[0], len(batch.rows)
    given, targets, rows = batch
    last = layers.inputs.shape[0]
    outputs = layers.outputs[last - 1]
    width = vectors_of(outputs) * LANES
    # As many rows at a time as there is room for.
    most = (layers.slopes[0] - layers.values[last]) // width
    errors = np.zeros(threads)
    for t in prange(threads):
        part = Minibatch(given, targets, rows)
        own = room[t]
        for first in range(t * total // threads, (t + 1) * total // threads, most):
            count = min(most, (t + 1) * total // threads - first)
            _predict(part, first, count, layers, packed, own)
            for r in range(count):
                row = rows[first + r]
                for o in range(outputs):
                    gap = own[layers.values[last] + r * width + o] - targets[row, o]
                    errors[t] += np.float64(gap) * gap
    return float(errors.sum() / (total * outputs))


class AdamRates(NamedTuple):
    """Settings of a step of Adam (Kingma and Ba 2015), in the precision of the weights."""

    step: np.float32
    """Learning rate, over the bias of the means."""
    mean: np.float32
    """Weight of a new gradient in the means, ``1 - beta_1``."""
    square: np.float32
    """Weight of its square in theirs, ``1 - beta_2``."""
    unbiased: np.float32
    """One over the square root of the bias of the means of squares."""
    smallest: np.float32
    """Added to the root of a mean of squares."""


@njit(cache=True, fastmath=FAST, error_model="numpy")
def adam_update(weights: Any, gradients: Any, means: Any, squares: Any, rates: Any) -> None:
    """``w -= rate m / (sqrt(v) + epsilon)``, unbiased means m of gradients and v of squares."""
    step, new_mean, new_square, unbiased, smallest = rates
    for i in range(weights.shape[0]):
        g = gradients[i]
        m = means[i] + new_mean * (g - means[i])
        s = squares[i] + new_square * (g * g - squares[i])
        means[i], squares[i] = m, s
        weights[i] -= step * m / (np.sqrt(s) * unbiased + smallest)
