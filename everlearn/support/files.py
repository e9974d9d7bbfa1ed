"""The files of a run's folder: one way to open, to read and to write them.

Such a folder may come from somebody else. A link in it may lead anywhere, a pipe keeps a reader
waiting, a device never ends, and a file may be larger than memory. So whatever lies in it is opened
here: regular files and real folders only, with a limit on what is read.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from everlearn.support.errors import DamagedFileError, EverlearnError

RECORD_LIMIT = 1 << 22
"""Bytes of a JSON file that is read as a record, such as a config."""

_SORTS = (
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class ForeignFileError(DamagedFileError):
    """Something lies in a run's folder that no run puts there: a link, a pipe, a device."""


def exists(path: Path) -> bool:
    """Whether anything has that name, also a link that leads nowhere."""
    return os.path.lexists(path)


def is_file(path: Path) -> bool:
    """Whether a regular file has that name; a link to one does not count."""
    return _has_mode(path, stat.S_ISREG)


def is_folder(path: Path) -> bool:
    """Whether a folder has that name; a link to one does not count."""
    return _has_mode(path, stat.S_ISDIR)


def _has_mode(path: Path, test: Any) -> bool:
    try:
        return bool(test(path.lstat().st_mode))
    except OSError:  # nothing there, or nothing that can be looked at
        return False


def check_file(path: Path) -> None:
    """Refuse anything but a regular file; what is not there is fine."""
    _check(path, stat.S_ISREG, "file")


def check_folder(path: Path) -> None:
    """Refuse anything but a real folder; what is not there is fine."""
    _check(path, stat.S_ISDIR, "folder")


def _check(path: Path, test: Any, expected: str) -> None:
    if exists(path) and not _has_mode(path, test):
        raise _foreign(path, path.lstat().st_mode, expected)


def _foreign(path: Path, mode: int, expected: str = "file") -> ForeignFileError:
    found = next((words for test, words in _SORTS if test(mode)), "a file")
    return ForeignFileError(
        f"{path} is {found}; expected a {'regular file' if expected == 'file' else 'real folder'}. "
        "Replace it by a copy of what it stands for, or remove it"
    )


def open_file(path: Path, flags: int = os.O_RDONLY, *, follow: bool = False) -> int:
    """Open a regular file and return its descriptor.

    Parameters
    ----------
    path
        Of the file.
    flags
        As `os.open` takes them.
    follow
        Follow a link at the end of `path`, which a user gave; in a run's folder links are refused.

    Raises
    ------
    ForeignFileError
        It is a link, a folder, a pipe, a socket or a device.
    OSError
        What the system says: there is none, or it cannot be opened.
    """
    if not follow:
        check_file(path)  # before it is opened: some devices act on that
    elif path.exists() and not path.is_file():
        raise _foreign(path, path.stat().st_mode)
    # Not on all systems; nor does a pipe that comes in between keep anybody waiting.
    guards = getattr(os, "O_NONBLOCK", 0) | (0 if follow else getattr(os, "O_NOFOLLOW", 0))
    descriptor = os.open(path, flags | guards, 0o644)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise _foreign(path, mode)
    return descriptor


def read_file(path: Path, limit: int, *, follow: bool = False) -> bytes:
    """Read a regular file of at most `limit` bytes; `follow` as for `open_file`.

    Raises
    ------
    FileNotFoundError
        There is none.
    DamagedFileError
        It is larger, it is no regular file, or it cannot be read.
    """
    with readable(path), os.fdopen(open_file(path, follow=follow), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        content = b"" if size > limit else file.read(limit + 1)
        if max(size, len(content)) > limit:
            raise DamagedFileError(
                f"{path} is larger than the {limit:,} bytes that such a file may have; restore it "
                "from a copy"
            )
        return content


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Within, what the system says of a file that cannot be read becomes a sentence."""
    try:
        yield
    except (EverlearnError, FileNotFoundError):
        raise
    except OSError as error:
        raise DamagedFileError(
            f"{path} cannot be read: {error.strerror or error}; check its permissions and its disk"
        ) from error


@contextmanager
def reading(path: str | Path, what: str) -> Iterator[None]:
    """Within, whatever foreign content trips over becomes a `DamagedFileError`.

    Everything read from a file is data that somebody else may have written. Errors of this
    package pass through.

    Parameters
    ----------
    path
        What is read, for the message.
    what
        What it should hold, for the message.
    """
    try:
        yield
    except EverlearnError:
        raise
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        MemoryError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise DamagedFileError(
            f"{path} holds no usable {what} ({type(error).__name__}: {error}); use another copy"
        ) from error


def parse_record(content: bytes | str, source: object) -> dict[str, Any]:
    """Read a JSON object of plain values: numbers that are numbers, text that can be written.

    Raises
    ------
    DamagedFileError
        It is anything else; the message names `source`.
    """
    try:
        record = json.loads(
            content, parse_constant=_refused, parse_float=_finite, parse_int=_bounded
        )
        json.dumps(record, ensure_ascii=False).encode()  # halves of surrogate pairs are no text
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{source} is not JSON: {error}") from error
    if not isinstance(record, dict):
        raise DamagedFileError(f"{source} is {type(record).__name__}; expected an object")
    return record


def read_record(path: Path, *, follow: bool = False) -> dict[str, Any]:
    """Read a file that holds one JSON object; see `parse_record` and `read_file`."""
    return parse_record(read_file(path, RECORD_LIMIT, follow=follow), path)


def _refused(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text[:30]} is no finite number")
    return number


def _bounded(text: str) -> int:
    if len(text) > 20 or not -(2**63) <= (number := int(text)) < 2**64:
        raise ValueError(f"{text[:30]} is larger than any whole number of 64 bits")
    return number


def write_text(path: Path, text: str) -> None:
    """Write a small file, all or nothing; unchanged content is not written again.

    A link of that name is replaced; what it leads to is not touched.
    """
    # Names of files need not be text; a page shows their bytes.
    content = text.encode(errors="backslashreplace")
    if is_file(path) and path.stat().st_size == len(content) and path.read_bytes() == content:
        return
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Give a file to write that takes the place of `path` when complete, all or nothing.

    It is written beside `path` and renamed; if anything fails before that, what was at `path` is
    still there, untouched.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that died left half-written or half-removed: ``.*.tmp``."""
    if not is_folder(folder):
        return
    for left in folder.glob(".*.tmp"):
        if is_folder(left):
            shutil.rmtree(left)
        elif is_file(left):
            left.unlink()
