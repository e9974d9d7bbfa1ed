"""Agents: what acts."""

from __future__ import annotations

from typing import Any, Protocol

import gymnasium

from everlearn.agents.loop import Episode, run_episode
from everlearn.agents.online import OnlineAgent
from everlearn.agents.options import PAPER, OnlineOptions
from everlearn.agents.random import RandomAgent
from everlearn.errors import UnknownNameError
from everlearn.protocols import Agent
from everlearn.registry import Registry


class AgentFactory(Protocol):
    """What is registered: makes an agent for an environment."""

    def __call__(self, env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> Agent:
        """Make the agent; `options` are those of its kind, by name."""
        ...


def _online(env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> OnlineAgent:
    return OnlineAgent.for_env(env, None, seed=seed, **options)


def _paper(env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> OnlineAgent:
    return OnlineAgent.for_env(env, None, seed=seed, **{**PAPER, **options})


def _random(env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> RandomAgent:
    if options:
        raise UnknownNameError(f"the random agent has no options; given: {', '.join(options)}")
    return RandomAgent.for_env(env, seed)


AGENTS: Registry[AgentFactory] = Registry("agent")
AGENTS.register("oa", _online)
AGENTS.register("oa-paper", _paper)
AGENTS.register("random", _random)

__all__ = [
    "AGENTS",
    "AgentFactory",
    "Episode",
    "OnlineAgent",
    "OnlineOptions",
    "RandomAgent",
    "run_episode",
]
