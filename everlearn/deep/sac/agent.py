"""A model-free agent: soft actor-critic, and a strategy that keeps it from forgetting.

It learns from the environment's reward and sees the observation only, unless its settings tell it
the task. Until its storage holds enough, and in the first steps of a task it is told of, it acts at
random; once there is enough every step is an update. A strategy that is told of boundaries
consolidates there, and may empty the storage. Needs the extra ``deep``.
"""

from __future__ import annotations

import threading
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.deep.mlp.network import torch_threads
from everlearn.deep.sac.learner import (
    EvaluationActions,
    SACConfig,
    SoftActorCritic,
    check_choice,
)
from everlearn.deep.strategies import (
    Coreset,
    ElasticWeightConsolidation,
    FineTuning,
    PackNet,
    PerfectMemory,
    Strategy,
    SynapticIntelligence,
    as_strategy,
)
from everlearn.interfaces import AgentSpec, FloatArray, Objective
from everlearn.planning.rollout import action_bounds
from everlearn.support.archive import load_archive, part_of, save_archive
from everlearn.support.checks import as_numbers, check_whole
from everlearn.support.errors import InvalidInputError, NotReadyError, given
from everlearn.support.files import reading
from everlearn.support.pickling import reduced, shallow_copy
from everlearn.support.settings import with_options
from everlearn.support.threads import Threads, one_thread_at_a_time
from everlearn.world_model.inputs import ModelInputs
from everlearn.world_model.memory import NoMemory
from everlearn.world_model.scaling import as_box
from everlearn.world_model.snapshot import check_settings_fit, space_arrays

if TYPE_CHECKING:
    from typing_extensions import Self

KIND, VERSION = "everlearn-sac-agent", 2

LARGEST = float(np.finfo(np.float32).max)
"""Of the numbers that networks and storage can hold."""

_DEFAULTS = (
    SACConfig(strategy=FineTuning(), multi_head=True),
    SACConfig(
        strategy=ElasticWeightConsolidation(strength=1e4, fisher_floor=1e-5), multi_head=True
    ),
    SACConfig(strategy=SynapticIntelligence(), multi_head=True),
    SACConfig(strategy=PackNet(), multi_head=True, clip=1.0),
    SACConfig(strategy=Coreset(), multi_head=True, batch=512),
    SACConfig(strategy=PerfectMemory(), multi_head=True, batch=512),
)
DEFAULTS: dict[str, SACConfig] = {config.strategy.name: config for config in _DEFAULTS}
"""Settings of agents by the name of their strategy: those of Continual World.

They have a head and a temperature for each task, so they are told its name. Agents of other
strategies have the settings of `SACConfig`."""


def sac_agent(strategy: str | Strategy, config: SACConfig | None = None) -> AgentSpec:
    """Return a model-free agent, to be registered or made.

    Parameters
    ----------
    strategy
        What keeps the networks from forgetting: a registered name, or a strategy with settings.
    config
        Other settings; its strategy is replaced. None takes those of `DEFAULTS`.
    """
    if isinstance(strategy, str) and strategy in DEFAULTS:
        strategy = DEFAULTS[strategy].strategy
    protecting = as_strategy(strategy)
    base = config or DEFAULTS.get(protecting.name, SACConfig())
    chosen = replace(base, strategy=protecting)

    def make(env: gymnasium.Env[Any, Any], config: SACConfig, seed: int) -> SACAgent:
        return SACAgent(env.observation_space, env.action_space, config, seed=seed)

    return AgentSpec(make, chosen, f"soft actor-critic with the strategy {protecting.name}")


