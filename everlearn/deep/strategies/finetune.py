"""Fine-tuning: the data of the current task, and nothing against forgetting.

The minimal baseline: the network is trained on one dataset after the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from everlearn.deep.strategies.base import Strategy


@dataclass(frozen=True)
class FineTuning(Strategy):
    """Keep the current task's data only; told of boundaries, where it drops them."""

    name: ClassVar[str] = "finetune"
