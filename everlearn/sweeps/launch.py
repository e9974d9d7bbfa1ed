"""Many runs: each started, watched, started again after a crash, and accounted for at the end.

A run that crashes, with its process or its node, is started again and goes on from its last
snapshot, for as long as it gets further; one that crashes again and again at the same place has
failed, and so has one that says no. Nothing of this is written down beside the runs' own files:
the same sweep again skips what is finished and goes on with the rest.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from everlearn.runs.metrics_file import storing
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.lock import locked
from everlearn.support.signals import stop_on_signals
from everlearn.sweeps.grid import is_finished, unfinished
from everlearn.sweeps.job import Job, Outcome, Resources
from everlearn.sweeps.local import Pool
from everlearn.sweeps.progress import Board
from everlearn.sweeps.ray import RayCluster
from everlearn.sweeps.storage import is_url, open_place

POLL = 0.5
"""Seconds between two looks at the signals and the table."""

DELAY = 2.0
"""Seconds before a run that crashed, or that another process has, is tried again."""


class Backend(Protocol):
    """What runs jobs: `pool.Pool` on this machine, `cluster.RayCluster` on many."""

    def submit(self, job: Job) -> None:
        """Take a job, to be started as soon as there is room."""
        ...

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Give what has ended, waiting for so long if nothing has."""
        ...

    def running(self, job: Job) -> bool:
        """Whether a job is at work."""
        ...

    def stop(self) -> None:
        """Ask for an end after the episodes at hand; what waits is not started any more."""
        ...

    def close(self) -> None:
        """End what still runs, at once."""
        ...


@dataclass
class SweepResult:
    """How a sweep ended.

    Attributes
    ----------
    finished
        Names of the runs that are done, those of earlier sweeps included.
    failed
        Errors of those that failed, by name.
    restarts
        How often runs were started again after a crash.
    stopped_by
        The signal that ended the sweep early, if one did.
    """

    finished: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    restarts: int = 0
    stopped_by: int | None = None


def run_sweep(
    jobs: Sequence[Job],
    out: str,
    resources: Resources,
    board: Board,
    *,
    ray: str | None = None,
    workers: int | None = None,
    retries: int = 5,
) -> SweepResult:
    """Run what is not finished of a sweep, to the end or until a signal comes.

    Parameters
    ----------
    jobs, out
        The runs, and the folder or URL that holds them all.
    resources
        What each run takes.
    board
        Who shows them.
    ray
        Address of a Ray cluster; None runs them on this machine.
    workers
        Runs at a time on this machine; None takes as many as there is room for.
    retries
        Crashes in a row without a new snapshot after which a run has failed.

    Raises
    ------
    InvalidInputError
        Settings contradict each other or what is in `out`; nothing was changed.
    FolderInUseError
        Another sweep is running in the folder.
    """
    if ray is not None and workers is not None:
        raise InvalidInputError(
            f"both ray={ray!r} and workers={workers} were given; a cluster has its own number "
            "of workers, so leave that out"
        )
    check_whole("retries", retries, 0)
    unfinished(jobs)
    with ExitStack() as held:
        if not is_url(out):
            with storing(out):
                Path(out).mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(Path(out)))
        todo = unfinished(jobs)  # again: now no other sweep can change it
        backend: Backend
        if ray is not None:
            backend = RayCluster(ray, resources)
        else:
            logs = Path("logs") if is_url(out) else Path(out) / "logs"
            backend = Pool(logs, resources, workers)
        return launch(jobs, todo, backend, board, retries)


def launch(
    jobs: Sequence[Job], todo: Sequence[Job], backend: Backend, board: Board, retries: int = 5
) -> SweepResult:
    """Run `todo`, all of `jobs` that are not finished; see `run_sweep`."""
    with stop_on_signals() as stop, closing(backend), board.during(jobs):
        sweep = _Sweep(backend, board, retries)
        left = {job.name for job in todo}
        for job in jobs:
            sweep.begin(job, job.name in left)
        while sweep.open and stop.number is None:
            sweep.go_on()
        if sweep.open:
            board.message("stopping after the episodes at hand; a second signal stops at once")
            sweep.stop()
        sweep.result.stopped_by = stop.number
        return sweep.result


class _Sweep:
    """The jobs that are still open, and what became of the others."""

    def __init__(self, backend: Backend, board: Board, retries: int) -> None:
        self.backend, self.board, self.retries = backend, board, retries
        self.result = SweepResult()
        self.open: dict[str, Job] = {}
        self._later: list[tuple[float, Job]] = []
        self._crashes: dict[str, tuple[list[str], int]] = {}

    def begin(self, job: Job, todo: bool) -> None:
        """Hand a job over, unless it is done."""
        if not todo:
            self.result.finished.append(job.name)
            self.board.tell(job, "finished", "before")
            return
        self.open[job.name] = job
        self.board.tell(job, "waiting")
        self.backend.submit(job)

    def go_on(self) -> None:
        """Look at what has ended, and start again what is due."""
        for job, outcome in self.backend.wait(POLL):
            self._take(job, outcome)
        now = time.monotonic()
        for due, job in list(self._later):
            if due <= now:
                self._later.remove((due, job))
                self.backend.submit(job)
        for job in self.open.values():
            if self.backend.running(job):
                self.board.tell(job, "running")
        self.board.refresh()

    def stop(self) -> None:
        """Have everything end at its next snapshot, and wait for that."""
        self._later.clear()
        self.backend.stop()
        waiting = {name for name, job in self.open.items() if not self.backend.running(job)}
        for name in waiting:
            self.board.tell(self.open.pop(name), "stopped")
        while self.open:
            for job, outcome in self.backend.wait(POLL):
                if outcome.end in ("crashed", "busy"):
                    outcome = Outcome("stopped", outcome.text)
                self._take(job, outcome)
            self.board.refresh()

    def _take(self, job: Job, outcome: Outcome) -> None:
        """Decide what follows from how an attempt ended."""
        if job.name not in self.open:
            return
        if outcome.end == "busy":
            self.board.tell(job, "busy", outcome.text)
            self._again(job)
        elif outcome.end == "crashed" and self._may_try_again(job):
            self.result.restarts += 1
            self.board.tell(job, "restarting", outcome.text)
            self._again(job)
        elif outcome.end == "finished" and is_finished(job):
            self._end(job, "finished")
            self.result.finished.append(job.name)
        elif outcome.end == "stopped":
            self._end(job, "stopped")
        else:
            self._end(job, "failed", self._error(job, outcome))
            self.result.failed[job.name] = self._error(job, outcome)

    def _error(self, job: Job, outcome: Outcome) -> str:
        if outcome.end == "finished":
            return (
                f"it finished, but nothing of it is at {job.place} here; give --out a folder "
                "that all machines share, or a URL"
            )
        if outcome.end == "crashed":
            return f"{outcome.text} (crashed {self.retries + 1} times without getting further)"
        return outcome.text

    def _end(self, job: Job, state: str, text: str = "") -> None:
        del self.open[job.name]
        self.board.tell(job, state, text)

    def _again(self, job: Job) -> None:
        self._later.append((time.monotonic() + DELAY, job))

    def _may_try_again(self, job: Job) -> bool:
        """Count a crash; getting further in between makes it the first again."""
        now = open_place(job.place).snapshots()
        before, count = self._crashes.get(job.name, ([], 0))
        count = count + 1 if now == before else 1
        self._crashes[job.name] = (now, count)
        return count <= self.retries
