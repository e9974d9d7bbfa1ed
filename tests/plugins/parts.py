"""A planner, a memory and a strategy of a user's: a class with settings each, and a line."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

import numpy as np

from everlearn import MEMORIES, PLANNERS, STRATEGIES
from everlearn.deep.strategies import Strategy
from everlearn.deep.strategies.storage import Everything
from everlearn.interfaces import Plan


@dataclass(frozen=True)
class ShootingConfig:
    """Settings of `Shooting`."""

    tries: int = 20
    """Sequences of actions to choose from."""
    depth: int = 4
    """Steps of each."""

    def build(self, action_space, seed=0):
        return Shooting(self, action_space, seed)


class Shooting:
    """Draws sequences evenly and takes the best."""

    def __init__(self, config, action_space, seed):
        self.config, self.space = config, action_space
        self.generator = np.random.default_rng(seed)

    def plan(self, model, obs, objective, memory=None, deadline_ms=None):
        count, depth = self.config.tries, self.config.depth
        shape = (count, depth, *self.space.shape)
        actions = self.generator.uniform(self.space.low, self.space.high, shape)
        actions = actions.astype(np.float32)
        states = model.rollout(obs, actions, memory=memory)
        rewards = objective(
            states[:, :-1].reshape(count * depth, -1),
            actions.reshape(count * depth, -1),
            states[:, 1:].reshape(count * depth, -1),
        )
        returns = np.asarray(rewards, float).reshape(count, depth).sum(axis=1)
        best = np.argsort(-returns, kind="stable")[:1]
        return Plan(
            action=actions[best[0], 0],
            actions=actions[best[0]],
            value=float(returns[best[0]]),
            returns=(returns,),
            elites=actions[best],
            elite_returns=returns[best],
            states=states[best],
            iterations_done=1,
            seconds=0.0,
        )

    def reset(self):
        pass

    def spawn(self, seed):
        return Shooting(self.config, self.space, seed)

    def state(self):
        return {}, {"config": asdict(self.config), "generator": self.generator.bit_generator.state}

    def restore(self, arrays, meta):
        self.generator.bit_generator.state = meta["generator"]


@dataclass(frozen=True)
class ClockConfig:
    """Settings of `Clock`."""

    period: float = 50.0
    """Steps after which its number is 1."""

    def build(self, observation_space, action_space, facts):
        return Clock(self.period)


class Clock:
    """Counts the steps of an episode."""

    name = "clock"
    size = inputs = 1
    unscaled = np.zeros(1, np.bool_)

    def __init__(self, period):
        self.period = period

    def start(self, obs):
        return np.zeros((len(obs), 1))

    def advance(self, state, obs, action, next_obs):
        return state + 1 / self.period

    def features(self, state, obs):
        return state

    def description(self):
        return {"period": self.period}

    def compiled(self):
        return None


@dataclass(frozen=True)
class Hoarding(Strategy):
    """Keeps everything, and a number that does nothing."""

    name: ClassVar[str] = "hoarding"
    boundary_aware: ClassVar[bool] = False

    room: int = 7
    """How much room there is."""

    def storage(self, widths: Mapping[str, int], seed=0):
        return Everything(widths, seed)


PLANNERS.register("shooting", ShootingConfig)
MEMORIES.register("clock", ClockConfig)
STRATEGIES.register("hoarding", Hoarding)
