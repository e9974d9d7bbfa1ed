"""Planning with a world model: planners, the agent that uses them, and episodes."""

from typing import Any

from everlearn.interfaces import Plan, Planner
from everlearn.planning.cem import CEMConfig, CEMPlanner
from everlearn.registry import Registry

PLANNERS: Registry[type[Any]] = Registry("planner")
"""Config classes of planners: ``config.build(action_space, seed)`` makes one."""
PLANNERS.register("cem", CEMConfig)

__all__ = ["PLANNERS", "CEMConfig", "CEMPlanner", "Plan", "Planner"]
