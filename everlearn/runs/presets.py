"""Named settings of a run: the paper's protocol, and two smaller ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlearn.agents import AGENTS
from everlearn.continual_bench import PAPER_TASKS
from everlearn.registry import Registry
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.options import parse_options
from everlearn.support.errors import InvalidInputError


@dataclass(frozen=True)
class Preset:
    """Settings that a run starts from.

    Attributes
    ----------
    summary
        What it is, in a line.
    settings
        Fields of `RunConfig`.
    options
        Options of agents, by the agent's name, for those that need other ones.
    """

    summary: str
    settings: Mapping[str, Any]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


PRESETS: Registry[Preset] = Registry("preset")

PRESETS.register(
    "paper",
    Preset(
        "six tasks in the paper's order, 100 episodes each, as the paper runs them",
        {
            "tasks": PAPER_TASKS,
            "episodes_per_task": 100,
            "evaluation": EvaluationSchedule(20, 5, 20, heldout=1000),
        },
    ),
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
_SMALL_PLANNER = {"planner.candidates": 30, "planner.elites": 10, "planner.iterations": 2}
_SMALL = {"model.features": 30, **_SMALL_PLANNER}
_SMALL_NETWORK = {"model.hidden": 50, "model.train_every": 100, **_SMALL_PLANNER}
_SMALL_POLICY = {"hidden": 50, "batch": 64, "warm_up": 100, "retraining": 50}
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
            "oa": _SMALL,
            "oa-paper": _SMALL,
            **{name: _SMALL_NETWORK for name in AGENTS if name.startswith("mlp-")},
            **{name: _SMALL_POLICY for name in AGENTS if name.startswith("sac-")},
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
        Its options; they go before those of the preset.
    settings
        Fields of `RunConfig` that go before those of the preset.
    """
    preset = PRESETS.get(name)
    chosen = {**preset.options.get(agent, {}), **(options or {})}
    return dataclasses.replace(
        RunConfig(agent=agent, preset=name, **dict(preset.settings)),
        options=chosen,
        **settings,
    )


def compose_config(
    *,
    preset: str | None = None,
    config: Path | None = None,
    agent: str | None = None,
    options: Iterable[str] = (),
    evaluation: Mapping[str, int] | None = None,
    **settings: Any,
) -> RunConfig:
    """Make a config from a preset or a saved one, and what is said beside it.

    Parameters
    ----------
    preset, config
        What to start from: at most one of them; without both, the defaults of `RunConfig`.
    agent
        Who runs, if not the one of the saved config (or ``oa``).
    options
        Options of the agent as ``name=value``.
    evaluation
        Fields of the evaluation schedule that differ.
    settings
        Other fields of `RunConfig` that differ.
    """
    if preset is not None and config is not None:
        raise InvalidInputError(
            f"both preset {preset!r} and config {config} were given; start from one of them"
        )
    if config is not None:
        base = RunConfig.read(config)
        # All that the saved run used, so that it runs the same whatever defaults are by now;
        # of another agent only what was said.
        used = base.agent_options if agent in (None, base.agent) else base.options
        base = dataclasses.replace(base, agent=agent or base.agent, options=used, resolved=None)
    elif preset is not None:
        base = preset_config(preset, agent or "oa")
    else:
        base = RunConfig(agent=agent or "oa")
    chosen = {**base.options, **parse_options(base.agent, options)}
    schedule = dataclasses.replace(base.evaluation, **(evaluation or {}))
    return dataclasses.replace(base, options=chosen, evaluation=schedule, **settings)
