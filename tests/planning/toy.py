"""A small world that hides something, and a small model that learns it."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError

OBSERVATIONS = spaces.Box(-5.0, 5.0, (2,), np.float64)
ACTIONS = spaces.Box(-1.0, 1.0, (2,), np.float32)


def step(obs: FloatArray, action: FloatArray) -> FloatArray:
    """A point that goes where it is pushed."""
    return np.clip(obs + 0.2 * np.asarray(action, np.float64), -5.0, 5.0)


def goal_at(x: float, y: float) -> Any:
    """Objective: be near a point."""

    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        return -np.hypot(next_obs[:, 0] - x, next_obs[:, 1] - y)

    return objective


class Point(gymnasium.Env[Any, Any]):
    """`step` as an environment, with spaces to be replaced."""

    def __init__(self, **attributes: Any) -> None:
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS
        for name, value in attributes.items():
            setattr(self, name, value)


class CountingMemory:
    """Remembers the sum of the actions since the start, and where that was."""

    size = 2

    def start(self, obs: FloatArray) -> FloatArray:
        return np.array(obs, np.float64)

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        return state + np.asarray(action, np.float64)


class RidgeModel:
    """Predicts differences by linear ridge regression; enough for `step`."""

    def __init__(self, memory: CountingMemory | None = None) -> None:
        self.observation_space, self.action_space = OBSERVATIONS, ACTIONS
        self.A, self.B = 0.1 * np.eye(5), np.zeros((5, 2))
        self.W = np.zeros((5, 2))
        self.memory_seen: list[FloatArray | None] = []
        if memory is not None:
            self.memory = memory

    @staticmethod
    def _input(obs: FloatArray, action: FloatArray) -> FloatArray:
        return np.concatenate([obs, action, np.ones((len(obs), 1))], axis=1)

    def learn(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        memory: FloatArray | None = None,
    ) -> None:
        self.memory_seen.append(memory)
        inputs = self._input(obs[None], action[None])
        self.A += inputs.T @ inputs
        self.B += inputs.T @ (next_obs - obs)[None]
        self.W = np.linalg.solve(self.A, self.B)

    def predict(
        self, obs: FloatArray, action: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        return obs + self._input(obs, action) @ self.W

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        count, horizon, _ = actions.shape
        states = np.empty((count, horizon + 1, len(obs)))
        states[:, 0] = obs
        for at in range(horizon):
            states[:, at + 1] = np.clip(
                self.predict(states[:, at], actions[:, at]), OBSERVATIONS.low, OBSERVATIONS.high
            )
        return states

    def state(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return {"A": self.A.copy(), "B": self.B.copy(), "W": self.W.copy()}, {"model": "toy"}

    def restore(self, arrays: dict[str, Any], meta: dict[str, Any]) -> None:
        if meta != {"model": "toy"} or set(arrays) != {"A", "B", "W"}:
            raise InvalidInputError("not a toy")
        self.A, self.B, self.W = (np.array(arrays[name]) for name in "ABW")
