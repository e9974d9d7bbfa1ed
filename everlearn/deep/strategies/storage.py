"""Transitions that a strategy keeps: all, those of the current task, or a fair sample of all.

Rows lie in one array a column that doubles when full, so that a training loop gathers
minibatches from contiguous memory and nothing is converted twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray, State
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError

FIRST_ROWS = 1024
"""Rows of room to begin with."""


class Storage:
    """Rows of named columns; keeps every row. Subclasses say what they drop.

    Parameters
    ----------
    widths
        Numbers a row in each column, by name.
    seed
        Seed of whatever the storage draws.

    Attributes
    ----------
    seen
        Rows ever added.
    """

    def __init__(self, widths: Mapping[str, int], seed: int | np.random.SeedSequence = 0) -> None:
        if not widths or any(width < 0 for width in widths.values()):
            raise InvalidInputError(
                f"columns are {dict(widths)}; expected names with a number of at least 0 each"
            )
        self.seen = 0
        self._count = 0
        self._columns: dict[str, npt.NDArray[np.float32]] = {
            name: np.empty((FIRST_ROWS, width), np.float32) for name, width in widths.items()
        }
        self._generator = np.random.default_rng(seed)

    def __len__(self) -> int:
        """Rows kept now."""
        return self._count

    def add(self, **row: npt.ArrayLike) -> None:
        """Take in one row, a value for each column; on bad input raise and change nothing."""
        values = {name: np.asarray(value, np.float32).reshape(-1) for name, value in row.items()}
        widths = {name: (column.shape[1],) for name, column in self._columns.items()}
        if {name: value.shape for name, value in values.items()} != widths:
            given = {name: value.shape[0] for name, value in values.items()}
            expected = {name: width for name, (width,) in widths.items()}
            raise InvalidInputError(f"a row has columns {given}; expected {expected}")
        self.seen += 1
        place = self._place()
        if place is None:
            return
        self._make_room(place + 1)
        self._count = max(self._count, place + 1)
        for name, value in values.items():
            self._columns[name][place] = value

    def column(self, name: str) -> FloatArray:
        """All rows of a column ``[len, width]``, a read-only view until the next change."""
        view = self._columns[name][: self._count]
        view.flags.writeable = False
        return view

    def sample(self, count: int, generator: np.random.Generator) -> dict[str, FloatArray]:
        """Draw `count` rows evenly, with replacement, as copies."""
        if not self._count:
            raise InvalidInputError("the storage is empty; add rows before sampling")
        rows = generator.integers(0, self._count, count)
        return {name: column[rows] for name, column in self._columns.items()}

    def end_task(self) -> None:
        """Drop nothing."""

    def state(self) -> State:
        """Rows, counts and generator."""
        arrays: dict[str, npt.NDArray[Any]] = {
            name: column[: self._count].copy() for name, column in self._columns.items()
        }
        return arrays, {"seen": self.seen, "generator": self._generator.bit_generator.state}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        lengths = {len(array) for array in arrays.values()}
        mine = {name: column.shape[1:] for name, column in self._columns.items()}
        if {name: array.shape[1:] for name, array in arrays.items()} != mine or len(lengths) != 1:
            raise InvalidInputError(
                f"stored columns are { ({n: a.shape for n, a in arrays.items()}) }; expected "
                f"widths { ({name: width for name, (width,) in mine.items()}) } of one length"
            )
        generator = np.random.default_rng(0)
        try:
            seen = int(meta["seen"])
            generator.bit_generator.state = meta["generator"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the stored rows have no usable facts: {error}") from error
        (rows,) = lengths
        if seen < rows:
            raise InvalidInputError(f"{rows} rows are stored, of {seen} that were ever added")
        self.seen, self._count, self._generator = seen, rows, generator
        self._make_room(self._count)
        for name, array in arrays.items():
            self._columns[name][: self._count] = array

    def _place(self) -> int | None:
        """Where the row that is number `seen` goes; None drops it."""
        return self._count

    def _make_room(self, rows: int) -> None:
        for name, column in self._columns.items():
            if len(column) < rows:
                grown = np.empty((max(rows, 2 * len(column)), column.shape[1]), column.dtype)
                grown[: len(column)] = column
                self._columns[name] = grown


class CurrentTask(Storage):
    """Keeps the rows of the current task only."""

    def end_task(self) -> None:
        """Drop all rows."""
        self._count = 0


class Reservoir(Storage):
    """Keeps an even sample of all rows ever seen, of a fixed size (Vitter 1985, algorithm R).

    Row ``n`` is kept with probability ``capacity / n`` and takes the place of any kept row.

    Parameters
    ----------
    widths, seed
        As for `Storage`.
    capacity
        Most rows kept.
    """

    def __init__(
        self,
        widths: Mapping[str, int],
        seed: int | np.random.SeedSequence = 0,
        *,
        capacity: int,
    ) -> None:
        super().__init__(widths, seed)
        check_whole("capacity", capacity, 1)
        self.capacity = capacity

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        for name, array in arrays.items():
            if len(array) > self.capacity:
                raise InvalidInputError(
                    f"stored column {name!r} has {len(array)} rows; this reservoir holds "
                    f"{self.capacity}"
                )
        super().restore(arrays, meta)

    def _place(self) -> int | None:
        if self._count < self.capacity:
            return self._count
        place = int(self._generator.integers(0, self.seen))
        return place if place < self.capacity else None
