"""Runs all jobs of a sweep on a backend, and decides which are tried again.

A run whose process or node is lost is started again and resumes from its last snapshot, for as
long as it gets further. A run that crashes several times at the same snapshot has failed. So has,
at once, one that raises an error: the next attempt would raise it again. A sweep keeps no records
of its own beside the runs' files. The same sweep again skips finished runs and resumes the others.
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
from everlearn.sweeps.grid import unfinished
from everlearn.sweeps.job import Job, Outcome, Resources, is_finished
from everlearn.sweeps.local import Pool
from everlearn.sweeps.progress import SweepProgress
from everlearn.sweeps.ray import RayCluster
from everlearn.sweeps.storage import is_url, open_storage

POLL = 0.5
"""Seconds between two looks at signals and runs."""

RETRY_SECONDS = 2.0
"""Time before a run that crashed, or that another process has, is tried again."""


class Backend(Protocol):
    """What runs jobs: `local.Pool` on this machine, `ray.RayCluster` on many."""

    def submit(self, job: Job) -> None:
        """Take a job, to be started as soon as there is room."""
        ...

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that ended, after at most so many seconds."""
        ...

    def is_running(self, job: Job) -> bool:
        """Whether a worker has the job."""
        ...

    def stop(self) -> None:
        """Ask all runs to stop after the current episode; start no more."""
        ...

    def close(self) -> None:
        """End the runs that are left, at once."""
        ...


@dataclass
class SweepResult:
    """How a sweep ended."""

    finished: list[str] = field(default_factory=list)
    """Names of the finished runs, those of earlier sweeps included."""
    failed: dict[str, str] = field(default_factory=dict)
    """Errors of the failed runs, by name."""
    restarts: int = 0
    """How often runs were started again after a crash."""
    stopped_by: int | None = None
    """The signal that stopped the sweep, if one did."""


def run_sweep(
    jobs: Sequence[Job],
    out: str,
    resources: Resources,
    progress: SweepProgress,
    *,
    ray: str | None = None,
    workers: int | None = None,
    retries: int = 5,
) -> SweepResult:
    """Run the unfinished jobs of a sweep, to the end or until a signal comes.

    Parameters
    ----------
    jobs, out
        The runs, and the folder or URL that holds them all.
    resources
        What each run needs.
    progress
        Shows the runs.
    ray
        Address of a Ray cluster; None runs them on this machine.
    workers
        Runs at a time on this machine; None takes as many as there is room for.
    retries
        How often a run is started again after crashes without a new snapshot in between.

    Raises
    ------
    InvalidInputError
        Settings contradict each other or the runs in `out`; nothing was changed.
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
        logs = Path("logs") if is_url(out) else Path(out) / "logs"
        backend: Backend
        if ray is not None:
            backend = RayCluster(ray, logs, resources)
        else:
            backend = Pool(logs, resources, workers)
        return launch(jobs, todo, backend, progress, retries)


def launch(
    jobs: Sequence[Job],
    todo: Sequence[Job],
    backend: Backend,
    progress: SweepProgress,
    retries: int = 5,
) -> SweepResult:
    """Run `todo`, the unfinished ones of `jobs`; see `run_sweep`."""
    with stop_on_signals() as stop, closing(backend), progress.during(jobs):
        sweep = _Sweep(backend, progress, retries)
        unfinished_names = {job.name for job in todo}
        for job in jobs:
            sweep.add(job, job.name not in unfinished_names)
        while sweep.open and stop.number is None:
            sweep.poll()
        if sweep.open:
            progress.message("stopping after the current episodes; a second signal stops at once")
            sweep.stop()
        sweep.result.stopped_by = stop.number
        return sweep.result


class _Sweep:
    """The jobs that are still open, and the result of the others."""

    def __init__(self, backend: Backend, progress: SweepProgress, retries: int) -> None:
        self.backend, self.progress, self.retries = backend, progress, retries
        self.result = SweepResult()
        self.open: dict[str, Job] = {}
        self._stopping = False
        self._retry_at: list[tuple[float, Job]] = []
        self._crashes: dict[str, tuple[list[str], int]] = {}
        """Snapshots at a job's last crash, and how often it has crashed with these."""

    def add(self, job: Job, finished: bool) -> None:
        """Submit a job, unless it is finished."""
        if finished:
            self.result.finished.append(job.name)
            self.progress.update(job, "finished", "before")
            return
        self.open[job.name] = job
        self.progress.update(job, "waiting")
        self.backend.submit(job)

    def poll(self) -> None:
        """Handle the jobs that ended, and submit those whose retry is due."""
        for job, outcome in self.backend.wait(POLL):
            self._handle(job, outcome)
        now = time.monotonic()
        for due, job in list(self._retry_at):
            if due <= now:
                self._retry_at.remove((due, job))
                self.backend.submit(job)
        for job in self.open.values():
            if self.backend.is_running(job):
                self.progress.update(job, "running")
        self.progress.refresh()

    def stop(self) -> None:
        """Have all runs stop with a snapshot, and wait for them."""
        self._stopping = True
        self._retry_at.clear()
        self.backend.stop()
        waiting = [job for job in self.open.values() if not self.backend.is_running(job)]
        for job in waiting:
            self._close(job, "stopped")
        while self.open:
            for job, outcome in self.backend.wait(POLL):
                self._handle(job, outcome)
            self.progress.refresh()

    def _handle(self, job: Job, outcome: Outcome) -> None:
        """Decide what follows from how an attempt ended."""
        if job.name not in self.open:
            return
        if outcome.end == "finished" and is_finished(job):
            self.result.finished.append(job.name)
            self._close(job, "finished")
        elif self._stopping and outcome.end in ("stopped", "crashed", "busy"):
            self._close(job, "stopped", outcome.text)
        elif outcome.end == "busy":
            self.progress.update(job, "busy", outcome.text)
            self._retry_later(job)
        elif outcome.end in ("stopped", "crashed") and self._may_retry(job):
            # Nobody asked this sweep to stop: a signal that one worker gets is a lost worker.
            self.result.restarts += 1
            self.progress.update(job, "restarting", outcome.text or "stopped by a signal")
            self._retry_later(job)
        else:
            error = self._error(job, outcome)
            self.result.failed[job.name] = error
            self._close(job, "failed", error)

    def _error(self, job: Job, outcome: Outcome) -> str:
        if outcome.end == "finished":
            return (
                f"it finished, but {job.location} has no finished run on this machine; give "
                "--out a folder that all machines share, or a URL"
            )
        if outcome.end == "failed":
            return outcome.text
        text = outcome.text or "stopped by a signal"
        return f"{text} (crashed {self.retries + 1} times without getting further)"

    def _close(self, job: Job, state: str, text: str = "") -> None:
        del self.open[job.name]
        self.progress.update(job, state, text)

    def _retry_later(self, job: Job) -> None:
        self._retry_at.append((time.monotonic() + RETRY_SECONDS, job))

    def _may_retry(self, job: Job) -> bool:
        """Count a crash; a new snapshot since the last one makes it the first again."""
        now = open_storage(job.location).snapshots()
        before, count = self._crashes.get(job.name, ([], 0))
        count = count + 1 if now == before else 1
        self._crashes[job.name] = (now, count)
        return count <= self.retries
