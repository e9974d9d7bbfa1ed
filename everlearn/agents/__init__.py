"""Agents: what acts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import gymnasium

from everlearn.agents.loop import Episode, run_episode
from everlearn.agents.online import OnlineAgent
from everlearn.agents.options import PAPER, OnlineOptions, option_types
from everlearn.agents.random import RandomAgent
from everlearn.agents.scripted import ScriptedAgent
from everlearn.errors import UnknownNameError
from everlearn.protocols import Agent
from everlearn.registry import Registry


class AgentFactory(Protocol):
    """What is registered: makes an agent for an environment."""

    def __call__(self, env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> Agent:
        """Make the agent; `options` are those of its kind, by name."""
        ...


@dataclass(frozen=True)
class _Online:
    """Makes online agents that differ by `defaults` from the agent ``oa``."""

    defaults: Mapping[str, Any]

    def __call__(self, env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> OnlineAgent:
        return OnlineAgent.for_env(env, None, seed=seed, **{**self.defaults, **options})

    def option_types(self) -> dict[str, Any]:
        """Types of the options, for whoever reads them as text."""
        return option_types(**self.defaults)


def _random(env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> RandomAgent:
    _refuse("random", options, "no options")
    return RandomAgent.for_env(env, seed)


def _scripted(
    env: gymnasium.Env[Any, Any], seed: int, noise: float = 0.0, **options: Any
) -> ScriptedAgent:
    _refuse("scripted", options, "one option, noise")
    return ScriptedAgent(noise, seed)


def _refuse(agent: str, options: dict[str, Any], known: str) -> None:
    if options:
        raise UnknownNameError(f"the {agent} agent has {known}; given: {', '.join(options)}")


AGENTS: Registry[AgentFactory] = Registry("agent")
AGENTS.register("oa", _Online({}))
AGENTS.register("oa-paper", _Online(PAPER))
AGENTS.register("random", _random)
AGENTS.register("scripted", _scripted)

__all__ = [
    "AGENTS",
    "AgentFactory",
    "Episode",
    "OnlineAgent",
    "OnlineOptions",
    "RandomAgent",
    "ScriptedAgent",
    "run_episode",
]
