"""Perfect memory: all data, for ever; what a network could know at best, at a growing cost."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from everlearn.deep.strategies.base import Strategy
from everlearn.deep.strategies.storage import Storage


@dataclass(frozen=True)
class PerfectMemory(Strategy):
    """Keep everything; not told of boundaries."""

    name: ClassVar[str] = "perfect-memory"
    boundary_aware: ClassVar[bool] = False

    def storage(self, widths: Mapping[str, int], seed: int | np.random.SeedSequence = 0) -> Storage:
        """Return an empty storage that grows for ever."""
        return Storage(widths, seed)
