"""Agents that learn one world model for life, and Continual Bench to measure them.

The names below are loaded when they are first used, so that ``import everlearn`` is fast and
reading results needs no simulator. Importing this package registers the environments
``everlearn/ContinualBench-v0`` and ``everlearn/ContinualLife-v0`` with Gymnasium, whichever of the
two packages is imported first.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_MODULES = {
    "OnlineAgent": "everlearn.planning.agent",
    "OnlineWorldModel": "everlearn.online",
    "CEMPlanner": "everlearn.planning.cem",
    "ContinualBenchEnv": "everlearn.continual_bench.env",
    "ContinualLifeEnv": "everlearn.continual_bench.life",
    "run_episode": "everlearn.planning.episode",
    "load_run": "everlearn.runs.reload",
    "register_agent": "everlearn.agents",
    "register_task": "everlearn.continual_bench.tasks",
    "register_world": "everlearn.worlds",
    "AGENTS": "everlearn.agents",
    "MEMORIES": "everlearn.world_model.memory",
    "PLANNERS": "everlearn.planning",
    "STRATEGIES": "everlearn.deep.strategies",
    "TASKS": "everlearn.continual_bench.tasks",
    "WORLDS": "everlearn.worlds",
}
__all__ = [
    "AGENTS",
    "MEMORIES",
    "PLANNERS",
    "STRATEGIES",
    "TASKS",
    "WORLDS",
    "CEMPlanner",
    "ContinualBenchEnv",
    "ContinualLifeEnv",
    "OnlineAgent",
    "OnlineWorldModel",
    "__version__",
    "load_run",
    "register_agent",
    "register_task",
    "register_world",
    "run_episode",
]

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

    from everlearn.agents import AGENTS, register_agent
    from everlearn.continual_bench.env import ContinualBenchEnv
    from everlearn.continual_bench.life import ContinualLifeEnv
    from everlearn.continual_bench.tasks import TASKS, register_task
    from everlearn.deep.strategies import STRATEGIES
    from everlearn.online import OnlineWorldModel
    from everlearn.planning import PLANNERS
    from everlearn.planning.agent import OnlineAgent
    from everlearn.planning.cem import CEMPlanner
    from everlearn.planning.episode import run_episode
    from everlearn.runs.reload import load_run
    from everlearn.world_model.memory import MEMORIES
    from everlearn.worlds import WORLDS, register_world


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'everlearn' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


def _register_environment() -> None:
    import gymnasium

    gymnasium.register(
        id="everlearn/ContinualBench-v0",
        entry_point="everlearn.continual_bench.env:ContinualBenchEnv",
    )
    gymnasium.register(
        id="everlearn/ContinualLife-v0",
        entry_point="everlearn.continual_bench.life:ContinualLifeEnv",
    )


class _RegisterWithGymnasium(MetaPathFinder):
    """Finds Gymnasium as usual, and registers the environment once it is imported."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "gymnasium":
            return None
        sys.meta_path.remove(self)  # so that the search below does not end here again
        spec = importlib.util.find_spec(fullname)
        if spec is not None and spec.loader is not None:
            loader = spec.loader

            def load_and_register(module: ModuleType) -> None:
                del loader.exec_module  # what is left is the loader that it always is
                loader.exec_module(module)
                _register_environment()

            loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec


if "gymnasium" in sys.modules:
    _register_environment()
else:
    sys.meta_path.insert(0, _RegisterWithGymnasium())
