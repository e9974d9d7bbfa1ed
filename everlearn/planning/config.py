"""Settings of an agent that plans: its parts, and what is known of objective and observation."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import EnvironmentFacts, FloatArray, Objective
from everlearn.online.config import OnlineModelConfig
from everlearn.planning import PLANNERS, CEMConfig
from everlearn.planning.escape import EscapeConfig
from everlearn.planning.value import ValueConfig
from everlearn.support.checks import check_number, check_positive
from everlearn.support.settings import part
from everlearn.world_model import MODELS
from everlearn.world_model.memory import MEMORIES, NoMemoryConfig

MOST_REPEATS = 4
"""Steps that an action is repeated for at the most, whatever the control period."""


@dataclass(frozen=True)
class ObjectiveConfig:
    """What a plan earns beside the rewards of its objective."""

    success_bonus: float = 0.0
    """Added to each step in which a plan expects the task to be solved (`objective.succeeded`).

    Without it lingering where rewards are high may look as good as finishing.
    """

    def __post_init__(self) -> None:
        check_number("success_bonus", self.success_bonus, 0.0, 1e9)

    def planned(self, objective: Objective) -> Objective:
        """Return what plans maximise: `objective`, with the bonus if it can tell success."""
        succeeded = getattr(objective, "succeeded", None)
        if self.success_bonus == 0 or succeeded is None:
            return objective

        def with_bonus(obs: FloatArray, action: FloatArray, next_obs: FloatArray, /) -> FloatArray:
            return np.asarray(
                objective(obs, action, next_obs)
                + self.success_bonus * succeeded(obs, action, next_obs)
            )

        return with_bonus


@dataclass(frozen=True)
class ObservationConfig:
    """What plans take for granted about observations."""

    rest: bool = False
    """Hold resting objects still while their predicted change is small.

    An environment may declare what rests (`Bodies.resting`); otherwise the agent counts it.
    """

    @staticmethod
    def declared(facts: EnvironmentFacts) -> bool:
        """Whether the environment says what rests."""
        return facts.bodies is not None and bool(facts.bodies.resting)

    def counts_rest(self, facts: EnvironmentFacts) -> bool:
        """Whether the agent counts what rests, and holds it still."""
        return self.rest and not self.declared(facts)

    def still(
        self, observation_space: spaces.Box, facts: EnvironmentFacts
    ) -> npt.NDArray[np.float64] | None:
        """Smallest change of each observation that a model predicts; None if none is declared."""
        if not self.rest or not self.declared(facts):
            return None
        assert facts.bodies is not None
        still = np.zeros(observation_space.shape)
        for index, smallest in facts.bodies.resting:
            still[index] = smallest
        return still


@dataclass(frozen=True)
class ExplorationConfig:
    """What makes an agent that learns the reward look for it."""

    novelty: float = 0.0
    """What a wholly new step of a plan is worth while learning, in spans of the rewards seen."""

    def __post_init__(self) -> None:
        check_number("novelty", self.novelty, 0.0, 1e9)


@dataclass(frozen=True)
class PlanningAgentConfig:
    """Everything that can be set about a `PlanningAgent`; the defaults are the paper's."""

    model: Any = part(MODELS, OnlineModelConfig())
    """World model that learns and imagines."""
    memory: Any = part(MEMORIES, NoMemoryConfig())
    """What the model sees of the past of an episode, beside observation and action."""
    planner: Any = part(PLANNERS, CEMConfig())
    """How actions are searched for in the model's imagination."""
    escape: EscapeConfig = field(default=EscapeConfig())
    """What the agent does when its plan gets it nowhere."""
    objective: ObjectiveConfig = ObjectiveConfig()
    """What plans maximise."""
    observation: ObservationConfig = ObservationConfig()
    """What plans take for granted about observations."""
    exploration: ExplorationConfig = ExplorationConfig()
    """What makes an agent that learns the reward look for it."""
    value: ValueConfig = field(default=ValueConfig())
    """What is earned after the end of a plan."""
    decision_period: float | None = None
    """Seconds between decisions, where an environment tells its control period.

    An action is repeated until they have passed, and the model learns what it led to by then. None
    decides at every step.
    """
    deadline_ms: float | None = None
    """Longest time that acting and learning of a step should take; none lets plans finish."""

    def __post_init__(self) -> None:
        if self.deadline_ms is not None:
            check_number("deadline_ms", self.deadline_ms, 0.0, 1e9)
        if self.decision_period is not None:
            check_positive("decision_period", self.decision_period)

    def repeat(self, facts: EnvironmentFacts) -> int:
        """Return how many steps of an environment a decision is for."""
        if self.decision_period is None or facts.control_period is None:
            return 1
        return max(1, min(int(self.decision_period / facts.control_period + 1e-6), MOST_REPEATS))

    def given(self, facts: EnvironmentFacts) -> tuple[str, ...]:
        """Return what an agent with these settings uses of what an environment declares.

        The config of a part that uses ``scene`` or ``command law`` says so in its own `given`.
        """
        words = {*getattr(self.model, "given", ()), *getattr(self.memory, "given", ())}
        if self.observation.rest and self.observation.declared(facts):
            words.add("scene")
        if self.escape.patience and facts.commanded_position is not None:
            words.add("command law")
        return tuple(word for word in ("scene", "command law") if word in words)
