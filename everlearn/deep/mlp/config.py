"""Settings of the deep world model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy.typing as npt
from gymnasium import spaces

from everlearn.deep.strategies import STRATEGIES, PerfectMemory
from everlearn.interfaces import Bodies
from everlearn.support.checks import check_number, check_positive, check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.settings import part
from everlearn.world_model.memory import Memory

if TYPE_CHECKING:
    from everlearn.deep.mlp.model import MLPWorldModel


@dataclass(frozen=True)
class MLPConfig:
    """Settings of an `MLPWorldModel`; the defaults are the paper's where it says them."""

    hidden: int = 200
    """Width of the hidden layers."""
    layers: int = 4
    """Number of the hidden layers."""
    learning_rate: float = 4e-4
    """Learning rate of Adam."""
    batch: int = 256
    """Rows of a minibatch."""
    train_every: int = 250
    """Transitions between trainings."""
    holdout: float = 0.05
    """Share of the transitions that are held out, evenly spread."""
    training_patience: int = 5
    """Epochs without improvement on the holdout that end a training."""
    improvement: float = 0.0
    """Relative decrease of the holdout loss that counts as an improvement; 0 takes any."""
    normalise_over: Literal["seen", "kept"] = "seen"
    """Data that inputs and targets are normalised by: all ``seen``, or what is ``kept``.

    Of everything ever seen only the moments are kept.
    """
    clip: bool = True
    """Keep predictions inside the observation space."""
    strategy: Any = part(STRATEGIES, PerfectMemory())
    """What data is kept, and how the network is protected from forgetting."""

    given: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "batch", "training_patience"):
            check_whole(name, getattr(self, name), 1)
        # At least 2, one of which is held out.
        check_whole("train_every", self.train_every, 2)
        check_positive("learning_rate", self.learning_rate)
        for name in ("holdout", "improvement"):
            check_number(name, getattr(self, name), 0.0, 0.999)
        if self.normalise_over not in ("seen", "kept"):
            raise InvalidInputError(
                f"normalise_over is {self.normalise_over!r}; expected 'seen' or 'kept'"
            )

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
    ) -> MLPWorldModel:
        """Make the model; it has no use for `bodies`."""
        from everlearn.deep.mlp.model import MLPWorldModel

        return MLPWorldModel(
            observation_space,
            action_space,
            self,
            seed=seed,
            threads=threads,
            memory=memory,
            still=still,
        )
