"""How long `everlearn report` takes for 200 runs of the paper's length: ten methods, 20 seeds."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from everlearn.report import read_report, write_report
from tests.report.synthetic import write_sweep

AGENTS = (
    *("oa", "oa-paper", "mlp-finetune", "mlp-ewc", "mlp-si", "mlp-packnet", "mlp-coreset"),
    *("mlp-perfect-memory", "sac-finetune", "sac-ewc"),
)
SEEDS, LONGEST = 20, 30.0
"""How many, and how many seconds a report may take."""


def seconds_for(agents: tuple[str, ...] = AGENTS, seeds: int = SEEDS) -> tuple[float, float]:
    """Seconds of wall time and of the processor, from folders never read before to the page."""
    with tempfile.TemporaryDirectory() as place:
        runs = write_sweep(Path(place) / "runs", agents, range(seeds), "paper")
        began, worked = time.perf_counter(), time.process_time()
        write_report(read_report([runs]), Path(place) / "report")
        return time.perf_counter() - began, time.process_time() - worked


if __name__ == "__main__":
    wall, worked = seconds_for()
    print(
        f"report on {len(AGENTS) * SEEDS} runs of 600 episodes: {wall:.1f} s, of which the "
        f"processor worked {worked:.1f} s; at most {LONGEST:g} s are asked for"
    )
