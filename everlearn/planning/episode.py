"""One episode of any agent in any environment: reset, then act, step and observe to the end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import gymnasium

from everlearn.interfaces import Agent, FloatArray
from everlearn.support.errors import InvalidInputError

OnStep = Callable[[FloatArray, FloatArray, FloatArray, float], None]


@dataclass(frozen=True)
class Episode:
    """What happened in an episode.

    Attributes
    ----------
    length, total_reward
        Steps, and the sum of their rewards.
    terminated
        Whether the environment ended it, and not its time limit or `max_steps`.
    info
        The environment's last ``info``.
    seconds, processor_seconds
        Wall-clock time, reset included, and what this process used of its processors.
    """

    length: int
    total_reward: float
    terminated: bool
    info: dict[str, Any]
    seconds: float
    processor_seconds: float

    @property
    def success(self) -> bool | None:
        """Whether the task was solved; None where the environment does not say."""
        solved = self.info.get("success")
        return None if solved is None else bool(solved)


def run_episode(
    agent: Agent,
    env: gymnasium.Env[Any, Any],
    *,
    seed: int | None = None,
    options: dict[str, Any] | None = None,
    explore: bool = True,
    max_steps: int | None = None,
    on_step: OnStep | None = None,
) -> Episode:
    """Run `agent` in `env` for one episode.

    Parameters
    ----------
    agent, env
        Who acts, and where; the agent's task was begun before.
    seed, options
        Handed to ``env.reset``.
    explore
        Handed to ``agent.act``.
    max_steps
        Stop after this many steps at the latest.
    on_step
        Called after each step with the observation before, the action, the observation after
        and the reward.
    """
    if max_steps is not None and max_steps < 1:
        raise InvalidInputError(f"max_steps is {max_steps}; expected at least 1")
    started, used = time.perf_counter(), time.process_time()
    obs, info = env.reset(seed=seed, options=options)
    agent.begin_episode()
    length, total, terminated, truncated = 0, 0.0, False, False
    while not (terminated or truncated) and (max_steps is None or length < max_steps):
        action = agent.act(obs, explore)
        next_obs, reward, terminated, truncated, info = env.step(action)
        agent.observe(obs, action, next_obs, float(reward), bool(terminated))
        if on_step is not None:
            on_step(obs, action, next_obs, float(reward))
        obs = next_obs
        length += 1
        total += float(reward)
    seconds, processor_seconds = time.perf_counter() - started, time.process_time() - used
    return Episode(length, total, bool(terminated), info, seconds, processor_seconds)
