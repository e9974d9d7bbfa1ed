"""Planners: what searches."""

from everlearn.planning.cem import CEMConfig, CEMPlanner
from everlearn.planning.plan import Plan, Planner, PlannerType
from everlearn.registry import Registry

PLANNERS: Registry[PlannerType] = Registry("planner")
PLANNERS.register("cem", CEMPlanner)

__all__ = ["PLANNERS", "CEMConfig", "CEMPlanner", "Plan", "Planner", "PlannerType"]
