"""Options of agents, as words of a command line or values of a JSON file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import gymnasium

from everlearn.agents import AGENTS
from everlearn.support import settings


def resolved_options(
    agent: str, env: gymnasium.Env[Any, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """All options of an agent in `env` with their values, given or default, as JSON has them.

    They are options themselves: given in full, they make the same agent when defaults have
    changed.
    """
    config = AGENTS.get(agent).settings(env)
    return settings.values_of(settings.with_options(config, options))


def parse_options(agent: str, words: Iterable[str]) -> dict[str, Any]:
    """Read ``path=value`` words, each value as the type of that option."""
    return settings.parse_options(AGENTS.get(agent).config, words)


def check_options(agent: str, options: Mapping[str, Any]) -> None:
    """Refuse an option that the agent does not have, or of another type."""
    settings.with_options(AGENTS.get(agent).config, options)
