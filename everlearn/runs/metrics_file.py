"""The metrics of a run: one JSON object a line, written by runs and read by results.

Needs nothing but the standard library, so that results can be read where no simulator is.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everlearn.support.errors import DamagedFileError, EverlearnError

CONFIG, METRICS, ENVIRONMENT = "config.json", "metrics.jsonl", "environment.json"
CHECKPOINTS, TRANSITIONS, EVENTS = "checkpoints", "transitions", "tensorboard"
SINGLE = "single"
"""Folder below a run with the runs of each task alone, which may be there before it."""

Notify = Callable[[str], None]


Line = dict[str, Any]

MAX_WHOLE = 2**53
"""Above it, whole numbers are no longer exact everywhere that JSON is read."""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WHOLE


def _number(value: object) -> bool:
    if value is None:  # what a line does not know
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def _rate(value: object) -> bool:
    return value is not None and _number(value) and 0 <= value <= 1  # type: ignore[operator]


def _word(value: object) -> bool:
    return isinstance(value, str)


def _flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


_PLACE: dict[str, Callable[[object], bool]] = {"episode": _whole, "step": _whole, "task": _word}
_REQUIRED: dict[str, dict[str, Callable[[object], bool]]] = {
    # A world that measures returns has no success: null, and `mean_return` in evaluations.
    "episode": {**_PLACE, "success": _flag, "length": _whole},
    "eval": _PLACE,
    "model": _PLACE,
}
_OPTIONAL: dict[str, Callable[[object], bool]] = {"kind": _word, "success_rate": _rate}
KINDS = tuple(_REQUIRED)


def parse_lines(content: bytes, source: str) -> tuple[list[Line], list[int]]:
    """Read metrics; what follows the last end of a line is left out.

    Parameters
    ----------
    content
        Of the file.
    source
        Its name, for messages.

    Returns
    -------
    lines, ends
        The lines, and for each the number of bytes up to its end.

    Raises
    ------
    DamagedFileError
        A line is not what was written; the message names it.
    """
    lines: list[Line] = []
    ends: list[int] = []
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        line = _parsed(content[start:end])
        if line is None:
            raise DamagedFileError(
                f"line {len(lines) + 1} of {source} is damaged: "
                f"{content[start : min(end, start + 60)]!r}; restore the file from a copy, or "
                "start over with --fresh. Nothing was changed"
            )
        start = end + 1
        lines.append(line)
        ends.append(start)
    return lines, ends


def _parsed(text: bytes) -> Line | None:
    """Return a line, or None if it is none that a run writes."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested deeper than any line
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    required = _REQUIRED.get(line["kind"])
    if required is None or not all(name in line for name in required):
        return None
    if line["kind"] == "eval" and not ("success_rate" in line or "mean_return" in line):
        return None
    for name, value in line.items():
        fits = required.get(name) or _OPTIONAL.get(name, _number)
        if not fits(value):
            return None
    return line


class StorageError(EverlearnError, OSError):
    """The disk refused: full, read-only or gone; what had been written is still there."""


@contextmanager
def storing(what: str) -> Iterator[None]:
    """Turn what the system says about a failed write into a sentence."""
    try:
        yield
    except EverlearnError:
        raise
    except OSError as error:
        raise StorageError(
            f"could not write {what}: {error.strerror or error}; nothing written before was lost. "
            "Make room or choose a folder that can be written, then give the same command again"
        ) from error


class MetricsLog:
    """The metrics file, open for appending.

    Parameters
    ----------
    path
        Of the file.
    offset
        Where to go on: what lies behind is cut off, since the run computes it again.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        with storing(str(path)):
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            os.ftruncate(self._descriptor, offset)
            self._digest = hashlib.sha256(path.read_bytes())
        self.offset = offset

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the file."""
        return self._digest.hexdigest()

    def append(self, lines: list[Line]) -> None:
        """Append lines; if the disk refuses, none of them is there afterwards."""
        text = "".join(
            json.dumps(line, separators=(",", ":"), allow_nan=False) + "\n" for line in lines
        )
        content = text.encode()
        rest = memoryview(content)
        try:
            with storing(str(self.path)):
                while rest:
                    rest = rest[os.write(self._descriptor, rest) :]
        except StorageError:
            os.ftruncate(self._descriptor, self.offset)
            raise
        self.offset += len(content)
        self._digest.update(content)

    def sync(self) -> None:
        """Bring everything to the disk, before a snapshot refers to it."""
        with storing(str(self.path)):
            os.fsync(self._descriptor)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


def read_lines(path: Path, notify: Notify | None = None) -> tuple[list[Line], list[int]]:
    """Read a metrics file.

    A last line without its end is what a crash leaves: it is left out, and `notify` is told.

    Returns
    -------
    lines, ends
        The lines, and for each the number of bytes up to its end.

    Raises
    ------
    DamagedFileError
        Another line is not what was written; the message names it and the file is untouched.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return [], []
    lines, ends = parse_lines(content, str(path))
    if notify is not None and len(content) > (ends[-1] if ends else 0):
        notify(f"line {len(lines) + 1} of {path.name} was cut short by a crash and is dropped")
    return lines, ends


def snapshot_names(folder: Path) -> list[str]:
    """Names of the snapshots in the folder of a run's snapshots, oldest first."""
    if not folder.is_dir():
        return []
    return sorted(
        item.name for item in folder.iterdir() if item.is_dir() and item.name[0].isdigit()
    )


def snapshot_name(episode: int, evaluated: bool) -> str:
    """Name of the snapshot after `episode` training episodes; names sort by time."""
    return f"{episode:06d}-{'2-evaluated' if evaluated else '1-trained'}"
