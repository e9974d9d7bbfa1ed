"""The numbers of the paper's table, in percent, for the agents that it has.

Seven seeds, six tasks, 100 episodes each: comparable with runs of the preset ``paper`` only.
"""

from __future__ import annotations

from typing import NamedTuple


class PaperScore(NamedTuple):
    """A row of the table."""

    average_performance: float
    regret: float


SEEDS, EPISODES_PER_TASK = 7, 100

SCORES = {
    "sac-finetune": PaperScore(0.69, 67.68),
    "sac-ewc": PaperScore(31.45, 77.38),
    "sac-packnet": PaperScore(41.72, 78.50),
    "sac-coreset": PaperScore(37.31, 77.97),
    "sac-perfect-memory": PaperScore(41.51, 77.58),
    "mlp-finetune": PaperScore(24.86, 37.74),
    "mlp-si": PaperScore(39.96, 33.57),
    "mlp-coreset": PaperScore(61.83, 30.83),
    "mlp-perfect-memory": PaperScore(73.09, 30.95),
    "oa": PaperScore(72.93, 27.62),
    "oa-paper": PaperScore(72.93, 27.62),
}
"""By the name of our agent; the paper has no EWC and no PackNet with a world model."""
