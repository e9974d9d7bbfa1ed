"""Parts of an actor-critic: networks that are trained, a policy that acts, a minibatch.

The networks are those of Continual World (Wolczyk et al. 2021): what the first layer puts out is
normalised and squeezed by tanh, so that inputs and values of any size reach the next layers
alike; behind the other layers are rectifiers that let a fifth of what is negative through. All
weights are one vector, and gradients are in closed form.

Shapes: ``M`` members, ``N`` rows, ``I`` inputs, ``O`` outputs. Needs the extra ``deep``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.mlp.network import adam, adam_step, restore_weights, weights_state
from everlearn.deep.sac.gaussian import SquashedGaussian, parameters_of
from everlearn.deep.strategies import Protection, Storage, Strategy
from everlearn.interfaces import State
from everlearn.support.archive import part_of

ALIGNMENT = 16
"""Numbers that the position of a layer in the vector is a multiple of: whole cache lines."""

Floats = npt.NDArray[np.float32]

LEAK = 0.2
"""What a rectifier lets through of a negative number."""

EXACT = 1e-5
"""Relative error of a product of matrices above which it was rounded to less than single."""

SMALLEST_VARIANCE = 1e-5
"""Added to the variance of a row before it is normalised."""

_aten = torch.ops.aten


@cache
def _products() -> Any | None:
    """Where PyTorch keeps which library multiplies matrices; None if it has no choice worth making.

    MKL, the usual one, uses half of what some processors can do; oneDNN uses all of it. PyTorch
    turns to oneDNN if products may be rounded to bfloat16. Most processors have no use for that
    permission: whether this one does is measured, and if so it is not given.
    """
    place = getattr(torch.backends.mkldnn, "matmul", None)
    if not (torch.backends.mkldnn.is_available() and hasattr(place, "fp32_precision")):
        return None
    left, right = torch.linspace(-1.0, 1.0, 2 * 128 * 256).sin().view(2, 128, 256).unbind()
    exact = left.double() @ right.double().T
    with _rounding(place):
        error = float((torch.bmm(left[None], right.T[None])[0] - exact).abs().max())
    return place if error < EXACT * float(exact.abs().max()) else None


@contextmanager
def _rounding(place: Any) -> Iterator[None]:
    before = place.fp32_precision
    place.fp32_precision = "bf16"
    try:
        yield
    finally:
        place.fp32_precision = before


def fast_products() -> AbstractContextManager[None]:
    """Let the quickest library multiply matrices within, if it is as exact as the others."""
    place = _products()
    return nullcontext() if place is None else _rounding(place)


class NormalisedEnsemble(torch.nn.Module):
    """Networks of equal sizes, run and trained as one, the first layer of each normalised.

    Parameters
    ----------
    members
        Networks.
    sizes
        Widths of the layers, inputs and outputs included; at least one is hidden.
    generator
        Source of the weights, drawn evenly from ``+- 1 / sqrt(inputs)``.
    heads
        Tasks that share out the outputs evenly. More than one are free: strategies that protect
        a network leave `free_parameters` alone, since no other task has a say in a head.

    Attributes
    ----------
    vector, gradient
        All weights, and the gradient that `NormalisedWorkspace.backward` fills in. The parameters
        of the module and their ``grad`` are views of them.
    matrices, biases
        Of each layer ``[M, in, out]`` and ``[M, 1, out]``, without a record of gradients.
    gain, shift
        Of the normalisation, ``[M, 1, out]``.
    free_parameters
        Names of the parameters that belong to heads.
    """

    def __init__(
        self, members: int, sizes: tuple[int, ...], generator: np.random.Generator, heads: int = 1
    ) -> None:
        super().__init__()
        self.members, self.sizes, self.heads = members, sizes, heads
        shapes = {"normal_gain": (members, 1, sizes[1]), "normal_shift": (members, 1, sizes[1])}
        for place, (inputs, outputs) in enumerate(pairwise(sizes)):
            shapes[f"layer{place}_weight"] = (members, inputs, outputs)
            shapes[f"layer{place}_bias"] = (members, 1, outputs)
        room = [-(-math.prod(shape) // ALIGNMENT) * ALIGNMENT for shape in shapes.values()]
        starts = list(accumulate(room, initial=0))
        self.vector = torch.zeros(starts[-1])
        self.gradient = self.vector.grad = torch.zeros_like(self.vector)
        views, gradients = (
            [
                whole[start : start + math.prod(shape)].view(shape)
                for start, shape in zip(starts, shapes.values(), strict=False)
            ]
            for whole in (self.vector, self.gradient)
        )
        (self.gain, self.shift), (self.gain_gradient, self.shift_gradient) = (
            views[:2],
            gradients[:2],
        )
        self.matrices, self.biases = views[2::2], views[3::2]
        self.matrix_gradients, self.bias_gradients = gradients[2::2], gradients[3::2]
        self.gain.fill_(1.0)
        for matrix, bias in zip(self.matrices, self.biases, strict=True):
            for view in (matrix, bias):
                drawn = generator.uniform(-1.0, 1.0, tuple(view.shape))
                view.copy_(torch.from_numpy(drawn / math.sqrt(matrix.shape[1])))
        for name, view, gradient in zip(shapes, views, gradients, strict=True):
            parameter = torch.nn.Parameter(view)
            parameter.grad = gradient
            self.register_parameter(name, parameter)
        last = f"layer{len(sizes) - 2}"
        self.free_parameters = frozenset({f"{last}_weight", f"{last}_bias"} if heads > 1 else set())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return outputs ``[M, N, O]`` of ``inputs[N, I]``, for autograd; a workspace is faster."""
        gain, shift, *rest = self.parameters()
        values = inputs.expand(self.members, *inputs.shape)
        last = len(self.matrices) - 1
        for place, (matrix, bias) in enumerate(zip(rest[0::2], rest[1::2], strict=True)):
            values = torch.baddbmm(bias, values, matrix)
            if place == 0:
                width = (values.shape[-1],)
                normal = torch.nn.functional.layer_norm(values, width, eps=SMALLEST_VARIANCE)
                values = torch.tanh(normal * gain + shift)
            elif place < last:
                values = torch.nn.functional.leaky_relu(values, LEAK)
        return values

    @torch.no_grad()
    def with_weights(self, weights: Iterable[torch.Tensor]) -> NormalisedEnsemble:
        """Return an ensemble of the same sizes with other weights, in the parameters' order."""
        generator = np.random.default_rng(0)
        other = NormalisedEnsemble(self.members, self.sizes, generator, self.heads)
        for parameter, given in zip(other.parameters(), weights, strict=True):
            parameter.copy_(given)
        return other


