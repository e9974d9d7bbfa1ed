"""Settings of the online world model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import Bodies
from everlearn.support.checks import check_number, check_positive, check_whole
from everlearn.support.errors import InvalidInputError

if TYPE_CHECKING:
    from everlearn.online.model import OnlineWorldModel
    from everlearn.world_model.memory import Memory


@dataclass(frozen=True)
class OnlineModelConfig:
    """Settings of an `OnlineWorldModel`; the defaults are the paper's."""

    features: int = 300
    """Grids of the encoding."""
    bins: int = 9
    """Edges along one dimension of a grid."""
    grid_dim: int = 2
    """Dimensions of a grid."""
    ridge: float = 0.005
    """Strength of the ridge, the paper's 1 / lambda."""
    observation_gain: float = 3.0
    """What the bounds of an observation become after scaling."""
    action_gain: float = 1.5
    """What the bounds of an action become after scaling."""
    solve_every: int = 0
    """Transitions after which the weights become the exact ridge solution; 0 never.

    Equation 5 moves the rows of the active cells and holds all others, so rows that are not
    active are left behind when rows that they share samples with move.
    """
    linear: bool = False
    """Whether action and memory are features as they are, beside the grids."""
    local_grids: float = 0.0
    """Fraction of the grids that see one object from the hand; needs declared `bodies`."""
    local_gain: float = 30.0
    """What a metre between hand and object becomes in the finest local grid."""
    local_inputs: int = 4
    """Inputs that a projection of a local grid mixes."""
    local_reach: float = 0.0
    """Distance of hand and object, in metres, from which on a local grid is off; 0 never.

    Nothing learned further away touches its cells, and imagination skips it there.
    """
    clip: bool = True
    """Keep predictions inside the observation space."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of statistics, weights and predictions."""
    warm_up: int = 200
    """Transitions that fix the scale of unbounded inputs, before any is learned."""
    max_memory_gb: float | None = None
    """Refuse to learn before the statistics outgrow this; none for no limit."""

    def __post_init__(self) -> None:
        for name, least in (("features", 1), ("bins", 2), ("grid_dim", 1), ("local_inputs", 1)):
            check_whole(name, getattr(self, name), least)
        check_whole("solve_every", self.solve_every, 0)
        check_whole("warm_up", self.warm_up, 2)
        for name in ("ridge", "observation_gain", "action_gain", "local_gain"):
            check_positive(name, getattr(self, name))
        check_number("local_grids", self.local_grids, 0.0, 1.0)
        check_number("local_reach", self.local_reach, 0.0, 1e6)
        if self.precision not in ("float32", "float64"):
            raise InvalidInputError(
                f"precision must be one of float32, float64; got {self.precision!r}"
            )
        if self.max_memory_gb is not None:
            check_positive("max_memory_gb", self.max_memory_gb)

    @property
    def given(self) -> tuple[str, ...]:
        """What an agent with this model is given of its environment."""
        return ("scene",) if self.local_grids else ()

    def build(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        *,
        seed: int,
        threads: int | None = None,
        memory: Memory | None = None,
        bodies: Bodies | None = None,
        still: npt.ArrayLike | None = None,
        unread: int = 0,
    ) -> OnlineWorldModel:
        """Make the model; the arguments are those of `OnlineWorldModel`."""
        from everlearn.online.model import OnlineWorldModel

        return OnlineWorldModel(
            observation_space,
            action_space,
            self,
            seed=seed,
            threads=threads,
            memory=memory,
            bodies=bodies,
            still=still,
            unread=unread,
        )
