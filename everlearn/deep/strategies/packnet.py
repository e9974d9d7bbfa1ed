"""PackNet (Mallya and Lazebnik 2018): every task owns a part of the weights.

A task trains what no earlier task owns and uses what they do. When it ends, the largest of its
weights are its own, the others become zero and free, and what is left is trained once more.
From then on its weights never change, nor do the biases and normalisations, which belong to the
first task: its predictions stay as they are to the bit. Outputs that a task has to itself are not
shared out (`Protection`). Predictions of a task use its own weights and those of
earlier tasks, so the task's name must be known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from everlearn.deep.strategies.base import Protection, Strategy, Tensors, copies
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError

FREE = -1
"""Owner of a weight that no task owns."""


@dataclass(frozen=True)
class PackNet(Strategy):
    """Give every task weights of its own; told of boundaries and of the task's name."""

    expected_tasks: int = 6
    """Tasks that the weights are shared out to evenly; those that come later, and the last of
    them, take half of what is free."""

    name: ClassVar[str] = "packnet"
    task_dependent: ClassVar[bool] = True
    retrains: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_whole("expected_tasks", self.expected_tasks, 1)

    def protect(self, module: torch.nn.Module) -> Protection:
        """Return the protection of one network."""
        return PackedProtection(module, self)


class PackedProtection(Protection):
    """Who owns which weight of one network.

    A task that comes again is a new one that its name then stands for: what others build on
    cannot change.
    """

    def __init__(self, module: torch.nn.Module, settings: PackNet) -> None:
        super().__init__(module)
        self.settings = settings
        self.owners: Tensors = [
            torch.full(parameter.shape, FREE, dtype=torch.int16) for parameter in self.parameters
        ]
        self._biases = [
            parameter.ndim < 2 or name.endswith(("bias", "gain", "shift"))
            for name, parameter in zip(self.names, self.parameters, strict=True)
        ]
        self.slots: dict[str, int] = {}
        self.slot = 0
        self.current: str | None = None
        self._pruned = False
        self._hold()

    @torch.no_grad()
    def after_backward(self) -> None:
        """Take the gradient from what may not change."""
        for parameter, trainable in zip(self.parameters, self._trainable, strict=True):
            if parameter.grad is not None:
                parameter.grad.mul_(trainable)

    @torch.no_grad()
    def after_step(self) -> None:
        """Put back what may not change: momentum moves weights that have no gradient."""
        for parameter, trainable, held in zip(
            self.parameters, self._trainable, self._held, strict=True
        ):
            parameter.copy_(torch.where(trainable, parameter, held))

    @torch.no_grad()
    def end_task(
        self,
        inputs: tuple[torch.Tensor, ...],
        information: Callable[[Any], torch.Tensor] | None = None,
    ) -> None:
        """Keep the largest free weights of each matrix; the others become zero."""
        if self._pruned:
            return
        share = 1.0 / max(2, self.settings.expected_tasks - self.slot)
        for parameter, owner, bias in zip(self.parameters, self.owners, self._biases, strict=True):
            free = owner == FREE
            if bias:
                owner[free] = self.slot  # all of them, so they belong to the first task
                continue
            kept = round(share * int(free.sum()))
            magnitude = torch.where(free, parameter.abs(), -1.0).flatten()
            # A stable sort: of equals the earlier wins, on every machine.
            largest = torch.sort(magnitude, descending=True, stable=True).indices[:kept]
            owner.view(-1)[largest] = self.slot
            parameter[owner == FREE] = 0.0
        if self.current is not None:
            self.slots[self.current] = self.slot
        self._pruned = True
        self._hold()

    def begin_task(self, name: str) -> None:
        """Freeze what the last task owns, and open what is free."""
        self.current = name
        if self._pruned:
            self.slot += 1
            self._pruned = False
        self._hold()

    def weights(self, task: str | None) -> Tensors:
        """Weights of `task` and of the tasks before it, the others zero.

        The current task, and one that never ended, are predicted with all weights.
        """
        if task is None or task == self.current or task not in self.slots:
            return super().weights(task)
        slot = self.slots[task]
        packed = {
            name: torch.where((owner != FREE) & (owner <= slot), parameter.detach(), 0.0)
            for name, parameter, owner in zip(self.names, self.parameters, self.owners, strict=True)
        }
        return [
            packed.get(name, parameter.detach())
            for name, parameter in self.module.named_parameters()
        ]

    def _hold(self) -> None:
        """Fix which weights may change, and the values of all others."""
        # After pruning, what the task owns is trained once more; before, what is free.
        owner_in_training = self.slot if self._pruned else FREE
        self._trainable = [owner == owner_in_training for owner in self.owners]
        self._held = copies(self.parameters)

    def restore(self, arrays: Mapping[str, Any], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; the network's weights must be in place already."""
        super().restore(arrays, meta)
        self._hold()

    def _carried(self) -> dict[str, Tensors]:
        return {"owners": self.owners}

    def _facts(self) -> dict[str, Any]:
        return {
            "slots": dict(self.slots),
            "slot": self.slot,
            "current": self.current,
            "pruned": self._pruned,
        }

    def _set_facts(self, meta: Mapping[str, Any]) -> None:
        try:
            slots = {str(name): int(slot) for name, slot in meta["slots"].items()}
            slot, current, pruned = int(meta["slot"]), meta["current"], bool(meta["pruned"])
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the stored strategy has no usable tasks: {error}") from None
        highest = torch.iinfo(self.owners[0].dtype).max
        if not (current is None or isinstance(current, str)) or not 0 <= slot < highest:
            raise InvalidInputError(
                f"the stored strategy is at task {current!r} in slot {slot}; expected a name and a "
                f"number from 0 to {highest - 1}"
            )
        self.slots, self.slot, self.current, self._pruned = slots, slot, current, pruned
