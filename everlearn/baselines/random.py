"""An agent that acts at random: what any other must beat."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective
from everlearn.planning.rollout import action_bounds
from everlearn.support.archive import load_archive, reading, save_archive
from everlearn.support.errors import InvalidInputError

KIND = "everlearn-random-agent"
VERSION = 1


class RandomAgent:
    """Draws every action evenly from the action space and learns nothing.

    Parameters
    ----------
    action_space
        A Box with finite bounds.
    seed
        Equal seeds give equal actions.
    """

    boundary_aware = False
    told: tuple[str, ...] = ()
    given: tuple[str, ...] = ()

    def __init__(self, action_space: spaces.Box, seed: int | np.random.SeedSequence = 0) -> None:
        self.action_space = action_space
        self._low, self._high = action_bounds(action_space)
        self._generator = np.random.default_rng(seed)

    @classmethod
    def for_env(cls, env: gymnasium.Env[Any, Any], seed: int = 0) -> RandomAgent:
        """Make one for an environment."""
        if not isinstance(env.action_space, spaces.Box):
            raise InvalidInputError(f"action space is {env.action_space}; expected a Box")
        return cls(env.action_space, seed)

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Take no notice."""

    def begin_episode(self) -> None:
        """Take no notice."""

    def act(self, obs: FloatArray, explore: bool = True) -> npt.NDArray[Any]:
        """Return a random action."""
        # Not the space's own generator: that would be state outside of the agent.
        action = self._generator.uniform(self._low, self._high)
        return np.clip(action, self._low, self._high).astype(self.action_space.dtype)

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Learn nothing."""

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> RandomAgent:
        """Return another one with its own generator."""
        return RandomAgent(self.action_space, seed)

    def save(self, path: str | Path) -> None:
        """Write the state of the generator to `path`, atomically."""
        save_archive(path, KIND, VERSION, {}, {"generator": self._generator.bit_generator.state})

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        _, meta = load_archive(path, KIND, VERSION)
        generator = np.random.default_rng(0)
        with reading(path, "generator"):
            generator.bit_generator.state = meta["generator"]
        self._generator = generator
