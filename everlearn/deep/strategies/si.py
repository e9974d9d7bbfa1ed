"""Synaptic intelligence (Zenke, Poole and Ganguli 2017).

How much each weight did for a task is summed up while it is learned,
``omega = - sum over steps of gradient * change``, of the task's loss alone. At a boundary

    Omega += max(omega, 0) / (travelled^2 + xi)

and from then on the loss is ``L + c sum Omega (weight - anchor)^2``, the anchor being the
weights at the last boundary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from everlearn.deep.strategies.base import (
    Protection,
    Strategy,
    Tensors,
    add_quadratic_gradient,
    copies,
    quadratic,
    zeros,
)
from everlearn.support.checks import check_positive


@dataclass(frozen=True)
class SynapticIntelligence(Strategy):
    """Hold weights back by what they did for earlier tasks; told of boundaries."""

    c: float = 0.5
    """Strength of the penalty; the paper's."""
    xi: float = 0.05
    """Damping of the importance of weights that hardly moved; the paper's."""

    name: ClassVar[str] = "si"

    def __post_init__(self) -> None:
        check_positive("c", self.c)
        check_positive("xi", self.xi)

    def protect(self, module: torch.nn.Module) -> Protection:
        """Return the protection of one network."""
        return SynapticProtection(module, self)


class SynapticProtection(Protection):
    """Path integral, importance and anchor of one network's weights."""

    def __init__(self, module: torch.nn.Module, settings: SynapticIntelligence) -> None:
        super().__init__(module)
        self.settings = settings
        self.importance = zeros(self.parameters)
        self.anchor = copies(self.parameters)
        self.path = zeros(self.parameters)
        self._marked = zeros(self.parameters)
        self._gradient = zeros(self.parameters)
        self._before = zeros(self.parameters)

    def penalty(self) -> torch.Tensor:
        """``c sum Omega (weight - anchor)^2``."""
        return self.settings.c * quadratic(self.importance, self.parameters, self.anchor)

    @torch.no_grad()
    def after_backward(self) -> None:
        """Note gradient and weights; then add the gradient of the penalty."""
        for gradient, before, parameter in zip(
            self._gradient, self._before, self.parameters, strict=True
        ):
            before.copy_(parameter)
            if parameter.grad is None:
                gradient.zero_()
            else:
                gradient.copy_(parameter.grad)
        add_quadratic_gradient(self.importance, self.parameters, self.anchor, 2.0 * self.settings.c)

    @torch.no_grad()
    def after_step(self) -> None:
        """Add the step to the path integral."""
        for path, gradient, before, parameter in zip(
            self.path, self._gradient, self._before, self.parameters, strict=True
        ):
            path.addcmul_(gradient, parameter - before, value=-1.0)

    def mark(self) -> None:
        """Remember the path so far."""
        _copy(self.path, self._marked)

    def rewind(self) -> None:
        """Forget the path since `mark`: those steps were undone."""
        _copy(self._marked, self.path)

    @torch.no_grad()
    def end_task(
        self,
        inputs: tuple[torch.Tensor, ...],
        information: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        """Turn the path into importance, and hold on to the present weights."""
        for importance, path, parameter, anchor in zip(
            self.importance, self.path, self.parameters, self.anchor, strict=True
        ):
            # A weight that did harm on its way has no importance; a negative one would push it
            # away from its anchor without bound.
            importance += path.clamp(min=0.0) / ((parameter - anchor) ** 2 + self.settings.xi)
            anchor.copy_(parameter)
            path.zero_()

    def _carried(self) -> dict[str, Tensors]:
        return {"importance": self.importance, "anchor": self.anchor, "path": self.path}


@torch.no_grad()
def _copy(source: Tensors, target: Tensors) -> None:
    for value, place in zip(source, target, strict=True):
        place.copy_(value)
