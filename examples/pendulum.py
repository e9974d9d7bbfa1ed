"""Swing up a pendulum with a reward function that you write.

    python examples/pendulum.py
    python examples/pendulum.py --episodes 3 --seed 1

The agent starts without any knowledge of the pendulum and learns its motion while it acts. It plans
with the function `upright` below; the environment's own reward is only printed. An episode has 200
steps and starts at a random angle. Upright means less than 0.2 rad from the top.

One line is printed for each episode: the return, how much of the last 50 steps the pendulum was
upright, and the speed.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from typing import Any

import gymnasium
import numpy as np

from everlearn import OnlineAgent, run_episode
from everlearn.interfaces import FloatArray


def upright(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Pendulum-v1's own reward, for a batch of transitions (cos, sin, angular velocity)."""
    angle = np.arctan2(obs[:, 1], obs[:, 0])
    return -(angle**2 + 0.1 * obs[:, 2] ** 2 + 0.001 * action[:, 0] ** 2)


def main(
    episodes: int = 6, seed: int = 0, max_steps: int | None = None, **options: Any
) -> list[float]:
    """Learn for some episodes; return the fraction of each one's last 50 steps spent upright."""
    env = gymnasium.make("Pendulum-v1")
    # A model of this size is fastest on one thread.
    agent = OnlineAgent.for_env(env, upright, seed=seed, threads=1, **options)
    fractions = []
    for episode in range(episodes):
        angles: list[float] = []
        result = run_episode(
            agent,
            env,
            seed=1000 * seed + episode,
            max_steps=max_steps,
            on_step=lambda obs, action, after, reward, seen=angles: seen.append(
                abs(float(np.arctan2(after[1], after[0])))
            ),
        )
        fractions.append(float(np.mean(np.array(angles[-50:]) < 0.2)))
        print(
            f"episode {episode + 1}: return {result.total_reward:8.1f}, upright in "
            f"{fractions[-1]:4.0%} of the last 50 steps, "
            f"{result.length / result.seconds:.0f} steps/s"
        )
    env.close()
    return fractions


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The online agent on Pendulum-v1.")
    parser.add_argument("--episodes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    main(given.episodes, given.seed)
