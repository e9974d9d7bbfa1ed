"""The settings that the agents ``oa`` and ``oa-paper`` stand for."""

from __future__ import annotations

from typing import Any

import gymnasium

from everlearn.interfaces import EnvironmentFacts
from everlearn.online.config import OnlineModelConfig
from everlearn.planning.cem import CEMConfig
from everlearn.planning.config import (
    ExplorationConfig,
    ObjectiveConfig,
    ObservationConfig,
    PlanningAgentConfig,
)
from everlearn.planning.escape import EscapeConfig
from everlearn.planning.value import ValueConfig
from everlearn.world_model.memory import MotionMemoryConfig

OA_PAPER = PlanningAgentConfig()
"""The paper, gaps filled: the defaults of all parts are the paper's, or one of `GAPS`."""

GAPS = (
    ("input scaling and gains", "bounds become -3 to 3 for observations, -1.5 to 1.5 for actions"),
    ("clipping", "predicted observations stay inside the observation space"),
    ("planner reset", "at the start of every episode, and when the task changes"),
    ("noise exponent", "2 for the colored noise"),
    ("deviation", "half of half the range of the actions, at the start of every decision"),
    ("kept elites", "30 % of them, between iterations and, shifted, between decisions"),
    ("momentum", "0.1 on mean and deviation"),
    ("executed action", "the first of the best sequence seen, not of the mean"),
)
"""What the paper does not say, and what `OA_PAPER` does."""

OA_GENERAL = PlanningAgentConfig(
    model=OnlineModelConfig(
        features=200,
        bins=5,
        ridge=5.0,
        row_inputs=4,
        linear=True,
        linear_observations=True,
        linear_gain=7.0,
        degree=3,
        outlier_penalty=3.0,
        update="exact",
        seen_range=0.5,
        refit=2048,
    ),
    planner=CEMConfig(candidates=200, horizon=25, discount=0.98, noise_decades=1.5),
    value=ValueConfig(landmarks=600, weight=0.25),
    exploration=ExplorationConfig(novelty=0.1),
    decision_period=0.075,
)
"""``oa`` where nothing is known of the environment but its spaces."""

OA = PlanningAgentConfig(
    model=OnlineModelConfig(
        bins=5,
        ridge=10.0,
        solve_every=500,
        linear=True,
        local_grids=0.8,
        local_gain=60.0,
        local_reach=0.3,
    ),
    memory=MotionMemoryConfig(object_gain=0.0),
    planner=CEMConfig(candidates=200, horizon=25, discount=0.95, final_weight=10.0),
    escape=EscapeConfig(patience=30, progress=0.05),
    objective=ObjectiveConfig(success_bonus=10.0),
    observation=ObservationConfig(rest=True),
)
"""``oa`` where an environment declares what it commands, and its hand and objects.

research/tuning.md has what each difference from the paper is worth.
"""


def oa_config(env: gymnasium.Env[Any, Any]) -> PlanningAgentConfig:
    """Return the settings of the agent ``oa`` in `env`."""
    facts = EnvironmentFacts.of(env)
    known = facts.commanded_position is not None and facts.bodies is not None
    return OA if known else OA_GENERAL
