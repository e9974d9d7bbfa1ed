"""What the parts ask of each other; the components themselves live in their own packages.

Shapes: ``N`` inputs in a batch, ``H`` steps of a plan, ``S`` numbers in an observation,
``A`` in an action, ``M`` in a memory's state.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

FloatArray = npt.NDArray[np.floating[Any]]


@dataclass(frozen=True)
class CommandedPosition:
    """How an environment's actions move a position that its observation does not show.

    The position starts at ``obs[observation_indices]`` of the reset observation; each action
    adds ``scale * clip(action[action_indices], -1, 1)`` and the sum is clipped to
    ``[low, high]``. An environment declares it as ``commanded_position``.
    """

    scale: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    action_indices: tuple[int, ...]
    observation_indices: tuple[int, ...]


class Objective(Protocol):
    """A batched reward: what a planner maximises."""

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray, /) -> FloatArray:
        """Rewards ``[N]`` of ``obs[N, S]``, ``action[N, A]``, ``next_obs[N, S]``."""
        ...


@runtime_checkable
class WorldModel(Protocol):
    """A model of the world's dynamics that learns from single transitions."""

    observation_space: spaces.Box
    action_space: spaces.Box

    def learn(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> None:
        """Take in one transition; on bad input raise and change nothing."""
        ...

    def predict(self, obs: FloatArray, action: FloatArray) -> FloatArray:
        """Next observations ``[N, S]``; a pure function of the model and its input."""
        ...

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` from ``obs`` along ``actions[N, H, A]``.

        ``memory`` is the state of the model's memory at ``obs``; without it the memory starts
        anew there.
        """
        ...

    def save(self, path: str | Path) -> None:
        """Write the whole model to `path`, atomically."""
        ...


@runtime_checkable
class Agent(Protocol):
    """Anything that acts and learns from what follows."""

    boundary_aware: bool
    """Whether the agent may read the name of the task (shown in every table)."""

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another objective; only boundary-aware agents may read `name`."""
        ...

    def begin_episode(self) -> None:
        """Start of an episode: clears the memory of plans and commands, not what was learned."""
        ...

    def act(self, obs: FloatArray, explore: bool = True) -> FloatArray:
        """Return the action to take at `obs`."""
        ...

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Take in what followed the last action."""
        ...

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> Agent:
        """Return an agent that acts on the same knowledge and learns nothing.

        It shares what was learned without copying it, and has a generator and a memory of its
        own, so that nothing it does can be seen in this agent.
        """
        ...

    def save(self, path: str | Path) -> None:
        """Write everything the agent knows to `path`, atomically."""
        ...

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        ...
