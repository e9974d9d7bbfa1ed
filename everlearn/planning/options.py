"""Settings of the online agent by name, and how an agent's parts are made from them."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast, get_type_hints

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn.interfaces import CommandedPosition, EnvironmentFacts, FloatArray
from everlearn.online import OnlineModelConfig, OnlineWorldModel
from everlearn.planning import PLANNERS, CEMConfig, Planner
from everlearn.planning.escape import Patience
from everlearn.support.checks import check_number
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.world_model.memory import (
    MEMORIES,
    CommandMemory,
    Memory,
    MotionMemoryConfig,
)

PAPER: dict[str, Any] = {
    "features": 300,
    "bins": 9,
    "grid_dim": 2,
    "observation_gain": 3.0,
    "action_gain": 1.5,
    "ridge": 0.005,
    "solve_every": 0,
    "linear": False,
    "local_grids": 0.0,
    "local_gain": 30.0,
    "local_reach": 0.0,
    "clip": True,
    "memory": "none",
    "thing_gain": 1.0,
    "patience": 0,
    "progress": 0.002,
    "success_bonus": 0.0,
    "rest": 0.0,
    "planner": "cem",
    "candidates": 150,
    "horizon": 15,
    "iterations": 3,
    "elites": 15,
    "noise_beta": 2.0,
    "deviation": 0.5,
    "kept_elites": 0.3,
    "momentum": 0.1,
    "execute": "best",
    "discount": 1.0,
    "final_weight": 0.0,
}
"""The paper as written: it stays, whatever becomes of the defaults."""

GENERAL: dict[str, Any] = {**PAPER, "ridge": 1.0, "memory": "auto"}
"""The agent of this package where nothing is known of the environment but its spaces."""

MANIPULATION: dict[str, Any] = {
    **GENERAL,
    "features": 300,
    "bins": 5,
    "ridge": 10.0,
    "solve_every": 500,
    "memory": "motion",
    "thing_gain": 0.0,
    "linear": True,
    "local_grids": 0.8,
    "local_gain": 60.0,
    "local_reach": 0.3,
    "patience": 30,
    "progress": 0.05,
    "success_bonus": 10.0,
    "rest": 1.0,
    "candidates": 200,
    "horizon": 25,
    "discount": 0.95,
    "final_weight": 10.0,
}
"""The same where an environment declares what it commands and its hand and objects.

Each difference is an option by name; docs/tuning.md has what they are worth.
"""


def defaults_for(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return the settings of the agent ``oa`` in `env`."""
    declares = (getattr(env.unwrapped, name, None) for name in ("commanded_position", "bodies"))
    return MANIPULATION if all(fact is not None for fact in declares) else GENERAL


RUN_SETTINGS = ("seed", "threads")
"""What parts of an agent can be told, but a run decides for all of them."""

NESTED = ("planning", "model", "strategy_settings")
"""Options that are dataclasses themselves: their own fields stand in the flat table."""


@dataclass(frozen=True)
class ActingOptions:
    """What can be set about an agent that plans, whatever its model.

    Attributes
    ----------
    seed
        Fans out into the generators of model, planner and patience.
    memory
        What the agent remembers of an episode, by its registered name: ``none``; ``commands``
        and ``motion`` (these and the last displacement; for both the environment must declare
        a `commanded_position`); ``history`` (last action and displacement); ``auto`` is
        ``commands`` where declared and ``none`` elsewhere.
    command_gain
        Model input for a lag of one unit (metre) behind the commanded position.
    displacement_gain
        Model input for a displacement by half the range of an observation in one step.
    thing_gain
        That of things at rest (`Bodies.resting`) is multiplied by this; 0 does not tell the
        model that a thing moved in the last step, only what the hand does to it.
    patience, progress, burst
        After this many steps without a reward that is better by `progress` move in a random
        direction for up to `burst` steps (patience.py); a patience of 0 never does.
    success_bonus
        What a plan gets for each step in which it expects the task to be solved, if the
        objective can tell (``objective.succeeded``). Without it lingering where rewards are
        high may look as good as finishing.
    rest
        Times the small changes of things at rest that an environment declares
        (`Bodies.resting`): below that a plan expects them to stay as they are. 0: it does not.
    deadline_ms
        Longest time a decision should take; None lets the planner finish.
    planner
        Name of a registered planner.
    planning
        The planner's settings.
    """

    seed: int = 0
    memory: str = "auto"
    command_gain: float = 30.0
    displacement_gain: float = 100.0
    thing_gain: float = 1.0
    patience: int = 0
    progress: float = 0.002
    burst: int = 14
    success_bonus: float = 0.0
    rest: float = 0.0
    deadline_ms: float | None = None
    planner: str = "cem"
    planning: Any = field(default_factory=CEMConfig)

    def __post_init__(self) -> None:
        if self.memory not in ("auto", "commands"):
            MEMORIES.get(self.memory)
        if not (np.isfinite(self.success_bonus) and self.success_bonus >= 0):
            raise InvalidInputError(
                f"success_bonus is {self.success_bonus!r}; expected a number >= 0"
            )
        check_number("rest", self.rest, 0.0, 1e6)


@dataclass(frozen=True)
class OnlineOptions(ActingOptions):
    """Everything that can be set about an online agent.

    Attributes
    ----------
    model
        The model's settings; its seed is replaced by `seed`.
    """

    model: OnlineModelConfig = field(default_factory=OnlineModelConfig)
    threads: int | None = None

    @classmethod
    def from_options(cls, **options: Any) -> OnlineOptions:
        """Make them from one flat table of the agent's, the planner's and the model's settings."""
        config_type = PLANNERS.get(options.get("planner", "cem")).config_type
        own, planning, model = split_options(options, cls, config_type, OnlineModelConfig)
        return cls(**own, planning=config_type(**planning), model=OnlineModelConfig(**model))

    @classmethod
    def for_env(cls, env: gymnasium.Env[Any, Any], **options: Any) -> OnlineOptions:
        """Make them for an environment: those of the agent ``oa`` there but for `options`."""
        return cls.from_options(**{**defaults_for(env), **options})


