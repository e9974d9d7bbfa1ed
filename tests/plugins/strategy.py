"""A strategy of somebody else: one class and one line. It alone needs torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from everlearn.agents import mlp_agent, register_agent
from everlearn.deep.strategies import STRATEGIES
from everlearn.deep.strategies.base import Strategy
from everlearn.deep.strategies.storage import Reservoir


@dataclass(frozen=True)
class Half(Strategy):
    """Keep a sample of everything, and drop half of its room at each boundary."""

    rows: int = 64
    """Transitions kept."""

    name: ClassVar[str] = "half"

    def storage(self, widths: Any, seed: Any = 0) -> Reservoir:
        return Reservoir(widths, seed, capacity=self.rows)


STRATEGIES.register("half", Half)
register_agent("mlp-half", mlp_agent(Half(rows=32)))
