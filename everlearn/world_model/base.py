"""What world models share: checked input, and imagination along plans with a memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError
from everlearn.world_model import step_kernels
from everlearn.world_model.inputs import Batch, ModelInputs
from everlearn.world_model.memory import CompiledMemory, Memory, NoMemory
from everlearn.world_model.scaling import as_batch, as_box

Transitions = tuple[Batch, Batch, Batch, Batch]
"""Observations, actions, next observations and memory states, ``[N, ...]`` each."""


class ImaginingModel(ABC):
    """Predicts the change of an observation; a subclass says by what, in `_run`.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    memory
        What the model sees beside observation and action; nothing, as in the paper, if None.
    dtype
        Type of imagined states.
    gains
        What the bounds of observations and actions become where inputs are scaled by them.
    clip
        Keep predictions inside the observation space.
    still
        Smallest change ``[S]`` of each observation in a step: a smaller one is predicted as
        none. Things that lie there until they are pushed do not creep in imagination, where
        the many small errors of a model add up to what looks like success. None: no limit.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        memory: Memory | None,
        dtype: npt.DTypeLike,
        gains: tuple[float, float] = (1.0, 1.0),
        clip: bool = True,
        still: npt.ArrayLike | None = None,
    ) -> None:
        self.observation_space = as_box(observation_space, "observation_space")
        self.action_space = as_box(action_space, "action_space")
        self.memory: Memory = NoMemory() if memory is None else memory
        self.inputs = ModelInputs(self.observation_space, self.action_space, self.memory, *gains)
        self.dtype = np.dtype(dtype)
        self.still = np.zeros_like(self.inputs.low)
        if still is not None:
            self.still[:] = as_batch(still, "still", self.inputs.observations, (1,))
        if (self.still < 0).any():
            raise InvalidInputError(f"still must not be negative; got {still!r}")
        # What the kernels add a change by: lowest and highest value, smallest change.
        self._limits = np.stack(
            [
                self.inputs.low if clip else np.full_like(self.inputs.low, -np.inf),
                self.inputs.high if clip else np.full_like(self.inputs.high, np.inf),
                self.still,
            ]
        ).astype(self.dtype)

    @abstractmethod
    def _run(
        self, states: FloatArray, actions: Batch, memory: FloatArray, compiled: CompiledMemory
    ) -> None:
        """Fill ``states[N, 1:, S]`` from ``states[N, 0, S]`` along ``actions[N, H, A]``."""

    def predict(self, obs: object, action: object, memory: object = None) -> FloatArray:
        """Next observations ``[N, S]`` of ``obs[N, S]`` and ``action[N, A]``, or one ``[S]``.

        `memory` is the memory's state at `obs`, ``[M]`` or ``[N, M]``; None starts it anew
        there. Pure: nothing in the model changes.
        """
        observations = self.inputs.check_observation(obs, "obs")
        actions = self.inputs.check_action(action, "action")
        single = observations.ndim == 1 and actions.ndim == 1
        observations, actions = paired(observations, actions)
        states = self.inputs.check_memory(memory, observations)
        out = self._imagine(observations, actions[:, None, :], states)[:, 1]
        return out[0] if single else out

    def rollout(self, obs: object, actions: object, memory: object = None) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` along ``actions[N, H, A]``, from ``obs``.

        ``obs`` is one observation ``[S]`` for all candidates or ``[N, S]``; `memory` likewise,
        or None to start it anew from `obs`.
        """
        plans = self.inputs.check_action(actions, "actions", (3,))
        observations = self.inputs.check_observation(obs, "obs")
        if observations.ndim == 2 and len(observations) != len(plans):
            raise InvalidInputError(
                f"obs must be one observation or {len(plans)}; got {len(observations)} of them"
            )
        observations = np.broadcast_to(observations, (len(plans), self.inputs.observations))
        states = self.inputs.check_memory(memory, observations)
        return self._imagine(observations, plans, states)

    def _imagine(self, obs: Batch, actions: Batch, memory: Batch) -> FloatArray:
        compiled = self.memory.compiled()
        states = np.empty((len(obs), actions.shape[1] + 1, self.inputs.observations), self.dtype)
        states[:, 0] = obs
        if compiled is not None:
            self._run(states, actions, memory, compiled)
            return states
        # A memory without compiled form: one step at a time, its features handed over.
        given = CompiledMemory(step_kernels.GIVEN_FEATURES, np.zeros(0, np.int64), np.zeros(0))
        state: FloatArray = memory
        for step in range(actions.shape[1]):
            now, action = states[:, step].astype(np.float64), actions[:, step]
            part = np.ascontiguousarray(states[:, step : step + 2])
            self._run(part, actions[:, step : step + 1], self.memory.features(state, now), given)
            states[:, step + 1] = part[:, 1]
            state = self.memory.advance(state, now, action, part[:, 1].astype(np.float64))
        return states

    def _checked(
        self, obs: object, action: object, next_obs: object, memory: object, dims: tuple[int, ...]
    ) -> Transitions:
        """Transitions as batches, or an error that says what is wrong with them."""
        observations = np.atleast_2d(self.inputs.check_observation(obs, "obs", dims))
        actions = np.atleast_2d(self.inputs.check_action(action, "action", dims))
        following = np.atleast_2d(self.inputs.check_observation(next_obs, "next_obs", dims))
        if not len(observations) == len(actions) == len(following):
            raise InvalidInputError(
                f"obs, action and next_obs must be equally many; got {len(observations)}, "
                f"{len(actions)} and {len(following)}"
            )
        states = np.array(self.inputs.check_memory(memory, observations))
        return observations.copy(), actions, following.copy(), states


def paired(obs: Batch, action: Batch) -> tuple[Batch, Batch]:
    """Both as ``[N, ...]``; a single one goes with every one of the other."""
    obs, action = np.atleast_2d(obs), np.atleast_2d(action)
    count = max(len(obs), len(action))
    if len(obs) not in (1, count) or len(action) not in (1, count):
        raise InvalidInputError(
            f"obs and action must be equally many; got {len(obs)} and {len(action)}"
        )
    return (
        np.broadcast_to(obs, (count, obs.shape[1])),
        np.broadcast_to(action, (count, action.shape[1])),
    )
