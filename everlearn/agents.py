"""Agents by name: ``oa``, the paper's, those they are compared with, and yours."""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import gymnasium

from everlearn.baselines import RandomAgent, ScriptedAgent
from everlearn.interfaces import Agent, AgentSpec
from everlearn.planning.agent import OnlineAgent, PlanningAgent
from everlearn.planning.config import PlanningAgentConfig
from everlearn.planning.episode import Episode, run_episode
from everlearn.planning.presets import GAPS, OA, OA_PAPER, oa_config
from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError, needs_extra
from everlearn.support.settings import with_options

if TYPE_CHECKING:
    from everlearn.deep.sac.learner import SACConfig
    from everlearn.deep.strategies import Strategy

AGENTS: Registry[AgentSpec] = Registry("agent")


def make_agent(name: str, env: gymnasium.Env[Any, Any], seed: int = 0, /, **options: Any) -> Agent:
    """Make the agent registered under `name` for an environment.

    Parameters
    ----------
    name
        A registered agent.
    env
        What it acts in.
    seed
        Of everything that the agent draws.
    options
        Settings that differ from those of the name, by path: ``planner={"horizon": 25}`` or
        ``**{"planner.horizon": 25}``.
    """
    spec = AGENTS.get(name)
    return spec.make(env, with_options(spec.settings(env), options), seed)


def register_agent(
    name: str,
    agent: AgentSpec | Callable[..., Agent],
    *,
    summary: str = "",
    replace: bool = False,
) -> AgentSpec:
    """Add an agent under a name that commands know from then on.

    Parameters
    ----------
    name
        What to call it.
    agent
        An `AgentSpec`, or a function ``make(env, seed, **options)`` whose options are keyword
        parameters with defaults; they become the settings of the agent.
    summary
        What the agent is, in a line.
    replace
        Override an agent of the same name.

    Examples
    --------
    >>> def still(env, seed, *, strength: float = 0.0): ...
    >>> register_agent("still", still).config
    still(strength=0.0)
    """
    if not isinstance(agent, AgentSpec):
        agent = _spec_of(agent, summary)
    elif summary:
        agent = dataclasses.replace(agent, summary=summary)
    return AGENTS.register(name, agent, replace=replace)


def _spec_of(make: Callable[..., Agent], summary: str) -> AgentSpec:
    """Turn the keyword parameters of a function into a config."""
    name = getattr(make, "__name__", type(make).__name__)
    hints = typing.get_type_hints(make if inspect.isroutine(make) else type(make).__call__)
    parameters = list(inspect.signature(make).parameters.values())
    if len(parameters) < 2:
        raise InvalidInputError(f"{name} must take an environment and a seed: make(env, seed)")
    fields: list[tuple[str, Any, Any]] = []
    for option in parameters[2:]:
        if option.default is option.empty or option.kind is option.POSITIONAL_ONLY:
            raise InvalidInputError(
                f"parameter {option} of {name} is an option of an agent and needs a name and a "
                "default"
            )
        kind = hints.get(option.name, Any if option.default is None else type(option.default))
        fields.append((option.name, kind, dataclasses.field(default=option.default)))
    try:
        config = dataclasses.make_dataclass(name, fields, frozen=True)()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"options of {name} do not make settings: {error}") from error

    def made(env: gymnasium.Env[Any, Any], config: Any, seed: int) -> Agent:
        return make(env, seed, **{item: getattr(config, item) for item, *_ in fields})

    return AgentSpec(made, config, summary or (inspect.getdoc(make) or "").split("\n\n")[0])


def mlp_agent(strategy: str | Strategy, paper: bool = False) -> AgentSpec:
    """Return an agent with a deep world model, to be registered or made; needs the extra ``deep``.

    It differs from ``oa`` in the model alone: a network that is trained every 250 steps, and a
    strategy that keeps it from forgetting.

    Parameters
    ----------
    strategy
        A registered name, or a strategy with its settings.
    paper
        Plan as the agent ``oa-paper`` does, and not as ``oa`` does.
    """
    with needs_extra("a deep agent", "torch", "deep"):
        from everlearn.deep.mlp.config import MLPConfig
        from everlearn.deep.strategies import as_strategy

    model = MLPConfig(strategy=as_strategy(strategy))
    planner = "oa-paper" if paper else "oa"
    summary = f"a deep world model with the strategy {model.strategy.name}, planning like {planner}"

    def config_for(env: gymnasium.Env[Any, Any]) -> PlanningAgentConfig:
        return dataclasses.replace(oa_config(env), model=model)

    if paper:
        details = ("Inputs and planner, where the paper is silent: see `everlearn list oa-paper`.",)
        config = dataclasses.replace(OA_PAPER, model=model)
        return AgentSpec(PlanningAgent.build, config, summary, details=details)
    return AgentSpec(PlanningAgent.build, dataclasses.replace(OA, model=model), summary, config_for)


def sac_agent(strategy: str | Strategy, config: SACConfig | None = None) -> AgentSpec:
    """Return a model-free agent; see `everlearn.deep.sac.agent.sac_agent`."""
    with needs_extra("a deep agent", "torch", "deep"):
        from everlearn.deep.sac import agent
    return agent.sac_agent(strategy, config)


@dataclasses.dataclass(frozen=True)
class ScriptedConfig:
    """Settings of a `ScriptedAgent`."""

    noise: float = 0.0
    """Standard deviation of Gaussian noise added to every action."""


register_agent(
    "oa",
    AgentSpec(
        OnlineAgent.build,
        OA,
        "the online agent: one model for life, and a planner",
        oa_config,
    ),
)
register_agent(
    "oa-paper",
    AgentSpec(
        OnlineAgent.build,
        OA_PAPER,
        "the online agent: the paper, gaps filled",
        details=("Where the paper is silent:", *(f"- {gap}: {choice}" for gap, choice in GAPS)),
    ),
)
# Deep agents are made when they are asked for: importing PyTorch takes seconds.
for _strategy in ("finetune", "ewc", "si", "packnet", "coreset", "perfect-memory"):
    AGENTS.register_lazy(f"mlp-{_strategy}", partial(mlp_agent, _strategy))
for _strategy in ("finetune", "si", "coreset", "perfect-memory"):
    AGENTS.register_lazy(f"mlp-paper-{_strategy}", partial(mlp_agent, _strategy, paper=True))
for _strategy in ("finetune", "ewc", "packnet", "coreset", "perfect-memory"):
    AGENTS.register_lazy(f"sac-{_strategy}", partial(sac_agent, _strategy))
register_agent(
    "random",
    AgentSpec(
        lambda env, config, seed: RandomAgent.for_env(env, seed),
        summary="actions at random: what any other agent must beat",
    ),
)
register_agent(
    "scripted",
    AgentSpec(
        lambda env, config, seed: ScriptedAgent(config.noise, seed),
        ScriptedConfig(),
        "plays the script of each task of Continual Bench: what can be reached",
    ),
)

__all__ = [
    "AGENTS",
    "AgentSpec",
    "Episode",
    "OnlineAgent",
    "PlanningAgent",
    "RandomAgent",
    "ScriptedAgent",
    "make_agent",
    "mlp_agent",
    "register_agent",
    "run_episode",
    "sac_agent",
]
