"""What a page may ask of the control loop: a few plain values, checked where they arrive."""

from __future__ import annotations

import math
from dataclasses import dataclass

from everlearn.support.errors import InvalidInputError, given


@dataclass(frozen=True)
class Pause:
    """Stop, or go on."""

    on: bool


@dataclass(frozen=True)
class Step:
    """Take one step and stop again."""


@dataclass(frozen=True)
class SpeedLimit:
    """Take so many steps a second at the most; infinity for as many as there can be."""

    steps: float

    def __post_init__(self) -> None:
        if not self.steps > 0:
            raise InvalidInputError(f"a speed is {given(self.steps)}; expected more than 0")


@dataclass(frozen=True)
class SwitchTask:
    """Begin an episode of another task."""

    task: str


@dataclass(frozen=True)
class MoveGoal:
    """Put the goal of pick-place elsewhere, in metres."""

    point: tuple[float, float, float]

    def __post_init__(self) -> None:
        numbers = [float(part) for part in self.point]
        if len(numbers) != 3 or not all(map(math.isfinite, numbers)):
            raise InvalidInputError(f"a goal is {given(self.point)}; expected three finite numbers")


@dataclass(frozen=True)
class Learning:
    """Learn from now on, or act without learning."""

    on: bool


@dataclass(frozen=True)
class Seek:
    """Show this step of this episode of a recording."""

    episode: int | None = None
    step: int | None = None


Command = Pause | Step | SpeedLimit | SwitchTask | MoveGoal | Learning | Seek
