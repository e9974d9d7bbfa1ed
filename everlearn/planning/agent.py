"""The agent that plans: one world model for life, and a planner that searches in it.

The paper's loop (figure "learning and acting loop"), forever::

    if the task changes: forget the plan
    act:      a_t  <- planner(s_t, model, plan of the last step shifted, objective)
    observe:  s_t+1, learn (s_t, a_t) -> s_t+1 - s_t, so that the next plan uses it

A new task brings a new objective and nothing else. Its name is not read, unless the model has a
strategy that must be told of tasks (`everlearn.deep.strategies`).

Without an objective the agent learns the reward and the end of an episode as well, and looks for
what is new (learned_reward.py). While it learns, the reward of the environment is used for that,
and to notice that a plan gets nowhere (escape.py). An evaluation copy never reads it.

One decision may be for several steps of the environment (repeat.py).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import EnvironmentFacts, FloatArray, Objective, Plan, Planner
from everlearn.online.frozen import CANNOT_LEARN
from everlearn.planning import agent_file
from everlearn.planning.blueprint import BURSTS, Blueprint
from everlearn.planning.config import ObjectiveConfig, PlanningAgentConfig
from everlearn.planning.deadline import Deadline
from everlearn.planning.escape import Escape
from everlearn.planning.learned_reward import ENTRIES, LearnedReward
from everlearn.planning.presets import oa_config
from everlearn.planning.repeat import RepeatedAction
from everlearn.planning.structure import StructureCounter
from everlearn.planning.value import EARNED, EXPLORING, ValuedObjective
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError, NotReadyError, given
from everlearn.support.files import reading
from everlearn.support.pickling import reduced, shallow_copy
from everlearn.support.settings import with_options
from everlearn.support.structure import Structure
from everlearn.support.threads import one_thread_at_a_time
from everlearn.world_model.inputs import InputChecks
from everlearn.world_model.scaling import as_box

if TYPE_CHECKING:
    from typing_extensions import Self


class PlanningAgent:
    """Acts by planning in a model that learns from every step.

    Parameters
    ----------
    model
        A world model with `learn`, `rollout`, `state` and `restore`, and a `memory` if it
        carries one.
    planner
        What searches for actions in the model's imagination.
    objective
        What to maximise until `begin_task` brings another.
    escape
        What to do when the plan gets the agent nowhere; None plans on.
    success_bonus
        Added to an imagined reward where the objective's `succeeded` says the task is solved.
    deadline_ms
        Longest time that `act` and `observe` of a step should take together; None lets the planner
        finish.
    blueprint
        What the parts were made from; `build` gives it. Without it the agent cannot learn the
        reward, and its file is read by `load` only.

    Attributes
    ----------
    boundary_aware
        Whether the model is told of tasks; other agents never read a task's name.
    learns_reward
        Whether the model predicts the reward as well.
    steps, episodes
        Transitions learned from, and episodes begun.
    values
        What is earned after the end of a plan, by state; None without such values.
    last_plan
        What the planner saw at the last decision, for plots; None before the first. Its states
        end with the entries of `learned_reward` if the agent learns the reward.
    """

    def __init__(
        self,
        model: Any,
        planner: Planner,
        objective: Objective | None = None,
        *,
        escape: Escape | None = None,
        success_bonus: float = 0.0,
        deadline_ms: float | None = None,
        blueprint: Blueprint | None = None,
    ) -> None:
        self.model = model
        self.planner = planner
        self.escape = escape
        self.objective_config = ObjectiveConfig(success_bonus)
        self._deadline = Deadline(deadline_ms)
        self.blueprint = blueprint
        self.observation_space: spaces.Box = model.observation_space
        self.action_space: spaces.Box = model.action_space
        self._border = InputChecks(self.observation_space, self.action_space)
        strategy = getattr(model, "strategy", None)
        self.boundary_aware: bool = getattr(strategy, "boundary_aware", False)
        self._by_name: bool = getattr(strategy, "task_dependent", False)
        self.learns_reward = False
        self.steps = 0
        self.episodes = 0
        self.last_plan: Plan | None = None
        self._learning = True
        self._busy = threading.RLock()
        self._memory_state: FloatArray | None = None
        self._repeated = RepeatedAction(
            1 if blueprint is None else blueprint.config.repeat(blueprint.facts)
        )
        # Smallest and largest reward of a decision so far.
        self._rewards: tuple[float, float] | None = None
        self._objective = objective
        self._planned = None if objective is None else self._maximised(objective)
        self.values = None if blueprint is None else blueprint.values(model)
        # Whose values these are: those of another objective say nothing about it.
        self._valued = objective
        self._counter = self._new_counter()
        # Of an exported agent, which counts nothing.
        self._exported_structure: Structure | None = None
        self._exported_still: FloatArray | None = None

    @classmethod
    def build(
        cls,
        env: gymnasium.Env[Any, Any],
        config: PlanningAgentConfig,
        seed: int = 0,
        *,
        objective: Objective | None = None,
        threads: int | None = None,
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env
            Its spaces are read, and what it declares (`EnvironmentFacts`).
        config
            Settings of all parts.
        seed
            Fans out into the generators of model, planner and escape.
        objective
            What to maximise until `begin_task` brings another.
        threads
            Threads of the model; None takes what numba was given.
        """
        observation_space = as_box(env.observation_space, "observation_space")
        action_space = as_box(env.action_space, "action_space")
        facts = EnvironmentFacts.of(env)
        blueprint = Blueprint(config, observation_space, action_space, facts, seed, threads)
        return cls._from(blueprint, objective)

    @classmethod
    def _from(cls, blueprint: Blueprint, objective: Objective | None = None) -> Self:
        return cls(
            blueprint.model(),
            blueprint.planner(),
            objective,
            escape=blueprint.escape(),
            success_bonus=blueprint.config.objective.success_bonus,
            deadline_ms=blueprint.config.deadline_ms,
            blueprint=blueprint,
        )

    # What it knows ---------------------------------------------------------------------

    @property
    def deadline_ms(self) -> float | None:
        """Longest time that `act` and `observe` of a step should take together."""
        return self._deadline.milliseconds

    @deadline_ms.setter
    def deadline_ms(self, milliseconds: float | None) -> None:
        self._deadline = Deadline(milliseconds)

    @property
    def told(self) -> tuple[str, ...]:
        """What the agent is told of tasks: ``boundaries``, and their ``name``."""
        facts = {"boundaries": self.boundary_aware, "name": self._by_name}
        return tuple(word for word, said in facts.items() if said)

    @property
    def given(self) -> tuple[str, ...]:
        """What the agent is given beside observations and rewards, with its present objective."""
        words = []
        learned = self._objective is None and self.learns_reward
        if not learned:
            words.append("reward function")
        tells = self._objective is None or hasattr(self._objective, "succeeded")
        if not learned and tells and self.objective_config.success_bonus:
            words.append("success test")
        if self.blueprint is not None:
            words += self.blueprint.config.given(self.blueprint.facts)
        return tuple(words)

    @property
    def structure(self) -> Structure:
        """What it found about its world while it learned: what rests, moves together, is touched.

        It is counted from transitions. Of all this, actions depend on what rests alone, and only
        where the agent counts that (`ObservationConfig.rest`).
        """
        if self._exported_structure is not None:
            return self._exported_structure
        return self._counter.structure(
            None if self.blueprint is None else self.blueprint.facts.observation_names
        )

    @property
    def bursts(self) -> int | None:
        """How often the agent left its plan in this episode; None for one that never does."""
        if self.escape is None or not self.escape.config.patience:
            return None
        return self.escape.bursts

    @property
    def memory_state(self) -> FloatArray | None:
        """State of the model's memory at the present observation, if there is one."""
        return self._memory_state

    @property
    def learns(self) -> bool:
        """Whether `observe` teaches the model: not in evaluation copies and exported agents."""
        return self._learning and not getattr(self.model, "exported", False)

    def model_for(self, task: str) -> Any:
        """Return what predicts a task, for measuring its error."""
        return self.model.for_task(task) if hasattr(self.model, "for_task") else self.model

    # Tasks -----------------------------------------------------------------------------

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another objective and forget the plan.

        None lets the agent learn the reward. Only a model whose strategy is told of boundaries
        sees `name`. An evaluation copy changes nothing in the model: it acts with what predicts
        the task.
        """
        self._prepare_model(learns_reward=objective is None)
        self._objective = objective
        self._planned = None if objective is None else self._maximised(objective)
        self.planner.reset()
        if self._learning and objective is not self._valued:
            self._valued = objective
            if self.values is not None:
                self.values.forget_values()
        if self.escape is not None:
            self.escape.begin_task()
        if not self.boundary_aware:
            return
        if self._learning:
            self.model.begin_task(name)
        else:
            self.model = self.model.for_task(name)

    def _prepare_model(self, learns_reward: bool) -> None:
        """Make the model anew if it is to learn the reward, or need not, and knows nothing yet."""
        if learns_reward == self.learns_reward or (self.learns_reward and self.steps):
            return
        if self.blueprint is None:
            raise InvalidInputError(
                "an agent that was given a model cannot learn the reward and got no objective; "
                "pass the task's batched reward function, or make the agent with for_env"
            )
        if self.steps:
            raise NotReadyError(
                f"the agent has learned from {self.steps} steps without the reward and cannot "
                "begin to learn it now; pass the task's batched reward function, or begin its "
                "first task with None"
            )
        self.model = self.blueprint.model(learns_reward)
        self.values = self.blueprint.values(self.model)
        self.learns_reward = learns_reward

    def _maximised(self, objective: Objective) -> Objective:
        """Return what plans maximise where the objective is given."""
        planned = self.objective_config.planned(objective)
        if not self.learns_reward:
            return planned

        size = self._size

        def without_entries(
            obs: FloatArray, action: FloatArray, after: FloatArray, /
        ) -> FloatArray:
            return planned(obs[:, :size], action, after[:, :size])

        return without_entries

    def _wanted(self, explore: bool) -> Objective:
        """Return what the next plan maximises."""
        bonus = self._bonus() if explore else 0.0
        rewards = self._rewarding(bonus)
        if self.values is None or not self.values.count or self._objective is not self._valued:
            return rewards
        return ValuedObjective(rewards, self.values, EXPLORING if bonus else EARNED)

    def _rewarding(self, bonus: float = 0.0) -> Objective:
        """Return the objective of single steps, with a bonus for novelty if it is learned."""
        if self._planned is not None:
            return self._planned
        if self.blueprint is None:
            raise NotReadyError("no objective yet; call begin_task(name, objective) first")
        self._prepare_model(learns_reward=True)
        return LearnedReward(self._size, bonus)

    def _bonus(self) -> float:
        """Return what a wholly new step of a plan is worth now; 0 where nothing new is sought."""
        if self._objective is not None or self.blueprint is None or not self._learning:
            return 0.0
        low, high = self._rewards or (0.0, 0.0)
        return self.blueprint.config.exploration.novelty * ((high - low) or 1.0)

    def _improve_values(self, state: FloatArray) -> None:
        """Count `state` to the landmarks, and back up some of them with what is known now."""
        if self.values is None:
            return
        bonus = self._bonus()
        self.values.add(state)
        exploring = self._rewarding(bonus) if bonus else None
        self.values.improve(self.model, self._rewarding(), exploring)

    @property
    def _size(self) -> int:
        """Numbers of an observation."""
        return int(self.observation_space.shape[0])

    # Acting and learning ---------------------------------------------------------------

    def begin_episode(self) -> None:
        """Forget the plan and the commands given; what was learned stays."""
        self.planner.reset()
        self._memory_state = None
        self._repeated.clear()
        if self.escape is not None:
            self.escape.begin_episode()
        self.episodes += 1

    @one_thread_at_a_time
    def act(self, obs: FloatArray, explore: bool = True) -> npt.NDArray[Any]:
        """Return the action to take at `obs`.

        With `explore` an agent that learns the reward also plans for what is new, until it is
        not (`ExplorationConfig`). Otherwise actions are what the plan says, without noise on top,
        unless the plan has got the agent nowhere. Two calls at the same `obs` differ, as the
        planner's generator and memory go on. An agent that never got an objective learns the
        reward.
        """
        self._deadline.begin_step()
        with self._deadline.counting():
            return self._chosen(obs, explore)

    def _chosen(self, obs: FloatArray, explore: bool) -> npt.NDArray[Any]:
        """Return the action to take: a new decision, or that of the one at hand."""
        objective = self._wanted(explore)
        state = self._checked_state("observation", obs)
        if self._repeated.steps:
            return self._repeated.action.astype(self.action_space.dtype)
        memory = self._memory_at(state)
        self._hold_still()
        plan = self.planner.plan(
            _Trusting(self.model) if hasattr(self.model, "rollout_unchecked") else self.model,
            state,
            objective,
            memory=memory,
            deadline_ms=self._deadline.for_plan,
        )
        self._deadline.planned(plan.seconds)
        self._memory_state = memory
        self.last_plan = plan
        action = plan.action if self.escape is None else self.escape.adjusted(plan.action)
        return action.astype(self.action_space.dtype)

    def _hold_still(self) -> None:
        """Let the model hold still what was found to rest, where that is to be found."""
        still = self.resting_limits()
        if still is not None and hasattr(self.model, "hold_still"):
            self.model.hold_still(still)

    def resting_limits(self) -> FloatArray | None:
        """Return the smallest changes that plans believe in; None where they are not counted."""
        made = self.blueprint
        if made is None or not made.config.observation.counts_rest(made.facts):
            return None
        return self._counter.still() if self._exported_still is None else self._exported_still

    @one_thread_at_a_time
    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Learn from what followed `action`, once a decision is over.

        `reward` tells whether the plan gets anywhere; both it and `terminated` are learned where
        no objective is given. An evaluation copy does not read the reward.
        """
        if self._learning and not self.learns:
            raise NotReadyError(CANNOT_LEARN)
        with self._deadline.counting():
            self._take_in(obs, action, next_obs, reward, terminated)
        self._deadline.end_step()

    def _take_in(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Check what followed an action, and learn from it if a decision is over."""
        state = self._checked_state("observation", obs)
        action = self._checked_action(action)
        next_state = self._checked_state("next observation", next_obs)
        reward = _finite(reward) if self._learning else 0.0
        if not self._repeated.count(state, action, reward, bool(terminated)):
            return
        state, reward = self._repeated.start, self._repeated.reward
        self._repeated.clear()
        memory = self._memory_at(state)
        if self._learning:
            low, high = self._rewards or (reward, reward)
            self._rewards = min(low, reward), max(high, reward)
            if self.learns_reward:
                next_state[self._size : self._size + ENTRIES] = reward, bool(terminated)
            learn = getattr(self.model, "learn_unchecked", self.model.learn)
            learn(state, action, next_state, **({} if memory is None else {"memory": memory}))
            self.steps += 1
            self._counter.observe(self._observed(state), self._observed(next_state))
            self._improve_values(state)
        following, ahead = self._advanced(memory, state, action, next_state)
        if self.escape is not None and self.escape.config.patience:
            if not self._learning:
                reward = self._judged(state, action, next_state, memory)
            self.escape.observe(reward, ahead)
        self._memory_state = following

    def predict_reward(self, obs: FloatArray, action: FloatArray) -> float:
        """Return the reward that the model expects of a decision, if it learns the reward."""
        if not self.learns_reward:
            raise NotReadyError(
                "the agent does not learn the reward; make it without a reward function"
            )
        state = self._checked_state("observation", obs)
        predicted = self.model.predict(state, self._checked_action(action))
        return float(predicted[self._size])

    def _judged(
        self, state: FloatArray, action: FloatArray, after: FloatArray, memory: FloatArray | None
    ) -> float:
        """Reward of a step by the agent's own objective, or by the reward it has learned."""
        if self._objective is not None:
            obs, next_obs = self._observed(state), self._observed(after)
            return float(self._objective(obs[None], action[None], next_obs[None])[0])
        return float(self.model.predict(state, action, memory)[self._size])

    # The border: what comes in is checked here, once, for planner and model ------------

    def _checked_state(self, what: str, obs: FloatArray) -> FloatArray:
        """Return an observation as the model sees it, or say what is wrong with it.

        The return, if there is one, counts from the present step: in a long episode a sum from its
        start would cost digits of the rewards to come.
        """
        state = self._border.check_observation(obs, what, (1,))
        if self.learns_reward:
            state = np.append(state, np.zeros(self.model.inputs.unread))
        return state

    def _checked_action(self, action: FloatArray) -> FloatArray:
        return self._border.check_action(action, "action", (1,))

    def _observed(self, state: FloatArray) -> FloatArray:
        """Return the observation in what the model sees."""
        return state[: self._size]

    # Memory ----------------------------------------------------------------------------

    def _memory_at(self, state: FloatArray) -> FloatArray | None:
        """State of the model's memory now; it starts with the first step of an episode."""
        memory = getattr(self.model, "memory", None)
        if memory is None or memory.size == 0:
            return None
        if self._memory_state is not None:
            return self._memory_state
        return np.asarray(memory.start(self._observed(state)[None]))[0]

    def _advanced(
        self, memory: FloatArray | None, state: FloatArray, action: FloatArray, after: FloatArray
    ) -> tuple[FloatArray | None, FloatArray | None]:
        """State of the memory a step later, and how far its commands are ahead, if it says so."""
        if memory is None:
            return None, None
        remembers = self.model.memory
        obs, next_obs = self._observed(state)[None], self._observed(after)[None]
        states = remembers.advance(memory[None], obs, action[None], next_obs)
        ahead = remembers.ahead(states, next_obs)[0] if hasattr(remembers, "ahead") else None
        return np.asarray(states)[0], ahead

    # Keeping ---------------------------------------------------------------------------

    @property
    def evaluation_variants(self) -> dict[str, dict[str, Any]]:
        """Other ways to evaluate it: arguments of `evaluation_copy` by a name for tables."""
        return {} if self.bursts is None else {"without bursts": {"bursts": False}}

    def evaluation_copy(self, seed: int | np.random.SeedSequence, bursts: bool = True) -> Self:
        """Return an agent that acts with this one's model and learns nothing.

        The model is shared, not copied; planner, its generator and the memory are its own, so
        nothing it does reaches this agent.

        Parameters
        ----------
        seed
            Of its plans and bursts.
        bursts
            Whether it leaves plans that get it nowhere, as this agent does.
        """
        plans, escaping = _seed_pair(seed)
        other: Self = shallow_copy(self)
        other.planner = self.planner.spawn(plans)
        escape = self.escape if bursts else None
        other.escape = None if escape is None else escape.spawn(escaping)
        other.episodes = 0
        other.last_plan = None
        other._memory_state = None
        other._repeated = RepeatedAction(self._repeated.times)
        other._deadline = Deadline(self.deadline_ms)
        other._learning = False
        return other

    def save(self, path: str | Path) -> None:
        """Write model, planner, generators, memory, counters and settings to `path`, atomically.

        The objective is a function and is not written.
        """
        save_archive(path, agent_file.KIND, agent_file.VERSION, *agent_file.agent_state(self))

    def export(self, path: str | Path) -> None:
        """Write what acting needs to `path`, atomically: a hundredth of what `save` writes.

        `OnlineAgent.from_export` makes an agent of it that acts and cannot learn.
        """
        state = agent_file.exported_state(self)
        save_archive(path, agent_file.EXPORT_KIND, agent_file.EXPORT_VERSION, *state)

    def _new_counter(self) -> StructureCounter:
        """Return what counts how the entries of observations move."""
        return StructureCounter(self.observation_space.low, self.observation_space.high)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what `save` writes, and the objective, which is a function of a module."""
        if self.blueprint is None:
            raise InvalidInputError(
                "an agent that was given a model and a planner cannot be pickled or copied; make "
                "it with build or for_env, or make it anew and load its file"
            )
        make = partial(type(self)._from, self.blueprint, self._objective)
        return reduced(self, make, {"_learning": self._learning})

    def load(self, path: str | Path) -> None:
        """Take over what `save` wrote; a damaged or foreign file changes nothing.

        The objective stays what it is: call `begin_task` before, not after, since that would
        forget the stored plan.
        """
        if not self._learning:
            raise NotReadyError(
                "an evaluation copy shares its model with the agent it came from and cannot "
                "load; load into that agent"
            )
        arrays, meta = load_archive(path, agent_file.KIND, agent_file.VERSION)
        with reading(path, "planning agent"):
            agent_file.restore_agent(self, arrays, meta)

    @classmethod
    def from_file(cls, path: str | Path, *, threads: int | None = None) -> Self:
        """Make the agent that was saved at `path`; the file says its settings and spaces.

        Call `begin_task(name, objective)` before it acts; that forgets the stored plan. Components
        of your own that it uses must be registered.
        """
        arrays, meta = load_archive(path, agent_file.KIND, agent_file.VERSION)
        with reading(path, "planning agent"):
            agent = cls._from(agent_file.stored_blueprint(arrays, meta["agent"], threads))
            agent_file.restore_agent(agent, arrays, meta)
        return agent


@dataclass(frozen=True)
class _Trusting:
    """A model as planners see it: its rollouts do not check again what the agent has checked."""

    model: Any

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        """Imagined states, as for `WorldModel`."""
        states: FloatArray = self.model.rollout_unchecked(obs, actions, memory)
        return states

    def __getattr__(self, name: str) -> Any:
        return getattr(self.model, name)


class OnlineAgent(PlanningAgent):
    """The paper's agent: plans in the online world model, which learns from every step at once.

    Make one with `for_env`, or load one with `from_file`; then call `run_episode`, or
    `begin_episode`, `act` and `observe` in a loop of your own.
    """

    @classmethod
    def for_env(
        cls,
        env: gymnasium.Env[Any, Any],
        reward_fn: Objective | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        **options: Any,
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env
            Its spaces are read, and what it declares (`EnvironmentFacts`).
        reward_fn
            The objective: rewards ``[N]`` of ``obs[N, S]``, ``action[N, A]``,
            ``next_obs[N, S]``. Without it the agent learns the reward.
        seed, threads
            As for `build`.
        options
            Settings that differ from those of the agent ``oa`` (`PlanningAgentConfig`), such as
            ``memory="history"``, ``planner={"horizon": 25}`` or ``**{"model.ridge": 0.1}``.
        """
        config = with_options(oa_config(env), options)
        return cls.build(env, config, seed, objective=reward_fn, threads=threads)

    @classmethod
    def from_export(cls, path: str | Path, *, threads: int | None = None) -> Self:
        """Make the agent that was exported to `path`. It acts, and refuses to learn.

        Call `begin_task(name, objective)` before it acts, and let an `evaluation_copy` act where
        transitions are observed as well, as in `run_episode`.
        """
        arrays, meta = load_archive(path, agent_file.EXPORT_KIND, agent_file.EXPORT_VERSION)
        with reading(path, "exported agent"):
            agent = cls._from(agent_file.stored_blueprint(arrays, meta["agent"], threads))
            agent_file.restore_exported(agent, arrays, meta)
        return agent


def _seed_pair(
    seed: int | np.random.SeedSequence,
) -> tuple[int | np.random.SeedSequence, np.random.SeedSequence]:
    """Return `seed` itself for plans, and one derived from it for bursts."""
    if isinstance(seed, np.random.SeedSequence):
        key = (*seed.spawn_key, BURSTS)
        return seed, np.random.SeedSequence(seed.entropy, spawn_key=key)
    return seed, np.random.SeedSequence(seed, spawn_key=(BURSTS,))


def _finite(reward: float) -> float:
    number = as_numbers(reward, "reward")
    if number.shape != () or not np.isfinite(number):
        raise InvalidInputError(f"reward is {given(reward)}; expected one finite number")
    return float(number)
