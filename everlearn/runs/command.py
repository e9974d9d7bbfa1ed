"""The command that starts a run, from its config: the reverse of what the command line reads."""

from __future__ import annotations

import dataclasses
import shlex
from typing import Any

from everlearn.runs.config import RunConfig
from everlearn.runs.presets import PRESETS, preset_config
from everlearn.runs.schedule import default_evaluators
from everlearn.support.command_line import flag_values


def command_for(config: RunConfig, out: str | None = None) -> str:
    """Return the shortest ``everlearn run`` that makes this config, into the folder `out`."""
    words = ["everlearn", "run", "--agent", config.agent]
    base = RunConfig(agent=config.agent)
    if config.preset is not None and config.preset in PRESETS:
        base = preset_config(config.preset, config.agent)
        words += ["--preset", config.preset]
    if config.threads is not None:
        # What a run decides for itself need not be given.
        base = dataclasses.replace(base, evaluators=default_evaluators(config, config.threads))
    usual = flag_values(base)
    for flag, value in flag_values(config).items():
        if flag == "seed" or (value is not None and value != usual[flag]):
            words += _option(flag, value)
    for path, value in config.options.items():
        if path not in base.options or base.options[path] != value:
            words += ["--option", f"{path}={_word(value)}"]
    for module in config.imports:
        words += ["--import", module]
    if out is not None:
        words += ["--out", out]
    return shlex.join(words)


def _option(flag: str, value: Any) -> list[str]:
    if value is True:
        return [f"--{flag}"]
    return [f"--no-{flag}"] if value is False else [f"--{flag}", _word(value)]


def _word(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (tuple, list)) else str(value)
