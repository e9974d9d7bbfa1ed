"""One file for arrays and facts: atomic, checksummed, versioned, and never pickled.

Layout: 8 bytes of magic, 8 of the header's length (little-endian), the header (JSON: kind,
version, facts, and name, type and shape of every array), its SHA-256, the arrays one after
another in C order, and the SHA-256 of everything before. A flipped or missing byte anywhere
fails one of the two.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.files import open_file, readable, reading, replacing

MAGIC = b"\x89EVLARN\n"
DIGEST_SIZE = hashlib.sha256().digest_size
CHUNK = 1 << 24
"""Bytes written, read and checksummed at a time."""

PLAIN_KINDS = "biufcSU"
"""Kinds of NumPy types that are plain bytes; objects would need pickle."""

PLAIN_TYPE = re.compile(rf"[<>|=]?[{PLAIN_KINDS}][1-9]\d{{0,5}}")
MAX_AXES, MAX_LENGTH = 16, 2**40


def save_archive(
    path: str | Path,
    kind: str,
    version: int,
    arrays: Mapping[str, npt.NDArray[Any]],
    meta: Mapping[str, Any],
) -> None:
    """Write arrays and facts to `path`, all or nothing, as `files.replacing` does.

    Parameters
    ----------
    path
        Where to; its folder must exist.
    kind
        What the file holds; `load_archive` must ask for the same.
    version
        Version of that kind's content.
    arrays
        Arrays of plain numbers or text by name; they are streamed, not copied.
    meta
        Facts that JSON can hold.
    """
    path = Path(path)
    for name, array in arrays.items():
        if array.dtype.kind not in PLAIN_KINDS:
            raise InvalidInputError(
                f"array {name!r} has type {array.dtype}; expected plain numbers"
            )
    entries = [
        {"name": name, "dtype": array.dtype.str, "shape": list(array.shape)}
        for name, array in arrays.items()
    ]
    try:
        header = json.dumps(
            {"kind": kind, "version": version, "meta": dict(meta), "arrays": entries}
        ).encode()
    except (TypeError, ValueError) as error:
        raise InvalidInputError(f"facts of an archive must be JSON: {error}") from error
    with replacing(path) as file:
        _write(file, header, arrays)
    sync_folder(path.parent)


def load_archive(
    path: str | Path, kind: str, version: int, *, limit: int | None = None
) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Read what `save_archive` wrote.

    Parameters
    ----------
    path
        The file. With a `limit` it is one of a run's folder, where links are refused.
    kind, version
        What it must hold, and the newest version of that which the caller reads.
    limit
        Most bytes that it may have; None allows as many as fit into memory.

    Returns
    -------
    arrays, meta
        As they were saved.

    Raises
    ------
    FileNotFoundError
        Nothing is at `path`.
    DamagedFileError
        The file is truncated, altered, foreign, of another kind, or newer than `version`.
    """
    path = Path(path)
    with readable(path), os.fdopen(open_file(path, follow=limit is None), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        # Before anything of that size is made: a file may have holes and cost nothing.
        if size > (largest := memory_bytes() if limit is None else limit):
            raise DamagedFileError(
                f"{path} has {size:,} bytes, more than the {largest:,} that can be read; use "
                "another copy, or a machine with more memory"
            )
        digest = hashlib.sha256()
        header = _read_header(file, path, size, digest)
        if header["kind"] != kind:
            raise DamagedFileError(
                f"{path} holds a {header['kind']!r}, not a {kind!r}; give the file of a {kind!r}"
            )
        if header["version"] > version:
            raise DamagedFileError(
                f"{path} has version {header['version']} of {kind!r}, this everlearn reads up to "
                f"{version}; install a newer everlearn"
            )
        entries = _entries(header["arrays"], path)
        content = sum(dtype.itemsize * math.prod(shape) for _, dtype, shape in entries)
        if file.tell() + content + DIGEST_SIZE != size:
            raise _damaged(path, f"{size} bytes long instead of {file.tell() + content + 32}")
        arrays = {}
        for name, dtype, shape in entries:
            with reading(path, "archive"):
                array = np.empty(shape, dtype)
            for chunk in _chunks(array):
                if file.readinto(chunk) != len(chunk):
                    raise _damaged(path, f"cut short inside {name!r}")
                digest.update(chunk)
            arrays[name] = array
        if file.read(DIGEST_SIZE) != digest.digest():
            raise _damaged(path, "its checksum does not match")
    return arrays, header["meta"]


def memory_bytes() -> int:
    """Bytes of memory that this process can have at most."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    try:
        import resource  # not on Windows

        limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    except ImportError:
        return total
    return total if limit == resource.RLIM_INFINITY else min(total, limit)


def _damaged(path: Path, what: str) -> DamagedFileError:
    return DamagedFileError(f"{path} is damaged ({what}); use another copy or an earlier snapshot")


def _write(file: BinaryIO, header: bytes, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    digest = hashlib.sha256()

    def put(data: Any) -> None:
        file.write(data)
        digest.update(data)

    put(MAGIC)
    put(len(header).to_bytes(8, "little"))
    put(header)
    put(digest.digest())
    for array in arrays.values():
        for part in _contiguous_parts(array):
            for chunk in _chunks(part):
                put(chunk)
    file.write(digest.digest())


def _read_header(file: BinaryIO, path: Path, size: int, digest: Any) -> dict[str, Any]:
    start = file.read(16)
    if len(start) < 16 or start[:8] != MAGIC:
        if MAGIC.startswith(start[:8]):
            raise _damaged(path, "cut short")
        raise DamagedFileError(f"{path} is not a file of everlearn; give one that it saved")
    length = int.from_bytes(start[8:], "little")
    if 16 + length + 2 * DIGEST_SIZE > size:
        raise _damaged(path, "cut short in its header")
    raw = file.read(length)
    digest.update(start)
    digest.update(raw)
    expected = digest.digest()
    if file.read(DIGEST_SIZE) != expected:
        raise _damaged(path, "the checksum of its header does not match")
    digest.update(expected)
    # A checksum says that this was written, not by whom.
    with reading(path, "archive"):
        header = json.loads(raw)
        found = [type(header[name]) for name in ("kind", "version", "meta", "arrays")]
        if found != [str, int, dict, list]:
            raise ValueError(f"its header has {found}")
        return dict(header)


def _entries(arrays: list[Any], path: Path) -> list[tuple[str, np.dtype[Any], tuple[int, ...]]]:
    """Names, types and shapes of the arrays in a file; only such as hold plain bytes."""
    found = []
    with reading(path, "archive"):
        for entry in arrays:
            name, code, shape = entry["name"], entry["dtype"], entry["shape"]
            if not isinstance(name, str) or not PLAIN_TYPE.fullmatch(code):
                raise ValueError(f"array {name!r} has type {code!r}")
            if len(shape) > MAX_AXES or any(
                type(length) is not int or not 0 <= length < MAX_LENGTH for length in shape
            ):
                raise ValueError(f"array {name!r} has shape {shape}")
            found.append((name, np.dtype(code), tuple(shape)))
        if len({name for name, _, _ in found}) != len(found):
            raise ValueError("two of its arrays have one name")
    return found


def check_arrays(
    arrays: Mapping[str, npt.NDArray[Any]], expected: Mapping[str, tuple[str, tuple[int, ...]]]
) -> None:
    """Refuse a state whose arrays are not the expected ones.

    Parameters
    ----------
    arrays
        What was given, by name.
    expected
        For each name the kinds of NumPy types that will do, and the shape.
    """
    if set(arrays) != set(expected):
        odd = sorted(set(arrays) ^ set(expected))
        raise InvalidInputError(f"a state has arrays that do not belong or are missing: {odd[:5]}")
    for name, (kinds, shape) in expected.items():
        array = arrays[name]
        if array.dtype.kind not in kinds or array.shape != shape:
            raise InvalidInputError(
                f"{name!r} of a state is {array.dtype} of shape {array.shape}; expected a type of "
                f"kind {kinds!r} and shape {shape}"
            )


def part_of(arrays: Mapping[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
    """Arrays whose names begin with `prefix`, by the rest of their names."""
    return {name[len(prefix) :]: array for name, array in arrays.items() if name.startswith(prefix)}


def _contiguous_parts(array: npt.NDArray[Any]) -> Iterator[npt.NDArray[Any]]:
    """`array` itself, or, if it is a strided view, copies of a few rows at a time."""
    if array.flags.c_contiguous:
        yield array
        return
    rows = max(1, CHUNK // max(1, array.itemsize * math.prod(array.shape[1:])))
    for first in range(0, len(array), rows):
        yield np.ascontiguousarray(array[first : first + rows])


def _chunks(array: npt.NDArray[Any]) -> Iterator[memoryview]:
    """Give the bytes of a C-ordered array, without copying, `CHUNK` at a time."""
    flat = array.reshape(-1).view(np.uint8) if array.size and array.itemsize else None
    if flat is not None:
        for first in range(0, len(flat), CHUNK):
            yield flat[first : first + CHUNK].data


def sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system lets one open folders."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
