"""Named settings of a run: the paper's protocol, and smaller ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlearn.registry import Registry, load_plugins, require_imported
from everlearn.runs.config import PAPER_TASKS, EvaluationSchedule, RunConfig
from everlearn.support.errors import InvalidInputError, UnknownNameError


@dataclass(frozen=True)
class Preset:
    """Settings that a run starts from."""

    summary: str
    """What it is, in a line."""
    settings: Mapping[str, Any]
    """Fields of `RunConfig`."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Options of agents by the first part of their name, for those that need other ones."""

    def options_of(self, agent: str) -> Mapping[str, Any]:
        """Return the options that the preset gives to an agent."""
        return self.options.get(agent.partition("-")[0], {})


PRESETS: Registry[Preset] = Registry("preset")

_PAPER = {
    "tasks": PAPER_TASKS,
    "episodes_per_task": 100,
    "evaluation": EvaluationSchedule(20, 5, 20, heldout=1000),
}
PRESETS.register(
    "paper", Preset("six tasks in the paper's order, 100 episodes each, as the paper runs", _PAPER)
)
PRESETS.register(
    "paper-noise",
    Preset("the same with every start spread by 3 cm", {**_PAPER, "reset_noise": 0.03}),
)
PRESETS.register(
    "quick",
    Preset(
        "six tasks, 10 episodes each, evaluated twice a task",
        {
            "tasks": PAPER_TASKS,
            "episodes_per_task": 10,
            "evaluation": EvaluationSchedule(5, 5, 5, heldout=1000),
        },
    ),
)
PRESETS.register(
    "life",
    Preset(
        "200 visits of tasks that come and go in one life without resets, each of up to 500 steps",
        {
            "world": "continual-life",
            "tasks": ("life",),
            "episodes_per_task": 200,
            "evaluation": EvaluationSchedule(0, 0, 0, 0),
        },
    ),
)
_SMALL_PLANNER = {"planner.candidates": 30, "planner.elites": 10, "planner.iterations": 2}
PRESETS.register(
    "smoke",
    Preset(
        "two tasks, 2 short episodes each, small agents: whether everything works at all",
        {
            "tasks": ("window-close", "button-press"),
            "episodes_per_task": 2,
            "max_steps": 100,
            "evaluation": EvaluationSchedule(1, 1, 1, heldout=100),
        },
        {
            "oa": {"model.features": 30, **_SMALL_PLANNER},
            "mlp": {"model.hidden": 50, "model.train_every": 100, **_SMALL_PLANNER},
            "sac": {
                "hidden": 50,
                "batch": 64,
                "warm_up": 100,
                "random_steps": 100,
                "retraining": 50,
            },
        },
    ),
)


def preset_config(
    name: str, agent: str = "oa", options: Mapping[str, Any] | None = None, **settings: Any
) -> RunConfig:
    """Make a config from a preset.

    Parameters
    ----------
    name
        A registered preset.
    agent
        Who runs.
    options
        Its options; they override those of the preset.
    settings
        Fields of `RunConfig` that override those of the preset.
    """
    preset = PRESETS.get(name)
    chosen = {**preset.options_of(agent), **(options or {})}
    values = {**preset.settings, **settings}
    return RunConfig(agent=agent, preset=name, options=chosen, **values)


def base_config(
    *,
    preset: str | None = None,
    config: Path | None = None,
    agent: str | None = None,
    world: str | None = None,
) -> RunConfig:
    """Make the config that a command starts from; names are looked up.

    Parameters
    ----------
    preset, config
        What to start from: at most one of them; without both, the defaults of `RunConfig`.
    agent
        Who runs, if not the one of the saved config (or ``oa``).
    world
        Where, if not in the world of the preset or saved config. Tasks and the length of episodes
        are then that world's.
    """
    from everlearn.agents import AGENTS
    from everlearn.worlds import world_named

    if preset is not None and config is not None:
        raise InvalidInputError(
            f"both preset {preset!r} and config {config} were given; start from one of them"
        )
    if config is not None:
        base = RunConfig.read(config, follow=True)
        require_imported(base.imports, str(config))
        # All that the saved run used, so that it runs the same whatever defaults are by now;
        # of another agent only what was given.
        used = base.agent_options if agent in (None, base.agent) else base.options
        unknown: dict[str, Any] = dict.fromkeys(("resolved", "told", "given", "measure"))
        base = dataclasses.replace(base, agent=agent or base.agent, options=used, **unknown)
    elif preset is not None:
        base = preset_config(preset, agent or "oa")
    else:
        base = RunConfig(agent=agent or "oa")
    AGENTS.get(base.agent)
    if world is not None and world != base.world:
        other = world_named(world)
        base = dataclasses.replace(base, world=world, tasks=other.tasks, max_steps=other.max_steps)
    return base


def compose_config(
    *,
    preset: str | None = None,
    config: Path | None = None,
    agent: str | None = None,
    world: str | None = None,
    options: Iterable[str] = (),
    evaluation: Mapping[str, int] | None = None,
    **settings: Any,
) -> RunConfig:
    """Make a config from a preset or a saved one, and what is given beside it.

    Parameters
    ----------
    preset, config, agent, world
        As for `base_config`.
    options
        Options of the agent as ``path=value``.
    evaluation
        Fields of the evaluation schedule that differ.
    settings
        Other fields of `RunConfig` that differ.
    """
    load_plugins(settings.get("imports", ()))
    base = base_config(preset=preset, config=config, agent=agent, world=world)
    schedule = dataclasses.replace(base.evaluation, **(evaluation or {}))
    return checked(dataclasses.replace(base, evaluation=schedule, **settings), options)


def checked(config: RunConfig, options: Iterable[str] = ()) -> RunConfig:
    """Return `config` with options of its agent as ``path=value``; refuses unknown names."""
    from everlearn.agents import AGENTS
    from everlearn.support.settings import options_of, parse_options, with_options
    from everlearn.worlds import world_named

    load_plugins()
    # Options of the config first: which sort a part has decides which options there are.
    spec = AGENTS.get(config.agent)
    try:
        settings = with_options(spec.config, config.options)
        given = parse_options(settings, options)
        known = options_of(settings)
        # A part of another sort starts from that sort's defaults, whatever the preset gave the old.
        replaced = [path for path in given if path in known and given[path] != known[path].value]
        kept = {
            path: value
            for path, value in config.options.items()
            if not any(path.startswith(f"{part}.") for part in replaced)
        }
        chosen = {**kept, **given}
    except UnknownNameError as error:
        raise UnknownNameError(f"agent {config.agent!r}: {error}") from error
    world = world_named(config.world)
    for task in dict.fromkeys(config.tasks):
        if task not in world.tasks:
            world.make(task).close()  # a task that a user registered, or an error that names it
    return dataclasses.replace(config, options=chosen)
