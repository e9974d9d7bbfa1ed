"""Deep model-based agents: the online agent's planner and objective, and a network to plan with.

What differs from ``oa`` is the model alone: an MLP that is trained every 250 steps, and a
strategy that keeps it from forgetting. Needs the extra ``deep``.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gymnasium

from everlearn.deep.mlp.model import MLPConfig, MLPWorldModel
from everlearn.deep.strategies import STRATEGIES, FineTuning, Strategy
from everlearn.interfaces import Objective
from everlearn.planning import PLANNERS, Planner
from everlearn.planning.agent import OnlineAgent
from everlearn.planning.escape import Patience
from everlearn.planning.options import (
    ActingOptions,
    acting_parts,
    defaults_for,
    flat_settings,
    flat_types,
    memory_for,
    option_names,
    split_options,
    still_for,
)

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass(frozen=True)
class DeepOptions(ActingOptions):
    """Everything that can be set about a deep agent.

    Attributes
    ----------
    model
        The model's settings; its seed is replaced by `seed`.
    strategy_settings
        The strategy and its settings.
    """

    model: MLPConfig = field(default_factory=MLPConfig)
    strategy_settings: Strategy = field(default_factory=FineTuning)

    @classmethod
    def from_options(cls, strategy: str, **options: Any) -> DeepOptions:
        """Make them from a strategy's name and one flat table of all settings."""
        kinds = _kinds(strategy, options.get("planner", "cem"))
        own, planning, model, protecting = split_options(options, *kinds)
        return cls(
            **own,
            planning=kinds[1](**planning),
            model=MLPConfig(**model),
            strategy_settings=kinds[3](**protecting),
        )

    @classmethod
    def for_env(cls, env: gymnasium.Env[Any, Any], strategy: str, **options: Any) -> DeepOptions:
        """Make them for an environment: those of ``oa`` there about acting, but for `options`."""
        return cls.from_options(strategy, **{**_defaults(env), **options})


def strategy_option_types(strategy: str) -> dict[str, Any]:
    """Types of all settings in the flat table of `DeepOptions.from_options`."""
    return flat_types(*_kinds(strategy, "cem"))


def make(env: gymnasium.Env[Any, Any], strategy: str, **options: Any) -> DeepAgent:
    """Make an agent that is given its objective when a task begins."""
    return DeepAgent.for_env(env, None, strategy, **options)


def settings(env: gymnasium.Env[Any, Any], strategy: str, **options: Any) -> dict[str, Any]:
    """All options with the values that an agent made from `options` has."""
    return flat_settings(DeepOptions.for_env(env, strategy, **options))


def _kinds(strategy: str, planner: str) -> tuple[type[Any], ...]:
    return DeepOptions, PLANNERS.get(planner).config_type, MLPConfig, STRATEGIES.get(strategy)


def _defaults(env: gymnasium.Env[Any, Any]) -> dict[str, Any]:
    """Return what ``oa`` says about acting in `env`.

    The agents are to differ by their models: the network sees what the online model sees, and
    plans are made, valued and given up alike. What ``oa`` says about its model is left out.
    """
    settings = defaults_for(env)
    acting = option_names(ActingOptions, PLANNERS.get(settings["planner"]).config_type)
    names = {name for part in acting for name in part}
    return {name: value for name, value in settings.items() if name in names}


class DeepAgent(OnlineAgent):
    """Acts by planning in a network that is trained now and then.

    Parameters
    ----------
    model
        An `MLPWorldModel`, or what it gives for a task.
    planner, objective, deadline_ms, patience, success_bonus
        As for `OnlineAgent`.

    Attributes
    ----------
    boundary_aware
        Whether the model's strategy is told of tasks; others never see a task's name.
    """

    kind = "everlearn-deep-agent"

    def __init__(
        self,
        model: MLPWorldModel,
        planner: Planner,
        objective: Objective | None = None,
        deadline_ms: float | None = None,
        patience: Patience | None = None,
        success_bonus: float = 0.0,
    ) -> None:
        super().__init__(model, planner, objective, deadline_ms, patience, success_bonus)
        self.boundary_aware = model.strategy.boundary_aware

    @classmethod
    def for_env(
        cls,
        env: gymnasium.Env[Any, Any],
        reward_fn: Objective | None,
        strategy: str = "perfect-memory",
        **options: Any,
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env, reward_fn
            As for `OnlineAgent.for_env`.
        strategy
            Name of a registered strategy.
        options
            Settings of the agent (`DeepOptions`), its planner, its model (`MLPConfig`) and its
            strategy that differ from the defaults, such as ``seed=1``, ``hidden=100``.
        """
        chosen = DeepOptions.for_env(env, strategy, **options)
        model = MLPWorldModel(
            env.observation_space,
            env.action_space,
            chosen.strategy_settings,
            dataclasses.replace(chosen.model, seed=chosen.seed),
            memory=memory_for(env, chosen),
            still=still_for(env, chosen),
        )
        planner, patience = acting_parts(env, model.action_space, chosen)
        return cls(model, planner, reward_fn, chosen.deadline_ms, patience, chosen.success_bonus)

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another objective; tell the model, if its strategy is told of boundaries.

        An evaluation copy changes nothing in the model: it acts with what predicts the task.
        """
        super().begin_task(name, objective)
        if not self.boundary_aware:
            return
        if self._learning:
            self.model.begin_task(name)
        else:
            self.model = self.model.for_task(name)

    def model_for(self, task: str) -> Any:
        """Return what predicts a task, for measuring its error."""
        return self.model.for_task(task)
