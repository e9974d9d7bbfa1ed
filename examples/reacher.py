"""Reach for targets with a two-jointed arm in MuJoCo.

    python examples/reacher.py
    python examples/reacher.py --episodes 5 --seed 1

The agent starts without any knowledge of the arm and learns its motion while it acts. Every
episode has 50 steps and another random target. Observations of Reacher-v5 have no bounds: the model
chooses the scale of its inputs by what it sees.

One line is printed for each episode: the mean distance to the target over its last 10 steps, for
the agent and for random actions.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from everlearn import OnlineAgent, run_episode
from everlearn.agents import make_agent
from everlearn.interfaces import Agent, FloatArray

FINGER_TO_TARGET = slice(8, 10)
CONTROL_WEIGHT = 0.1
"""Weight of the control cost, for the environment and for the reward function below. The default of
Reacher-v5 is 1 (its documentation says 0.1); with 0.1, reaching counts for more than saving torque.
"""


def near(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Reacher-v5's own reward, for a batch of transitions."""
    distance = np.linalg.norm(next_obs[:, FINGER_TO_TARGET], axis=1)
    return -distance - CONTROL_WEIGHT * np.sum(np.square(action), axis=1)


def reach(agent: Agent, env: gymnasium.Env[Any, Any], seed: int, max_steps: int | None) -> float:
    """Run an episode and return the mean distance to the target, in cm, in its last 10 steps."""
    distances: list[float] = []
    run_episode(
        agent,
        env,
        seed=seed,
        max_steps=max_steps,
        on_step=lambda obs, action, after, reward: distances.append(
            100.0 * float(np.linalg.norm(after[FINGER_TO_TARGET]))
        ),
    )
    return float(np.mean(distances[-10:]))


def main(
    episodes: int = 20, seed: int = 0, max_steps: int | None = None, **options: Any
) -> list[float]:
    """Learn for some episodes; return the final distance of each."""
    env = gymnasium.make("Reacher-v5", reward_control_weight=CONTROL_WEIGHT)
    # An episode lasts a second: decide at every step, and plan for a fifth of it.
    settings = {"planner.horizon": 10, "decision_period": None, **options}
    # A model of this size is fastest on one thread.
    agent = OnlineAgent.for_env(env, near, seed=seed, threads=1, **settings)
    by_chance = make_agent("random", env, seed)
    finals = []
    for episode in range(episodes):
        chance = reach(by_chance, env, 1000 * seed + episode, max_steps)
        finals.append(reach(agent, env, 1000 * seed + episode, max_steps))
        print(
            f"episode {episode + 1:2d}: {finals[-1]:5.1f} cm from the target at the end "
            f"(random actions: {chance:4.1f} cm)"
        )
    env.close()
    return finals


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The online agent on Reacher-v5.")
    parser.add_argument("--episodes", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.episodes, given.seed)
