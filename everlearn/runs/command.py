"""The command that starts a run, from its config: the reverse of what the command line reads."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from everlearn.runs.config import RunConfig
from everlearn.runs.presets import PRESETS, preset_config
from everlearn.runs.schedule import default_evaluators

_FLAGS = {
    "tasks": "--tasks",
    "episodes_per_task": "--episodes-per-task",
    "max_steps": "--max-steps",
    "seed": "--seed",
    "threads": "--threads",
    "evaluators": "--evaluators",
    "reset_noise": "--reset-noise",
    "snapshot_seconds": "--snapshot-seconds",
    "record": "--record",
    "tensorboard": "--tensorboard",
    "wandb": "--wandb",
}
_EVALUATION_FLAGS = {
    "every": "--evaluate-every",
    "episodes": "--evaluate-episodes",
    "boundary_episodes": "--evaluate-at-switches",
    "heldout": "--heldout",
}


def command_for(config: RunConfig, out: str | None = None) -> str:
    """Return the shortest ``everlearn run`` that makes this config, into the folder `out`."""
    known = config.preset is not None and config.preset in PRESETS
    words = ["everlearn", "run", "--agent", config.agent]
    base = RunConfig(agent=config.agent)
    if known:
        base = preset_config(str(config.preset), config.agent)
        words += ["--preset", str(config.preset)]
    if config.threads is not None:
        # What a run decides for itself need not be said.
        base = dataclasses.replace(base, evaluators=default_evaluators(config, config.threads))
    words += ["--seed", str(config.seed)]
    for name, flag in _FLAGS.items():
        value = getattr(config, name)
        if name != "seed" and value is not None and value != getattr(base, name):
            words += [flag, _word(value)]
    for item in dataclasses.fields(config.evaluation):
        value = getattr(config.evaluation, item.name)
        if value != getattr(base.evaluation, item.name):
            words += [_EVALUATION_FLAGS[item.name], str(value)]
    for name, value in config.options.items():
        if name not in base.options or base.options[name] != value:
            words += ["--option", f"{name}={_word(value)}"]
    if out is not None:
        words += ["--out", out]
    return shlex.join(words)


def _word(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return ",".join(map(str, value))
    return str(value)
