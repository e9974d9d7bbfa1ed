"""What the parts ask of each other; the components themselves live in their own packages.

Shapes: ``N`` inputs in a batch, ``H`` steps of a plan, ``S`` numbers in an observation,
``A`` in an action, ``M`` in a memory's state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.support.errors import InvalidInputError, given
from everlearn.support.structure import MAX_NAME, is_entry_name

FloatArray = npt.NDArray[np.floating[Any]]
State = tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]
"""What a component saves: arrays, and facts that JSON can hold."""


@dataclass(frozen=True)
class CommandedPosition:
    """How an environment's actions move a position that its observation does not show.

    The position starts at ``obs[observation_indices]`` of the reset observation; each action
    adds ``scale * clip(action[action_indices], -1, 1)`` and the sum is clipped to
    ``[low, high]``. An environment declares it as ``commanded_position``.
    """

    scale: float
    low: tuple[float, ...]
    high: tuple[float, ...]
    action_indices: tuple[int, ...]
    observation_indices: tuple[int, ...]


@dataclass(frozen=True)
class Bodies:
    """Which observations say where the hand and the things it can touch are.

    ``obs[hand] + grip`` is the point between the fingers, ``obs[opening]`` says how far they
    are apart, and each of `objects` lists the position of one thing. `resting` are the
    observations of things that do not move unless something moves them, each with a change
    in a step that is small for it. An environment declares it as ``bodies``.
    """

    hand: tuple[int, ...]
    grip: tuple[float, ...]
    opening: tuple[int, ...]
    objects: tuple[tuple[int, ...], ...]
    resting: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True)
class EnvironmentFacts:
    """What an environment declares beside its spaces; most declare nothing.

    Attributes
    ----------
    commanded_position
        How actions move a position that the observation does not show.
    bodies
        Which observations say where hand and objects are.
    control_period
        Seconds of a step: the environment's `control_period`, its `dt`, or one over the
        ``render_fps`` of its metadata.
    observation_names
        What the entries of an observation are called. People read them, agents do not.
    """

    commanded_position: CommandedPosition | None = None
    bodies: Bodies | None = None
    control_period: float | None = None
    observation_names: tuple[str, ...] | None = None

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> EnvironmentFacts:
        """Read what `env` declares, and check it against its spaces."""
        declared: dict[str, Any] = {}
        for name, sort in (("commanded_position", CommandedPosition), ("bodies", Bodies)):
            declared[name] = getattr(env.unwrapped, name, None)
            if declared[name] is not None and not isinstance(declared[name], sort):
                raise InvalidInputError(
                    f"the environment's {name} is {given(declared[name])}; expected an "
                    f"everlearn.interfaces.{sort.__name__}"
                )
        return cls(
            **declared,
            control_period=_control_period(env),
            observation_names=_observation_names(env),
        )

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Mapping[str, Any]) -> EnvironmentFacts:
        """Read what `to_json` returned, also after a trip through JSON, which has no tuples."""
        position, bodies = stored["commanded_position"], stored["bodies"]
        return cls(
            None if position is None else CommandedPosition(**_with_tuples(position)),
            None if bodies is None else Bodies(**_with_tuples(bodies)),
            stored.get("control_period"),
            None if (names := stored.get("observation_names")) is None else tuple(names),
        )


def _control_period(env: gymnasium.Env[Any, Any]) -> float | None:
    """Return the seconds of a step where `env` tells them."""
    for name in ("control_period", "dt"):
        period = getattr(env.unwrapped, name, None)
        if isinstance(period, (int, float)) and 0 < period < np.inf:
            return float(period)
    frames = (getattr(env, "metadata", None) or {}).get("render_fps")
    return 1 / frames if isinstance(frames, (int, float)) and 0 < frames < np.inf else None


def _observation_names(env: gymnasium.Env[Any, Any]) -> tuple[str, ...] | None:
    """Return what `env` calls the entries of its observations, if it has a name for each."""
    names = getattr(env.unwrapped, "observation_names", None)
    if names is None:
        return None
    shape = env.unwrapped.observation_space.shape or ()
    if (
        not isinstance(names, (list, tuple))
        or not all(map(is_entry_name, names))
        or (len(names),) != shape
    ):
        raise InvalidInputError(
            f"the environment's observation_names is {given(names)}; expected a printable name of "
            f"at most {MAX_NAME} characters for each entry of an observation of shape {list(shape)}"
        )
    if env.observation_space.shape != shape:  # a wrapper shows other entries
        return None
    return tuple(names)


def _with_tuples(stored: Any) -> Any:
    if isinstance(stored, Mapping):
        return {name: _with_tuples(value) for name, value in stored.items()}
    if isinstance(stored, (list, tuple)):
        return tuple(_with_tuples(value) for value in stored)
    return stored


class Objective(Protocol):
    """A batched reward: what a planner maximises.

    It may also have ``continues(obs, action, next_obs)``, with the same arguments: how likely, in
    [0, 1], an episode goes on after each transition.
    """

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray, /) -> FloatArray:
        """Rewards ``[N]`` of ``obs[N, S]``, ``action[N, A]``, ``next_obs[N, S]``."""
        ...


@runtime_checkable
class WorldModel(Protocol):
    """A model of the world's dynamics that learns from single transitions."""

    observation_space: spaces.Box
    action_space: spaces.Box

    def learn(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> None:
        """Take in one transition; on bad input raise and change nothing."""
        ...

    def predict(self, obs: FloatArray, action: FloatArray) -> FloatArray:
        """Next observations ``[N, S]``; a pure function of the model and its input."""
        ...

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` from ``obs`` along ``actions[N, H, A]``.

        ``memory`` is the state of the model's memory at ``obs``; without it the memory starts
        anew there.
        """
        ...


@dataclass(frozen=True, eq=False)
class Plan:
    """A decision and what the planner saw on the way to it.

    Attributes
    ----------
    action
        The action to execute now, ``[A]``.
    actions
        The best sequence of actions found, ``[H, A]``.
    value
        Imagined return of `actions`.
    returns
        Imagined returns of the candidates, one array for each iteration; minus infinity where
        the objective was not finite.
    elites
        The last elite set, best first, ``[E, H, A]``.
    elite_returns
        Their imagined returns, ``[E]``.
    states
        Their imagined trajectories, ``[E, H + 1, S]``.
    iterations_done
        How many iterations there was time for.
    seconds
        Wall-clock time of the decision.
    """

    action: npt.NDArray[np.float32]
    actions: npt.NDArray[np.float32]
    value: float
    returns: tuple[npt.NDArray[np.float64], ...]
    elites: npt.NDArray[np.float32]
    elite_returns: npt.NDArray[np.float64]
    states: FloatArray
    iterations_done: int
    seconds: float


@runtime_checkable
class Planner(Protocol):
    """Searches for actions in the imagination of a model.

    What is registered is the class of its settings, a frozen dataclass with a method
    ``build(action_space, seed)`` that makes the planner.
    """

    def plan(
        self,
        model: WorldModel,
        obs: FloatArray,
        objective: Objective,
        memory: FloatArray | None = None,
        deadline_ms: float | None = None,
    ) -> Plan:
        """Return a plan from `obs`; on an error the planner is as it was."""
        ...

    def reset(self) -> None:
        """Forget earlier plans: start of an episode or of a task."""
        ...

    def spawn(self, seed: int | np.random.SeedSequence) -> Planner:
        """Return a fresh planner with the same settings, its own memory and generator."""
        ...

    def state(self) -> State:
        """Everything that later plans depend on: arrays and a JSON dictionary."""
        ...

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        ...


@runtime_checkable
class Agent(Protocol):
    """Anything that acts and learns from what follows."""

    boundary_aware: bool
    """Whether the agent may read the name of the task.

    Agents may also have `told` and `given`, tuples of words that tables show: what they are told of
    tasks (``boundaries``, ``name``), and what they are given beside observations and rewards
    (``reward function``, ``success test``, ``scene``, ``command law``). One that can be evaluated
    in other ways says so in `evaluation_variants`: further arguments of `evaluation_copy`, by a
    name for tables, such as ``{"mean actions": {"actions": "mean"}}``.
    """

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another objective; only boundary-aware agents may read `name`."""
        ...

    def begin_episode(self) -> None:
        """Start of an episode: clears the memory of plans and commands, not what was learned."""
        ...

    def act(self, obs: FloatArray, explore: bool = True) -> FloatArray:
        """Return the action to take at `obs`."""
        ...

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Take in what followed the last action."""
        ...

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> Agent:
        """Return an agent that acts on the same knowledge and learns nothing.

        It shares what was learned without copying it, and has a generator and a memory of its
        own, so that nothing it does can be seen in this agent.
        """
        ...

    def save(self, path: str | Path) -> None:
        """Write everything the agent knows to `path`, atomically."""
        ...

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        ...


@dataclass(frozen=True)
class NoSettings:
    """The config of an agent that has nothing to set."""


@dataclass(frozen=True)
class AgentSpec:
    """What is registered under an agent's name: how to make the agent, and its settings.

    Attributes
    ----------
    make
        ``make(env, config, seed)`` returns the agent for a Gymnasium environment.
    config
        A frozen dataclass: the settings that this name stands for. Options are dotted paths into
        it (`everlearn.support.settings`).
    summary
        What the agent is, in a line.
    details
        More of that, in lines, for ``everlearn list NAME``.
    config_for
        Settings that depend on what an environment declares, if some do.
    """

    make: Callable[[gymnasium.Env[Any, Any], Any, int], Agent]
    config: Any = NoSettings()
    summary: str = ""
    config_for: Callable[[gymnasium.Env[Any, Any]], Any] | None = None
    details: tuple[str, ...] = ()

    def settings(self, env: gymnasium.Env[Any, Any]) -> Any:
        """Return the settings of this name in `env`."""
        return self.config if self.config_for is None else self.config_for(env)


Measure = Literal["success", "return"]
"""What counts in a world: whether an episode is solved, or the sum of its rewards."""


@runtime_checkable
class World(Protocol):
    """What can be run: tasks, how to make the environment of one, and what is measured."""

    @property
    def name(self) -> str:
        """As commands and configs call it: ``continual-bench``, ``gym:Pendulum-v1``."""
        ...

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks, in the order in which they are learned if nobody says another."""
        ...

    @property
    def measure(self) -> Measure:
        """``success``: environments say ``info["success"]``; ``return``: they do not."""
        ...

    @property
    def max_steps(self) -> int:
        """Steps after which an episode ends without success."""
        ...

    def make(
        self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> gymnasium.Env[Any, Any]:
        """Return a new environment of `task`; raises `UnknownNameError` if there is no such task.

        `reset_noise` spreads the start of an episode, in the world's units; a world that cannot
        do that refuses anything but 0.
        """
        ...

    def objective(self, task: str) -> Objective | None:
        """Return the reward of `task` as a function of predicted observations, if it is known.

        None lets agents learn the reward from what they observe.
        """
        ...
