"""The numbers of the paper's table, in percent, and where they may stand beside ours.

Seven seeds, six tasks, 100 episodes each of up to 500 steps: comparable with agents that have the
paper's settings, run with the paper's budget, and with nothing else.
"""

from __future__ import annotations

from typing import NamedTuple

from everlearn.results.methods import Method, Protocol
from everlearn.runs.config import PAPER_TASKS


class PaperScore(NamedTuple):
    """A row of the table."""

    average_performance: float
    regret: float


SEEDS = 7
PROTOCOL = Protocol(
    world="continual-bench",
    measure="success",
    tasks=PAPER_TASKS,
    episodes_per_task=100,
    max_steps=500,
    reset_noise=0.0,
)

SCORES = {
    "oa-paper": PaperScore(72.93, 27.62),
    "mlp-paper-finetune": PaperScore(24.86, 37.74),
    "mlp-paper-si": PaperScore(39.96, 33.57),
    "mlp-paper-coreset": PaperScore(61.83, 30.83),
    "mlp-paper-perfect-memory": PaperScore(73.09, 30.95),
    "sac-finetune": PaperScore(0.69, 67.68),
    "sac-ewc": PaperScore(31.45, 77.38),
    "sac-packnet": PaperScore(41.72, 78.50),
    "sac-coreset": PaperScore(37.31, 77.97),
    "sac-perfect-memory": PaperScore(41.51, 77.58),
}
"""By the agent of ours that has the paper's settings: `oa` and `mlp-*` have others."""


def paper_score(method: Method, protocol: Protocol) -> PaperScore | None:
    """Return the paper's row for a method, None if the paper did not run this."""
    if protocol != PROTOCOL or method.varied:
        return None
    return SCORES.get(method.agent)
