"""Save an agent, and go on with it on another day.

    python examples/resume_on_another_day.py            # today
    python examples/resume_on_another_day.py            # tomorrow: goes on

The first command makes a new agent, lets it learn for one episode and saves it to
`pendulum.everlearn`. Every later command loads that file and goes on. The file holds everything
that the agent knows and all of its settings. It holds no past transitions, because the model does
not need them. The reward function is not saved, so `begin_task` hands it to the agent again.

It prints how many steps the agent had learned from before and after, and the return of the episode.
"""
# ruff: noqa: T201

from __future__ import annotations

import argparse
from pathlib import Path
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
    episodes: int = 1,
    seed: int = 0,
    max_steps: int | None = None,
    path: str | Path = "pendulum.everlearn",
    **options: Any,
) -> list[float]:
    """Go on with the agent in `path`, or start one; return the return of each episode."""
    env = gymnasium.make("Pendulum-v1")
    if Path(path).exists():
        agent = OnlineAgent.from_file(path, threads=1)
        agent.begin_task("pendulum", upright)
        print(f"loaded {path}: {agent.steps} steps learned")
    else:
        agent = OnlineAgent.for_env(env, upright, seed=seed, threads=1, **options)
        print("a new agent")
    returns = []
    for _ in range(episodes):
        result = run_episode(agent, env, seed=1000 * seed + agent.episodes, max_steps=max_steps)
        returns.append(result.total_reward)
        print(f"episode {agent.episodes}: return {result.total_reward:8.1f}")
    agent.save(path)
    print(f"saved {path}: {agent.steps} steps learned")
    env.close()
    return returns


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Save an agent and go on with it later.")
    parser.add_argument("--episodes", type=int, default=1)
    parser.add_argument("--path", type=Path, default=Path("pendulum.everlearn"))
    given = parser.parse_args()
    main(given.episodes, path=given.path)
