"""Planning where no reward function is given: the model predicts reward and end of an episode.

The observation gets entries that the model predicts and does not read
(`world_model.base.ImaginingModel`)::

    the return from now on           its change is the reward of a step
    whether the episode has ended    its change is the probability that a step ends it
    novelty                          how new the imagined steps are (`online.model`)

All begin at 0 in every transition and plan.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray

ENTRIES = 2
"""Entries that are learned: the return and the end."""


def with_entries(space: spaces.Box, count: int) -> spaces.Box:
    """Return `space` with so many unbounded entries more."""
    endless = np.full(count, np.inf, space.dtype)
    return spaces.Box(
        np.concatenate([space.low, -endless]),
        np.concatenate([space.high, endless]),
        dtype=space.dtype.type,
    )


@dataclass(frozen=True)
class LearnedReward:
    """Objective of an agent that learns the reward.

    Attributes
    ----------
    first
        Index of the return; the end and the novelty follow.
    bonus
        What a wholly new step is worth.
    """

    first: int
    bonus: float = 0.0

    def __call__(self, obs: FloatArray, action: FloatArray, after: FloatArray, /) -> FloatArray:
        """Growth of the return, and of the novelty times the bonus."""
        rewards = after[:, self.first] - obs[:, self.first]
        if self.bonus:
            new = self.first + ENTRIES
            rewards = rewards + self.bonus * (after[:, new] - obs[:, new])
        return np.asarray(rewards)

    def continues(
        self, obs: FloatArray, action: FloatArray, after: FloatArray, /
    ) -> npt.NDArray[np.float64]:
        """Probability that the episode goes on, as regression has it, kept inside [0, 1]."""
        end = self.first + 1
        return np.asarray(1 - np.clip(after[:, end] - obs[:, end], 0.0, 1.0), np.float64)
