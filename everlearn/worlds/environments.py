"""The environments of a world's tasks, each made when it is first needed."""

from __future__ import annotations

from typing import Any

import gymnasium

from everlearn.interfaces import World
from everlearn.support.errors import InvalidInputError


class Environments:
    """Environments by task; all of them have the same spaces.

    Parameters
    ----------
    world
        Makes them.
    reset_noise, render_mode
        Handed to `World.make`.
    """

    def __init__(
        self, world: World, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> None:
        self.world = world
        self._reset_noise, self._render_mode = reset_noise, render_mode
        self._made: dict[str, gymnasium.Env[Any, Any]] = {}

    def of(self, task: str) -> gymnasium.Env[Any, Any]:
        """Return the environment of `task`."""
        if task not in self._made:
            env = self.world.make(
                task, reset_noise=self._reset_noise, render_mode=self._render_mode
            )
            for other, first in list(self._made.items())[:1]:
                spaces = (env.observation_space, env.action_space)
                if spaces != (first.observation_space, first.action_space):
                    env.close()
                    raise InvalidInputError(
                        f"tasks {other!r} and {task!r} of world {self.world.name!r} have different "
                        "spaces; one agent can learn only tasks that share them"
                    )
            self._made[task] = env
        return self._made[task]

    def close(self) -> None:
        """Close all of them."""
        while self._made:
            self._made.popitem()[1].close()