class NormalisedWorkspace:
    """Buffers to send rows of inputs through ensembles of one shape, and gradients back.

    What `forward` returned is valid until its next call, of whichever ensemble, and each
    `forward` allows for one call of `backward` or `input_gradient`.

    Parameters
    ----------
    ensemble
        Networks of the shape that will be used.
    rows
        Rows of every batch.
    """

    def __init__(self, ensemble: NormalisedEnsemble, rows: int) -> None:
        members, sizes = ensemble.members, ensemble.sizes
        self._ensemble, self._inputs = ensemble, torch.zeros(members, rows, sizes[0])
        self._values = [torch.empty(members, rows, width) for width in sizes[1:]]
        self._gradients = [torch.empty_like(values) for values in self._values[:-1]]
        self._first = torch.empty_like(self._values[0])
        self._normal = torch.empty_like(self._first)
        self._mean = self._inverse_deviation = torch.empty(members, rows, 1)

    @torch.no_grad()
    def forward(self, ensemble: NormalisedEnsemble, inputs: torch.Tensor) -> torch.Tensor:
        """Return outputs ``[M, N, O]`` of ``inputs[N, I]``, which `backward` looks at again."""
        self._ensemble = ensemble
        self._inputs = inputs.expand(ensemble.members, *inputs.shape)
        first, values = self._first, self._values[0]
        torch.baddbmm(ensemble.biases[0], self._inputs, ensemble.matrices[0], out=first)
        self._normal, self._mean, self._inverse_deviation = _aten.native_layer_norm(
            first, (first.shape[-1],), None, None, SMALLEST_VARIANCE
        )
        torch.addcmul(ensemble.shift, self._normal, ensemble.gain, out=values).tanh_()
        last = self._values[-1]
        for place, out in enumerate(self._values[1:], 1):
            torch.baddbmm(ensemble.biases[place], values, ensemble.matrices[place], out=out)
            values = out if out is last else torch.nn.functional.leaky_relu_(out, LEAK)
        return values

    @torch.no_grad()
    def backward(self, gradient: torch.Tensor) -> None:
        """Set the gradient of the ensemble that ran, given that of its outputs ``[M, N, O]``."""
        ensemble = self._ensemble
        for place, arriving in self._arriving(gradient, of_gain=True):
            values = self._values[place - 1] if place else self._inputs
            torch.bmm(values.transpose(1, 2), arriving, out=ensemble.matrix_gradients[place])
            torch.sum(arriving, 1, keepdim=True, out=ensemble.bias_gradients[place])

    @torch.no_grad()
    def input_gradient(self, gradient: torch.Tensor, columns: slice) -> torch.Tensor:
        """Return the gradient ``[N, ...]`` of some inputs, given that of the outputs."""
        *_, (_, arriving) = self._arriving(gradient, of_gain=False)
        matrix = self._ensemble.matrices[0][:, columns]
        return torch.bmm(arriving, matrix.transpose(1, 2)).sum(0)

    def _arriving(
        self, gradient: torch.Tensor, of_gain: bool
    ) -> Iterator[tuple[int, torch.Tensor]]:
        """Layers from the last to the first, and the gradients of what they put out."""
        last = len(self._values) - 1
        yield last, gradient
        for place in range(last - 1, -1, -1):
            matrix, found = self._ensemble.matrices[place + 1], self._gradients[place]
            torch.bmm(gradient, matrix.transpose(1, 2), out=found)
            values = self._values[place]
            if place:
                _aten.leaky_relu_backward.grad_input(found, values, LEAK, True, grad_input=found)
            else:
                _aten.tanh_backward.grad_input(found, values, grad_input=found)
                found = self._through_norm(found, of_gain)
            gradient = found
            yield place, gradient

    def _through_norm(self, gradient: torch.Tensor, of_gain: bool) -> torch.Tensor:
        """Gradient of what the first layer puts out; on request that of gain and shift too."""
        ensemble, width = self._ensemble, (gradient.shape[-1],)
        if of_gain:
            torch.sum(gradient, 1, keepdim=True, out=ensemble.shift_gradient)
            torch.sum(gradient * self._normal, 1, keepdim=True, out=ensemble.gain_gradient)
        gradient.mul_(ensemble.gain)
        found: torch.Tensor = _aten.native_layer_norm_backward(
            gradient,
            self._first,
            width,
            self._mean,
            self._inverse_deviation,
            None,
            None,
            [True, False, False],
        )[0]
        return found


