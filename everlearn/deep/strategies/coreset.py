"""Coreset: an even sample of everything seen, of a fixed size, by reservoir sampling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from everlearn.deep.strategies.base import Strategy
from everlearn.deep.strategies.storage import Reservoir, Storage
from everlearn.support.checks import check_whole


@dataclass(frozen=True)
class Coreset(Strategy):
    """Keep `capacity` transitions of all tasks; not told of boundaries."""

    capacity: int = 10_000
    """Transitions kept; the paper's 10 thousand."""

    name: ClassVar[str] = "coreset"
    boundary_aware: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_whole("capacity", self.capacity, 1)

    def storage(self, widths: Mapping[str, int], seed: int | np.random.SeedSequence = 0) -> Storage:
        """Return an empty reservoir."""
        return Reservoir(widths, seed, capacity=self.capacity)
