"""One process at a time in a run's folder; the system frees the lock when the process dies."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from everlearn.support.errors import NotReadyError
from everlearn.support.files import open_file

NAME = ".lock"


class FolderInUseError(NotReadyError):
    """Another process is running in the folder; once it ends, this one can."""


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run's folder, or say that another process does."""
    descriptor = open_file(folder / NAME, os.O_RDWR | os.O_CREAT)
    try:
        if not _take_soon(descriptor):
            raise FolderInUseError(
                f"another process is running in {folder}; wait for it, stop it, or choose "
                "another folder"
            )
        yield
    finally:
        os.close(descriptor)  # which also gives the lock back


def is_locked(folder: Path) -> bool:
    """Whether a process is running in the folder; reads only."""
    try:
        descriptor = open_file(folder / NAME, os.O_RDWR)
    except OSError:  # no lock, or none that this user or a run could have taken
        return False
    try:
        return not _take(descriptor)
    finally:
        os.close(descriptor)


def _take_soon(descriptor: int) -> bool:
    """Try a few times: `is_locked` holds the lock for a moment."""
    for _ in range(3):
        if _take(descriptor):
            return True
        time.sleep(0.05)
    return False


def _take(descriptor: int) -> bool:
    if os.name == "nt":
        import msvcrt

        take = lambda: msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]  # noqa: E731
    else:
        import fcntl

        take = lambda: fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # noqa: E731
    try:
        take()
    except (BlockingIOError, PermissionError):  # what the systems say when it is taken
        return False
    return True
