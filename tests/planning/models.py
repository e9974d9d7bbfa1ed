"""Worlds with a known answer, as models to plan with."""

from __future__ import annotations

import numpy as np
from gymnasium import spaces

from everlearn.interfaces import FloatArray


class LinearModel:
    """x' = A x + B u, known exactly."""

    def __init__(self, A: FloatArray, B: FloatArray, action_space: spaces.Box) -> None:
        self.A, self.B = A, B
        self.observation_space = spaces.Box(-np.inf, np.inf, (len(A),), np.float64)
        self.action_space = action_space
        self.rollouts: list[FloatArray] = []

    def predict(self, obs: FloatArray, action: FloatArray) -> FloatArray:
        return obs @ self.A.T + action @ self.B.T

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        self.rollouts.append(actions.copy())
        count, horizon, _ = actions.shape
        states = np.empty((count, horizon + 1, len(obs)))
        states[:, 0] = obs
        for step in range(horizon):
            states[:, step + 1] = self.predict(states[:, step], actions[:, step])
        return states

    def learn(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> None:
        raise AssertionError("a planner does not learn")


def point_mass(action_space: spaces.Box | None = None) -> LinearModel:
    """Two positions and two velocities, pushed by two forces, with some friction."""
    step = 0.1
    A = np.eye(4)
    A[0, 2] = A[1, 3] = step
    A[2, 2] = A[3, 3] = 0.95
    B = np.zeros((4, 2))
    B[2, 0] = B[3, 1] = step
    space = spaces.Box(-1.0, 1.0, (2,), np.float32) if action_space is None else action_space
    return LinearModel(A, B, space)


def to_origin(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Reward for being near the origin, and still."""
    reward: FloatArray = -np.sum(next_obs[:, :2] ** 2, axis=1) - 0.1 * np.sum(
        next_obs[:, 2:] ** 2, axis=1
    )
    return reward
