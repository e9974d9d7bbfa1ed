"""The paper's definitions, transcribed as plainly as possible: dense, slow, one step at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from everlearn.audit import TransitionStream
from everlearn.online import OnlineWorldModel
from everlearn.world_model.memory import NoMemory
from tests.online.worlds import small_model, walk

Array = npt.NDArray[np.float64]


def walked(steps: int, seed: int = 0) -> TransitionStream:
    """A stream of one episode in the small three-dimensional world."""
    obs, action, following, _ = (np.array(part) for part in zip(*walk(steps, seed), strict=True))
    return TransitionStream("walk", obs, action, following, np.arange(steps) == 0)


def dense_features(model: OnlineWorldModel, stream: TransitionStream) -> Array:
    """``Phi[T, D]`` with all cells."""
    assert isinstance(model.memory, NoMemory)
    cells, values = model.encode(stream.observations, stream.actions)
    out = np.zeros((stream.steps, model.encoding.cells))
    for t in range(stream.steps):
        out[t, cells[t]] = values[t]
    return out


def targets_of(stream: TransitionStream) -> Array:
    return np.asarray(stream.next_observations - stream.observations)


def leader_losses(features: Array, targets: Array, ridge: float, growing: bool = False) -> Array:
    """``f_t(W^(t))`` with W^(t) solved anew before every step (equation 4)."""
    out = []
    for t in range(len(features)):
        seen, known = features[:t], targets[:t]
        strength = ridge * max(t, 1) if growing else ridge
        weights = np.linalg.solve(
            seen.T @ seen + strength * np.eye(features.shape[1]), seen.T @ known
        )
        out.append(np.sum((features[t] @ weights - targets[t]) ** 2))
    return np.array(out)


def sparse_losses(features: Array, targets: Array, ridge: float) -> tuple[Array, Array]:
    """Losses of equation 5 before every step, and its weights at the end."""
    cells = features.shape[1]
    A, B = np.zeros((cells, cells)), np.zeros((cells, targets.shape[1]))
    weights = np.zeros_like(B)
    out = []
    for phi, y in zip(features, targets, strict=True):
        out.append(np.sum((phi @ weights - y) ** 2))
        A += np.outer(phi, phi)
        B += np.outer(phi, y)
        s = np.flatnonzero(phi)
        rest = np.setdiff1d(np.arange(cells), s)
        right = B[s] - A[np.ix_(s, rest)] @ weights[rest]
        weights[s] = np.linalg.solve(A[np.ix_(s, s)] + ridge * np.eye(len(s)), right)
    return np.array(out), weights


__all__ = [
    "dense_features",
    "leader_losses",
    "small_model",
    "sparse_losses",
    "targets_of",
    "walked",
]
