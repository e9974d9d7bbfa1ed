"""Agents: what acts."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import gymnasium

from everlearn.baselines.random import RandomAgent
from everlearn.baselines.scripted import ScriptedAgent
from everlearn.interfaces import Agent
from everlearn.planning.agent import OnlineAgent
from everlearn.planning.episode import Episode, run_episode
from everlearn.planning.options import PAPER, OnlineOptions, flat_settings, option_types
from everlearn.registry import Registry
from everlearn.support.errors import MissingExtraError, UnknownNameError


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

    def settings(self, env: gymnasium.Env[Any, Any], **options: Any) -> dict[str, Any]:
        """All options with the values that an agent made from `options` has."""
        return flat_settings(OnlineOptions.for_env(env, **{**self.defaults, **options}))


@dataclass(frozen=True)
class _Deep:
    """Makes agents with networks and a strategy; PyTorch is imported when one is asked for.

    Attributes
    ----------
    family
        First part of the agent's name: which kind of agent.
    strategy
        The second: name of a registered strategy.
    defaults
        Options that differ from those of the family.
    """

    family: Literal["mlp", "sac"]
    strategy: str
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def __call__(self, env: gymnasium.Env[Any, Any], seed: int, **options: Any) -> Agent:
        agent: Agent = self._module().make(
            env, self.strategy, seed=seed, **{**self.defaults, **options}
        )
        return agent

    def option_types(self) -> dict[str, Any]:
        """Types of the options, for whoever reads them as text."""
        return dict(self._module().strategy_option_types(self.strategy))

    def settings(self, env: gymnasium.Env[Any, Any], **options: Any) -> dict[str, Any]:
        """All options with the values that an agent made from `options` has."""
        return dict(self._module().settings(env, self.strategy, **{**self.defaults, **options}))

    def _module(self) -> Any:
        try:
            return importlib.import_module(f"everlearn.deep.{self.family}.agent")
        except ModuleNotFoundError as error:
            if error.name != "torch":
                raise
            raise MissingExtraError(
                f"agent {self.family}-{self.strategy} needs PyTorch; install everlearn[deep]"
            ) from error


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
AGENTS.register("mlp-finetune", _Deep("mlp", "finetune"))
AGENTS.register("mlp-ewc", _Deep("mlp", "ewc"))
AGENTS.register("mlp-si", _Deep("mlp", "si"))
AGENTS.register("mlp-packnet", _Deep("mlp", "packnet"))
AGENTS.register("mlp-coreset", _Deep("mlp", "coreset"))
AGENTS.register("mlp-perfect-memory", _Deep("mlp", "perfect-memory"))
AGENTS.register("sac-finetune", _Deep("sac", "finetune"))
# The losses of an actor are those of values: the strength is that of Continual World.
AGENTS.register("sac-ewc", _Deep("sac", "ewc", {"strength": 1e4}))
AGENTS.register("sac-packnet", _Deep("sac", "packnet"))
AGENTS.register("sac-coreset", _Deep("sac", "coreset"))
AGENTS.register("sac-perfect-memory", _Deep("sac", "perfect-memory"))
AGENTS.register("random", _random)
AGENTS.register("scripted", _scripted)

BOUNDARY_AWARE = frozenset(
    {
        "scripted",
        *("mlp-finetune", "mlp-ewc", "mlp-si", "mlp-packnet"),
        *("sac-finetune", "sac-ewc", "sac-packnet"),
    }
)
"""Agents that are told when a task changes, for tables: known without making one."""

TASK_DEPENDENT = frozenset({"scripted", "mlp-packnet", "sac-packnet"})
"""Of these, agents that act by what they have for a task: told its name when evaluated too."""

TELLING_OPTIONS = ("task_identity", "multi_head")
"""Options that let networks depend on the task's name; off unless asked for."""


def told_of_tasks(agent: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Say what an agent is told of tasks, for tables: nothing, or some of what follows.

    ``boundaries``: when a task changes; ``name``: which one it is, to act by what it has for it;
    and the options that tell networks the name.

    Parameters
    ----------
    agent, options
        Name and options, as in a run's config.
    """
    facts = {"boundaries": agent in BOUNDARY_AWARE, "name": agent in TASK_DEPENDENT}
    facts |= {name: bool(options.get(name)) for name in TELLING_OPTIONS}
    return tuple(name for name, told in facts.items() if told)


__all__ = [
    "AGENTS",
    "BOUNDARY_AWARE",
    "TASK_DEPENDENT",
    "TELLING_OPTIONS",
    "AgentFactory",
    "Episode",
    "OnlineAgent",
    "OnlineOptions",
    "RandomAgent",
    "ScriptedAgent",
    "run_episode",
    "told_of_tasks",
]
