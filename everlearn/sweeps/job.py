"""One run as a unit of work, the same in a process of this machine and in a task of a cluster.

Importing this is light: what a run needs is imported when a job runs, so that a worker can report
an import that fails.
"""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from everlearn.registry import load_plugins
from everlearn.runs.config import RunConfig
from everlearn.runs.schedule import is_complete
from everlearn.support.checks import check_positive, check_whole
from everlearn.support.errors import DamagedFileError, EverlearnError
from everlearn.support.lock import FolderInUseError

MAX_MESSAGE, MAX_TRACEBACK = 2_000, 20_000
"""Characters of an error's message, and of the end of its traceback, that are passed on."""

End = Literal["finished", "stopped", "busy", "crashed", "failed"]


@dataclass(frozen=True)
class Job:
    """One run of a sweep: its config, and where its folder goes."""

    name: str
    """What tables and log files call it."""
    config: RunConfig
    """What to run; its number of threads is decided, since the bits depend on it."""
    location: str
    """Where it is stored: a folder, or a URL of shared storage."""

    def log(self, folder: Path) -> Path:
        """Return the job's log file in the folder of a sweep's logs."""
        return folder / f"{self.name.replace('/', '-')}.log"

    def to_json(self) -> str:
        """Return the job as one line that `from_json` reads back to an equal one."""
        values = {"name": self.name, "config": self.config.to_json(), "location": self.location}
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(values["name"], RunConfig.from_json(values["config"]), values["location"])


@dataclass(frozen=True)
class Resources:
    """Processors and memory that one run may use."""

    threads: int = 1
    """Threads to compute with, each on a processor of its own."""
    memory_gb: float | None = None
    """Memory that it may need; None leaves memory out of account."""

    def __post_init__(self) -> None:
        check_whole("threads", self.threads, 1)
        if self.memory_gb is not None:
            check_positive("memory_gb", self.memory_gb)


@dataclass(frozen=True)
class Outcome:
    """How one attempt at a job ended."""

    end: End
    """``finished``; ``stopped`` by a signal, with a snapshot; ``busy``: another process has the
    run; ``crashed``: the process or its node is gone, and another attempt may succeed;
    ``failed``: an error that another attempt would meet again."""
    text: str = ""
    """What happened, in a line."""
    traceback: str = ""
    """Of the error, for a log."""


def run_job(job: Job) -> Outcome:
    """Run a job where it is stored, from its last snapshot on, and say how that ended.

    An exception of the user's agent, world or module never gets out: it is a failure with its
    message, and the other runs of the sweep go on.
    """
    try:
        load_plugins(job.config.imports)
        return _run(job)
    except FolderInUseError as error:
        return Outcome("busy", str(error))
    except (Exception, SystemExit) as error:
        return failure(error)


def _run(job: Job) -> Outcome:
    from everlearn.runs.loop import execute
    from everlearn.runs.progress import Screen
    from everlearn.sweeps.storage import open_storage

    if is_finished(job):  # by another sweep in the meantime; its metrics are not touched
        return Outcome("finished")
    screen = Screen(quiet=True)
    with open_storage(job.location).working_folder(screen.message) as (folder, listeners):
        result = execute(job.config, folder, listeners=[screen, *listeners])
    return Outcome("finished" if result.finished else "stopped")


def failure(error: BaseException) -> Outcome:
    """Return the outcome of a job that `error` ended."""
    message = str(error)[:MAX_MESSAGE]
    if not isinstance(error, EverlearnError):  # those are sentences; others need their context
        frames = traceback.extract_tb(error.__traceback__)
        line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
        message = f"{type(error).__name__}: {message}{line}"
    lines = traceback.format_exception(type(error), error, error.__traceback__)
    return Outcome("failed", message, "".join(lines)[-MAX_TRACEBACK:])


def is_finished(job: Job) -> bool:
    """Whether a run is done.

    The snapshot at its end says so. Without any snapshots, as in a copy that was made without
    them, complete metrics do.
    """
    from everlearn.results.read import is_last
    from everlearn.sweeps.storage import open_storage

    storage = open_storage(job.location)
    snapshots = storage.snapshots()
    if snapshots:
        return is_last(snapshots, job.config)
    try:
        return is_complete(job.config, storage.metrics())
    except DamagedFileError:
        return False  # which the run itself reports, without stopping the other runs
