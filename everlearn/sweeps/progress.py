"""What a person sees of a sweep: a live table of all runs on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Group
from rich.table import Table
from rich.text import Text

from everlearn.runs.progress import Display, Standing, duration, shown
from everlearn.support.errors import EverlearnError
from everlearn.support.terminal import printable
from everlearn.sweeps.job import Job
from everlearn.sweeps.storage import open_storage

STYLES = {"finished": "green", "failed": "red", "running": "cyan"}


class SweepProgress(Display):
    """Shows a sweep; parameters as for `Display`."""

    _rows: dict[str, _Row]

    @contextmanager
    def during(self, jobs: Sequence[Job]) -> Iterator[None]:
        """Show `jobs` within."""
        self._rows = {job.name: _Row(job) for job in jobs}
        self._began = time.monotonic()
        for row in self._rows.values():
            row.read_metrics()
        self._episodes_before = self._episodes()
        self._start()
        try:
            yield
        finally:
            self.end()

    def update(self, job: Job, state: str, text: str = "") -> None:
        """Show the new state of a run."""
        row = self._rows[job.name]
        if (row.state, row.text) == (state, text):
            return
        row.state, row.text = state, text
        if state != "waiting":
            self._plain(f"{job.name}: {state}{f' ({text})' if text else ''}; {self._counts()}")

    def refresh(self) -> None:
        """Read the metrics of the runs that go on."""
        if self._live is not None:
            for row in self._rows.values():
                if row.state == "running":
                    row.read_metrics()

    def _counts(self) -> str:
        states = Counter(row.state for row in self._rows.values())
        return ", ".join(f"{count} {state}" for state, count in sorted(states.items()))

    def _episodes(self) -> int:
        return sum(row.standing.episodes for row in self._rows.values())

    def _seconds_left(self) -> float | None:
        """Estimate from the pace of this sweep so far."""
        done = self._episodes() - self._episodes_before
        total = sum(row.job.config.episodes for row in self._rows.values())
        elapsed = time.monotonic() - self._began
        return elapsed / done * (total - self._episodes()) if done else None

    def _render(self) -> Group:
        table = Table("run", "state", "episodes", "task", "evaluated", "regret", "note", box=None)
        for name, row in self._rows.items():
            standing, style = row.standing, STYLES.get(row.state, "")
            table.add_row(
                Text(printable(name)),
                Text(row.state, style),
                f"{standing.episodes}/{row.job.config.episodes}",
                Text(printable(standing.next_task)),
                shown(standing.average_performance),
                shown(standing.regret),
                Text(printable(row.text[:60])),  # an error is text, not markup
            )
        return Group(table, Text(f"{self._counts()}; {duration(self._seconds_left())} left"))


class _Row:
    """One run of the table, read from its own metrics."""

    def __init__(self, job: Job) -> None:
        self.job, self.state, self.text = job, "waiting", ""
        self.standing = Standing(job.config)
        self._storage = open_storage(job.location)
        self._version: object = None
        self._next_read = 0.0

    def read_metrics(self) -> None:
        """Read the metrics again if they have changed."""
        now = time.monotonic()
        if now < self._next_read:
            return
        self._next_read = now + self._storage.poll_seconds
        version = self._storage.metrics_version()
        if version is None or version == self._version:
            return
        try:
            lines = self._storage.metrics()
            # The stored config knows whether the world measures success or return.
            config = self._storage.config() or self.job.config
        except (EverlearnError, OSError):
            return  # the run itself reports damaged files; the table goes on
        self._version, self.standing = version, Standing(config)
        for line in lines:
            self.standing.take(line)
