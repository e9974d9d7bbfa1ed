"""What an agent is made of: enough to make its parts anew, and to read its file."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces

from everlearn.interfaces import EnvironmentFacts, Planner
from everlearn.planning.config import PlanningAgentConfig
from everlearn.planning.escape import Escape
from everlearn.planning.learned_reward import ENTRIES, with_entries
from everlearn.planning.value import ValueMap
from everlearn.support.errors import InvalidInputError

PLANS, BURSTS, BACKUPS = 1, 2, 3
"""Keys of the generators of planner, escape and values; the model has the seed itself."""


@dataclass(frozen=True)
class Blueprint:
    """Settings of an agent, its spaces, what its environment declares, seed and threads."""

    config: PlanningAgentConfig
    observation_space: spaces.Box
    action_space: spaces.Box
    facts: EnvironmentFacts
    seed: int
    threads: int | None

    def model(self, learns_reward: bool = False) -> Any:
        """Make the world model, with entries for return and end if it is to learn the reward."""
        config, space = self.config, self.observation_space
        memory = config.memory.build(space, self.action_space, self.facts)
        still = config.observation.still(space, self.facts)
        extra: dict[str, Any] = {}
        if learns_reward:
            if "unread" not in inspect.signature(config.model.build).parameters:
                raise InvalidInputError(
                    f"a model of {type(config.model).__name__} cannot learn the reward and got "
                    "no objective; pass the task's batched reward function"
                )
            novelty = self.novelty
            extra = {"unread": ENTRIES + novelty, "novelty": novelty}
            space = with_entries(space, ENTRIES + novelty)
        return config.model.build(
            space,
            self.action_space,
            seed=self.seed,
            threads=self.threads,
            memory=memory,
            bodies=self.facts.bodies,
            still=still,
            **extra,
        )

    @property
    def novelty(self) -> bool:
        """Whether a model that learns the reward counts how new imagined steps are."""
        return self.config.exploration.novelty > 0

    def planner(self) -> Planner:
        """Make the planner, with a random generator of its own."""
        seed = np.random.SeedSequence(self.seed, spawn_key=(PLANS,))
        planner: Planner = self.config.planner.build(self.action_space, seed)
        return planner

    def values(self, model: Any) -> ValueMap | None:
        """Make the value function over states of `model`, if there is to be one."""
        config = self.config
        if not config.value.landmarks:
            return None
        for needed in ("inputs", "rollout_from"):
            if not hasattr(model, needed):
                raise InvalidInputError(
                    f"a model of {type(config.model).__name__} has no {needed!r}, which a value "
                    "function needs; set value.landmarks to 0"
                )
        discount = getattr(config.planner, "discount", None)
        if discount is None:
            return None  # a planner of one's own that does not count what comes after a plan
        if not discount < 1:
            raise InvalidInputError(
                f"planner.discount is {discount}; a value function needs one below 1, or set "
                "value.landmarks to 0"
            )
        seed = np.random.SeedSequence(self.seed, spawn_key=(BACKUPS,))
        return ValueMap(model.inputs, self.action_space, config.value, discount, seed)

    def escape(self) -> Escape:
        """Make the escape; it moves what an environment says is commanded."""
        position = self.facts.commanded_position
        return Escape(
            self.action_space,
            self.config.escape,
            None if position is None else position.action_indices,
            np.random.SeedSequence(self.seed, spawn_key=(BURSTS,)),
        )
