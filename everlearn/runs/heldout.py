"""The error of a world model on fixed transitions that no run learns from."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.interfaces import FloatArray
from everlearn.world_model.memory import states_along

HORIZON = 15
"""Steps of the long error: the paper's planning horizon."""

Episodes = list[tuple[FloatArray, FloatArray]]
"""Observations ``[n + 1, S]`` and actions ``[n, A]`` of each episode."""


def model_error(model: Any, episodes: Episodes, horizon: int = HORIZON) -> float | None:
    """Mean squared error of the state imagined `horizon` steps ahead; None if no window fits.

    Mean over all windows of `horizon` steps inside the episodes and over the numbers of an
    observation, in their own units. A model's memory is at each window what it would be had the
    agent lived through the episode; the imagination starts from the true state.
    """
    memory = getattr(model, "memory", None)
    if memory is not None and memory.size == 0:
        memory = None
    starts, plans, ends = [], [], []
    memories: list[FloatArray] = []
    for observations, actions in episodes:
        windows = len(actions) - horizon + 1
        if windows < 1:
            continue
        starts.append(observations[:windows])
        plans.append(np.lib.stride_tricks.sliding_window_view(actions, horizon, axis=0))
        ends.append(observations[horizon:])
        if memory is not None:
            memories.append(states_along(memory, observations, actions)[:windows])
    if not starts:
        return None
    states_before = np.concatenate(memories) if memories else None
    actions = np.ascontiguousarray(np.concatenate(plans).transpose(0, 2, 1))
    states = model.rollout(np.concatenate(starts), actions, memory=states_before)
    wrong = np.asarray(states[:, -1], dtype=np.float64) - np.concatenate(ends)
    return float(np.mean(wrong**2))
