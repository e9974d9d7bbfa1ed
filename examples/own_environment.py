"""Your own environment in 15 lines.

    python examples/own_environment.py

`Cart` is a Gymnasium environment: a cart on a track that a push accelerates. `to_the_middle` says
what the agent should achieve, as a function on batches of transitions. Nothing else is needed: the
agent reads the spaces of the environment and learns how the cart moves while it acts.

One line is printed for each episode of 40 steps: where the cart started, and where it ended. It
should end near 0.
"""
# ruff: noqa: T201

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn import OnlineAgent, run_episode
from everlearn.interfaces import FloatArray


class Cart(gymnasium.Env[FloatArray, FloatArray]):
    """Observes position and velocity; the action is a push."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Put the cart somewhere, at rest."""
        super().reset(seed=seed)
        self.state = np.array([self.np_random.uniform(-1.0, 1.0), 0.0])
        return self.state.copy(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Accelerate, then move."""
        velocity = np.clip(self.state[1] + 0.2 * action[0], -1.0, 1.0)
        position = np.clip(self.state[0] + 0.1 * velocity, -1.0, 1.0)
        self.state = np.array([position, velocity])
        return self.state.copy(), -abs(float(position)), False, False, {}


def to_the_middle(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Reward of each of N transitions: ``next_obs[N, 2]`` gives rewards ``[N]``."""
    return -np.abs(next_obs[:, 0])


def main(episodes: int = 4, seed: int = 0, max_steps: int = 40, **options: Any) -> list[float]:
    """Learn for some episodes; return where each one ended."""
    env = Cart()
    agent = OnlineAgent.for_env(env, to_the_middle, seed=seed, threads=1, **options)
    ends = []
    for episode in range(episodes):
        positions: list[float] = []
        run_episode(
            agent,
            env,
            seed=1000 * seed + episode,
            max_steps=max_steps,
            on_step=lambda obs, action, after, reward, seen=positions: seen.extend(
                [float(obs[0]), float(after[0])]
            ),
        )
        ends.append(positions[-1])
        print(f"episode {episode + 1}: from {positions[0]:+.2f} to {ends[-1]:+.2f}")
    return ends


if __name__ == "__main__":
    main()
