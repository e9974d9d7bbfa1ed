"""Where a run is kept: a folder that every worker sees, or a URL of shared storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Protocol

from everlearn.runs import snapshots
from everlearn.runs.config import RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import CHECKPOINTS, CONFIG, METRICS, Line, Notify, read_lines
from everlearn.support.lock import is_locked

WorkingFolder = AbstractContextManager[tuple[Path, list[Listener]]]


class Place(Protocol):
    """What a sweep asks of the place of a run."""

    patience: float
    """Seconds between two looks at it."""

    def config(self) -> RunConfig | None:
        """Return the config of the run that is there; None if none is."""
        ...

    def snapshots(self) -> list[str]:
        """Names of its snapshots, oldest first."""
        ...

    def running(self) -> bool | None:
        """Whether a process is running there; None if the place cannot tell."""
        ...

    def stamp(self) -> object:
        """Return something that changes when the metrics do; None if there are none."""
        ...

    def lines(self) -> list[Line]:
        """Read the metrics."""
        ...

    def working_folder(self, notify: Notify) -> WorkingFolder:
        """Give the folder to run in, and who must hear of the run for it to be kept."""
        ...


def is_url(place: str) -> bool:
    """Whether a place is a URL of shared storage."""
    return "://" in place


def open_place(place: str) -> Place:
    """Return the place of that name; nothing is created."""
    if is_url(place):
        from everlearn.sweeps.mirror import Mirror

        return Mirror(place)
    return Folder(Path(place))


def join(place: str, *names: str) -> str:
    """Return a place inside another."""
    if is_url(place):
        return "/".join([place.rstrip("/"), *names])
    return str(Path(place, *names))


class Folder:
    """A folder of this machine or of a file system that all machines share."""

    patience = 0.5

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> RunConfig | None:
        """Return the config of the run that is there; None if none is."""
        file = self.path / CONFIG
        return RunConfig.read(file) if file.exists() else None

    def snapshots(self) -> list[str]:
        """Names of its snapshots, oldest first."""
        return snapshots.names(self.path / CHECKPOINTS)

    def running(self) -> bool:
        """Whether a process is running there."""
        return is_locked(self.path)

    def stamp(self) -> object:
        """Size and time of the metrics file."""
        try:
            status = (self.path / METRICS).stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def lines(self) -> list[Line]:
        """Read the metrics."""
        return read_lines(self.path / METRICS)[0]

    @contextmanager
    def working_folder(self, notify: Notify) -> Iterator[tuple[Path, list[Listener]]]:
        """Run in the folder itself."""
        yield self.path, []
