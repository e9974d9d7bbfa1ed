"""Changes of the world in the middle of a life, which nobody is told of.

A change is in force from one step of a life to another. It comes and goes at once, or in a ramp.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import mujoco
import numpy as np

from everlearn.interfaces import FloatArray
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError, UnknownNameError, did_you_mean

STIFFNESS, WEIGHT, SLIP = 150.0, 100.0, 0.02
"""By what a change at its full strength multiplies damping, mass and friction."""

DRIFT = (0.0015, 0.0, 0.0)
"""Metres that a drifting hand moves in a step beside what it is told to."""

Scale = Callable[[mujoco.MjModel, float], None]


@dataclass(frozen=True)
class Change:
    """One change of the world.

    Parameters
    ----------
    name
        ``stiff-door``, ``heavy-block``, ``slippery-fingers``, ``delay`` or ``drift``.
    start, end
        First step of the life in which it is in force, and the first in which it is not any more;
        None for a change that stays.
    ramp
        Steps that it takes to come, and to go; 0 is at once.
    """

    name: str
    start: int = 0
    end: int | None = None
    ramp: int = 0

    def __post_init__(self) -> None:
        if self.name not in CHANGES:
            raise UnknownNameError(
                f"unknown change {self.name!r}; known: {', '.join(CHANGES)}."
                f"{did_you_mean(self.name, CHANGES)}"
            )
        check_whole("start of a change", self.start, 0)
        check_whole("ramp of a change", self.ramp, 0)
        if self.end is not None:
            check_whole("end of a change", self.end, 0)
            if self.end <= self.start:
                raise InvalidInputError(
                    f"a change ends at step {self.end} and starts at step {self.start}; let it "
                    "end later"
                )

    def strength(self, step: int) -> float:
        """Return how much of it is in force in a step of the life, from 0 to 1."""
        if step < self.start:
            return 0.0
        if self.end is not None and step >= self.end:
            return max(0.0, 1.0 - (step - self.end + 1) / self.ramp) if self.ramp else 0.0
        return min(1.0, (step - self.start + 1) / self.ramp) if self.ramp else 1.0


def _stiff_door(model: mujoco.MjModel, factor: float) -> None:
    model.joint("doorjoint").damping[:] *= factor


def _heavy_block(model: mujoco.MjModel, factor: float) -> None:
    model.body("block").mass[:] *= factor


def _slippery_fingers(model: mujoco.MjModel, factor: float) -> None:
    # The friction of a contact is the larger one of its two surfaces.
    for body in ("leftpad", "rightpad", "rightclaw", "leftclaw"):
        index = model.body(body).id
        model.geom_friction[model.geom_bodyid == index, 0] *= factor
    model.geom("blockGeom").friction[0] *= factor


_PHYSICAL: dict[str, tuple[Scale, float]] = {
    "stiff-door": (_stiff_door, STIFFNESS),
    "heavy-block": (_heavy_block, WEIGHT),
    "slippery-fingers": (_slippery_fingers, SLIP),
}
CHANGES = (*_PHYSICAL, "delay", "drift")
"""Names of what can change."""


class ChangingWorld:
    """Applies changes to a simulation and to the commands that it is given.

    Parameters
    ----------
    model
        The simulation's, as it is without any change.
    changes
        What changes, and when.
    """

    def __init__(self, model: mujoco.MjModel, changes: tuple[Change, ...]) -> None:
        self.changes = changes
        self._model = model
        self._ordinary = {
            name: getattr(model, name).copy()
            for name in ("dof_damping", "body_mass", "geom_friction")
        }
        self._strengths: tuple[float, ...] = (0.0,) * len(changes)

    def set_step(self, step: int) -> None:
        """Make the simulation what it is in a step of the life."""
        strengths = tuple(change.strength(step) for change in self.changes)
        if strengths == self._strengths:
            return
        self._strengths = strengths
        for name, values in self._ordinary.items():
            getattr(self._model, name)[:] = values
        for change, strength in zip(self.changes, strengths, strict=True):
            if change.name in _PHYSICAL and strength > 0:
                scale, factor = _PHYSICAL[change.name]
                scale(self._model, factor**strength)

    def command(self, action: FloatArray, last: FloatArray) -> FloatArray:
        """Return what is done when `action` is commanded, after `last` was."""
        return last if self._strength("delay") >= 0.5 else action

    def drift(self) -> FloatArray:
        """Metres by which the hand's commanded position moves by itself in this step."""
        return self._strength("drift") * np.array(DRIFT)

    def _strength(self, name: str) -> float:
        return sum(
            strength
            for change, strength in zip(self.changes, self._strengths, strict=True)
            if change.name == name
        )
