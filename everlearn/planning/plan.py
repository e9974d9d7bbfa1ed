"""What every planner promises and what it returns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective, WorldModel
from everlearn.planning.rollout import Actions


@dataclass(frozen=True, eq=False)
class Plan:
    """A decision and what the planner saw on the way to it.

    Attributes
    ----------
    action
        The action to execute now, ``[A]``.
    actions
        The best sequence of actions found, ``[H, A]``.
    value
        Imagined return of `actions`.
    returns
        Imagined returns of the candidates, one array for each iteration; minus infinity where
        the objective was not finite.
    elites
        The last elite set, best first, ``[E, H, A]``.
    elite_returns
        Their imagined returns, ``[E]``.
    states
        Their imagined trajectories, ``[E, H + 1, S]``.
    iterations_done
        How many iterations there was time for.
    seconds
        Wall-clock time of the decision.
    """

    action: Actions
    actions: Actions
    value: float
    returns: tuple[npt.NDArray[np.float64], ...]
    elites: Actions
    elite_returns: npt.NDArray[np.float64]
    states: FloatArray
    iterations_done: int
    seconds: float


@runtime_checkable
class Planner(Protocol):
    """Searches for actions in the imagination of a model."""

    def plan(
        self,
        model: WorldModel,
        obs: FloatArray,
        objective: Objective,
        memory: FloatArray | None = None,
        deadline_ms: float | None = None,
    ) -> Plan:
        """Return a plan from `obs`; on an error the planner is as it was."""
        ...

    def reset(self) -> None:
        """Forget earlier plans: start of an episode or of a task."""
        ...

    def spawn(self, seed: int | np.random.SeedSequence) -> Planner:
        """Return a fresh planner with the same settings, its own memory and generator."""
        ...

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything that later plans depend on: arrays and a JSON dictionary."""
        ...

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        ...


class PlannerType(Protocol):
    """What is registered: a class of planners, made from a space, settings and a seed."""

    @property
    def config_type(self) -> type[Any]:
        """The frozen dataclass of its settings."""
        ...

    def __call__(
        self,
        action_space: spaces.Box,
        config: Any = None,
        seed: int | np.random.SeedSequence = 0,
    ) -> Planner:
        """Make a planner."""
        ...
