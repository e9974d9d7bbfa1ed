"""Elastic weight consolidation (Kirkpatrick et al. 2017), with a diagonal Fisher matrix.

At a boundary the Fisher information of every weight is measured on data of the task that ends,
``F = E_x sum_k (d output_k / d weight)^2`` for outputs of unit information. The loss is then
``L + strength / 2 * penalty``:

- ``per-task``: ``sum over tasks t and weights of F_t (weight - anchor_t)^2``. The sum of
  quadratics is one quadratic around the mean of the anchors weighted by F, and a constant, so
  nothing grows with the number of tasks.
- ``online`` (Schwarz et al. 2018): ``F (weight - anchor)^2`` with ``F <- decay F + F_t`` and
  the anchor at the last boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

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
from everlearn.support.checks import check_number, check_positive, check_whole
from everlearn.support.errors import InvalidInputError

CHUNK_NUMBERS = 16_000_000
"""Derivatives held at a time while the Fisher information is summed up."""


@dataclass(frozen=True)
class ElasticWeightConsolidation(Strategy):
    """Hold weights back by the Fisher information of earlier tasks; told of boundaries."""

    strength: float = 100.0
    """Weight of the penalty."""
    variant: Literal["per-task", "online"] = "per-task"
    """An anchor for every task, or one for all."""
    decay: float = 1.0
    """What is left of the Fisher information at each boundary, ``online`` only."""
    fisher_samples: int = 256
    """Inputs of a task that its Fisher information is measured on, taken evenly from all."""
    fisher_floor: float = 0.0
    """Least information of a weight in a task: what no input happened to need is held a little."""

    name: ClassVar[str] = "ewc"

    def __post_init__(self) -> None:
        check_positive("strength", self.strength)
        check_positive("decay", self.decay)
        check_number("decay", self.decay, 0.0, 1.0)
        check_whole("fisher_samples", self.fisher_samples, 1)
        if self.fisher_floor != 0.0:
            check_positive("fisher_floor", self.fisher_floor)
        if self.variant not in ("per-task", "online"):
            raise InvalidInputError(f"variant is {self.variant!r}; expected 'per-task' or 'online'")

    def protect(self, module: torch.nn.Module) -> Protection:
        """Return the protection of one network."""
        return ElasticProtection(module, self)


class ElasticProtection(Protection):
    """Fisher information and anchor of one network's weights."""

    def __init__(self, module: torch.nn.Module, settings: ElasticWeightConsolidation) -> None:
        super().__init__(module)
        self.settings = settings
        self.importance = zeros(self.parameters)
        self.anchor = copies(self.parameters)
        self.constant = 0.0

    def penalty(self) -> torch.Tensor:
        """``strength / 2 * sum F (weight - anchor)^2``, summed over tasks if per task."""
        distance = quadratic(self.importance, self.parameters, self.anchor)
        return 0.5 * self.settings.strength * (distance + self.constant)

    def after_backward(self) -> None:
        """Add the gradient of the penalty."""
        add_quadratic_gradient(
            self.importance, self.parameters, self.anchor, self.settings.strength
        )

    def end_task(
        self,
        inputs: tuple[torch.Tensor, ...],
        information: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        """Measure the Fisher information and hold on to the present weights."""
        count = len(inputs[0])
        if count == 0:
            return
        samples = min(count, self.settings.fisher_samples)
        rows = torch.linspace(0, count - 1, samples).round().long()
        fisher = diagonal_fisher(
            self.module, tuple(part[rows] for part in inputs), information, self.names
        )
        with torch.no_grad():
            for importance, anchor, found, parameter in zip(
                self.importance, self.anchor, fisher, self.parameters, strict=True
            ):
                found.clamp_(min=self.settings.fisher_floor)
                if self.settings.variant == "online":
                    importance.mul_(self.settings.decay).add_(found)
                    anchor.copy_(parameter)
                else:
                    self.constant += _add_quadratic(importance, anchor, found, parameter)

    def _carried(self) -> dict[str, Tensors]:
        return {"importance": self.importance, "anchor": self.anchor}

    def _facts(self) -> dict[str, Any]:
        return {"constant": self.constant}

    def _set_facts(self, meta: Mapping[str, Any]) -> None:
        try:
            self.constant = float(meta["constant"])
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(
                f"the stored strategy has no usable constant: {error}"
            ) from None


def _add_quadratic(
    weight: torch.Tensor, centre: torch.Tensor, added: torch.Tensor, place: torch.Tensor
) -> float:
    """Add ``added (x - place)^2`` to ``weight (x - centre)^2``, in place; return the constant.

    ``a (x - p)^2 + b (x - q)^2 = (a + b) (x - m)^2 + a b / (a + b) (p - q)^2`` with ``m`` the
    mean of ``p`` and ``q`` weighted by ``a`` and ``b``.
    """
    share = added / (weight + added).clamp(min=torch.finfo(weight.dtype).tiny)
    gap = place - centre
    constant = (weight * share * gap**2).sum(dtype=torch.float64)
    # Where neither knows anything the anchor does not matter.
    centre.addcmul_(share, gap)
    weight.add_(added)
    return float(constant)


def diagonal_fisher(
    module: torch.nn.Module,
    inputs: tuple[torch.Tensor, ...],
    information: Callable[[Any], torch.Tensor] | None = None,
    names: Collection[str] | None = None,
) -> Tensors:
    """Return ``E_x sum_k (d output_k / d weight)^2`` for each parameter of `module`.

    The expectation over labels is exact, since the outputs have unit information: no labels
    are drawn. With `names` only the parameters that have one of them are looked at.
    """
    every = {name: value.detach() for name, value in module.named_parameters()}
    parameters = {name: value for name, value in every.items() if names is None or name in names}

    def outputs(values: dict[str, torch.Tensor], *one: torch.Tensor) -> torch.Tensor:
        whole = {**every, **values}
        made = torch.func.functional_call(module, whole, tuple(part[None] for part in one))
        found: torch.Tensor = made if information is None else information(made)
        return found.reshape(-1)

    derivatives = torch.func.vmap(torch.func.jacrev(outputs), in_dims=(None, *(0 for _ in inputs)))
    sums = {name: torch.zeros_like(value) for name, value in parameters.items()}
    count = len(inputs[0])
    with torch.no_grad():
        width = len(outputs(parameters, *(part[0] for part in inputs)))
    size = width * sum(value.numel() for value in parameters.values())
    chunk = max(1, CHUNK_NUMBERS // size)
    for first in range(0, count, chunk):
        part = tuple(values[first : first + chunk] for values in inputs)
        for name, found in derivatives(parameters, *part).items():
            sums[name] += found.detach().square_().sum(dim=(0, 1))
    return [total / count for total in sums.values()]