class SACAgent:
    """Acts by a policy that is learned from rewards.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces; that of actions has bounds.
    config
        Settings.
    seed
        Fans out into weights, actions, minibatches and what the strategy draws.
    threads
        Threads of PyTorch; None takes what numba was given.

    Attributes
    ----------
    boundary_aware
        Whether it is told of tasks, by its strategy or its settings; others never see a name.
    told, given
        What it is told of tasks, and what it is given beside observations and rewards.
    steps, episodes, task_steps
        Transitions learned from, episodes begun, and transitions since the agent was last told of
        a new task.
    """

    given: tuple[str, ...] = ()

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: SACConfig | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
    ) -> None:
        self.observation_space = as_box(observation_space, "observation_space")
        self.action_space = as_box(action_space, "action_space")
        self.config = config or SACConfig()
        check_whole("seed", seed, 0)
        if threads is not None:
            check_whole("threads", threads, 1)
        self.seed, self.threads = seed, threads
        strategy: Strategy = self.config.strategy
        self.strategy = strategy
        capacity = strategy.settings().get("capacity", self.config.warm_up)
        if capacity < self.config.warm_up:
            raise InvalidInputError(
                f"capacity is {capacity} and warm_up {self.config.warm_up}: that many are "
                "never kept, and nothing would be learned; warm up with fewer"
            )
        by_name = strategy.task_dependent or self.config.tells_tasks
        self.boundary_aware = strategy.boundary_aware or by_name
        words = {"boundaries": self.boundary_aware, "name": by_name}
        self.told = tuple(word for word, said in words.items() if said)
        # Bounds become [-1, 1]; observations without bounds are taken as they are.
        self._inputs = ModelInputs(self.observation_space, self.action_space, NoMemory(), 1.0, 1.0)
        self._low, self._high = action_bounds(self.action_space)
        drawing, acting, training, keeping = np.random.SeedSequence(seed).spawn(4)
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
        self._threads = Threads(threads)
        self._policy = self.learner.policy()
        self.task: str | None = None
        self.tasks: list[str] = []
        self._place = 0
        self.steps = self.episodes = self.task_steps = 0
        self._learning = True
        self._busy = threading.RLock()
        self._evaluation_actions = self.config.evaluation_actions

    @classmethod
    def for_env(
        cls,
        env: gymnasium.Env[Any, Any],
        *,
        seed: int = 0,
        threads: int | None = None,
        **options: Any,
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env
            Its spaces are read.
        seed, threads
            As above.
        options
            Settings that differ from those that `DEFAULTS` has for the strategy, which is perfect
            memory if none is named, such as ``hidden=100``, ``strategy="coreset"`` or
            ``**{"strategy.capacity": 5000}``.
        """
        name = options.get("strategy")
        name = name if isinstance(name, str) else PerfectMemory.name
        config = with_options(DEFAULTS.get(name, SACConfig()), options)
        return cls(env.observation_space, env.action_space, config, seed=seed, threads=threads)

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

    @one_thread_at_a_time
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

    @one_thread_at_a_time
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
        state, next_state = self._state(before), self._state(after)
        if not self._learning:  # an evaluation copy does not look at the reward
            return
        earned = as_numbers(reward, "reward")
        if earned.shape != () or not abs(earned) < LARGEST:
            raise InvalidInputError(f"reward is {given(reward)}; expected one finite number")
        if not isinstance(terminated, (bool, np.bool_)):
            raise InvalidInputError(f"terminated is {given(terminated)}; expected True or False")
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

    @property
    def evaluation_variants(self) -> dict[str, dict[str, Any]]:
        """Other ways to evaluate it: arguments of `evaluation_copy` by a name for tables."""
        if self.config.evaluation_actions == "sample":
            return {"mean actions": {"actions": "mean"}}
        return {"sampled actions": {"actions": "sample"}}

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
        other: Self = shallow_copy(self)
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
            "seed": self.seed,
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

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes."""
        if not self._learning:
            raise NotReadyError(
                "an evaluation copy shares its networks with the agent it came from and cannot be "
                "pickled; pickle that agent, and take an evaluation copy of it there"
            )
        spaces = (self.observation_space, self.action_space)
        make = partial(type(self), *spaces, self.config, seed=self.seed, threads=self.threads)
        return reduced(self, make, {})

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing."""
        if not self._learning:
            raise NotReadyError(
                "an evaluation copy shares its networks with the agent it came from and cannot "
                "load; load into that agent"
            )
        arrays, meta = load_archive(path, KIND, VERSION)
        fresh = type(self)(
            self.observation_space,
            self.action_space,
            self.config,
            seed=self.seed,
            threads=self.threads,
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
        if meta["seed"] != self.seed:
            raise InvalidInputError(
                f"the state was saved with seed {meta['seed']}, this agent has {self.seed}"
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
