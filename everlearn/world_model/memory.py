"""What an agent remembers of an episode, and how the model sees it.

An observation need not show the whole state: a hand that follows a commanded position hides
that position. A memory is carried along real and imagined steps alike: it starts from an
observation, advances by a step, and gives the model extra input features.

A memory may also be compiled: `compiled` returns the tables that `step_kernels.assemble_step`
and `step_kernels.memory_advance` read. Without it imagination runs step by step in Python.

Registered in `MEMORIES` is the class of a memory's settings, a frozen dataclass whose `build`
makes the memory for an environment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import CommandedPosition, EnvironmentFacts, FloatArray
from everlearn.registry import Registry
from everlearn.support.checks import check_number
from everlearn.support.errors import InvalidInputError, given
from everlearn.world_model.scaling import box_bounds
from everlearn.world_model.step_kernels import MemoryTables, given_features, memory_tables

BoolArray = npt.NDArray[np.bool_]


@runtime_checkable
class Memory(Protocol):
    """A batched memory; ``N`` states at once, pure functions of their arguments.

    It may also have `gridded` ``[F]``, which features dense grids of the online model see (all,
    if it does not say); ``features_of(observations)``, the features that tell how these
    observations move; and ``ahead(state, obs)``, how far commands are ahead of what was observed,
    in actions of size 1.
    """

    name: str
    size: int
    """Numbers in a state (``M``)."""
    inputs: int
    """Features given to the model (``F``)."""
    unscaled: BoolArray
    """Features ``[F]`` whose scale is unknown; the model fixes it after its warm-up."""

    def start(self, obs: FloatArray) -> FloatArray:
        """States ``[N, M]`` at the beginning of an episode, from ``obs[N, S]``."""
        ...

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        """States after a step from `obs` by `action` to `next_obs`."""
        ...

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """Input features ``[N, F]`` of `state` at `obs`."""
        ...

    def description(self) -> dict[str, Any]:
        """All that tells it from another of its name, as JSON; files of models hold it."""
        ...

    def compiled(self) -> MemoryTables | None:
        """Tables for the kernels, or None for a memory that only runs in Python."""
        ...


class MemoryConfig(Protocol):
    """Settings of a memory: what is registered in `MEMORIES`."""

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        facts: EnvironmentFacts,
    ) -> Memory:
        """Make the memory for an environment with these spaces that declares `facts`."""
        ...


@dataclass(frozen=True)
class NoMemoryConfig:
    """The model sees observation and action only, as in the paper."""

    given: ClassVar[tuple[str, ...]] = ()
    """What an agent with this memory is given of its environment."""

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        facts: EnvironmentFacts,
    ) -> Memory:
        """Make a memory without state; spaces and facts do not matter."""
        return NoMemory()


@dataclass(frozen=True)
class HistoryMemoryConfig:
    """The last action and the last displacement, for any environment."""

    action_gain: float = 1.5
    """What the bounds of an action become."""
    displacement_gain: float = 30.0
    """Model input for a displacement by half the range of an observation in one step."""

    given: ClassVar[tuple[str, ...]] = ()
    """What an agent with this memory is given of its environment."""

    def __post_init__(self) -> None:
        _check_gains(self, "action_gain", "displacement_gain")

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        facts: EnvironmentFacts,
    ) -> Memory:
        """Make the memory for an environment with these spaces; nothing need be declared."""
        return HistoryMemory(
            observation_space, action_space, self.action_gain, self.displacement_gain
        )


@dataclass(frozen=True)
class MotionMemoryConfig:
    """The commanded position and the last displacement, where an environment declares them."""

    command_gain: float = 30.0
    """Model input for a lag of one unit (metre) behind the commanded position."""
    displacement_gain: float = 100.0
    """Model input for a displacement by half the range of an observation in one step."""
    object_gain: float = 1.0
    """Factor for displacements of resting objects; 0 does not show them to the model."""

    def __post_init__(self) -> None:
        _check_gains(self, "command_gain", "displacement_gain", "object_gain")

    @property
    def given(self) -> tuple[str, ...]:
        """What an agent with this memory is given of its environment."""
        return ("command law",) if self.object_gain == 1 else ("scene", "command law")

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        facts: EnvironmentFacts,
    ) -> Memory:
        """Make the memory; an environment without a commanded position is refused."""
        if facts.commanded_position is None:
            raise InvalidInputError(
                "the memory 'motion' needs commanded_position, which the environment declares; "
                "for an environment that declares none use the memory 'history'"
            )
        resting = () if facts.bodies is None else facts.bodies.resting
        return MotionMemory(
            observation_space,
            facts.commanded_position,
            self.command_gain,
            self.displacement_gain,
            tuple(index for index, _ in resting),
            self.object_gain,
        )


def _check_gains(config: object, *names: str) -> None:
    for name in names:
        check_number(name, getattr(config, name), -1e9, 1e9)


class NoMemory:
    """The paper's agent: the observation is all it knows."""

    name = "none"

    def __init__(self) -> None:
        self.size = 0
        self.inputs = 0
        self.unscaled: BoolArray = np.zeros(0, np.bool_)

    def start(self, obs: FloatArray) -> FloatArray:
        """Return states without numbers, ``[N, 0]``."""
        return np.zeros((len(obs), 0))

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        """Return the state unchanged: there is nothing to remember."""
        return state

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """Return no inputs for the model, ``[N, 0]``."""
        return np.zeros((len(obs), 0))

    def description(self) -> dict[str, Any]:
        """Return no settings: this memory has none."""
        return {}

    def compiled(self) -> MemoryTables:
        """Return the tables of a memory without features."""
        return given_features(0)