class Trained:
    """Networks, their optimizer, and what a strategy does to them.

    Parameters
    ----------
    network
        One or more networks as one.
    strategy
        What protects them from forgetting; None leaves them alone.
    learning_rate
        Of Adam.
    clip
        Greatest length of a gradient, as the strategy leaves it; longer ones are shortened. None
        takes them as they are.
    """

    def __init__(
        self,
        network: NormalisedEnsemble,
        strategy: Strategy | None,
        learning_rate: float,
        clip: float | None = None,
    ) -> None:
        self.network, self.clip = network, clip
        self.depends_on_task = strategy is not None and strategy.task_dependent
        self.protection: Protection = (
            Protection(network) if strategy is None else strategy.protect(network)
        )
        self._optimizer = adam([network.vector], learning_rate)

    def step(self) -> None:
        """Take a step along the gradient that is there, as far as the strategy lets it."""
        self.protection.after_backward()
        if self.clip is not None:
            clip_(self.network.gradient, self.clip)
        adam_step(self._optimizer)
        self.protection.after_step()

    def renew(self) -> None:
        """Forget the optimizer's moments."""
        self._optimizer.state.clear()

    def state(self) -> State:
        """Weights, moments, and what the strategy carries."""
        arrays, facts = weights_state([self.network.vector], self._optimizer)
        carried, protection = self.protection.state()
        arrays |= {f"protection/{name}": array for name, array in carried.items()}
        return arrays, {**facts, "protection": protection}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; if something does not fit it is left half done."""
        own = {name: array for name, array in arrays.items() if name[:11] != "protection/"}
        restore_weights([self.network.vector], self._optimizer, own, meta)
        # After the weights: some strategies hold on to values of theirs.
        self.protection.restore(part_of(arrays, "protection/"), meta["protection"])


@torch.no_grad()
def clip_(gradient: torch.Tensor, longest: float) -> None:
    """Shorten a gradient to `longest`, in place, if it is longer."""
    gradient.mul_((longest / gradient.norm().clamp(min=1e-30)).clamp(max=1.0))


class Policy:
    """An actor that acts, one state at a time.

    Parameters
    ----------
    network
        The actor; its weights are used as they are at each call.
    actions
        Numbers in an action.
    """

    def __init__(self, network: NormalisedEnsemble, actions: int) -> None:
        self._network, self._workspace = network, NormalisedWorkspace(network, 1)
        self._outputs = 2 * actions

    @torch.no_grad()
    def act(self, state: Floats, head: int = 0, noise: Floats | None = None) -> Floats:
        """Return the action ``[A]`` in ``[-1, 1]`` at ``state[S]``.

        Parameters
        ----------
        state
            What the network sees.
        head
            Which of its outputs have the say.
        noise
            Of a standard normal distribution, ``[A]``; None takes the middle of the distribution.
        """
        outputs = self._workspace.forward(self._network, torch.from_numpy(state)[None])[0]
        own = outputs[:, head * self._outputs : (head + 1) * self._outputs]
        if noise is None:
            action = torch.tanh(parameters_of(own)[0])
        else:
            action = SquashedGaussian(own, torch.from_numpy(noise)[None]).actions
        found: Floats = action[0].numpy()
        return found


class Batch:
    """One minibatch in buffers that are made once.

    Parameters
    ----------
    rows
        Transitions in it.
    columns
        Numbers of each part of a transition.

    Attributes
    ----------
    replayed, proposed, following
        Inputs of critics, ``[N, state + action]``: what was done, what the policy would do there,
        and what it would do next.
    state, next_state
        Views of their states.
    reward, ended, task
        ``[N]``, ``[N]`` and ``[N, heads]``.
    noise
        Of a standard normal distribution, ``[2 N, A]``.
    """

    def __init__(self, rows: int, columns: Mapping[str, int]) -> None:
        states, actions = columns["state"], columns["action"]
        self.rows, self._actions = rows, slice(states, None)
        self.replayed, self.proposed, self.following = torch.zeros(3, rows, states + actions)
        self.state, self.next_state = self.replayed[:, :states], self.following[:, :states]
        self.reward, self.ended = torch.zeros(2, rows)
        self.task = torch.zeros(rows, columns["task"])
        self.noise = torch.zeros(2 * rows, actions)
        self._places = {
            "state": self.state,
            "action": self.replayed[:, self._actions],
            "next_state": self.next_state,
            "reward": self.reward[:, None],
            "ended": self.ended[:, None],
            "task": self.task,
        }

    def draw(self, storage: Storage, generator: np.random.Generator) -> None:
        """Fill the batch with transitions and noise."""
        for name, values in storage.sample(self.rows, generator).items():
            self._places[name].copy_(torch.from_numpy(values))
        self.proposed[:, : self._actions.start] = self.state
        generator.standard_normal(dtype=np.float32, out=self.noise.numpy())

    def set_actions(self, here: torch.Tensor, following: torch.Tensor) -> None:
        """Put in what the policy would do."""
        self.proposed[:, self._actions] = here
        self.following[:, self._actions] = following
