"""One training of a network of dense layers: its numbers as the kernels read them, and its steps.

The parameters of the network become views of one array while it is trained, and so do their
gradients: what a strategy does to them (`Protection`) is seen by the kernels, and the reverse.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.mlp import training_kernel as kernel
from everlearn.world_model.products import ROWS
from everlearn.world_model.vectors import LANES, aligned_zeros, padded

VANISHED, SWEEP = 1e-30, 100
"""Moments of Adam below the first count for nothing; every so many steps they become 0.

Where a rectifier is shut for good the gradient is 0, and the moments shrink until single precision
has no ordinary number for them; there they stay, and arithmetic with such numbers is twenty times
as slow. `SWEEP` steps do not take `VANISHED` that far.
"""

Floats = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]


class Layers(NamedTuple):
    """Sizes of all layers, and where each begins in the arrays that hold them one after another."""

    inputs: Places
    outputs: Places
    weights: Places
    """Among the parameters: a matrix ``[outputs, inputs]``, then its biases."""
    forward: Places
    """Among the packed weights: the matrix as ``X W^T`` reads it."""
    biases: Places
    """Among the packed weights: biases, padded."""
    backward: Places
    """Among the packed weights: the matrix as ``dZ W`` reads it."""
    gradients: Places
    """Among the sums of a thread: the gradient of the matrix, padded, then of the biases."""
    values: Places
    """In the room of a thread: inputs of each layer, and the last one's outputs."""
    slopes: Places
    """In the room of a thread: two arrays for the gradients of activations in turn."""


class Buffers(NamedTuple):
    """What a minibatch is computed in."""

    packed: Floats
    """Packed weights of all layers, and zeros at their end."""
    room: Floats
    """``[threads, ...]``: activations of a thread's rows."""
    sums: Floats
    """``[threads, ...]``: gradients summed over a thread's rows."""


def layers_of(sizes: tuple[int, ...], batch: int, threads: int) -> tuple[Layers, Buffers]:
    """Lay out layers of these sizes, and make room for minibatches of `batch` rows."""
    inputs, outputs = np.array(sizes[:-1], np.int64), np.array(sizes[1:], np.int64)
    wide_inputs, wide_outputs = (
        np.array([padded(int(size), LANES) for size in part]) for part in (inputs, outputs)
    )
    share = padded(-(-batch // threads), ROWS)
    widest = padded(max(sizes), LANES)
    parts = [inputs * wide_outputs, wide_outputs, outputs * wide_inputs]
    # Of each layer one after the other: what is read forwards, biases, what is read backwards.
    starts, total = _starts(np.stack(parts, axis=1).ravel())
    forward, biases, backward = np.ascontiguousarray(starts.reshape(-1, 3).T)
    sums, sums_total = _starts(wide_outputs * (wide_inputs + 1))
    values, used = _starts(np.append(wide_inputs, wide_outputs[-1]) * share)
    layers = Layers(
        inputs,
        outputs,
        _starts(outputs * (inputs + 1))[0],
        forward,
        biases,
        backward,
        sums,
        values,
        used + np.arange(2) * widest * share,
    )
    buffers = Buffers(
        aligned_zeros((1, total + widest), np.float32)[0],
        aligned_zeros((threads, used + 2 * widest * share), np.float32),
        aligned_zeros((threads, sums_total), np.float32),
    )
    return layers, buffers


def _starts(sizes: Places) -> tuple[Places, int]:
    ends = np.cumsum(sizes)
    return np.append(0, ends[:-1]).astype(np.int64), int(ends[-1])


class DenseTraining:
    """A network of linear layers with rectifiers between them, while it is trained.

    Parameters
    ----------
    parameters
        Matrix and biases of each layer in turn; they are moved into one array.
    optimizer
        Adam: its settings, and its moments so far.
    batch
        Most rows of a minibatch.
    threads
        Threads that share its rows.
    """

    def __init__(
        self,
        parameters: Sequence[torch.Tensor],
        optimizer: torch.optim.Adam,
        batch: int,
        threads: int,
    ) -> None:
        self._parameters, self._optimizer = parameters, optimizer
        sizes = (parameters[0].shape[1], *(len(bias) for bias in parameters[1::2]))
        self._layers, self._buffers = layers_of(sizes, batch, threads)
        total = sum(parameter.numel() for parameter in parameters)
        self._weights, self._gradients, self._means, self._squares = (
            aligned_zeros((1, total), np.float32)[0] for _ in range(4)
        )
        self._steps = 0
        for parameter, weights, gradients, means, squares in self._views():
            weights.copy_(parameter.detach())
            parameter.data, parameter.grad = weights, gradients
            moments = optimizer.state.get(parameter)
            if moments:
                self._steps = int(moments["step"])
                means.copy_(moments["exp_avg"])
                squares.copy_(moments["exp_avg_sq"])

    def _views(self) -> Iterator[tuple[torch.Tensor, ...]]:
        """Each parameter, and where its weights, gradients and moments lie."""
        flat = self._weights, self._gradients, self._means, self._squares
        first = 0
        for parameter in self._parameters:
            part = slice(first, first + parameter.numel())
            yield (
                parameter,
                *(torch.from_numpy(array[part].reshape(parameter.shape)) for array in flat),
            )
            first = part.stop

    def differentiate(self, inputs: Floats, targets: Floats, rows: Places) -> None:
        """Make the gradients those of the mean squared error on some rows of the data."""
        batch = kernel.Minibatch(inputs, targets, rows)
        kernel.gradient(batch, self._weights, self._layers, self._buffers, self._gradients)

    def update(self) -> None:
        """Take a step of Adam along the gradients, and let moments that have vanished be 0."""
        self._steps += 1
        settings = self._optimizer.param_groups[0]
        mean, square = settings["betas"]
        numbers = (
            settings["lr"] / (1 - mean**self._steps),
            1 - mean,
            1 - square,
            1 / np.sqrt(1 - square**self._steps),
            settings["eps"],
        )
        rates = kernel.AdamRates(*(np.float32(number) for number in numbers))
        moments = self._means, self._squares
        kernel.adam_update(self._weights, self._gradients, *moments, rates)
        if self._steps % SWEEP == 0:
            for moment in moments:
                moment[np.abs(moment) < VANISHED] = 0

    def error(self, inputs: Floats, targets: Floats, rows: Places) -> float:
        """Mean squared error on some rows of the data."""
        batch = kernel.Minibatch(inputs, targets, rows)
        return float(kernel.mean_squared_error(batch, self._weights, self._layers, self._buffers))

    def finish(self) -> None:
        """Give the moments back to the optimizer, for the next training."""
        for parameter, _, _, means, squares in self._views():
            parameter.grad = None
            self._optimizer.state[parameter] = {
                "step": torch.tensor(float(self._steps)),
                "exp_avg": means,
                "exp_avg_sq": squares,
            }