class CommandMemory:
    """The position that the agent commanded: the sum of its own actions.

    Features are ``gain * (commanded - observed)``, the lag of what is moved behind where it
    was commanded to be. A part of `MotionMemory` that also works alone.

    Parameters
    ----------
    commanded_position
        How actions move the position; environments declare it.
    gain
        Feature for a lag of one unit (metre).
    """

    name = "commands"

    def __init__(
        self,
        commanded_position: CommandedPosition,
        gain: float = MotionMemoryConfig.command_gain,
    ) -> None:
        axes = len(commanded_position.action_indices)
        if {
            len(commanded_position.observation_indices),
            len(commanded_position.low),
            len(commanded_position.high),
        } != {axes}:
            raise InvalidInputError(
                f"a commanded position needs as many bounds and indices as axes; "
                f"got {commanded_position}"
            )
        if not np.isfinite(gain):
            raise InvalidInputError(f"gain must be finite; got {gain}")
        self.commanded_position = commanded_position
        self.gain = float(gain)
        self.size = self.inputs = axes
        self.unscaled: BoolArray = np.zeros(axes, np.bool_)
        self._action = np.array(commanded_position.action_indices, np.int64)
        self._observation = np.array(commanded_position.observation_indices, np.int64)
        self._low = np.array(commanded_position.low, np.float64)
        self._high = np.array(commanded_position.high, np.float64)

    def start(self, obs: FloatArray) -> FloatArray:
        """Take the observed position: nothing has been commanded yet."""
        return np.array(obs[:, self._observation])

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        """Add the scaled action and keep to the bounds."""
        move = self.commanded_position.scale * np.clip(action[:, self._action], -1, 1)
        return np.clip(state + move, self._low, self._high)

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """``gain * (commanded - observed)``."""
        return self.gain * (state - obs[:, self._observation])

    def ahead(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """How far the commanded position is ahead ``[N, axes]``, in actions of size 1."""
        return (state - obs[:, self._observation]) / self.commanded_position.scale

    def features_of(self, observations: tuple[int, ...]) -> tuple[int, ...]:
        """All: the lag is what moves the hand."""
        return tuple(range(self.inputs))

    def description(self) -> dict[str, Any]:
        """Position as declared, and gain."""
        return {"commanded_position": asdict(self.commanded_position), "gain": self.gain}

    def compiled(self) -> MemoryTables:
        """Tables of a commanded position and nothing else."""
        return memory_tables(
            np.zeros(0),
            np.zeros(0),
            action_indices=self._action,
            observation_indices=self._observation,
            scale=np.float64(self.commanded_position.scale),
            gain=np.float64(self.gain),
            low=self._low,
            high=self._high,
        )


class MotionMemory:
    """The commanded position, and by how much everything moved in the last step.

    Observations show positions; a heavy hand and what it carries also have velocities.

    Parameters
    ----------
    observation_space
        Gives the displacements their scale.
    commanded_position, command_gain
        As for `CommandMemory`.
    displacement_gain
        Feature for a displacement by half the range of an observation.
    objects, object_gain
        Observations of objects that move only when they are moved, and a factor for their
        displacements. A pushed door moves like the hand, and as it did a step before; shown both, a
        model learns that a door moves because it did, and not how a push begins. 0 does not
        show them.
    """

    name = "motion"

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        commanded_position: CommandedPosition,
        command_gain: float = MotionMemoryConfig.command_gain,
        displacement_gain: float = MotionMemoryConfig.displacement_gain,
        objects: tuple[int, ...] = (),
        object_gain: float = MotionMemoryConfig.object_gain,
    ) -> None:
        low, high = box_bounds(observation_space, "observation_space")
        bounded = np.isfinite(low) & np.isfinite(high)
        if not np.isfinite(object_gain) or not set(objects) <= set(range(len(low))):
            raise InvalidInputError(
                f"objects must be some of {len(low)} observations and their gain finite; got "
                f"{objects!r} and {object_gain!r}"
            )
        if not bounded.all() or not np.isfinite(displacement_gain):
            raise InvalidInputError(
                "the memory 'motion' scales displacements by the bounds of the observations, "
                f"which must be finite, as must the gain {displacement_gain}; for an "
                "environment without bounds use the memory 'history'"
            )
        self.commands = CommandMemory(commanded_position, command_gain)
        self.displacement_gain = float(displacement_gain)
        half = (high - low) / 2
        self._multiplier = np.where(half > 0, displacement_gain / np.where(half > 0, half, 1), 0.0)
        self.objects, self.object_gain = tuple(objects), float(object_gain)
        self._multiplier[list(objects)] *= self.object_gain
        self.size = self.inputs = self.commands.size + len(low)
        self.unscaled: BoolArray = np.zeros(self.inputs, np.bool_)
        # Displacements act almost linearly; in dense grids they would only blur the rest.
        self.gridded: BoolArray = np.arange(self.inputs) < self.commands.size

    def start(self, obs: FloatArray) -> FloatArray:
        """Nothing commanded and nothing moved yet."""
        return np.concatenate([self.commands.start(obs), np.zeros(obs.shape)], axis=1)

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        """Add the command and keep the displacement."""
        commanded = self.commands.advance(state[:, : self.commands.size], obs, action, next_obs)
        return np.concatenate([commanded, next_obs - obs], axis=1)

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """Lag and displacements, scaled."""
        axes = self.commands.size
        lag = self.commands.features(state[:, :axes], obs)
        return np.concatenate([lag, state[:, axes:] * self._multiplier], axis=1)

    def ahead(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """Return how far the commanded position is ahead of what is observed, ``[N, axes]``."""
        return self.commands.ahead(state[:, : self.commands.size], obs)

    def features_of(self, observations: tuple[int, ...]) -> tuple[int, ...]:
        """Lag, and the displacements of `observations`."""
        axes = self.commands.size
        return (*range(axes), *(axes + i for i in observations))

    def description(self) -> dict[str, Any]:
        """Position as declared, all gains, and which observations are of objects."""
        return {
            "commanded_position": asdict(self.commands.commanded_position),
            "command_gain": self.commands.gain,
            "displacement_gain": self.displacement_gain,
            "objects": self.objects,
            "object_gain": self.object_gain,
        }

    def compiled(self) -> MemoryTables:
        """Tables of a commanded position and displacements."""
        return self.commands.compiled()._replace(
            centre=np.zeros_like(self._multiplier),
            multiplier=self._multiplier,
            displacements=len(self._multiplier),
        )


class HistoryMemory:
    """The last action and the last displacement, for any environment.

    At the start of an episode both are what an agent at rest would see: the middle of the
    action space and no displacement.

    Parameters
    ----------
    observation_space, action_space
        Give actions and displacements their scale.
    action_gain
        What the bounds of an action become.
    displacement_gain
        Feature for a displacement by half the range of an observation. Displacements of
        unbounded observations are scaled by the model's warm-up instead.
    """

    name = "history"

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        action_gain: float = HistoryMemoryConfig.action_gain,
        displacement_gain: float = HistoryMemoryConfig.displacement_gain,
    ) -> None:
        low, high = box_bounds(observation_space, "observation_space")
        action_low, action_high = box_bounds(action_space, "action_space")
        if not (np.isfinite(action_gain) and np.isfinite(displacement_gain)):
            raise InvalidInputError("gains of a history must be finite")
        self.action_gain, self.displacement_gain = float(action_gain), float(displacement_gain)
        bounded = np.isfinite(low) & np.isfinite(high)
        action_bounded = np.isfinite(action_low) & np.isfinite(action_high)
        half = np.where(bounded, high - np.where(bounded, low, 0), 2.0) / 2
        action_half = (
            np.where(action_bounded, action_high - np.where(action_bounded, action_low, 0), 2.0) / 2
        )
        safe, action_safe = half > 0, action_half > 0
        multiplier = np.where(safe, self.displacement_gain / np.where(safe, half, 1), 0.0)
        action_multiplier = np.where(
            action_safe, self.action_gain / np.where(action_safe, action_half, 1), 0.0
        )
        self._centre = np.concatenate(
            [np.where(action_bounded, action_low + action_half, 0.0), np.zeros(len(low))]
        )
        # Features of unknown scale are handed over as they are; see `unscaled`.
        self.unscaled: BoolArray = np.concatenate([~action_bounded, ~bounded])
        self._multiplier = np.where(
            self.unscaled, 1.0, np.concatenate([action_multiplier, multiplier])
        )
        self._actions, self._observations = len(action_low), len(low)
        self.size = self.inputs = len(low) + len(action_low)

    def start(self, obs: FloatArray) -> FloatArray:
        """Middle of the action space and no displacement."""
        return np.repeat(self._centre[None], len(obs), axis=0)

    def advance(
        self, state: FloatArray, obs: FloatArray, action: FloatArray, next_obs: FloatArray
    ) -> FloatArray:
        """Keep this action and this displacement."""
        return np.concatenate([action, next_obs - obs], axis=1)

    def features(self, state: FloatArray, obs: FloatArray) -> FloatArray:
        """Return the last action and displacement: bounds become their gains, the middle 0."""
        return (state - self._centre) * self._multiplier

    def description(self) -> dict[str, Any]:
        """Return the gains of actions and of displacements."""
        return {"action_gain": self.action_gain, "displacement_gain": self.displacement_gain}

    def compiled(self) -> MemoryTables:
        """Tables of actions and displacements."""
        return memory_tables(
            self._centre,
            self._multiplier,
            actions=self._actions,
            displacements=self._observations,
        )


