"""What strategies share: current-task data and no protection, unless a strategy says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.strategies.storage import CurrentTask, Storage
from everlearn.interfaces import State
from everlearn.support.errors import InvalidInputError

Tensors = list[torch.Tensor]


class Protection:
    """What a strategy does to one network while it is trained: here, nothing.

    One training step reads::

        optimizer.zero_grad()
        loss.backward()                 # of the task alone
        protection.after_backward()     # adds the gradient of `penalty`, holds weights back
        optimizer.step()
        protection.after_step()

    Strategies override what they do otherwise, and name the tensors they carry in `_carried`:
    those are saved and restored here.

    Parameters
    ----------
    module
        The network; its parameters are changed in place, never replaced. Those that it names in
        ``free_parameters``, such as the outputs that one task has to itself, are left alone
        whatever the strategy.

    Attributes
    ----------
    parameters, names
        What is protected, in the network's order.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module
        free: frozenset[str] = getattr(module, "free_parameters", frozenset())
        protected = {name: value for name, value in module.named_parameters() if name not in free}
        self.names = tuple(protected)
        self.parameters: Tensors = list(protected.values())

    def penalty(self) -> torch.Tensor:
        """Return the loss that the strategy adds, as a differentiable scalar."""
        return torch.zeros(())

    def after_backward(self) -> None:
        """Change the gradients, which are those of the task's loss alone."""

    def after_step(self) -> None:
        """Look at, or correct, what the optimizer did to the weights."""

    def mark(self) -> None:
        """Remember this moment of the training: the weights are the best so far."""

    def rewind(self) -> None:
        """Forget the training since `mark`: its weights were put back."""

    def end_task(
        self,
        inputs: tuple[torch.Tensor, ...],
        information: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        """Consolidate the task that ends.

        Parameters
        ----------
        inputs
            What the network was called with in this task, ``[N, ...]`` each.
        information
            Makes of the network's output ``[N, ...]`` numbers ``[N, K]`` of unit Fisher
            information; None for an output that is one already, such as the mean of a
            Gaussian of variance 1.
        """

    def begin_task(self, name: str) -> None:
        """Begin the next task, after `end_task` of the last and, if asked for, retraining."""

    def weights(self, task: str | None) -> Tensors:
        """Parameters to predict `task` with, in the network's order; None for the current one."""
        return [parameter.detach() for parameter in self.module.parameters()]

    def state(self) -> State:
        """Everything that later training depends on, but for the network and the optimizer."""
        arrays: dict[str, npt.NDArray[Any]] = {
            f"{name}/{index}": tensor.numpy().copy()
            for name, tensors in self._carried().items()
            for index, tensor in enumerate(tensors)
        }
        return arrays, self._facts()

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        expected, _ = self.state()
        found = {name: (array.shape, array.dtype.str) for name, array in arrays.items()}
        if found != {name: (array.shape, array.dtype.str) for name, array in expected.items()}:
            raise InvalidInputError(
                f"stored arrays of the strategy are {found}; expected those of a network with "
                f"parameters {[tuple(parameter.shape) for parameter in self.parameters]}"
            )
        self._set_facts(meta)
        for name, tensors in self._carried().items():
            for index, tensor in enumerate(tensors):
                tensor.copy_(torch.from_numpy(np.ascontiguousarray(arrays[f"{name}/{index}"])))

    def _carried(self) -> dict[str, Tensors]:
        """Tensors to save, by name; always as many and of the same shapes."""
        return {}

    def _facts(self) -> dict[str, Any]:
        """Facts to save."""
        return {}

    def _set_facts(self, meta: Mapping[str, Any]) -> None:
        """Take over facts, or raise and change nothing."""


@dataclass(frozen=True)
class Strategy:
    """How a network is kept from forgetting: its settings, and what is made from them.

    The settings of a strategy are the fields of its dataclass; what kind of method it is are
    its class attributes. Here, the current task's data are kept and the network is left alone.

    Attributes
    ----------
    name
        Name under which it is registered.
    boundary_aware
        Whether it must be told when a task ends (shown in every table).
    task_dependent
        Whether it predicts a task with weights of that task, and so must be told which.
    retrains
        Whether the network is trained again, on the same data, after `end_task`.
    """

    name: ClassVar[str]
    boundary_aware: ClassVar[bool] = True
    task_dependent: ClassVar[bool] = False
    retrains: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """Return its settings by name."""
        return dataclasses.asdict(self)

    def storage(self, widths: Mapping[str, int], seed: int | np.random.SeedSequence = 0) -> Storage:
        """Return an empty storage with columns of these widths."""
        return CurrentTask(widths, seed)

    def protect(self, module: torch.nn.Module) -> Protection:
        """Return the protection of one network; actor and critics get one each."""
        return Protection(module)


def copies(parameters: Iterable[torch.Tensor]) -> Tensors:
    """Return the present values of `parameters`."""
    return [parameter.detach().clone() for parameter in parameters]


def zeros(parameters: Iterable[torch.Tensor]) -> Tensors:
    """Return zeros in the shapes of `parameters`."""
    return [torch.zeros_like(parameter, requires_grad=False) for parameter in parameters]


def quadratic(importance: Tensors, parameters: Tensors, anchor: Tensors) -> torch.Tensor:
    """``sum importance * (parameter - anchor)^2``, differentiable in the parameters."""
    return torch.stack(
        [
            (weight * (parameter - kept) ** 2).sum()
            for weight, parameter, kept in zip(importance, parameters, anchor, strict=True)
        ]
    ).sum()


@torch.no_grad()
def add_quadratic_gradient(
    importance: Tensors, parameters: Tensors, anchor: Tensors, scale: float
) -> None:
    """Add the gradient of ``scale / 2 * quadratic(...)`` to the parameters' gradients."""
    for weight, parameter, kept in zip(importance, parameters, anchor, strict=True):
        if parameter.grad is not None:
            parameter.grad.addcmul_(weight, parameter - kept, value=scale)
