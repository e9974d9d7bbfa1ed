"""What strategies share: current-task data and no protection, unless a strategy says otherwise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.strategies.storage import CurrentTask
from everlearn.interfaces import Protection as ProtectionProtocol
from everlearn.interfaces import State
from everlearn.interfaces import Storage as StorageProtocol
from everlearn.support.errors import InvalidInputError

Tensors = list[torch.Tensor]


class Protection:
    """Leaves a network alone; see `everlearn.interfaces.Protection`.

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
        """Return a penalty of 0: this strategy adds none to the loss."""
        return torch.zeros(())

    def after_backward(self) -> None:
        """Leave gradients as they are."""

    def after_step(self) -> None:
        """Leave weights as they are."""

    def mark(self) -> None:
        """Ignore the mark: there is no path to undo."""

    def rewind(self) -> None:
        """Ignore the rewind: nothing depends on the path of the weights."""

    def end_task(
        self,
        inputs: tuple[torch.Tensor, ...],
        information: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        """Ignore the end of a task."""

    def begin_task(self, name: str) -> None:
        """Ignore the beginning of a task."""

    def weights(self, task: str | None) -> Tensors:
        """Return the network's parameters, whatever the task."""
        return [parameter.detach() for parameter in self.module.parameters()]

    def state(self) -> State:
        """Tensors that the strategy carries."""
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
    """Keeps the current task's data and lets the network do what it does.

    The settings of a strategy are the fields of its dataclass; what kind of method it is are
    its class attributes.
    """

    name: ClassVar[str]
    boundary_aware: ClassVar[bool] = True
    task_dependent: ClassVar[bool] = False
    retrains: ClassVar[bool] = False

    def settings(self) -> dict[str, Any]:
        """Return its settings by name."""
        return dataclasses.asdict(self)

    def storage(
        self, widths: Mapping[str, int], seed: int | np.random.SeedSequence = 0
    ) -> StorageProtocol:
        """Return an empty storage with columns of these widths."""
        return CurrentTask(widths, seed)

    def protect(self, module: torch.nn.Module) -> ProtectionProtocol:
        """Return the protection of one network."""
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
