"""What world models share: checked input, and imagination along plans with a memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import Batch, ModelInputs
from everlearn.world_model.memory import Memory, NoMemory
from everlearn.world_model.scaling import as_batch, as_box
from everlearn.world_model.step_kernels import (
    Limits,
    MemoryTables,
    StepTables,
    Trajectories,
    given_features,
)

Transitions = tuple[Batch, Batch, Batch, Batch]
"""Observations, actions, next observations and memory states, ``[N, ...]`` each."""


class ImaginingModel(ABC):
    """Predicts the change of an observation; a subclass says by what, in `_run`.

    Arguments of public methods are checked; methods that end in ``_unchecked`` are for callers
    that have checked theirs (`inputs.check_observation` and the like), once for all.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    memory
        What the model sees beside observation and action; nothing, as in the paper, if None. Made
        for the observations that are read.
    dtype
        Type of imagined states.
    gains
        What the bounds of observations and actions become where inputs are scaled by them.
    clip
        Keep predictions inside the observation space.
    still
        Smallest change of each observation that is read in a step: a smaller one is predicted as
        none. Objects that rest until they are pushed do not creep in imagination, where the
        many small errors of a model add up to what looks like success. None: no limit.
    unread
        Observations, the last ones of `observation_space`, that the model predicts and does not
        read: no prediction depends on them. Their bounds do not count, nothing clips them, and
        imagination sums their changes up. A learned reward is such an entry: the return so far.
        Since only its changes matter it may begin at 0 in every transition and plan, which
        keeps small rewards from being lost beside a large return in float32.
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
        unread: int = 0,
    ) -> None:
        self.observation_space = as_box(observation_space, "observation_space")
        self.action_space = as_box(action_space, "action_space")
        self.memory: Memory = NoMemory() if memory is None else memory
        self.inputs = ModelInputs(
            self.observation_space, self.action_space, self.memory, *gains, unread=unread
        )
        self.dtype = np.dtype(dtype)
        self.still = np.zeros(self.inputs.read)
        if still is not None:
            self.still[:] = as_batch(still, "still", self.inputs.read, (1,))
        if (self.still < 0).any():
            raise InvalidInputError(f"still must not be negative; got {still!r}")
        unlimited = np.full(self.inputs.observations, np.inf)
        self._limits = Limits(
            (self.inputs.low if clip else -unlimited).astype(self.dtype),
            (self.inputs.high if clip else unlimited).astype(self.dtype),
            np.append(self.still, np.zeros(unread)).astype(self.dtype),
        )
        tables = self.memory.compiled()
        self._memory_tables = None if tables is None else tables.astype(self.dtype)

    def hold_still(self, smallest: FloatArray) -> None:
        """Predict no change below ``smallest[S]`` of what is read, from now on, beside `still`.

        Nothing that was learned depends on it, and no file of the model has it.
        """
        limit = self._limits.smallest_change
        limit[: self.inputs.read] = np.maximum(self.still, smallest)

    @abstractmethod
    def _run(self, trajectories: Trajectories, memory: MemoryTables) -> None:
        """Fill the states of `trajectories`, whose arrays are of the model's type."""

    def _step_tables(
        self, centre: FloatArray, multiplier: FloatArray, memory: MemoryTables
    ) -> StepTables:
        """Return what kernels need around a prediction whose inputs are scaled like this."""
        scaling = centre.astype(self.dtype), multiplier.astype(self.dtype)
        return StepTables(*scaling, self._limits, memory, self.inputs.read)

    def predict(self, obs: object, action: object, memory: object = None) -> FloatArray:
        """Next observations ``[N, S]`` of ``obs[N, S]`` and ``action[N, A]``, or one ``[S]``.

        `memory` is the memory's state at `obs`, ``[M]`` or ``[N, M]``; None starts it anew
        there. Pure: nothing in the model changes.
        """
        observations, actions, states, single = self._checked_inputs(obs, action, memory)
        out = self._imagine(observations, actions[:, None, :], states)[:, 1]
        return out[0] if single else out

    def rollout(self, obs: object, actions: object, memory: object = None) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` along ``actions[N, H, A]``, from ``obs``.

        ``obs`` is one observation ``[S]`` for all candidates or ``[N, S]``; `memory` likewise,
        or None to start it anew from `obs`.
        """
        return self._imagine(*self._checked_plans(obs, actions, memory))

    def _checked_plans(
        self, obs: object, actions: object, memory: object
    ) -> tuple[Batch, Batch, Batch]:
        """Observations and memory states, one for each of the plans ``[N, H, A]``."""
        plans = self.inputs.check_action(actions, "actions", (3,))
        observations = self.inputs.check_observation(obs, "obs")
        if observations.ndim == 2 and len(observations) != len(plans):
            raise InvalidInputError(
                f"obs must be one observation or {len(plans)}; got {len(observations)} of them"
            )
        observations = np.broadcast_to(observations, (len(plans), self.inputs.observations))
        return observations, plans, self.inputs.check_memory(memory, observations)

    def rollout_unchecked(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        """`rollout` from one checked observation ``[S]`` along plans inside the action space.

        `memory` is one state ``[M]`` that this model's memory gave, or None.
        """
        count = len(actions)
        observations = np.broadcast_to(obs, (count, self.inputs.observations))
        if memory is None:
            memory = self.memory.start(observations[:1, : self.inputs.read])[0]
        states = np.broadcast_to(memory, (count, self.memory.size))
        return self._imagine(observations, actions, states)

    def rollout_from(self, obs: FloatArray, actions: FloatArray) -> FloatArray:
        """`rollout` from checked observations ``[N, S]``, where the memory starts anew."""
        return self._imagine(obs, actions, self.memory.start(obs[:, : self.inputs.read]))

    def _imagine(self, obs: FloatArray, actions: FloatArray, memory: FloatArray) -> FloatArray:
        horizon = actions.shape[1]
        states = np.empty((horizon + 1, len(obs), self.inputs.observations), self.dtype)
        states[0] = obs
        if self._memory_tables is not None:
            # In C order, which one state for all has not: kernels compile for each order.
            plans = actions.astype(self.dtype, order="C", copy=False)
            memories = memory.astype(self.dtype, order="C")  # a copy: it is advanced in place
            self._run(Trajectories(states, plans, memories), self._memory_tables)
            return states.swapaxes(0, 1)
        # A memory without compiled form: one step at a time, its features handed over.
        tables, read = given_features(self.memory.inputs).astype(self.dtype), self.inputs.read
        for step in range(horizon):
            now, action = states[step, :, :read].astype(np.float64), actions[:, step]
            part = Trajectories(
                states[step : step + 2],
                action[:, None].astype(self.dtype, order="C"),
                self.memory.features(memory, now).astype(self.dtype, order="C"),
            )
            self._run(part, tables)
            after = states[step + 1, :, :read].astype(np.float64)
            memory = self.memory.advance(memory, now, action, after)
        return states.swapaxes(0, 1)

    def learn(self, obs: object, action: object, next_obs: object, memory: object = None) -> None:
        """Take in one transition; `memory` is the memory's state at `obs`.

        Bad input raises and changes nothing.
        """
        self._learn(self._checked(obs, action, next_obs, memory, (1,)))

    def learn_unchecked(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        memory: FloatArray | None = None,
    ) -> None:
        """`learn` of a transition that was checked before: finite, ``[S]``, ``[A]``, ``[S]``."""
        if memory is None:
            memory = self.memory.start(obs[None, : self.inputs.read])[0]
        single = (np.array(part, np.float64)[None] for part in (obs, action, next_obs, memory))
        observations, actions, following, states = single
        self._learn((observations, actions, following, states))

    @abstractmethod
    def _learn(self, transition: Transitions) -> None:
        """Take in one checked transition, as batches of one that nobody else has."""

    def _checked_inputs(
        self, obs: object, action: object, memory: object
    ) -> tuple[Batch, Batch, Batch, bool]:
        """Observations, actions and memory states, equally many, and whether a single one."""
        observations = self.inputs.check_observation(obs, "obs")
        actions = self.inputs.check_action(action, "action")
        single = observations.ndim == 1 and actions.ndim == 1
        observations, actions = _paired(observations, actions)
        return observations, actions, self.inputs.check_memory(memory, observations), single

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


def _paired(obs: Batch, action: Batch) -> tuple[Batch, Batch]:
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
