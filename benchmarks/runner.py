"""What the runner adds to plan + step + learn, measured inside one and the same run."""

from __future__ import annotations

import io
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from benchmarks.common import Row
from everlearn.interfaces import Agent
from everlearn.runs import loop as run
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import Line
from everlearn.runs.progress import Screen
from everlearn.worlds import Environments

CONFIG = RunConfig(
    agent="oa",
    tasks=("button-press",),
    episodes_per_task=3,
    max_steps=150,
    evaluation=EvaluationSchedule(0, 0, 0, 0),
)


class Parts:
    """Adds up the seconds spent inside the agent and the environment."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def timed(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*args: Any, **options: Any) -> Any:
            began = time.perf_counter()
            result = call(*args, **options)
            self.seconds += time.perf_counter() - began
            return result

        return inside

    def make(self, config: RunConfig) -> tuple[Environments, Agent, Any]:
        environments, agent, settings = make(config)
        env = environments.of(config.tasks[0])
        for owner, names in ((env, ("reset", "step")), (agent, ("act", "observe"))):
            for name in names:
                setattr(owner, name, self.timed(getattr(owner, name)))
        return environments, agent, settings


make = run.make


class Clock(Listener):
    """Times a run from its start to its last line: everything but the last snapshot."""

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        self.began = time.perf_counter()

    def line(self, line: Line) -> None:
        self.seconds = time.perf_counter() - self.began


def measure() -> list[Row]:
    """The loop with screen, transitions and metrics; a ratio of 0.97 is an addition of 3 %."""
    parts, clock = Parts(), Clock()
    screen = Screen(Console(file=io.StringIO()))
    with tempfile.TemporaryDirectory() as folder, mock.patch.object(run, "make", parts.make):
        result = run.execute(CONFIG, Path(folder) / "run", listeners=[screen, clock])
    return [
        Row(
            name="training of oa, per step",
            ours="everlearn run",
            ours_seconds=clock.seconds / result.state.step,
            reference="its plan + step + learn alone",
            reference_seconds=parts.seconds / result.state.step,
            at_least=0.97,
            limit="its plan",
        )
    ]


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row.name}: {1e3 * row.ours_seconds:.3f} ms, {row.reference}: "
            f"{1e3 * row.reference_seconds:.3f} ms, ratio {row.ratio:.4f}"
        )
