"""Your own endless environment: goals come and go, and nothing is ever reset.

    python examples/endless_environment.py

`Track` is a cart that is never put back: when it has reached one end of its track, it is asked for
the other. The agent keeps one episode for all of it. A new goal is a new objective, so
`begin_task` hands it over; `begin_episode` is called once, at the start of the life.

One line is printed for each goal: where the cart started, and how many steps it took.
"""
# ruff: noqa: T201

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn import OnlineAgent
from everlearn.interfaces import FloatArray, Objective


class Track(gymnasium.Env[FloatArray, FloatArray]):
    """Observes position and velocity; the action is a push. It never ends an episode."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)
    goal = 0.5

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[FloatArray, Any]:
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-0.3, 0.3), 0.0])
        return self.state.copy(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        x, v = self.state
        v = np.clip(0.9 * v + 0.05 * float(action[0]), -0.2, 0.2)
        self.state = np.array([np.clip(x + v, -1.0, 1.0), v])
        reached = abs(self.state[0] - self.goal) < 0.1
        reward = -abs(self.state[0] - self.goal)
        self.goal *= -1 if reached else 1  # from here on the other end is wanted
        return self.state.copy(), reward, False, False, {"reached": reached}


def objective(goal: float) -> Objective:
    """Return the reward of being near `goal`, for a batch of transitions."""
    return lambda obs, action, next_obs: -np.abs(next_obs[:, 0] - goal)


def main(episodes: int = 8, seed: int = 0, max_steps: int = 200, **options: Any) -> list[int]:
    """Live for some goals, each of at most `max_steps`; return the steps that each took."""
    env = Track()
    agent = OnlineAgent.for_env(env, objective(env.goal), seed=seed, threads=1, **options)
    obs, _ = env.reset(seed=seed)
    agent.begin_episode()
    steps = []
    for number in range(1, episodes + 1):
        start, goal, count, reached = obs[0], env.goal, 0, False
        agent.begin_task("track", objective(goal))
        while not reached and count < max_steps:
            action = agent.act(obs)
            after, reward, _, _, info = env.step(action)
            agent.observe(obs, action, after, reward, False)
            obs, count, reached = after, count + 1, info["reached"]
        steps.append(count)
        print(f"episode {number}: from {start:+.2f} to {goal:+.1f} in {count} steps")
    env.close()
    return steps


if __name__ == "__main__":
    main()
