"""Throughput of a sweep: two workers with a pinned core each against one on one core."""

from __future__ import annotations

import io
import tempfile
import time
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks.common import Row
from everlearn.support.processes import processors
from everlearn.sweeps.grid import sweep_jobs
from everlearn.sweeps.job import Job, Resources
from everlearn.sweeps.launch import launch
from everlearn.sweeps.local import Pool
from everlearn.sweeps.progress import SweepProgress

RUNS = 6
"""Runs of a sweep; a multiple of two, so that both workers end together."""

ROUNDS = 3


def seconds_per_run(folder: Path, workers: int, runs: int = RUNS) -> float:
    """Seconds for each of `runs` smoke runs of oa, processes started and ended included."""
    jobs: list[Job] = sweep_jobs(["oa"], range(runs), str(folder), preset="smoke")
    pool = Pool(folder / "logs", Resources(threads=1), workers)
    board = SweepProgress(Console(file=io.StringIO()), quiet=True)
    began = time.perf_counter()
    result = launch(jobs, jobs, pool, board)
    seconds = time.perf_counter() - began
    if len(result.finished) != runs:
        raise RuntimeError(f"not all runs finished: {result}")
    return seconds / runs


def measure() -> list[Row]:
    """One worker and two take turns, after a run that compiles and warms; medians count."""
    if len(processors()) < 2:
        return []
    samples: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as place:
        seconds_per_run(Path(place) / "warm-up", 1, runs=1)
        for number in range(ROUNDS):
            for workers, found in samples.items():
                found.append(seconds_per_run(Path(place) / f"{number}-{workers}", workers))
    return [
        Row(
            name="sweep of smoke runs of oa, per run",
            ours="two workers, one pinned core each",
            ours_seconds=float(np.median(samples[2])),
            reference="one worker on one core",
            reference_seconds=float(np.median(samples[1])),
            at_least=1.8,
            limit="processors",
        )
    ]


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row.name}: {row.ours} {row.ours_seconds:.3f} s, {row.reference} "
            f"{row.reference_seconds:.3f} s, {row.ratio:.2f} times the throughput"
        )
