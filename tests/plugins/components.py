"""A planner, a memory and an agent of somebody else: one class and one line each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from everlearn.agents import register_agent
from everlearn.baselines import RandomAgent
from everlearn.interfaces import EnvironmentFacts, FloatArray, Objective, Plan, State, WorldModel
from everlearn.planning import PLANNERS
from everlearn.planning.rollout import action_bounds, imagine
from everlearn.world_model.memory import MEMORIES


@dataclass(frozen=True)
class ShootingConfig:
    """Random shooting: the best of many sequences, each one action held to the horizon."""

    candidates: int = 50
    """Sequences imagined."""
    horizon: int = 5
    """Steps of a sequence."""

    def build(self, action_space: spaces.Box, seed: Any) -> ShootingPlanner:
        return ShootingPlanner(action_space, self, seed)


class ShootingPlanner:
    def __init__(self, action_space: spaces.Box, config: ShootingConfig, seed: Any) -> None:
        self.action_space, self.config = action_space, config
        self.low, self.high = action_bounds(action_space)
        self.generator = np.random.default_rng(seed)

    def plan(
        self,
        model: WorldModel,
        obs: FloatArray,
        objective: Objective,
        memory: FloatArray | None = None,
        deadline_ms: float | None = None,
    ) -> Plan:
        config = self.config
        drawn = self.generator.uniform(self.low, self.high, (config.candidates, len(self.low)))
        actions = np.repeat(drawn[:, None].astype(np.float32), config.horizon, axis=1)
        found = imagine(model, obs, objective, memory, actions, np.ones(config.horizon))
        best = found.best(5)
        return Plan(
            action=best.actions[0, 0],
            actions=best.actions[0],
            value=float(best.returns[0]),
            returns=(found.returns,),
            elites=best.actions,
            elite_returns=best.returns,
            states=best.states,
            iterations_done=1,
            seconds=0.0,
        )

    def reset(self) -> None:
        pass

    def spawn(self, seed: Any) -> ShootingPlanner:
        return ShootingPlanner(self.action_space, self.config, seed)

    def state(self) -> State:
        return {}, {"generator": self.generator.bit_generator.state}

    def restore(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        self.generator.bit_generator.state = meta["generator"]


PLANNERS.register("shooting", ShootingConfig)


@dataclass(frozen=True)
class ClockConfig:
    """The model sees how long the episode has been."""

    period: float = 10.0
    """Steps for a feature of 1."""

    def build(self, observation_space: Any, action_space: Any, facts: EnvironmentFacts) -> Clock:
        return Clock(self.period)


class Clock:
    name = "clock"
    size = inputs = 1
    unscaled = np.zeros(1, np.bool_)

    def __init__(self, period: float) -> None:
        self.period = period

    def start(self, obs: FloatArray) -> FloatArray:
        return np.zeros((len(obs), 1))

    def advance(self, state: Any, obs: Any, action: Any, next_obs: Any) -> FloatArray:
        return np.asarray(state + 1.0)

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        return np.asarray(state / self.period)

    def description(self) -> dict[str, Any]:
        return {"period": self.period}

    def compiled(self) -> None:
        return None


MEMORIES.register("clock", ClockConfig)


def shy(env: Any, seed: int, *, boldness: float = 0.5) -> RandomAgent:
    """Acts at random."""
    agent = RandomAgent.for_env(env, seed)
    agent.boldness = boldness  # type: ignore[attr-defined]
    return agent


register_agent("shy", shy)
