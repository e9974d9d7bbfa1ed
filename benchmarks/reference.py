"""The paper in plain NumPy, line by line, without tricks: what the package is measured against.

Only the random projection and the scaling of inputs are taken from a model, so that both
compute the same features. Everything is float64 unless told otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import expit

from everlearn.online import OnlineWorldModel

Array = npt.NDArray[np.floating[Any]]


class ReferenceModel:
    """Equation 5 with full rows of A; gather-and-sum prediction; rollouts step by step."""

    def __init__(self, model: OnlineWorldModel, dtype: npt.DTypeLike = np.float64) -> None:
        self.memory = model.memory
        self.bins, self.grid_dim = model.encoding.bins, model.encoding.grid_dim
        self.features = model.encoding.features
        # The last column multiplies a constant one.
        self.projection = model.encoding.projection[:, : model.encoding.inputs + 1].astype(dtype)
        self.linear = model.encoding.linear
        self.linear_cells = model.encoding.linear_cells
        self.centre = model.inputs.scaling.centre.astype(dtype)
        self.multiplier = model.inputs.scaling.multiplier.astype(dtype)
        self.low, self.high = model.inputs.low.astype(dtype), model.inputs.high.astype(dtype)
        self.ridge = model.config.ridge
        cells = self.features * self.bins**self.grid_dim + self.linear_cells
        outputs = len(self.low)
        self.A = np.zeros((cells, cells), dtype)
        self.B = np.zeros((cells, outputs), dtype)
        self.W = np.zeros((cells, outputs), dtype)

    def encode(self, obs: Array, action: Array, memory: Array) -> tuple[Any, Array]:
        """Active cells and values ``[N, K]``: projection, sigmoid, soft binning, products."""
        x = np.concatenate([obs, action, self.memory.features(memory, obs)], axis=1)
        x = np.concatenate([(x - self.centre) * self.multiplier, np.ones((len(x), 1))], axis=1)
        x = x.astype(self.projection.dtype)
        location = (self.bins - 1) * expit(x @ self.projection.T)
        lower = np.minimum(np.floor(location), self.bins - 2).astype(np.int64)
        past = location - lower
        count = len(x)
        lower = lower.reshape(count, self.features, self.grid_dim)
        past = past.reshape(count, self.features, self.grid_dim)
        cells, values = [], []
        for corner in np.ndindex(*(2,) * self.grid_dim):
            cell = np.zeros((count, self.features), np.int64)
            value = np.ones((count, self.features), past.dtype)
            for dim, upper in enumerate(corner):
                cell = cell * self.bins + lower[:, :, dim] + upper
                value = value * (past[:, :, dim] if upper else 1 - past[:, :, dim])
            cells.append(cell + np.arange(self.features) * self.bins**self.grid_dim)
            values.append(value)
        grids = np.stack(cells, 2).reshape(count, -1), np.stack(values, 2).reshape(count, -1)
        if not self.linear:
            return grids
        first = self.features * self.bins**self.grid_dim
        extra = np.zeros((count, self.linear_cells), past.dtype)
        extra[:, : self.linear + 1] = x[:, -self.linear - 1 :]
        numbers = np.tile(np.arange(first, first + self.linear_cells), (count, 1))
        return np.concatenate([grids[0], numbers], 1), np.concatenate([grids[1], extra], 1)

    def learn(self, obs: Array, action: Array, next_obs: Array, memory: Array) -> None:
        """A and B, then ``W_s = (A_ss + r I)^-1 (B_s - A_s,rest W_rest)``."""
        cells, values = self.encode(obs[None], action[None], memory[None])
        s, phi = cells[0], values[0]
        self.A[np.ix_(s, s)] += np.outer(phi, phi)
        self.B[s] += np.outer(phi, next_obs - obs)
        A_ss = self.A[np.ix_(s, s)]
        # A_s,rest W_rest is all of A_s W without the part of s.
        right = self.B[s] - (self.A[s] @ self.W - A_ss @ self.W[s])
        self.W[s] = np.linalg.solve(A_ss + self.ridge * np.eye(len(s), dtype=A_ss.dtype), right)

    def predict(self, obs: Array, action: Array, memory: Array) -> Array:
        """``obs + sum over active cells of value times row of W``, clipped to the space."""
        cells, values = self.encode(obs, action, memory)
        change = np.zeros((len(cells), self.W.shape[1]), self.W.dtype)
        for k in range(cells.shape[1]):
            change += values[:, k, None] * self.W[cells[:, k]]
        return np.clip(obs + change, self.low, self.high)

    def rollout(self, obs: Array, actions: Array, memory: Array) -> Array:
        """Imagined states ``[N, H + 1, S]``."""
        states = [np.repeat(obs[None], len(actions), axis=0).astype(self.W.dtype)]
        memory = np.repeat(memory[None], len(actions), axis=0)
        for step in range(actions.shape[1]):
            action = actions[:, step]
            states.append(self.predict(states[-1], action, memory))
            memory = self.memory.advance(memory, states[-2], action, states[-1])
        return np.stack(states, axis=1)


def plan(
    rollout: Callable[[Array], Array],
    reward: Callable[[Array, Array, Array], Array],
    actions: int,
    rng: np.random.Generator,
    candidates: int = 150,
    horizon: int = 15,
    iterations: int = 3,
    elites: int = 15,
) -> Array:
    """The cross-entropy method at its plainest: sample, imagine, keep the best, refit."""
    mean, deviation = np.zeros((horizon, actions)), np.full((horizon, actions), 0.5)
    best = mean
    for _ in range(iterations):
        plans = mean + deviation * rng.normal(size=(candidates, horizon, actions))
        plans = np.clip(plans, -1, 1)
        states = rollout(plans)
        returns = np.zeros(candidates)
        for step in range(horizon):
            returns += reward(states[:, step], plans[:, step], states[:, step + 1])
        order = np.argsort(-returns)[:elites]
        best = plans[order[0]]
        mean, deviation = plans[order].mean(axis=0), plans[order].std(axis=0)
    return np.asarray(best[0])
