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


MAX_CELLS, MAX_GRID_DIM = 10**9, 10
"""Most cells of an encoding, and most dimensions of a grid: a point has 2 ** dimensions cells."""


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
    update: Literal["active", "exact"] = "active"
    """What follows the leader: the weights of the ``active`` cells (equation 5), or all, ``exact``.

    The exact update costs as much as the square of the cells in use: it suits encodings of a few
    thousand cells.
    """
    solve_every: int = 0
    """Transitions after which the weights become the exact ridge solution; 0 never.

    Equation 5 moves the rows of the active cells and holds all others, so rows that are not
    active are left behind when rows that they share samples with move.
    """
    row_inputs: int = 0
    """Observations and actions that a row of the projection mixes; 0 mixes all inputs.

    Rows of few inputs resolve those finely, and cells that depend on few inputs are met again in
    states that differ elsewhere. Each row draws its own.
    """
    linear: bool = False
    """Whether action and memory are features as they are, beside the grids."""
    linear_observations: bool = False
    """Whether observations are such features as well."""
    linear_gain: float = 1.0
    """What these features are multiplied by: their ridge is ``ridge / linear_gain^2``.

    A linear part of few weights needs less of a ridge than thousands of cells, and is what a model
    knows of states that it has not seen.
    """
    degree: int = 1
    """Observations and actions multiplied with each other at the most, as features of their own.

    Moments and forces are products of few sines, velocities and actions.
    """
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
    outlier_penalty: float = 0.0
    """How much less a transition counts that changes more than usual; 0 lets all count the same.

    Where observations change by ``m > 1`` times what is usual (root mean square), the weight is
    ``1 / (1 + outlier_penalty (m^2 - 1))``. A few collisions then do not drown the small motions
    that balancing is made of.
    """
    worlds: int = 1
    """Worlds that are told apart when the world changes; 1 never forgets (`forgetting.py`)."""
    surprise: float = 150.0
    """Sum of surprising errors from which on the world has changed; for `worlds` above 1."""
    fading: float = 0.95
    """What a surprising step leaves of the evidence about its cells; for `worlds` above 1."""
    clip: bool = True
    """Keep predictions inside the observation space."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of statistics, weights and predictions."""
    seen_range: float | None = None
    """How far imagined observations may leave the range of those seen, in widths of that range.

    None sets no limit. A model that is wrong where it has seen nothing cannot diverge then.
    """
    warm_up: int = 200
    """Transitions that fix the scale of unbounded inputs, before any is learned; see `refit`."""
    refit: int = 0
    """Transitions in which the scale of unbounded inputs is fitted again and again.

    Learning begins with the first of them. Whenever their number has doubled the scale is fitted,
    and if it has changed, all are learned again, some of them in each step (relearning.py). 0 fits
    it once, after `warm_up` transitions.
    """
    intervals: bool = False
    """Whether errors are counted, so that predictions can be given with bounds (`interval`).

    Weights and predictions are the same; learning takes about a tenth longer.
    """
    max_memory_gb: float | None = None
    """Refuse to learn before the statistics outgrow this; none for no limit."""

    def __post_init__(self) -> None:
        limits = {"features": (1, MAX_CELLS), "bins": (2, MAX_CELLS), "grid_dim": (1, MAX_GRID_DIM)}
        for name, (least, most) in limits.items():
            check_whole(name, getattr(self, name), least, most)
        cells = self.features * self.bins**self.grid_dim
        check_whole("number of cells (features * bins ** grid_dim)", cells, 1, MAX_CELLS)
        check_whole("local_inputs", self.local_inputs, 1)
        check_whole("solve_every", self.solve_every, 0)
        check_whole("worlds", self.worlds, 1, 10)
        check_positive("surprise", self.surprise)
        check_number("fading", self.fading, 0.1, 1.0)
        check_whole("warm_up", self.warm_up, 2)
        for name in ("refit", "row_inputs"):
            check_whole(name, getattr(self, name), 0)
        check_whole("degree", self.degree, 1, 4)
        check_number("outlier_penalty", self.outlier_penalty, 0.0, 1e6)
        if self.degree > 1 and not self.linear_observations:
            raise InvalidInputError("degree above 1 needs linear and linear_observations as well")
        for name in ("ridge", "observation_gain", "action_gain", "local_gain", "linear_gain"):
            check_positive(name, getattr(self, name))
        if self.seen_range is not None:
            check_number("seen_range", self.seen_range, 0.0, 1e6)
        if self.linear_observations and not self.linear:
            raise InvalidInputError("linear_observations needs linear as well")
        if self.row_inputs and self.local_grids:
            raise InvalidInputError("row_inputs and local_grids exclude each other; set one to 0")
        check_number("local_grids", self.local_grids, 0.0, 1.0)
        check_number("local_reach", self.local_reach, 0.0, 1e6)
        if self.update not in ("active", "exact"):
            raise InvalidInputError(f"update must be one of active, exact; got {self.update!r}")
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
        novelty: bool = False,
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
            novelty=novelty,
        )
