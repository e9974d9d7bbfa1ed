"""The metrics of a run: one JSON object a line, written by runs and read by results.

Needs nothing but the standard library, so that results can be read where no simulator is.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from everlearn.support.errors import DamagedFileError, EverlearnError
from everlearn.support.files import exists, is_folder, open_file, readable

CONFIG, METRICS, ENVIRONMENT = "config.json", "metrics.jsonl", "environment.json"
VARIANTS = "variants.json"
"""What other ways to evaluate the agent of a finished run gave (`evaluate_variants`)."""

STRUCTURE = "structure.json"
"""What the agent of a run found about its world, at the last switch of tasks or at the end."""

CUT = "metrics.cut.jsonl"
"""Lines that a resumed run cut off its metrics, because it computes them again."""

CHECKPOINTS, TRANSITIONS, EVENTS = "checkpoints", "transitions", "tensorboard"
SINGLE = "single"
"""Folder below a run with the runs of each task alone, which may be there before it."""

COVERAGE_SHARES = (0.5, 0.8, 0.9, 0.95)
"""Shares that bounds of predictions are meant to hold, where it is measured what they hold."""

COVERAGE_STEPS = (1, 15)
"""Steps ahead at which that is measured."""

_SNAPSHOT = re.compile(r"[0-9]{6,12}-(?:1-trained|2-evaluated)")

Notify = Callable[[str], None]


Line = dict[str, Any]

MAX_WHOLE = 2**53
"""Above it, whole numbers are no longer exact everywhere that JSON is read."""

MAX_NUMBER = 1e100
"""Above it, the squares of numbers are no longer finite; such a number is not known (null)."""

MAX_LINE, MAX_BYTES = 1 << 16, 1 << 26
"""Bytes of a line, and of all lines of a run: hundreds of thousands of episodes."""

MAX_WORD = 1000
"""Characters of a word, as of a name in a config."""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WHOLE


def _number(value: object) -> bool:
    if value is None:  # what a line does not know
        return True
    if isinstance(value, int):
        return not isinstance(value, bool) and -MAX_WHOLE <= value <= MAX_WHOLE
    return isinstance(value, float) and -MAX_NUMBER <= value <= MAX_NUMBER


def _rate(value: object) -> bool:
    return value is not None and _number(value) and 0 <= value <= 1  # type: ignore[operator]


def is_word(value: object) -> bool:
    """Whether it is a name that lines may hold."""
    return isinstance(value, str) and len(value) <= MAX_WORD and value.isprintable()


def _flag(value: object) -> bool:
    return value is None or isinstance(value, bool)


_PLACE: dict[str, Callable[[object], bool]] = {"episode": _whole, "step": _whole, "task": is_word}
_REQUIRED: dict[str, dict[str, Callable[[object], bool]]] = {
    # A world that measures returns has no success: null, and `mean_return` in evaluations.
    "episode": {**_PLACE, "success": _flag, "length": _whole},
    "eval": _PLACE,
    "model": _PLACE,
}
_OPTIONAL: dict[str, Callable[[object], bool]] = {
    "kind": is_word,
    "success_rate": _rate,
    "goal": is_word,
}
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
    return _collected(iter_lines(io.BytesIO(content), source))


def iter_lines(file: BinaryIO, source: str) -> Iterator[tuple[Line, int]]:
    """Give the lines of metrics with the bytes up to their ends, as `parse_lines` reads them.

    No more than a line is held at a time, and no more than `MAX_BYTES` are read.
    """
    end = number = 0
    while raw := file.readline(MAX_LINE + 1):
        number += 1
        if not raw.endswith(b"\n") and len(raw) <= MAX_LINE:
            return  # it is being written, or was when its process died
        line = _parsed(raw) if len(raw) <= MAX_LINE else None
        if line is None:
            raise DamagedFileError(
                f"line {number} of {source} is damaged: {raw[:60]!r}; restore the file from a "
                "copy, or start over with --fresh. Nothing was changed"
            )
        end += len(raw)
        if end > MAX_BYTES:
            raise _too_long(source)
        yield line, end


def _collected(found: Iterator[tuple[Line, int]]) -> tuple[list[Line], list[int]]:
    lines: list[Line] = []
    ends: list[int] = []
    for line, end in found:
        lines.append(line)
        ends.append(end)
    return lines, ends


def _too_long(source: object) -> DamagedFileError:
    return DamagedFileError(
        f"{source} is larger than the {MAX_BYTES:,} bytes that metrics may have; restore the file "
        "from a copy"
    )


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
        Where to go on: what lies behind is moved to `CUT`, since the run computes it again.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path = path
        with storing(str(path)):
            self._descriptor = open_file(path, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            content = _content(self._descriptor)
            if rest := content[offset:]:
                _append(path.with_name(CUT), rest if rest.endswith(b"\n") else rest + b"\n")
                os.ftruncate(self._descriptor, offset)
            self._digest = hashlib.sha256(content[:offset])
        self.offset = offset

    @property
    def digest(self) -> str:
        """SHA-256 of everything in the file."""
        return self._digest.hexdigest()

    def append(self, lines: list[Line]) -> None:
        """Append lines; if the disk refuses, none of them is there afterwards."""
        text = "".join(
            json.dumps(_known(line), separators=(",", ":"), allow_nan=False) + "\n"
            for line in lines
        )
        content = text.encode()
        if self.offset + len(content) > MAX_BYTES:
            raise StorageError(
                f"{self.path} would be larger than the {MAX_BYTES:,} bytes that metrics may have; "
                "start another run, with fewer episodes"
            )
        try:
            with storing(str(self.path)):
                _write(self._descriptor, content)
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


def _known(line: Line) -> Line:
    """Return a line without numbers beyond all measure, which are not known instead."""
    return {
        name: None if isinstance(value, float) and not _number(value) else value
        for name, value in line.items()
    }


def _write(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def _append(path: Path, content: bytes) -> None:
    """Append to a file, on the disk before this returns."""
    descriptor = open_file(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        _write(descriptor, content)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _content(descriptor: int) -> bytes:
    """Return all of a metrics file."""
    with os.fdopen(os.dup(descriptor), "rb") as file:
        file.seek(0)
        content = file.read(MAX_BYTES + MAX_LINE + 1)
    if len(content) > MAX_BYTES + MAX_LINE:
        raise _too_long(METRICS)
    return content


@contextmanager
def open_lines(path: Path) -> Iterator[Iterator[tuple[Line, int]]]:
    """Give the lines of a metrics file one by one; see `iter_lines`. No file, no lines."""
    try:
        with readable(path):
            descriptor = open_file(path)
    except FileNotFoundError:
        yield iter(())
        return
    with os.fdopen(descriptor, "rb") as file:
        if os.fstat(descriptor).st_size > MAX_BYTES + MAX_LINE:
            raise _too_long(path)
        with readable(path):
            yield iter_lines(file, str(path))


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
    with open_lines(path) as found:
        lines, ends = _collected(found)
    if notify is not None and exists(path) and path.stat().st_size > (ends[-1] if ends else 0):
        notify(f"line {len(lines) + 1} of {path.name} was cut short by a crash and is dropped")
    return lines, ends


def coverage_name(share: float, steps: int) -> str:
    """Name in ``model`` lines of what bounds hold that are meant to hold `share`, steps ahead."""
    ahead = "one_step" if steps == 1 else f"{steps}_steps"
    return f"coverage_{round(100 * share)}_{ahead}"


def snapshot_names(folder: Path) -> list[str]:
    """Names of the snapshots in the folder of a run's snapshots, oldest first."""
    if not is_folder(folder):
        return []
    with readable(folder):
        names = [item.name for item in folder.iterdir() if is_folder(item)]
    return sorted(name for name in names if _SNAPSHOT.fullmatch(name))


def snapshot_name(episode: int, evaluated: bool) -> str:
    """Name of the snapshot after `episode` training episodes; names sort by time."""
    return f"{episode:06d}-{'2-evaluated' if evaluated else '1-trained'}"
