"""Forged files: whole and checksummed, but by somebody who means no good."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from everlearn.support import archive
from tests.torture.length import some

Content = tuple[dict[str, Any], dict[str, Any]]

VALUES: list[Any] = [None, "x", -1, 10**30, 1.5, float("nan"), True, [], {}, [[0]], {"a": 1}]


def forged_arrays(array: Any) -> list[Any]:
    """The array in every way that it should not be."""
    flat = array.reshape(-1)
    wild: list[Any] = [array[None], flat, flat[: flat.size // 2], np.zeros(0), np.array(["x"])]
    if array.size and array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        for number in (-1, -(2**40), 2**40, 10**6):
            other = array.copy()
            other.reshape(-1)[0] = min(max(number, limits.min), limits.max)
            wild.append(other)
        wild.append(np.zeros_like(array))
    elif array.size and array.dtype.kind == "f":
        for value in (np.nan, np.inf, 1e38):
            other = array.copy()
            other.reshape(-1)[-1] = value
            wild.append(other)
        wild.append(array.astype(np.int64))
    return wild


def forgeries(arrays: dict[str, Any], meta: dict[str, Any]) -> Iterator[tuple[str, Content]]:
    """Everything that can be changed in one place of an archive's content."""
    for name, array in arrays.items():
        yield f"without {name}", ({k: v for k, v in arrays.items() if k != name}, meta)
        for number, wrong in enumerate(forged_arrays(array)):
            yield f"{name} {number}", ({**arrays, name: wrong}, meta)
    yield "one array too many", ({**arrays, "extra": np.zeros(3)}, meta)
    for path in _paths(meta):
        for value in VALUES:
            yield f"{'/'.join(path)} = {value!r}", (arrays, _with(meta, path, value))
        yield f"without {'/'.join(path)}", (arrays, _with(meta, path, _GONE))


def sampled(arrays: dict[str, Any], meta: dict[str, Any], count: int | None) -> list[Any]:
    """All forgeries, or some of them, always the same."""
    found = list(forgeries(arrays, meta))
    return some(found) if count is None else random.Random(0).sample(found, min(count, len(found)))


def save_anything(path: Any, kind: str, version: int, content: Content) -> None:
    """Write a file with right checksums, without the checks of the writer."""
    archive.save_archive(path, kind, version, content[0], content[1])


_GONE = object()


def _paths(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, key)
            yield from _paths(item, (*path, key))


def _with(meta: dict[str, Any], path: tuple[str, ...], value: Any) -> dict[str, Any]:
    changed = copy.deepcopy(meta)
    place = changed
    for key in path[:-1]:
        place = place[key]
    if value is _GONE:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return changed
