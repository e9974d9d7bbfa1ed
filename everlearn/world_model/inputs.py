"""What the model is given: checked, assembled and scaled in one place."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import Memory
from everlearn.world_model.scaling import InputScaling, as_batch, box_bounds

FAR = 10.0
"""Half ranges from the centre of its bounds at which an observation is refused."""

ACTION_SLACK = 1e-6
"""How far, relative to its bounds, rounding may push an action over them."""

Batch = npt.NDArray[np.float64]


class InputChecks:
    """Checks observations and actions at the border, where they come in.

    Observations may lie outside their bounds, as reset observations do, but not further than
    `FAR` half ranges from the centre: that is another unit or another environment. Actions
    must lie in their space; a hair's breadth outside is clipped.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    unread
        Observations, the last ones, whose bounds do not count.
    """

    def __init__(
        self, observation_space: spaces.Box, action_space: spaces.Box, unread: int = 0
    ) -> None:
        self.low, self.high = box_bounds(observation_space, "observation_space")
        self.action_low, self.action_high = box_bounds(action_space, "action_space")
        self.observations, self.actions = len(self.low), len(self.action_low)
        check_whole("unread", unread, 0, self.observations - 1)
        self.unread, self.read = unread, self.observations - unread
        self.low[self.read :], self.high[self.read :] = -np.inf, np.inf
        bounded = np.isfinite(self.low) & np.isfinite(self.high)
        half = np.where(bounded, self.high - np.where(bounded, self.low, 0), np.inf) / 2
        centre = np.where(bounded, self.low + np.where(bounded, half, 0), 0.0)
        half = np.where(half > 0, half, np.inf)
        self._nearest, self._furthest = centre - FAR * half, centre + FAR * half
        self._slack_low = self.action_low - ACTION_SLACK * (1 + np.abs(self.action_low))
        self._slack_high = self.action_high + ACTION_SLACK * (1 + np.abs(self.action_high))

    def check_observation(self, obs: object, name: str, dims: tuple[int, ...] = (1, 2)) -> Batch:
        """Observations as float64, or an error that says what is wrong with them."""
        array = as_batch(obs, name, self.observations, dims)
        outside = (array < self._nearest) | (array > self._furthest)
        if outside.any():
            where = np.argwhere(outside)[0].tolist()
            i = where[-1]
            raise InvalidInputError(
                f"{name} is far outside its space: {array[tuple(where)]:g} at index {where}, "
                f"bounds [{self.low[i]:g}, {self.high[i]:g}]. Check its units"
            )
        return array

    def check_action(self, action: object, name: str, dims: tuple[int, ...] = (1, 2)) -> Batch:
        """Actions as float64 inside their space, or an error."""
        array = as_batch(action, name, self.actions, dims)
        outside = (array < self._slack_low) | (array > self._slack_high)
        if outside.any():
            where = np.argwhere(outside)[0].tolist()
            i = where[-1]
            raise InvalidInputError(
                f"{name} is outside the action space: {array[tuple(where)]:g} at index {where}, "
                f"bounds [{self.action_low[i]:g}, {self.action_high[i]:g}]. Clip it first"
            )
        return np.clip(array, self.action_low, self.action_high)


class ModelInputs(InputChecks):
    """Checks and assembles observations, actions and memory states.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    memory
        Made for the observations that are read.
    observation_gain, action_gain
        What the bounds of observations and actions become after scaling.
    unread
        Observations, the last ones, that are predicted and are no inputs: neither the model nor
        its memory sees them, and their bounds do not count.
    """

    def __init__(
        self,
        observation_space: spaces.Box,
        action_space: spaces.Box,
        memory: Memory,
        observation_gain: float,
        action_gain: float,
        unread: int = 0,
    ) -> None:
        super().__init__(observation_space, action_space, unread)
        self.memory = memory
        self._check_memory_fits()
        # Features of known scale come with their own gain: bounds of [-1, 1] leave them alone.
        feature_bound = np.where(memory.unscaled, np.inf, 1.0)
        # An input without a range is multiplied by zero, and no warm-up waits for its scale.
        nothing = np.zeros(unread)
        self.scaling = InputScaling(
            np.concatenate([self.low[: self.read], nothing, self.action_low, -feature_bound]),
            np.concatenate([self.high[: self.read], nothing, self.action_high, feature_bound]),
            np.concatenate(
                [
                    np.full(self.observations, observation_gain),
                    np.full(self.actions, action_gain),
                    np.ones(memory.inputs),
                ]
            ),
        )

    @property
    def count(self) -> int:
        """Numbers in an assembled input."""
        return self.observations + self.actions + self.memory.inputs

    @property
    def gridded(self) -> npt.NDArray[np.bool_]:
        """Inputs ``[count]`` that dense grids look at; a memory may keep features from them."""
        kept = getattr(self.memory, "gridded", np.ones(self.memory.inputs, np.bool_))
        read = np.arange(self.observations) < self.read
        return np.concatenate([read, np.ones(self.actions, np.bool_), kept])

    def features_of(self, observations: tuple[int, ...]) -> tuple[int, ...]:
        """Features of the memory that tell how these observations move."""
        features_of = getattr(self.memory, "features_of", None)
        return () if features_of is None else tuple(features_of(observations))

    @property
    def half_ranges(self) -> Batch:
        """Half the range of each number of a raw input; 1 where it has no bounds."""
        ranged = self.scaling.multiplier > 0
        gains = np.where(self.scaling.unbounded, self.scaling.multiplier, self.scaling.gain)
        return np.where(ranged, gains / np.where(ranged, self.scaling.multiplier, 1.0), 1.0)

    def _check_memory_fits(self) -> None:
        obs, action = np.zeros((1, self.read)), np.zeros((1, self.actions))
        try:
            state = self.memory.start(obs)
            shapes = (
                state.shape,
                self.memory.advance(state, obs, action, obs).shape,
                self.memory.features(state, obs).shape,
            )
        except IndexError as error:
            raise InvalidInputError(
                f"memory {self.memory.name!r} was made for other spaces: {error}"
            ) from error
        size = (1, self.memory.size)
        if shapes != (size, size, (1, self.memory.inputs)):
            raise InvalidInputError(
                f"memory {self.memory.name!r} gives shapes {shapes}; expected states of "
                f"{self.memory.size} and features of {self.memory.inputs} numbers"
            )

    def check_memory(self, memory: object, obs: Batch) -> Batch:
        """Memory states ``[N, M]`` for ``obs[N, S]``; None starts anew from `obs`."""
        if memory is None:
            return np.asarray(self.memory.start(obs[:, : self.read]), np.float64)
        array = as_batch(memory, "memory", self.memory.size)
        if array.ndim == 2 and len(array) not in (1, len(obs)):
            raise InvalidInputError(
                f"memory must hold one state or {len(obs)}; got {len(array)} of them"
            )
        return np.broadcast_to(array, (len(obs), self.memory.size))

    def raw(self, obs: Batch, action: Batch, memory: FloatArray) -> Batch:
        """Unscaled inputs ``[N, count]``: observation, action, features of the memory.

        Observations that are not read are 0.
        """
        read = obs[:, : self.read]
        features = self.memory.features(memory, read)
        if not self.unread:
            return np.concatenate([read, action, features], axis=1)
        return np.concatenate([read, np.zeros((len(obs), self.unread)), action, features], axis=1)

    def assemble(self, obs: Batch, action: Batch, memory: FloatArray) -> Batch:
        """Scaled inputs ``[N, count]``."""
        return (self.raw(obs, action, memory) - self.scaling.centre) * self.scaling.multiplier
