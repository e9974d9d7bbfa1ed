"""What a person sees while a run goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import Line


class Standing:
    """How a run stands, from its lines: pure bookkeeping without a screen."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.episodes = self.steps = self.missed = 0
        self.task = config.tasks[0]
        self.solved: dict[str, list[bool]] = {task: [] for task in config.tasks}
        self.rates: dict[str, float] = {}

    def take(self, line: Line) -> None:
        """Take in a line of the metrics."""
        if line["kind"] == "episode":
            self.episodes, self.steps, self.task = line["episode"], line["step"], line["task"]
            self.solved.setdefault(self.task, []).append(line["success"])
            self.missed += not line["success"]
        elif line["kind"] == "eval":
            self.rates[line["task"]] = line["success_rate"]

    @property
    def regret(self) -> float | None:
        """Online regret so far."""
        return self.missed / self.episodes if self.episodes else None

    @property
    def average_performance(self) -> float | None:
        """AP at the last evaluation."""
        return sum(self.rates.values()) / len(self.rates) if self.rates else None

    @property
    def next_task(self) -> str:
        """Task of the episode that comes now."""
        place = schedule.position(self.config, min(self.episodes, self.config.episodes - 1))
        return self.config.tasks[place.entry]


class Screen(Listener):
    """Shows a run.

    Parameters
    ----------
    console
        Where to; a live table if it is a terminal, plain lines if not.
    quiet
        Show messages only.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = Console(stderr=True) if console is None else console
        self.quiet = quiet
        self._live: Live | None = None
        self._evaluations = 0
        self._evaluating: str | None = None

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        """Show where the run starts or goes on."""
        self._folder, self._standing = folder, Standing(config)
        for line in lines:
            self._standing.take(line)
        self._began = time.monotonic()
        self._steps_before, self._episodes_before = self._standing.steps, self._standing.episodes
        self._evaluations = 0
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            console=self.console,
        )
        self._job = self._bar.add_task(
            "episodes", total=config.episodes, completed=self._standing.episodes
        )
        if not self.quiet and self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._render, refresh_per_second=2
            )
            self._live.start()

    def line(self, line: Line) -> None:
        """Show an episode, or the end of an evaluation."""
        self._standing.take(line)
        self._evaluating = None
        if line["kind"] == "episode":
            self._bar.update(self._job, completed=line["episode"])
            self._plain(
                f"episode {line['episode']}/{self._standing.config.episodes} {line['task']}: "
                f"{'solved' if line['success'] else 'not solved'} in {line['length']} steps; "
                f"{self._facts()}"
            )
        elif line["kind"] == "eval":
            self._plain(
                f"evaluation after episode {line['episode']}: {line['task']} "
                f"{line['success_rate']:.2f} of {line['episodes']}"
            )

    def evaluated(self, task: str, success: bool) -> None:
        """Show that an evaluation goes on."""
        self._evaluations += 1
        self._evaluating = task

    def message(self, text: str) -> None:
        """Show a message, above the table."""
        self.console.print(text, markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Leave the last table on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _plain(self, text: str) -> None:
        if not self.quiet and self._live is None:
            self.message(text)

    def _facts(self) -> str:
        standing = self._standing
        return ", ".join(
            (
                f"AP {shown(standing.average_performance)}",
                f"regret {shown(standing.regret)}",
                f"{self._speed():.0f} steps/s",
                f"{duration(self._left())} left",
            )
        )

    def _speed(self) -> float:
        """Training steps a second of this process, evaluation time included."""
        return (self._standing.steps - self._steps_before) / max(1e-9, self._elapsed())

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _left(self) -> float | None:
        """Seconds left, from the mean time of an episode so far, trained or evaluated."""
        standing, config = self._standing, self._standing.config
        done = standing.episodes - self._episodes_before + self._evaluations
        left = config.episodes - standing.episodes
        left += schedule.evaluation_total(config, standing.episodes)
        return self._elapsed() / done * left if done else None

    def _render(self) -> Group:
        standing = self._standing
        now = f"evaluating {self._evaluating}" if self._evaluating else standing.next_task
        self._bar.update(self._job, description=now)
        table = Table("task", "episodes", "solved", "last 10", "evaluated", box=None)
        for task, flags in standing.solved.items():
            rate = standing.rates.get(task)
            table.add_row(task, str(len(flags)), _share(flags), _share(flags[-10:]), shown(rate))
        return Group(f"{self._folder}: {self._facts()}", table, self._bar)


def _share(flags: Iterable[bool]) -> str:
    found = list(flags)
    return f"{sum(found) / len(found):.2f}" if found else "-"


def shown(value: float | None) -> str:
    """Return a number as tables show it."""
    return "-" if value is None else f"{value:.2f}"


def duration(seconds: float | None) -> str:
    """Return seconds as hours, minutes and seconds."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"
