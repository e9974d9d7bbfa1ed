"""Dense networks of equal sizes, run and trained as one, with gradients in closed form.

At the sizes of an actor and its two critics, autograd spends part of a training step on
bookkeeping: nodes of a graph, and tensors that come and go. Here all weights are one vector, so
that an optimizer or an average passes over it once; the networks of an ensemble are one batched
product; and activations and gradients live in buffers that are made once.

Shapes: ``M`` members, ``N`` rows, ``I`` inputs, ``O`` outputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise

import numpy as np
import torch

ALIGNMENT = 16
"""Numbers that the place of a layer in the vector is a multiple of: whole cache lines."""


class DenseEnsemble(torch.nn.Module):
    """Networks of linear layers with rectifiers between them.

    Parameters
    ----------
    members
        Networks.
    sizes
        Widths of the layers, inputs and outputs included.
    generator
        Source of the weights, drawn evenly from ``+- 1 / sqrt(inputs)``.

    Attributes
    ----------
    vector, gradient
        All weights, and the gradient that `Workspace.backward` fills in. The parameters of the
        module and their ``grad`` are views of them.
    matrices, biases
        Of each layer ``[M, in, out]`` and ``[M, 1, out]``, without a record of gradients.
    """

    def __init__(
        self, members: int, sizes: tuple[int, ...], generator: np.random.Generator
    ) -> None:
        super().__init__()
        self.members, self.sizes = members, sizes
        shapes = [
            shape
            for inputs, outputs in pairwise(sizes)
            for shape in ((members, inputs, outputs), (members, 1, outputs))
        ]
        self.vector = torch.zeros(sum(map(_room, shapes)))
        self.gradient = self.vector.grad = torch.zeros_like(self.vector)
        views, gradients = (list(_views(vector, shapes)) for vector in (self.vector, self.gradient))
        self.matrices, self.biases = views[0::2], views[1::2]
        self.matrix_gradients, self.bias_gradients = gradients[0::2], gradients[1::2]
        for place, (view, gradient) in enumerate(zip(views, gradients, strict=True)):
            drawn = generator.uniform(-1.0, 1.0, tuple(view.shape))
            view.copy_(torch.from_numpy(drawn / math.sqrt(sizes[place // 2])))
            parameter = torch.nn.Parameter(view)
            parameter.grad = gradient
            kind = ("weight", "bias")[place % 2]
            self.register_parameter(f"layer{place // 2}_{kind}", parameter)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return outputs ``[M, N, O]`` of ``inputs[N, I]``, for autograd; `Workspace` is faster."""
        parameters = list(self.parameters())
        values = inputs.expand(self.members, *inputs.shape)
        for place, (matrix, bias) in enumerate(
            zip(parameters[0::2], parameters[1::2], strict=True)
        ):
            values = torch.baddbmm(bias, values, matrix)
            if place < len(self.matrices) - 1:
                values = values.relu()
        return values

    @torch.no_grad()
    def with_weights(self, weights: Iterable[torch.Tensor]) -> DenseEnsemble:
        """Return an ensemble of the same sizes with other weights, in the parameters' order."""
        other = DenseEnsemble(self.members, self.sizes, np.random.default_rng(0))
        for parameter, given in zip(other.parameters(), weights, strict=True):
            parameter.copy_(given)
        return other


class Workspace:
    """Buffers to send rows of inputs through ensembles of one shape, and gradients back.

    A few buffers that stay in the cache are worth more than one for every purpose: what `forward`
    returned is valid until its next call, of whichever ensemble, and each `forward` allows for one
    call of `backward` or `input_gradient`.

    Parameters
    ----------
    ensemble
        Networks of the shape that will be used.
    rows
        Rows of every batch.
    """

    def __init__(self, ensemble: DenseEnsemble, rows: int) -> None:
        members, sizes = ensemble.members, ensemble.sizes
        self._ensemble, self._inputs = ensemble, torch.zeros(members, rows, sizes[0])
        self._values = [torch.empty(members, rows, width) for width in sizes[1:]]
        self._gradients = [torch.empty_like(values) for values in self._values[:-1]]

    @torch.no_grad()
    def forward(self, ensemble: DenseEnsemble, inputs: torch.Tensor) -> torch.Tensor:
        """Return outputs ``[M, N, O]`` of ``inputs[N, I]``, which `backward` looks at again."""
        self._ensemble = ensemble
        self._inputs = values = inputs.expand(ensemble.members, *inputs.shape)
        last = self._values[-1]
        for matrix, bias, out in zip(ensemble.matrices, ensemble.biases, self._values, strict=True):
            values = torch.baddbmm(bias, values, matrix, out=out)
            if out is not last:
                values.relu_()
        return values

    @torch.no_grad()
    def backward(self, gradient: torch.Tensor) -> None:
        """Set the gradient of the ensemble that ran, given that of its outputs ``[M, N, O]``."""
        ensemble = self._ensemble
        for place, arriving in self._arriving(gradient):
            values = self._values[place - 1] if place else self._inputs
            torch.bmm(values.transpose(1, 2), arriving, out=ensemble.matrix_gradients[place])
            torch.sum(arriving, 1, keepdim=True, out=ensemble.bias_gradients[place])

    @torch.no_grad()
    def input_gradient(self, gradient: torch.Tensor, columns: slice) -> torch.Tensor:
        """Return the gradient ``[N, ...]`` of some inputs, given that of the outputs."""
        *_, (_, arriving) = self._arriving(gradient)
        matrix = self._ensemble.matrices[0][:, columns]
        return torch.bmm(arriving, matrix.transpose(1, 2)).sum(0)

    def _arriving(self, gradient: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
        """Layers from the last to the first, and the gradients of what they put out."""
        last = len(self._values) - 1
        yield last, gradient
        for place in range(last - 1, -1, -1):
            matrix, found = self._ensemble.matrices[place + 1], self._gradients[place]
            torch.bmm(gradient, matrix.transpose(1, 2), out=found)
            # A rectifier lets through what it let through before: its values are positive there.
            # They have been used for the last time, so their signs may take their place.
            found.mul_(self._values[place].sign_())
            gradient = found
            yield place, gradient


def _room(shape: tuple[int, ...]) -> int:
    return -(-math.prod(shape) // ALIGNMENT) * ALIGNMENT


def _views(vector: torch.Tensor, shapes: Iterable[tuple[int, ...]]) -> Iterator[torch.Tensor]:
    """Cut `vector` into parts of these shapes."""
    start = 0
    for shape in shapes:
        yield vector[start : start + math.prod(shape)].view(shape)
        start += _room(shape)