def split_options(options: Mapping[str, Any], *settings: type[Any]) -> list[dict[str, Any]]:
    """Sort a flat table of options into those of several dataclasses, or refuse unknown names.

    A name that more than one of them has belongs to the first.
    """
    known: dict[str, int] = {}
    for place, names in enumerate(option_names(*settings)):
        for name in names:
            known.setdefault(name, place)
    parts: list[dict[str, Any]] = [{} for _ in settings]
    for name, value in options.items():
        if name not in known:
            close = difflib.get_close_matches(name, list(known), n=1)
            hint = f" Did you mean {close[0]!r}?" if close else ""
            raise UnknownNameError(
                f"unknown option {name!r}; known: {', '.join(sorted(known))}.{hint}"
            )
        parts[known[name]][name] = value
    return parts


def option_names(*settings: type[Any]) -> list[list[str]]:
    """Names that the flat table takes for each dataclass."""
    return [
        [item.name for item in dataclasses.fields(one) if item.name not in NESTED]
        for one in settings
    ]


def flat_settings(settings: ActingOptions) -> dict[str, Any]:
    """Return all settings of an agent as the flat table that makes them again.

    Seed and threads are left out: they are the run's.
    """
    parts = [settings, *(getattr(settings, name, None) for name in NESTED)]
    present = [part for part in parts if part is not None]
    table: dict[str, Any] = {}
    for part, names in zip(present, option_names(*map(type, present)), strict=True):
        for name in names:
            table.setdefault(name, getattr(part, name))
    return {name: value for name, value in table.items() if name not in RUN_SETTINGS}


def flat_types(*settings: type[Any]) -> dict[str, Any]:
    """Types of all options in the flat table of these dataclasses."""
    types: dict[str, Any] = {}
    for one in reversed(settings):
        types |= get_type_hints(one)
    return {name: types[name] for names in option_names(*settings) for name in names}


def option_types(planner: str = "cem", **_: Any) -> dict[str, Any]:
    """Types of all settings in the flat table of `OnlineOptions.from_options`."""
    return flat_types(OnlineOptions, PLANNERS.get(planner).config_type, OnlineModelConfig)


def build(
    env: gymnasium.Env[Any, Any], options: OnlineOptions
) -> tuple[OnlineWorldModel, Planner, Patience]:
    """Make the model, the planner and the patience of an agent for `env`."""
    # The model refuses spaces that are not a Box with one axis, and says what to do.
    model = OnlineWorldModel(
        cast("spaces.Box", env.observation_space),
        cast("spaces.Box", env.action_space),
        options.model,
        seed=options.seed,
        threads=options.threads,
        memory=memory_for(env, options),
        bodies=getattr(env.unwrapped, "bodies", None),
        still=still_for(env, options),
    )
    return model, *acting_parts(env, model.action_space, options)


def acting_parts(
    env: gymnasium.Env[Any, Any], actions: spaces.Box, options: ActingOptions
) -> tuple[Planner, Patience]:
    """Make the planner and the patience of an agent for `env`."""
    planner = PLANNERS.get(options.planner)(
        actions, options.planning, np.random.SeedSequence(options.seed, spawn_key=(1,))
    )
    declared = _declared_position(env)
    moved = range(actions.shape[0]) if declared is None else declared.action_indices
    patience = Patience(
        actions.low,
        actions.high,
        options.patience,
        options.burst,
        tuple(moved),
        np.random.SeedSequence(options.seed, spawn_key=(2,)),
        options.progress,
    )
    return planner, patience


def _declared_position(env: gymnasium.Env[Any, Any]) -> CommandedPosition | None:
    declared = getattr(env.unwrapped, "commanded_position", None)
    if declared is not None and not isinstance(declared, CommandedPosition):
        raise InvalidInputError(
            f"the environment's commanded_position is {declared!r}; expected an "
            "everlearn.interfaces.CommandedPosition"
        )
    return declared


def _resting(env: gymnasium.Env[Any, Any]) -> tuple[tuple[int, float], ...]:
    return getattr(getattr(env.unwrapped, "bodies", None), "resting", ())


def still_for(env: gymnasium.Env[Any, Any], options: ActingOptions) -> FloatArray | None:
    """Smallest change of each observation that an agent's model predicts; None for no limit."""
    if options.rest == 0 or not _resting(env):
        return None
    still = np.zeros(cast("spaces.Box", env.observation_space).shape)
    for index, small in _resting(env):
        still[index] = options.rest * small
    return still


def memory_for(env: gymnasium.Env[Any, Any], options: ActingOptions) -> Memory:
    """Make the memory of an agent for `env`."""
    declared = _declared_position(env)
    name = options.memory
    if name == "auto":
        name = "none" if declared is None else "commands"
    if name == "commands" and declared is not None:
        return CommandMemory(declared, options.command_gain)
    config: Any = MEMORIES.get(name)()
    if isinstance(config, MotionMemoryConfig):
        config = MotionMemoryConfig(
            options.command_gain, options.displacement_gain, options.thing_gain
        )
    facts = EnvironmentFacts(declared, getattr(env.unwrapped, "bodies", None))
    memory: Memory = config.build(env.observation_space, env.action_space, facts)
    return memory
