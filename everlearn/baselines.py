"""Agents to compare with that learn nothing: one acts at random, one plays each task's script."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.continual_bench.life_tasks import LIFE_SCRIPTS
from everlearn.continual_bench.scripts import MAX_NOISE, SCRIPTS, ScriptedController
from everlearn.interfaces import FloatArray, Objective
from everlearn.planning.rollout import action_bounds
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.checks import check_number
from everlearn.support.errors import InvalidInputError, NotReadyError
from everlearn.support.files import reading
from everlearn.support.pickling import reduced

RANDOM_KIND, SCRIPTED_KIND = "everlearn-random-agent", "everlearn-scripted-agent"
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
        """Ignore the task: actions are random."""

    def begin_episode(self) -> None:
        """Ignore the start of an episode."""

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
        save_archive(
            path, RANDOM_KIND, VERSION, {}, {"generator": self._generator.bit_generator.state}
        )

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        _, meta = load_archive(path, RANDOM_KIND, VERSION)
        generator = np.random.default_rng(0)
        with reading(path, "generator"):
            generator.bit_generator.state = meta["generator"]
        self._generator = generator


class ScriptedAgent:
    """Reads the task's name and plays its script; learns nothing.

    Parameters
    ----------
    noise
        Standard deviation of Gaussian noise added to every action.
    seed
        Seed of that noise.
    life
        Play the scripts of a life, which begin wherever the hand is.
    """

    boundary_aware = True
    told = ("boundaries", "name")
    given = ("scene",)

    def __init__(
        self, noise: float = 0.0, seed: int | np.random.SeedSequence = 0, life: bool = False
    ) -> None:
        check_number("noise", noise, 0.0, MAX_NOISE)
        self.noise, self.life = noise, life
        self._generator = np.random.default_rng(seed)
        self._controller: ScriptedController | None = None
        self._task: str | None = None

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Take up the script of the task; there must be one under its name."""
        scripts = LIFE_SCRIPTS if self.life else SCRIPTS
        self._controller, self._task = ScriptedController(name, scripts=scripts), name

    def begin_episode(self) -> None:
        """Go back to the script's first phase."""
        if self._controller is not None:
            self._controller.reset()

    def act(self, obs: FloatArray, explore: bool = True) -> npt.NDArray[Any]:
        """Return the script's action, with noise if the agent has any and may explore."""
        if self._controller is None:
            raise NotReadyError("no task yet; call begin_task(name, objective) first")
        action = self._controller.act(obs)
        if self.noise and explore:
            action = np.clip(action + self._generator.normal(0.0, self.noise, 4), -1.0, 1.0)
        return action

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Learn nothing."""

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> ScriptedAgent:
        """Return another one with its own script and generator."""
        return ScriptedAgent(self.noise, seed, self.life)

    def save(self, path: str | Path) -> None:
        """Write the generator and the place in the script to `path`, atomically."""
        controller = self._controller
        place = None if controller is None else [controller.phase, controller.phase_steps]
        meta = {"generator": self._generator.bit_generator.state, "place": place}
        save_archive(path, SCRIPTED_KIND, VERSION, {}, meta)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes, and the name of the script."""
        return reduced(self, partial(_in_task, self.noise, self._task, self.life), {})

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing.

        The script itself is not in the file: begin the task before loading.
        """
        _, meta = load_archive(path, SCRIPTED_KIND, VERSION)
        generator = np.random.default_rng(0)
        with reading(path, "scripted agent"):
            generator.bit_generator.state = meta["generator"]
            place = meta["place"]
            phase, steps = (0, 0) if place is None else (int(place[0]), int(place[1]))
            if min(phase, steps) < 0:
                raise ValueError(f"place {place}")
        if self._controller is not None:
            if phase >= len(self._controller.phases):
                raise InvalidInputError(
                    f"{path} stands in phase {phase} of another script than this task's; begin "
                    "the task it was saved in before loading"
                )
            self._controller.phase, self._controller.phase_steps = phase, steps
        self._generator = generator


def _in_task(noise: float, task: str | None, life: bool) -> ScriptedAgent:
    """Make an agent that plays the script of a task."""
    agent = ScriptedAgent(noise, life=life)
    if task is not None:
        agent.begin_task(task, None)
    return agent
