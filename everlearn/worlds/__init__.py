"""Worlds: what can be run. Continual Bench, Gymnasium, the dm_control suite, and yours.

A name is that of a registered world (``continual-bench``), or of a family of worlds and what the
family calls one of them (``gym:Pendulum-v1``, ``dm_control:cartpole-swingup``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from gymnasium import Env

from everlearn.interfaces import World
from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError, UnknownNameError, given

Family = Callable[[str], World]
"""Makes the world that a family calls by this name."""

WORLDS: Registry[World | Family] = Registry("world")


def register_world(name: str, world: World | Family, *, replace: bool = False) -> None:
    """Add a world, or a family of worlds, under a name.

    Parameters
    ----------
    name
        What ``--world`` calls it.
    world
        An object with the attributes and methods of `everlearn.interfaces.World`; or a function
        that makes one from what follows the colon of ``--world NAME:...``.
    replace
        Take the name over from a world that has it already.
    """
    if not isinstance(world, World) and not callable(world):
        raise InvalidInputError(
            f"world {name!r} is {given(world)}; expected name, tasks, measure, max_steps, make and "
            "objective of everlearn.interfaces.World, or a function that makes such a world"
        )
    WORLDS.register(name, world, replace=replace)


def world_named(name: str) -> World:
    """Return the world that `name` stands for."""
    family, colon, member = name.partition(":")
    world = WORLDS.get(family)
    # A class of worlds has their attributes too, but is a function that makes one.
    if isinstance(world, World) and not isinstance(world, type):
        if colon:
            raise UnknownNameError(
                f"world {family!r} is one world; write it without {':' + member!r}"
            )
        return world
    if not member:
        raise UnknownNameError(f"world {family!r} is a family; write one of it as {family}:NAME")
    made = cast("Family", world)(member)
    if not isinstance(made, World):
        raise InvalidInputError(
            f"world {name!r} is {given(made)}; expected name, tasks, measure, max_steps, make and "
            "objective of everlearn.interfaces.World"
        )
    return made


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
        self._made: dict[str, Env[Any, Any]] = {}

    def of(self, task: str) -> Env[Any, Any]:
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


def _continual_bench() -> World:
    from everlearn.worlds.continual_bench import ContinualBenchWorld

    return ContinualBenchWorld()


def _continual_life() -> World:
    from everlearn.worlds.continual_life import ContinualLifeWorld

    return ContinualLifeWorld()


def _gymnasium() -> Family:
    from everlearn.worlds.gymnasium import GymnasiumWorld

    return GymnasiumWorld


def _dm_control() -> Family:
    from everlearn.worlds.dm_control import DMControlWorld

    return DMControlWorld


WORLDS.register_lazy("continual-bench", _continual_bench)
WORLDS.register_lazy("continual-life", _continual_life)
WORLDS.register_lazy("gym", _gymnasium)
WORLDS.register_lazy("dm_control", _dm_control)

__all__ = ["WORLDS", "Environments", "Family", "register_world", "world_named"]
