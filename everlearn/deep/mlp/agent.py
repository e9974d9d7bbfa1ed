"""Deep model-based agents: the planner and objective of ``oa``, and a network to plan with.

What differs from ``oa`` is the model alone: an MLP that is trained every 250 steps, and a
strategy that keeps it from forgetting. Needs the extra ``deep``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import gymnasium

from everlearn.deep.mlp.config import MLPConfig
from everlearn.deep.strategies import as_strategy
from everlearn.interfaces import AgentSpec, Strategy
from everlearn.planning.agent import PlanningAgent
from everlearn.planning.config import PlanningAgentConfig
from everlearn.planning.presets import OA, OA_PAPER, oa_config


def mlp_agent(strategy: str | Strategy, paper: bool = False) -> AgentSpec:
    """Return an agent with a deep world model, to be registered or made.

    Parameters
    ----------
    strategy
        What keeps the network from forgetting: a registered name, or a strategy with settings.
    paper
        Plan as the agent ``oa-paper`` does, and not as ``oa`` does.
    """
    model = MLPConfig(strategy=as_strategy(strategy))
    planner = "oa-paper" if paper else "oa"
    summary = f"a deep world model with the strategy {model.strategy.name}, planning like {planner}"

    def config_for(env: gymnasium.Env[Any, Any]) -> PlanningAgentConfig:
        return replace(oa_config(env), model=model)

    if paper:
        return AgentSpec(PlanningAgent.build, replace(OA_PAPER, model=model), summary)
    return AgentSpec(PlanningAgent.build, replace(OA, model=model), summary, config_for)
