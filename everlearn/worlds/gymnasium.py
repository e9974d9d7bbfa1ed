"""Any registered Gymnasium environment with Box spaces as a world with one task."""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium import spaces

from everlearn.interfaces import Measure, Objective
from everlearn.support.errors import InvalidInputError, UnknownNameError, did_you_mean

UNLIMITED = 1000
"""Steps of an episode where neither the environment nor the run says when it ends."""


class GymnasiumWorld:
    """One Gymnasium environment; its task has the environment's name.

    Parameters
    ----------
    environment
        Registered id, such as ``Pendulum-v1`` or ``my_module:MyEnv-v0``.
    """

    measure: Measure = "return"

    def __init__(self, environment: str) -> None:
        self.name = f"gym:{environment}"
        self.tasks = (environment,)
        try:
            self._spec = gymnasium.spec(environment)
        except (gymnasium.error.Error, ImportError) as error:
            # Gymnasium's own suggestion lacks the version.
            reason = str(error).partition(" Did you mean")[0]
            hint = did_you_mean(environment, gymnasium.registry)
            raise UnknownNameError(
                f"unknown Gymnasium environment {environment!r}: {reason}{hint}"
            ) from error
        self.max_steps = self._spec.max_episode_steps or UNLIMITED

    def make(
        self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> gymnasium.Env[Any, Any]:
        """Return the environment; observations of several axes or parts are flattened."""
        check_only_task(self.name, self.tasks, task, reset_noise)
        # Environments that nobody can watch need not take a render mode.
        chosen: dict[str, Any] = {} if render_mode is None else {"render_mode": render_mode}
        try:
            env = gymnasium.make(self._spec, **chosen)
        except gymnasium.error.Error as error:  # such as a dependency that is not installed
            raise InvalidInputError(f"cannot make {task!r}: {error}") from error
        if not isinstance(env.action_space, spaces.Box):
            raise InvalidInputError(
                f"{task!r} has the action space {env.action_space}; agents need a Box of real "
                "numbers, so choose an environment with continuous actions"
            )
        one_axis = isinstance(env.observation_space, spaces.Box) and (
            len(env.observation_space.shape) == 1
        )
        return env if one_axis else gymnasium.wrappers.FlattenObservation(env)

    def objective(self, task: str) -> Objective | None:
        """Return None: the reward of such an environment is learned."""
        return None


def check_only_task(world: str, tasks: tuple[str, ...], task: str, reset_noise: float) -> None:
    """Refuse another task than the only one of a world, and noise that it cannot make."""
    if task not in tasks:
        raise UnknownNameError(f"unknown task {task!r} of world {world!r}; it has: {tasks[0]}")
    if reset_noise:
        raise InvalidInputError(
            f"reset_noise is {reset_noise:g}, but world {world!r} draws its starts itself; leave "
            "it at 0"
        )
