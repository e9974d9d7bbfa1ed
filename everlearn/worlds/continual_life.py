"""Lives around the table of Continual Bench as a world: its tasks are lives, episodes their visits.

A life goes on from one episode of a run to the next: `LifeVisits.reset` without a seed begins the
next visit where the last one ended. Objects that were lost in between are put back, which is
counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium

from everlearn.continual_bench.changes import Change
from everlearn.continual_bench.life import VISIT_STEPS, ContinualLifeEnv
from everlearn.continual_bench.life_tasks import OBJECTS, objective_of
from everlearn.interfaces import FloatArray, Measure, Objective, State
from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError, NotReadyError


@dataclass(frozen=True)
class Life:
    """What a life is about.

    Parameters
    ----------
    objects
        Whose tasks come and go.
    changes
        How the world changes, which nobody is told of.
    """

    objects: tuple[str, ...] = tuple(OBJECTS)
    changes: tuple[Change, ...] = ()


LIVES: Registry[Life] = Registry("life")
"""Lives by the name that ``--tasks`` gives them."""


def register_life(
    name: str,
    objects: Sequence[str] = tuple(OBJECTS),
    changes: Sequence[Change] = (),
    *,
    replace: bool = False,
) -> Life:
    """Add a life of your own to the world ``continual-life``.

    Parameters
    ----------
    name
        What ``--tasks`` calls it.
    objects, changes
        As for `Life`.
    replace
        Take the name over from a life that has it already.
    """
    life = Life(tuple(objects), tuple(changes))
    ContinualLifeEnv(life.objects, changes=life.changes).close()  # refuses wrong objects
    return LIVES.register(name, life, replace=replace)


CHANGE_START, CHANGE_END = 8000, 14000
"""Steps of a life between which the built-in changes are in force."""

LIVES.register("life", Life())
for _name, _objects in (
    ("stiff-door", ("door", "window")),
    ("heavy-block", ("block", "window")),
    ("slippery-fingers", ("block", "window")),
    ("delay", ("door", "window")),
    ("drift", ("door", "window")),
):
    LIVES.register(_name, Life(_objects, (Change(_name, CHANGE_START, CHANGE_END),)))


class LifeVisits(gymnasium.Wrapper[FloatArray, FloatArray, FloatArray, FloatArray]):
    """A life as episodes: each is the visit of a task, and ends with it.

    `reset` with a seed begins another life. Without one it goes on to the next visit: hand and
    objects stay where they are, but for what was lost. A visit that solves its task is terminated,
    any other is truncated.
    """

    env: ContinualLifeEnv

    def __init__(self, env: ContinualLifeEnv) -> None:
        super().__init__(env)
        self._begun = False
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Begin the next visit, or another life."""
        if seed is not None or not self._begun:
            self._begun, self._over = True, False
            return self.env.reset(seed=seed, options=options)
        if options:
            raise InvalidInputError(
                f"reset options are {options}, but the next task of a life is drawn; give a seed "
                "as well to begin another life"
            )
        if not self._over:
            self.env.end_visit()
        self._over = False
        for name in self.env.lost:
            if self.env.can_put_back(name):
                self.env.put_back(name)
        return self.env.look()

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Act; the episode ends with the visit."""
        if self._over:
            raise NotReadyError("the visit is over: call reset() to begin the next one")
        obs, reward, _, _, info = self.env.step(action)
        self._over = info["visit_over"]
        return obs, reward, info["success"], self._over and not info["success"], info

    def objective(self) -> Objective:
        """Return the reward of the visit's task on predicted observations."""
        return self.env.objective()

    def state(self) -> State:
        """Everything that decides how the life goes on."""
        arrays, meta = self.env.state()
        return arrays, {"over": self._over, **meta}

    def restore(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        rest = dict(meta)
        over = rest.pop("over", None)
        if not isinstance(over, bool):
            raise InvalidInputError(f"over of a state is {over!r}; expected true or false")
        self.env.restore(arrays, rest)
        self._begun, self._over = True, over


class ContinualLifeWorld:
    """Endless lives: tasks come and go, and nothing is reset."""

    name = "continual-life"
    measure: Measure = "success"
    max_steps = VISIT_STEPS
    endless = True

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the lives."""
        return LIVES.names()

    def make(
        self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> LifeVisits:
        """Return an environment of a life; `reset_noise` spreads its start, in metres."""
        life = LIVES.get(task)
        return LifeVisits(
            ContinualLifeEnv(
                life.objects,
                changes=life.changes,
                reset_noise=reset_noise,
                render_mode=render_mode,
            )
        )

    def goal(self, task: str) -> str:
        """Return one of the tasks of a life; its environment says which is at hand."""
        return OBJECTS[LIVES.get(task).objects[0]][0]

    def objective(self, task: str) -> Objective:
        """Return the reward of that task."""
        return objective_of(self.goal(task))
