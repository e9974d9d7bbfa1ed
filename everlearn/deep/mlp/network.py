"""A dense network that is trained until a holdout stops improving, in PyTorch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.strategies.base import Protection
from everlearn.interfaces import State
from everlearn.support.archive import check_arrays
from everlearn.support.checks import check_whole

Floats = npt.NDArray[np.float32]

VANISHED, SWEEP = 1e-30, 100
"""Moments of Adam below the first count for nothing; every so many steps they become 0."""


def make_network(sizes: tuple[int, ...], generator: np.random.Generator) -> torch.nn.Sequential:
    """Return linear layers of these sizes with rectifiers between them.

    Weights and biases are drawn as PyTorch does, evenly from ``+- 1 / sqrt(inputs)``, but from
    `generator`.
    """
    layers: list[torch.nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layer = torch.nn.utils.skip_init(torch.nn.Linear, inputs, outputs)
        with torch.no_grad():
            for parameter in (layer.weight, layer.bias):
                drawn = generator.uniform(-1.0, 1.0, tuple(parameter.shape)) / np.sqrt(inputs)
                parameter.copy_(torch.from_numpy(drawn))
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def train_until_converged(
    train_epoch: Callable[[], None],
    holdout_loss: Callable[[], float],
    *,
    patience: int,
    threshold: float = 0.0,
    on_improved: Callable[[], None] = lambda: None,
) -> tuple[int, float]:
    """Train until the holdout loss has not improved for `patience` epochs in a row.

    Parameters
    ----------
    train_epoch, holdout_loss
        One pass over the data, and the loss on what was held out.
    patience
        Epochs without improvement after which it is over.
    threshold
        Relative decrease of the best loss that counts as an improvement; 0 takes any.
    on_improved
        Called before the first epoch, and whenever the loss is the best so far.

    Returns
    -------
    epochs, best
        Epochs trained, and the best loss on the holdout.
    """
    best = holdout_loss()
    on_improved()
    epochs = waited = 0
    while waited < patience:
        train_epoch()
        epochs += 1
        loss = holdout_loss()
        # The first finite loss improves on one that is not.
        if loss < best - threshold * abs(best) or (np.isfinite(loss) and not np.isfinite(best)):
            best = loss
            waited = 0
            on_improved()
        else:
            waited += 1
    return epochs, best


class Trainer:
    """A network, its optimizer and its protection: one training after the other.

    Parameters
    ----------
    network, protection
        What is trained, and what a strategy does to it.
    learning_rate, batch
        Of Adam, and of its minibatches.
    patience, threshold
        See `train_until_converged`.
    """

    def __init__(
        self,
        network: torch.nn.Module,
        protection: Protection,
        *,
        learning_rate: float,
        batch: int,
        patience: int,
        threshold: float,
    ) -> None:
        self.network, self.protection = network, protection
        self.parameters = list(network.parameters())
        self.batch = batch
        self.patience, self.threshold = patience, threshold
        self.optimizer = adam(self.parameters, learning_rate)
        self._best = [parameter.detach().clone() for parameter in self.parameters]

    def train(
        self,
        inputs: Floats,
        targets: Floats,
        held: npt.NDArray[np.bool_],
        generator: np.random.Generator,
    ) -> tuple[int, float]:
        """Train to convergence on ``inputs[N, I]`` and ``targets[N, O]``; the best weights stay.

        Parameters
        ----------
        inputs, targets
            The data.
        held
            Which of them, at least one and not all, are the holdout.
        generator
            Source of the order of minibatches.

        Returns
        -------
        epochs, loss
            Epochs trained, and the mean squared error on the holdout.
        """
        x, y = torch.from_numpy(inputs[~held]), torch.from_numpy(targets[~held])
        held_x, held_y = torch.from_numpy(inputs[held]), torch.from_numpy(targets[held])

        def train_epoch() -> None:
            rows = torch.from_numpy(generator.permutation(len(x)))
            shuffled_x, shuffled_y = x[rows], y[rows]
            for first in range(0, len(rows), self.batch):
                part = slice(first, first + self.batch)
                self._step(shuffled_x[part], shuffled_y[part])

        def holdout_loss() -> float:
            with torch.inference_mode():
                return float(torch.nn.functional.mse_loss(self.network(held_x), held_y))

        result = train_until_converged(
            train_epoch,
            holdout_loss,
            patience=self.patience,
            threshold=self.threshold,
            on_improved=self._mark,
        )
        self._rewind()
        return result

    def _step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        torch.nn.functional.mse_loss(self.network(x), y).backward()
        self.protection.after_backward()
        adam_step(self.optimizer)
        self.protection.after_step()

    @torch.no_grad()
    def _mark(self) -> None:
        for kept, parameter in zip(self._best, self.parameters, strict=True):
            kept.copy_(parameter)
        self.protection.mark()

    @torch.no_grad()
    def _rewind(self) -> None:
        for kept, parameter in zip(self._best, self.parameters, strict=True):
            parameter.copy_(kept)
        self.protection.rewind()

    def state(self) -> State:
        """Weights and moments of the optimizer."""
        return weights_state(self.parameters, self.optimizer)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        restore_weights(self.parameters, self.optimizer, arrays, meta)


def adam(parameters: Sequence[torch.Tensor], learning_rate: float) -> torch.optim.Adam:
    """Return an optimizer; fused, it passes over the weights once instead of ten times."""
    return torch.optim.Adam(parameters, lr=learning_rate, fused=True)


@torch.no_grad()
def adam_step(optimizer: torch.optim.Adam) -> None:
    """Take a step, and let moments that have vanished be 0.

    Where a rectifier is shut for good the gradient is 0, and the moments shrink until single
    precision has no ordinary number for them; there they stay, and arithmetic with such numbers
    is twenty times as slow. `SWEEP` steps do not take `VANISHED` that far.
    """
    optimizer.step()
    kept = list(optimizer.state.values())
    if int(kept[0]["step"]) % SWEEP == 0:
        for moments in kept:
            for moment in (moments["exp_avg"], moments["exp_avg_sq"]):
                moment.masked_fill_(moment.abs() < VANISHED, 0.0)


def weights_state(parameters: Sequence[torch.Tensor], optimizer: torch.optim.Adam) -> State:
    """Weights and moments of their optimizer, as arrays and facts."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    steps = 0
    for index, parameter in enumerate(parameters):
        arrays[f"weights/{index}"] = parameter.detach().numpy().copy()
        moments = optimizer.state.get(parameter)
        if moments:
            steps = int(moments["step"])
            arrays[f"mean/{index}"] = moments["exp_avg"].numpy().copy()
            arrays[f"square/{index}"] = moments["exp_avg_sq"].numpy().copy()
    return arrays, {"steps": steps}


def restore_weights(
    parameters: Sequence[torch.Tensor],
    optimizer: torch.optim.Adam,
    arrays: Mapping[str, npt.NDArray[Any]],
    meta: Mapping[str, Any],
) -> None:
    """Take over what `weights_state` returned; on bad input raise and change nothing."""
    check_whole("number of steps of the optimizer", meta["steps"], 0)
    steps = meta["steps"]
    names = ("weights", "mean", "square") if steps else ("weights",)
    check_arrays(
        arrays,
        {
            f"{name}/{index}": ("f", tuple(parameter.shape))
            for name in names
            for index, parameter in enumerate(parameters)
        },
    )
    with torch.no_grad():
        for index, parameter in enumerate(parameters):
            parameter.copy_(torch.from_numpy(arrays[f"weights/{index}"]))
            optimizer.state.pop(parameter, None)
            if steps:
                optimizer.state[parameter] = {
                    "step": torch.tensor(float(steps)),
                    "exp_avg": torch.tensor(arrays[f"mean/{index}"], dtype=parameter.dtype),
                    "exp_avg_sq": torch.tensor(arrays[f"square/{index}"], dtype=parameter.dtype),
                }


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Give PyTorch so many threads within; its results depend on them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
