"""Learn the reward as well, when you have no reward function to plan with.

    python examples/learn_the_reward.py

`OnlineAgent.for_env(env)` without a second argument learns the reward from what it observes: its
model predicts the reward of a step beside the change of the observation. Here a point moves on a
plane. Its reward says how far it is from a target that the observation does not show, so the agent
can only find the target by learning the reward.

One line is printed for each episode of 30 steps: how far from the target it ended, and the return.
At the end it prints the learned and the true reward at the target and in the middle of the plane.
"""
# ruff: noqa: T201

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn import OnlineAgent, run_episode
from everlearn.interfaces import FloatArray

TARGET = np.array([0.5, -0.3])


class HiddenTarget(gymnasium.Env[FloatArray, FloatArray]):
    """A point that moves by up to a tenth in a step; the reward is minus its distance."""

    observation_space = spaces.Box(-1.0, 1.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float64)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Put the point anywhere."""
        super().reset(seed=seed)
        self.position = self.np_random.uniform(-1.0, 1.0, 2)
        return self.position.copy(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Move the point."""
        self.position = np.clip(self.position + 0.1 * action, -1.0, 1.0)
        reward = -float(np.linalg.norm(self.position - TARGET))
        return self.position.copy(), reward, False, False, {}


def main(episodes: int = 6, seed: int = 0, max_steps: int = 30, **options: Any) -> list[float]:
    """Learn for some episodes; return the distance to the target at the end of each."""
    env = HiddenTarget()
    agent = OnlineAgent.for_env(env, seed=seed, threads=1, **options)
    distances = []
    for episode in range(episodes):
        result = run_episode(agent, env, seed=1000 * seed + episode, max_steps=max_steps)
        distances.append(float(np.linalg.norm(env.position - TARGET)))
        print(
            f"episode {episode + 1}: {distances[-1]:.2f} from the target at the end, "
            f"return {result.total_reward:6.1f}"
        )
    for name, position in (("at the target", TARGET), ("in the middle", np.zeros(2))):
        predicted = agent.predict_reward(position, np.zeros(2))
        true = -np.linalg.norm(position - TARGET)
        print(f"reward {name}: learned {predicted:.2f}, true {true:.2f}")
    return distances


if __name__ == "__main__":
    main()
