"""A model-free agent: soft actor-critic, and a strategy that keeps it from forgetting.

It learns from the environment's reward, sees the observation only and acts without noise when it
is evaluated, unless asked for. Until its storage holds enough, and in the first steps of a task it
is told of, it acts at random; once there is enough every step is an update. A strategy that is
told of boundaries consolidates there, and may empty the storage. Needs the extra ``deep``.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.agents.options import RUN_SETTINGS, flat_types, split_options
from everlearn.agents.sac import (
    EvaluationActions,
    SACConfig,
    SoftActorCritic,
    check_choice,
)
from everlearn.archive import load_archive, part_of, reading, save_archive
from everlearn.checks import as_numbers, check_whole
from everlearn.errors import InvalidInputError, NotReadyError, given
from everlearn.models.checkpoint import check_settings_fit, space_arrays
from everlearn.models.encoding import as_box
from everlearn.models.inputs import ModelInputs
from everlearn.models.memory import NoMemory
from everlearn.models.network import torch_threads
from everlearn.models.threads import Threads
from everlearn.planning.imagination import action_bounds
from everlearn.protocols import FloatArray, Objective, Strategy
from everlearn.strategies import STRATEGIES

if TYPE_CHECKING:
    from typing_extensions import Self

KIND, VERSION = "everlearn-sac-agent", 2

LARGEST = float(np.finfo(np.float32).max)
"""Of the numbers that networks and storage can hold."""

DEFAULTS: dict[str, dict[str, Any]] = {
    "finetune": {"multi_head": True},
    "ewc": {"multi_head": True, "fisher_floor": 1e-5},
    "si": {"multi_head": True},
    "packnet": {"multi_head": True, "clip": 1.0},
    "coreset": {"batch": 512},
    "perfect-memory": {"batch": 512},
}
"""Settings of agents made by the name of a strategy, where they differ from those of `SACConfig`
and of the strategy: those of Continual World. Strategies that are told of boundaries have a head
and a temperature for each task."""


def strategy_option_types(strategy: str) -> dict[str, Any]:
    """Types of all settings that `SACAgent.for_env` takes with a strategy."""
    return flat_types(SACConfig, STRATEGIES.get(strategy))


def make(env: gymnasium.Env[Any, Any], strategy: str, **options: Any) -> SACAgent:
    """Make an agent with the strategy of that name."""
    return SACAgent.for_env(env, strategy, **options)


def settings(env: gymnasium.Env[Any, Any], strategy: str, **options: Any) -> dict[str, Any]:
    """All options with the values that an agent made from `options` has; not those of a run."""
    chosen, config = _chosen(strategy, options)
    table = {**chosen.settings(), **asdict(config)}
    return {name: value for name, value in table.items() if name not in RUN_SETTINGS}


def _chosen(strategy: str, options: Mapping[str, Any]) -> tuple[Strategy, SACConfig]:
    """Make the strategy and the config from one flat table."""
    kind = STRATEGIES.get(strategy)
    whole = {**DEFAULTS.get(strategy, {}), **options}
    own, protecting = split_options(whole, SACConfig, kind)
    return kind(**protecting), SACConfig(**own)


class SACAgent:
    """Acts by a policy that is learned from rewards.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces; that of actions has bounds.
    strategy
        What data it keeps and how actor and critics are protected from forgetting.
    config
        Settings.

    Attributes
    ----------
    boundary_aware
        Whether it is told of tasks, by its strategy or its settings; others never see a name.
    task_dependent
        Whether it acts by what it has for a task, weights, a head or an input, and so is told the
        task's name when it is evaluated too.
    steps, episodes, task_steps
        Transitions learned from, episodes begun, and transitions since the agent was last told of
        a new task.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        strategy: Strategy,
        config: SACConfig | None = None,
    ) -> None:
        self.observation_space = as_box(observation_space, "observation_space")
        self.action_space = as_box(action_space, "action_space")
        self.strategy, self.config = strategy, config or SACConfig()
        capacity = strategy.settings().get("capacity", self.config.warm_up)
        if capacity < self.config.warm_up:
            raise InvalidInputError(
                f"capacity is {capacity} and warm_up {self.config.warm_up}: that many are "
                "never kept, and nothing would be learned; warm up with fewer"
            )
        self.boundary_aware = strategy.boundary_aware or self.config.tells_tasks
        self.task_dependent = strategy.task_dependent or self.config.tells_tasks
        # Bounds become [-1, 1]; observations without bounds are taken as they are.
        self._inputs = ModelInputs(self.observation_space, self.action_space, NoMemory(), 1.0, 1.0)
        self._low, self._high = action_bounds(self.action_space)
        drawing, acting, training, keeping = np.random.SeedSequence(self.config.seed).spawn(4)
        self.learner = SoftActorCritic(
            self._inputs.observations,
            self._inputs.actions,
            strategy,
            self.config,
            np.random.default_rng(drawing),
        )
        self.storage = strategy.storage(self.learner.columns, keeping)
        self._acting = np.random.default_rng(acting)
        self._training = np.random.default_rng(training)
        self._threads = Threads(self.config.threads)
        self._policy = self.learner.policy()
        self.task: str | None = None
        self.tasks: list[str] = []
        self._place = 0
        self.steps = self.episodes = self.task_steps = 0
        self._learning = True
        self._evaluation_actions = self.config.evaluation_actions

    @classmethod
    def for_env(
        cls, env: gymnasium.Env[Any, Any], strategy: str = "perfect-memory", **options: Any
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env
            Its spaces are read.
        strategy
            Name of a registered strategy.
        options
            Settings of the agent (`SACConfig`) and of its strategy that differ from the defaults,
            such as ``seed=1``, ``hidden=100``, ``capacity=5000``.
        """
        return cls(env.observation_space, env.action_space, *_chosen(strategy, options))

    # Acting and learning ---------------------------------------------------------------

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another task, if the agent is told of them; the objective is not used.

        An evaluation copy changes nothing: it acts with what the agent has for the task.
        """
        if not self.boundary_aware or name == self.task:
            return
        if not self._learning:
            self.task, self._policy = name, self.learner.policy(name)
            self._place = self.tasks.index(name) if name in self.tasks else self._place
            return
        if self.config.tells_tasks and name not in self.tasks:
            if len(self.tasks) == self.config.max_tasks:
                raise InvalidInputError(
                    f"task {given(name)} is one too many: the agent has room for "
                    f"{self.config.max_tasks}; make it with a larger max_tasks"
                )
            self.tasks.append(name)
        if self.strategy.boundary_aware:
            with torch_threads(self._threads.number()):
                self._switch(name)
        self.task, self.task_steps = name, 0
        self._place = self.tasks.index(name) if self.config.tells_tasks else 0

    def _switch(self, name: str) -> None:
        """End the task at hand as the strategy does, and begin another."""
        if self.task is not None and len(self.storage):
            self.learner.end_task(self.storage, self._place)
            self.learner.renew()
            for _ in range(self.config.retraining if self.strategy.retrains else 0):
                self.learner.update(self.storage, self._training)
        self.storage.end_task()
        self.learner.begin_task(name)

    def begin_episode(self) -> None:
        """Count it: nothing is carried from step to step."""
        self.episodes += 1

    def act(self, obs: FloatArray, explore: bool = True) -> npt.NDArray[Any]:
        """Return the action to take at `obs`: drawn from the policy, or its middle.

        While the agent warms up and explores, and in the first steps of a task, actions are
        random. Without exploring they are as `SACConfig.evaluation_actions` says.
        """
        state = self._state(self._inputs.check_observation(obs, "observation", (1,)))
        if explore and self._learning and self._is_new():
            action = self._acting.uniform(-1.0, 1.0, self._inputs.actions)
        else:
            noise = None
            if explore or self._evaluation_actions == "sample":
                noise = self._acting.standard_normal(self._inputs.actions, np.float32)
            with torch_threads(self._threads.number()):
                action = self._policy.act(state, self._head, noise).astype(np.float64)
        scaled = self._low + 0.5 * (action + 1.0) * (self._high - self._low)
        return np.clip(scaled, self._low, self._high).astype(self.action_space.dtype)

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Keep what followed `action`, and learn; on bad input raise and change nothing."""
        before = self._inputs.check_observation(obs, "observation", (1,))
        done = self._inputs.check_action(action, "action", (1,))
        after = self._inputs.check_observation(next_obs, "next observation", (1,))
        earned = as_numbers(reward, "reward")
        if earned.shape != () or not abs(earned) < LARGEST:
            raise InvalidInputError(f"reward is {given(reward)}; expected one finite number")
        if not isinstance(terminated, (bool, np.bool_)):
            raise InvalidInputError(f"terminated is {given(terminated)}; expected True or False")
        state, next_state = self._state(before), self._state(after)
        if not self._learning:
            return
        self.storage.add(
            state=state,
            action=self._scaled_action(done),
            next_state=next_state,
            reward=earned,
            ended=terminated,
            task=self._one_hot()[: self.learner.columns["task"]],
        )
        self.learner.note_reward(float(earned), self._head)
        self.steps += 1
        self.task_steps += 1
        warm = len(self.storage) >= self.config.warm_up
        if warm and self.steps % self.config.update_every == 0:
            with torch_threads(self._threads.number()):
                self.learner.update(self.storage, self._training)

    def _is_new(self) -> bool:
        """Whether too little is known of the task for the policy to be worth following."""
        few = len(self.storage) < self.config.warm_up
        return few or self.task_steps < self.config.random_steps

    @property
    def _head(self) -> int:
        return self._place if self.config.multi_head else 0

    def _one_hot(self) -> npt.NDArray[np.float32]:
        told = np.zeros(self.config.max_tasks, np.float32)
        told[self._place] = 1.0
        return told

    def _state(self, obs: FloatArray) -> npt.NDArray[np.float32]:
        """Return what the networks see at a checked observation."""
        scaling, count = self._inputs.scaling, self._inputs.observations
        scaled = (obs - scaling.centre[:count]) * scaling.multiplier[:count]
        if not (np.abs(scaled) < LARGEST).all():
            raise InvalidInputError(f"observation is too large for single precision: {obs}")
        told = self._one_hot()[: self.config.identity_size]
        return np.concatenate([scaled, told]).astype(np.float32)

    def _scaled_action(self, action: FloatArray) -> FloatArray:
        scaling, first = self._inputs.scaling, self._inputs.observations
        return np.asarray((action - scaling.centre[first:]) * scaling.multiplier[first:])

    # Keeping ---------------------------------------------------------------------------

    def evaluation_copy(
        self, seed: int | np.random.SeedSequence, actions: EvaluationActions | None = None
    ) -> Self:
        """Return an agent that acts with this one's networks and learns nothing.

        Parameters
        ----------
        seed
            Of the actions that it draws.
        actions
            What it takes of the policy; None for what the settings say. A deterministic policy
            in an environment that always begins alike is one episode, however often it is played.
        """
        other = copy.copy(self)
        if actions is not None:
            check_choice("actions", actions, get_args(EvaluationActions))
            other._evaluation_actions = actions
        other._acting = np.random.default_rng(seed)
        other._policy = self.learner.policy(self.task)
        other._learning = False
        return other

    def save(self, path: str | Path) -> None:
        """Write networks, optimizers, storage, generators and counters to `path`, atomically."""
        learner_arrays, learner_meta = self.learner.state()
        storage_arrays, storage_meta = self.storage.state()
        arrays = {
            **space_arrays(self),
            **{f"learner/{name}": array for name, array in learner_arrays.items()},
            **{f"storage/{name}": array for name, array in storage_arrays.items()},
        }
        meta = {
            "config": asdict(self.config),
            "strategy": self._strategy_facts(),
            "learner": learner_meta,
            "storage": storage_meta,
            "agent": {
                "task": self.task,
                "tasks": self.tasks,
                "steps": self.steps,
                "episodes": self.episodes,
                "task_steps": self.task_steps,
                "acting": self._acting.bit_generator.state,
                "training": self._training.bit_generator.state,
            },
        }
        save_archive(path, KIND, VERSION, arrays, meta)

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        if not self._learning:
            raise NotReadyError(
                "an evaluation copy shares its networks with the agent it came from and cannot "
                "load; load into that agent"
            )
        arrays, meta = load_archive(path, KIND, VERSION)
        fresh = type(self)(
            self.observation_space, self.action_space, self.strategy, replace(self.config)
        )
        with reading(path, "SAC agent"):
            fresh._restore(arrays, meta)
        self.__dict__.update(fresh.__dict__)

    def _restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over a state; if something does not fit the agent is left half done."""
        check_settings_fit(self, arrays, meta)
        if meta["strategy"] != self._strategy_facts():
            raise InvalidInputError(
                f"the state was saved with strategy {meta['strategy']}, this agent has "
                f"{self._strategy_facts()}"
            )
        facts = meta["agent"]
        for name in ("steps", "episodes", "task_steps"):
            check_whole(name, facts[name], 0)
        task, tasks = facts["task"], facts["tasks"]
        if not (task is None or isinstance(task, str)) or not _are_names(tasks):
            raise InvalidInputError(f"tasks of the state are {given(task)} and {given(tasks)}")
        if self.config.tells_tasks and task is not None:
            self._place = tasks.index(task)
        self.learner.restore(part_of(arrays, "learner/"), meta["learner"])
        self.storage.restore(part_of(arrays, "storage/"), meta["storage"])
        self._acting.bit_generator.state = facts["acting"]
        self._training.bit_generator.state = facts["training"]
        self.task, self.tasks = task, list(tasks)
        self.steps, self.episodes = facts["steps"], facts["episodes"]
        self.task_steps = facts["task_steps"]

    def _strategy_facts(self) -> dict[str, Any]:
        return {"name": self.strategy.name, "settings": self.strategy.settings()}


def _are_names(values: Any) -> bool:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)
