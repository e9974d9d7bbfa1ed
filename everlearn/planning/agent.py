"""The online agent: one world model for life, solved after every step, and a planner.

The paper's loop (figure "learning and acting loop"), forever::

    if the task changes: forget the plan
    act:      a_t  <- planner(s_t, model, plan of the last step shifted, objective)
    observe:  s_t+1, learn (s_t, a_t) -> s_t+1 - s_t, so that the next plan uses it

A new task brings a new objective and nothing else; the agent does not read its name.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium
import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective
from everlearn.planning import Plan, Planner
from everlearn.planning.escape import Patience
from everlearn.planning.options import OnlineOptions, build
from everlearn.support.archive import check_arrays, load_archive, part_of, reading, save_archive
from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError, NotReadyError

if TYPE_CHECKING:
    from typing_extensions import Self

VERSION = 2


class OnlineAgent:
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
    deadline_ms
        Longest time a decision should take; None lets the planner finish.
    patience
        What to do when the plan gets the agent nowhere; None plans on.
    success_bonus
        Added to an imagined reward where the objective's `succeeded` says the task is solved.

    Attributes
    ----------
    steps, episodes
        Transitions learned from, and episodes begun.
    last_plan
        What the planner saw at the last decision, for plots; None before the first.
    """

    boundary_aware: bool = False
    kind = "everlearn-online-agent"
    """Kind of its file."""

    def __init__(
        self,
        model: Any,
        planner: Planner,
        objective: Objective | None = None,
        deadline_ms: float | None = None,
        patience: Patience | None = None,
        success_bonus: float = 0.0,
    ) -> None:
        self.model = model
        self.planner = planner
        self.deadline_ms = deadline_ms
        self.patience = patience
        self.steps = 0
        self.episodes = 0
        self.last_plan: Plan | None = None
        self.success_bonus = success_bonus
        self._objective = None if objective is None else self._with_bonus(objective)
        self._learning = True
        self._memory_state: FloatArray | None = None

    @classmethod
    def for_env(
        cls, env: gymnasium.Env[Any, Any], reward_fn: Objective | None, **options: Any
    ) -> Self:
        """Make an agent for any Gymnasium environment with one-axis Box spaces.

        Parameters
        ----------
        env
            Its spaces are read, and its `commanded_position` if it declares one.
        reward_fn
            The objective: rewards ``[N]`` of ``obs[N, S]``, ``action[N, A]``,
            ``next_obs[N, S]``.
        options
            Settings of the agent (`OnlineOptions`), its planner (`CEMConfig`) and its model
            (`OnlineModelConfig`) that differ from those of the agent ``oa``, such as
            ``seed=1``, ``memory="history"``, ``candidates=80``, ``ridge=0.1``.
        """
        chosen = OnlineOptions.for_env(env, **options)
        model, planner, patience = build(env, chosen)
        return cls(model, planner, reward_fn, chosen.deadline_ms, patience, chosen.success_bonus)

    def begin_task(self, name: str, objective: Objective | None) -> None:
        """Switch to another objective and forget the plan; `name` is not read."""
        if objective is None:
            raise InvalidInputError(
                "the online agent plans for an objective and got None; pass the task's batched "
                "reward function"
            )
        self._objective = self._with_bonus(objective)
        self.planner.reset()

    def _with_bonus(self, objective: Objective) -> Objective:
        succeeded = getattr(objective, "succeeded", None)
        if self.success_bonus == 0 or succeeded is None:
            return objective

        def rewarded(obs: FloatArray, action: FloatArray, next_obs: FloatArray, /) -> FloatArray:
            return np.asarray(
                objective(obs, action, next_obs)
                + self.success_bonus * succeeded(obs, action, next_obs)
            )

        return rewarded

    def begin_episode(self) -> None:
        """Forget the plan and the commands given; what was learned stays."""
        self.planner.reset()
        self._memory_state = None
        if self.patience is not None:
            self.patience.begin_episode()
        self.episodes += 1

    def act(self, obs: FloatArray, explore: bool = True) -> npt.NDArray[Any]:
        """Return the action to take at `obs`.

        `explore` makes no difference: actions are what the plan says, without noise on top,
        unless the agent has lost its patience with it.
        Two calls at the same `obs` differ, as the planner's generator and memory go on.
        """
        if self._objective is None:
            raise NotReadyError("no objective yet; call begin_task(name, objective) first")
        obs = _checked("observation", obs, self.model.observation_space)
        memory = self._memory_at(obs)
        plan = self.planner.plan(
            self.model, obs, self._objective, memory=memory, deadline_ms=self.deadline_ms
        )
        self._memory_state = memory
        self.last_plan = plan
        action = plan.action if self.patience is None else self.patience.adjusted(plan.action)
        return action.astype(self.model.action_space.dtype)

    def observe(
        self,
        obs: FloatArray,
        action: FloatArray,
        next_obs: FloatArray,
        reward: float,
        terminated: bool,
    ) -> None:
        """Learn from what followed `action`.

        The model predicts states only, and what a plan earns is computed from them; `reward`
        only tells whether the agent gets anywhere. `terminated` is not used.
        """
        obs = _checked("observation", obs, self.model.observation_space)
        action = _checked("action", action, self.model.action_space)
        next_obs = _checked("next observation", next_obs, self.model.observation_space)
        memory = self._memory_at(obs)
        if self._learning:
            if memory is None:
                self.model.learn(obs, action, next_obs)
            else:
                self.model.learn(obs, action, next_obs, memory=memory)
            self.steps += 1
        ahead = None
        if memory is not None:
            remembers = self.model.memory
            advanced = remembers.advance(memory[None], obs[None], action[None], next_obs[None])
            if hasattr(remembers, "ahead"):
                ahead = remembers.ahead(advanced, next_obs[None])[0]
            memory = np.asarray(advanced)[0]
        if self.patience is not None:
            self.patience.saw(reward, ahead)
        self._memory_state = memory

    def _memory_at(self, obs: FloatArray) -> FloatArray | None:
        """State of the model's memory now; it starts with the first step of an episode."""
        memory = getattr(self.model, "memory", None)
        if memory is None or memory.size == 0:
            return None
        if self._memory_state is not None:
            return self._memory_state
        return np.asarray(memory.start(obs[None]))[0]

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> Self:
        """Return an agent that acts with this one's model and learns nothing.

        The model is shared, not copied; planner, its generator and the memory are its own, so
        nothing it does reaches this agent.
        """
        plans, bursts = _seed_pair(seed)
        copy = type(self)(
            self.model,
            self.planner.spawn(plans),
            self._objective,
            self.deadline_ms,
            None if self.patience is None else self.patience.spawn(bursts),
            self.success_bonus,
        )
        copy.steps = self.steps
        copy._learning = False
        return copy

    def save(self, path: str | Path) -> None:
        """Write model, planner, generators, memory and counters to `path`, atomically.

        The objective is a function and is not written.
        """
        model_arrays, model_meta = self.model.state()
        planner_arrays, planner_meta = self.planner.state()
        arrays = {
            **{f"model/{name}": array for name, array in model_arrays.items()},
            **{f"planner/{name}": array for name, array in planner_arrays.items()},
        }
        if self._memory_state is not None:
            arrays["agent/memory"] = np.asarray(self._memory_state)
        meta = {
            "model": model_meta,
            "planner": planner_meta,
            "agent": {
                "steps": self.steps,
                "episodes": self.episodes,
                "patience": None if self.patience is None else self.patience.state(),
            },
        }
        save_archive(path, self.kind, VERSION, arrays, meta)

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
        arrays, meta = load_archive(path, self.kind, VERSION)
        with reading(path, "online agent"):
            # What can fail comes first, on copies; the model, which replaces itself or raises,
            # is the last that may refuse.
            planner = self.planner.spawn(0)
            planner.restore(part_of(arrays, "planner/"), meta["planner"])
            steps, episodes = int(meta["agent"]["steps"]), int(meta["agent"]["episodes"])
            patience = None if self.patience is None else self.patience.spawn(0)
            if patience is not None:
                patience.restore(meta["agent"]["patience"])
            state = arrays.get("agent/memory")
            if state is not None:
                check_arrays({"memory": state}, {"memory": ("f", (self.model.memory.size,))})
            self.model.restore(part_of(arrays, "model/"), meta["model"])
        self.planner, self.patience = planner, patience
        self.steps, self.episodes = steps, episodes
        self._memory_state = state
        self.last_plan = None


def _seed_pair(
    seed: int | np.random.SeedSequence,
) -> tuple[int | np.random.SeedSequence, np.random.SeedSequence]:
    """Return `seed` itself for plans, and one derived from it for bursts."""
    if isinstance(seed, np.random.SeedSequence):
        key = (*seed.spawn_key, 2)
        return seed, np.random.SeedSequence(seed.entropy, spawn_key=key)
    return seed, np.random.SeedSequence(seed, spawn_key=(2,))


def _checked(what: str, value: FloatArray, space: spaces.Box) -> FloatArray:
    """Return `value` as an array, or refuse a wrong shape, type or number."""
    array = as_numbers(value, what)
    if array.shape != space.shape:
        raise InvalidInputError(
            f"{what} is {array.dtype} of shape {array.shape}; expected numbers of shape "
            f"{space.shape}"
        )
    if not np.all(np.isfinite(array)):
        raise InvalidInputError(f"{what} has numbers that are not finite: {array}")
    return array
