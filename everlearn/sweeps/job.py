"""One run as a unit of work, the same in a process of this machine and in a task of a cluster."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from everlearn.runs.config import RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.progress import Screen
from everlearn.support.checks import check_positive, check_whole
from everlearn.support.errors import EverlearnError
from everlearn.support.lock import FolderInUseError
from everlearn.sweeps.storage import open_place

LONGEST = 2_000
"""Characters of an error that are passed on."""

End = Literal["finished", "stopped", "busy", "crashed", "failed"]


@dataclass(frozen=True)
class Job:
    """A run to be done.

    Attributes
    ----------
    name
        What tables and log files call it.
    config
        What to run; its number of threads is decided, since the bits depend on it.
    place
        Where it is kept: a folder, or a URL of shared storage.
    """

    name: str
    config: RunConfig
    place: str

    def to_json(self) -> str:
        """Return the job as one line that `from_json` reads back to an equal one."""
        return json.dumps({"name": self.name, "config": self.config.to_json(), "place": self.place})

    @classmethod
    def from_json(cls, text: str) -> Job:
        """Read what `to_json` wrote."""
        values = json.loads(text)
        return cls(values["name"], RunConfig.from_json(values["config"]), values["place"])


@dataclass(frozen=True)
class Resources:
    """What one run takes.

    Attributes
    ----------
    threads
        Threads to compute with, each on a processor of its own.
    memory_gb
        Memory that it may need; None leaves memory out of account.
    """

    threads: int = 1
    memory_gb: float | None = None

    def __post_init__(self) -> None:
        check_whole("threads", self.threads, 1)
        if self.memory_gb is not None:
            check_positive("memory_gb", self.memory_gb)


@dataclass(frozen=True)
class Outcome:
    """How one attempt at a job ended.

    Attributes
    ----------
    end
        ``finished``; ``stopped`` by a signal, with a snapshot; ``busy``: another process has
        the run; ``crashed``: the process or its node is gone; ``failed``: it said no, and
        would again.
    text
        What happened, in a line.
    """

    end: End
    text: str = ""


def run_job(job: Job) -> Outcome:
    """Run a job where it is kept, from its last snapshot on, and say how that ended."""
    screen = Screen(quiet=True)
    try:
        with open_place(job.place).working_folder(screen.message) as (folder, listeners):
            result = execute(job.config, folder, listeners=[screen, *listeners])
    except FolderInUseError as error:
        return Outcome("busy", str(error))
    except EverlearnError as error:
        return Outcome("failed", str(error)[:LONGEST])
    except Exception as error:  # a mistake in one agent must not end the sweep; it is listed
        traceback.print_exc()
        return Outcome("failed", _told(error))
    return Outcome("finished") if result.finished else Outcome("stopped")


def _told(error: Exception) -> str:
    """Say what went wrong and where, in a line."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {str(error)[:LONGEST]}{where}"
