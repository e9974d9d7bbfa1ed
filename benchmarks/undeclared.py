"""Continual Bench for agents that are given nothing but spaces: two worlds, to be imported.

    everlearn run --import benchmarks.undeclared --world undeclared --preset quick --agent oa
    everlearn run --import benchmarks.undeclared --world undeclared-reward --preset quick --agent oa

The environment is the same, but it declares neither hand nor objects nor what actions command.
In the world ``undeclared`` agents learn the reward as well; in ``undeclared-reward`` they are
given the tasks' reward functions, as the paper's agent is.
"""

from __future__ import annotations

from typing import Any

import gymnasium

from everlearn import register_world
from everlearn.interfaces import Objective
from everlearn.worlds.continual_bench import ContinualBenchWorld


class Undeclared(gymnasium.Wrapper[Any, Any, Any, Any]):
    """An environment of which agents see spaces and frame rate alone."""

    @property
    def unwrapped(self) -> Any:
        """This: whoever looks for declarations finds none here."""
        return self


class UndeclaredWorld(ContinualBenchWorld):
    """Continual Bench without declarations."""

    def __init__(self, name: str, rewarded: bool) -> None:
        self.name = name
        self._rewarded = rewarded

    def make(self, task: str, **options: Any) -> Any:
        """Return an environment of `task` that declares nothing."""
        return Undeclared(super().make(task, **options))

    def objective(self, task: str) -> Objective | None:
        """Return the task's reward, if agents are given it."""
        return super().objective(task) if self._rewarded else None


register_world("undeclared", UndeclaredWorld("undeclared", rewarded=False))
register_world("undeclared-reward", UndeclaredWorld("undeclared-reward", rewarded=True))
