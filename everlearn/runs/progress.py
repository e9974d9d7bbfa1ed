"""What a person sees while a run goes on: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import Line
from everlearn.support.terminal import error_console, printable

LOG_EVERY = 20
"""Evaluation episodes between two lines of a log."""


class Standing:
    """How a run stands, from its lines: pure bookkeeping without a screen."""

    def __init__(self, config: RunConfig) -> None:
        self.config = config
        self.episodes = self.steps = 0
        self.task = config.tasks[0]
        self.scores: dict[str, list[float]] = {task: [] for task in config.tasks}
        self.evaluated: dict[str, float] = {}
        self._evaluated_after = 0

    def take(self, line: Line) -> None:
        """Take in a line of the metrics."""
        if line["kind"] == "episode":
            self.episodes, self.steps, self.task = line["episode"], line["step"], line["task"]
            score = line["success"] if self.config.measures_success else line["return"]
            self.scores.setdefault(self.task, []).append(float(score))
        elif line["kind"] == "eval":
            self.evaluated[line["task"]] = evaluated_score(line)
            self._evaluated_after = line["episode"]

    @property
    def regret(self) -> float | None:
        """Share of training episodes so far that were not solved; None where returns count."""
        if not self.episodes or not self.config.measures_success:
            return None
        return 1 - sum(map(sum, self.scores.values())) / self.episodes

    @property
    def average_performance(self) -> float | None:
        """AP at the last evaluation: of the tasks seen by then."""
        seen = schedule.seen_tasks(self.config, self._evaluated_after)
        scores = [self.evaluated[task] for task in seen if task in self.evaluated]
        return sum(scores) / len(scores) if scores else None

    @property
    def next_task(self) -> str:
        """Task of the episode that comes now."""
        position = schedule.position(self.config, min(self.episodes, self.config.episodes - 1))
        return self.config.tasks[position.entry]


def evaluated_score(line: Line) -> float:
    """Return the success rate, or the mean return, of an ``eval`` line."""
    return float(line["success_rate"] if "success_rate" in line else line["mean_return"])


class Display(ABC):
    """A live table on a terminal, plain lines elsewhere.

    Parameters
    ----------
    console
        Where to.
    quiet
        Show messages only.
    """

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        self.console = error_console() if console is None else console
        self.quiet = quiet
        self._live: Live | None = None

    @abstractmethod
    def _render(self) -> Group:
        """Return the table as it is now."""

    def message(self, text: str) -> None:
        """Show a message, above the table."""
        self.console.print(printable(text), markup=False, highlight=False, soft_wrap=True)

    def end(self) -> None:
        """Leave the last table on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _start(self) -> None:
        if not self.quiet and self.console.is_terminal:
            self._live = Live(
                console=self.console, get_renderable=self._render, refresh_per_second=2
            )
            self._live.start()

    def _plain(self, text: str) -> None:
        """Show a line where there is no table."""
        if not self.quiet and self._live is None:
            self.message(text)


class Screen(Display, Listener):
    """Shows a run; parameters as for `Display`."""

    def __init__(self, console: Console | None = None, quiet: bool = False) -> None:
        super().__init__(console, quiet)
        self._evaluations = 0
        self._evaluation: tuple[str, int, int] | None = None
        self._training_seconds = 0.0

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        """Show where the run starts or goes on."""
        self._folder, self._standing = folder, Standing(config)
        for line in lines:
            self._standing.take(line)
        self._began = time.monotonic()
        self._steps_before, self._episodes_before = self._standing.steps, self._standing.episodes
        self._evaluations, self._training_seconds = 0, 0.0
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            console=self.console,
        )
        self._job = self._bar.add_task(
            "episodes", total=config.episodes, completed=self._standing.episodes
        )
        self._start()

    def line(self, line: Line) -> None:
        """Show an episode, or the end of an evaluation."""
        self._standing.take(line)
        self._evaluation = None
        if line["kind"] == "episode":
            self._training_seconds += line.get("seconds") or 0.0
            self._bar.update(self._job, completed=line["episode"])
            self._plain(
                f"episode {line['episode']}/{self._standing.config.episodes} {line['task']}: "
                f"{_outcome(line)} in {line['length']} steps; {self._summary()}"
            )
        elif line["kind"] == "eval":
            self._plain(
                f"evaluation after episode {line['episode']}: {line['task']} "
                f"{evaluated_score(line):.2f} over {line['episodes']} episodes"
            )

    def evaluated(self, task: str, score: float) -> None:
        """Show how far an evaluation has come."""
        self._evaluations += 1
        config, after = self._standing.config, self._standing.episodes
        tasks = len(schedule.evaluated_tasks(config, after))
        total = schedule.evaluation_episodes(config, after) * tasks
        done = 1 if self._evaluation is None else self._evaluation[1] + 1
        self._evaluation = (task, done, total)
        # On a terminal the bar shows it; in a log, a line now and then will do.
        if done == 1 or done % LOG_EVERY == 0:
            self._plain(f"evaluating after episode {after}: {done} of {total} episodes")

    def _summary(self) -> str:
        return ", ".join(
            (
                *self._measures(),
                f"{self._speed():.0f} steps/s",
                f"{duration(self._left())} left",
            )
        )

    def _measures(self) -> tuple[str, ...]:
        standing = self._standing
        if not standing.config.measures_success:
            return (f"return {shown(standing.average_performance)}",)
        return f"AP {shown(standing.average_performance)}", f"regret {shown(standing.regret)}"

    def _speed(self) -> float:
        """Return the steps a second of the training episodes of this process."""
        return (self._standing.steps - self._steps_before) / max(1e-9, self._training_seconds)

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _left(self) -> float | None:
        """Seconds left, from the mean time of an episode so far, trained or evaluated."""
        standing, config = self._standing, self._standing.config
        done = standing.episodes - self._episodes_before + self._evaluations
        left = config.episodes - standing.episodes
        left += schedule.evaluation_total(config, standing.episodes + 1)
        return self._elapsed() / done * left if done else None

    def _render(self) -> Group:
        standing = self._standing
        label = standing.next_task
        if self._evaluation is not None:
            task, done, total = self._evaluation
            label = f"evaluating {task} ({done} of {total} episodes)"
        self._bar.update(self._job, description=label)
        measure = "solved" if standing.config.measures_success else "return"
        table = Table("task", "episodes", measure, "last 10", "evaluated", box=None)
        for task, scores in standing.scores.items():
            evaluated = shown(standing.evaluated.get(task))
            name, count = Text(printable(task)), str(len(scores))  # a name is text, not markup
            table.add_row(name, count, _mean(scores), _mean(scores[-10:]), evaluated)
        title = Text(printable(f"{self._folder}: {self._summary()}"))
        return Group(title, table, self._bar)


def _outcome(line: Line) -> str:
    if line["success"] is None:
        return f"return {line['return']:.1f}"
    return "solved" if line["success"] else "not solved"


def _mean(scores: list[float]) -> str:
    return f"{sum(scores) / len(scores):.2f}" if scores else "-"


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