MEMORIES: Registry[type[MemoryConfig]] = Registry("memory")
"""Config classes of memories."""
MEMORIES.register(NoMemory.name, NoMemoryConfig)
MEMORIES.register(HistoryMemory.name, HistoryMemoryConfig)
MEMORIES.register(MotionMemory.name, MotionMemoryConfig)


def restored_memory(
    name: str,
    description: Mapping[str, Any],
    observation_space: spaces.Space[Any],
    action_space: spaces.Space[Any],
) -> Memory:
    """Make a memory of this package from what a file of a model says of it."""
    options = dict(description)
    if "commanded_position" in options:
        declared: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value
            for key, value in options["commanded_position"].items()
        }
        options["commanded_position"] = CommandedPosition(**declared)
    makers: dict[str, Callable[[], Memory]] = {
        NoMemory.name: lambda: NoMemory(**options),
        CommandMemory.name: lambda: CommandMemory(**options),
        HistoryMemory.name: lambda: HistoryMemory(observation_space, action_space, **options),
        MotionMemory.name: lambda: MotionMemory(observation_space, **options),
    }
    if name not in makers:
        raise InvalidInputError(
            f"the file's memory {given(name)} is none of this package ({', '.join(makers)}); make "
            "it yourself and pass it as memory="
        )
    return makers[name]()


def states_along(memory: Memory, observations: FloatArray, actions: FloatArray) -> FloatArray:
    """States ``[n, M]`` at the steps of an episode of ``observations[n + 1]``, ``actions[n]``."""
    if memory.size == 0 or len(actions) == 0:
        return np.zeros((len(actions), memory.size))
    state = np.asarray(memory.start(observations[:1]))
    states = [state]
    for step in range(len(actions) - 1):
        here = slice(step, step + 1)
        after = observations[step + 1 : step + 2]
        state = np.asarray(memory.advance(state, observations[here], actions[here], after))
        states.append(state)
    return np.concatenate(states)
