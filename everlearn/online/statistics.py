"""The sufficient statistics of everything seen: ``A = sum phi phi^T``, ``B = sum phi y^T``.

Only cells that some input has activated have a position, and take memory: half of ``V x V`` numbers
for ``V`` cells in use. kernels/update.py has how they are stored.
"""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import update as update_kernels
from everlearn.online.kernels.update import SIDE
from everlearn.support.errors import MemoryLimitError
from everlearn.world_model.vectors import padded


def reserve(rows: int, columns: int, dtype: npt.DTypeLike) -> FloatArray:
    """Zeros of which the system provides only the rows that are touched.

    On Linux in huge pages: the update jumps through a thousand rows, and small pages would
    make it wait for the page tables more than for the numbers.
    """
    if not sys.platform.startswith("linux"):
        return np.zeros((rows, columns), dtype)
    length = rows * columns * np.dtype(dtype).itemsize
    no_reserve = 0x4000  # named in the mmap module from Python 3.11 on
    pages = mmap.mmap(-1, length, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | no_reserve)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        # Only a hint: a kernel built without huge pages says no, and small ones work too.
        with contextlib.suppress(OSError):
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, dtype).reshape(rows, columns)


def tiles_of(cells: int) -> int:
    """Tiles that so many cells in use need."""
    return int(update_kernels.first_tile(-(-cells // SIDE)))


class Statistics:
    """``A`` and ``B`` over the cells in use.

    Parameters
    ----------
    cells
        Cells of the encoding (``D``).
    width
        Outputs, padded (``L``).
    dtype
        Type of ``A``; ``B`` is small and always float64.
    max_bytes
        What ``A`` and ``B`` may take; None for no limit.

    Attributes
    ----------
    tiles
        Lower half of ``A`` over positions, room for all cells.
    targets
        ``B``, a row for each position.
    position_of
        Position of each cell; -1 of those never active.
    used
        Cells in use.
    """

    def __init__(
        self, cells: int, width: int, dtype: npt.DTypeLike, max_bytes: float | None
    ) -> None:
        self.max_bytes = max_bytes
        self.tiles = reserve(tiles_of(cells), SIDE * SIDE, dtype)
        self.targets: npt.NDArray[np.float64] = np.zeros((cells, width))
        self.position_of: npt.NDArray[np.int64] = np.full(cells, -1, np.int64)
        self._cells: npt.NDArray[np.int64] = np.zeros(cells, np.int64)
        self.used = 0

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """Cells in use, by position."""
        return self._cells[: self.used]

    @property
    def touched(self) -> FloatArray:
        """Tiles in use, a view."""
        return self.tiles[: tiles_of(self.used)]

    def bytes_of(self, used: int) -> int:
        """Bytes of ``A`` and ``B`` with so many cells in use."""
        tile = self.tiles.itemsize * SIDE * SIDE
        return tiles_of(used) * tile + 8 * used * self.targets.shape[1]

    def admit(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Positions of `cells`, after giving new ones one; refuses before anything is changed."""
        fresh = np.unique(cells[self.position_of[cells] < 0])
        needed = self.used + len(fresh)
        self._check_limit(needed)
        if len(fresh):
            self.position_of[fresh] = np.arange(self.used, needed)
            self._cells[self.used : needed] = fresh
            self.used = needed
        return self.position_of[cells]

    def _check_limit(self, needed: int) -> None:
        size = self.bytes_of(needed)
        if self.max_bytes is not None and size > self.max_bytes:
            raise MemoryLimitError(
                f"{needed} cells in use need {size / 1e9:.3g} GB of "
                f"statistics, more than allowed ({self.max_bytes / 1e9:.3g} GB); raise "
                "max_memory_gb or take fewer features or bins. Nothing was changed"
            )

    def add(
        self,
        cells: npt.NDArray[np.int64],
        values: FloatArray,
        targets: FloatArray,
        threads: int,
    ) -> None:
        """Take in samples ``cells[N, K]``, ``values[N, K]``, ``targets[N, S]``."""
        positions = self.admit(cells.ravel()).reshape(cells.shape)
        order = np.argsort(-positions, axis=1)
        positions = np.take_along_axis(positions, order, axis=1)
        values = np.take_along_axis(values, order, axis=1)
        update_kernels.accumulate_batch(self.tiles, positions, values, threads)
        for n in range(len(cells)):
            self.add_target(positions[n], values[n], targets[n])

    def add_target(
        self, positions: npt.NDArray[np.int64], values: FloatArray, target: FloatArray
    ) -> None:
        """``B_s += phi y^T``."""
        update_kernels.add_target(self.targets, positions, values, target)

    def diagonal(self, positions: npt.NDArray[np.int64]) -> FloatArray:
        """Diagonal entries of ``A``."""
        row, place = positions // SIDE, positions % SIDE
        return self.tiles[row * (row + 1) // 2 + row, place * (SIDE + 1)]

    def rows(self, first: int = 0, last: int | None = None) -> npt.NDArray[np.float64]:
        """Rows of ``A`` over the cells in use, by position, from `first` to before `last`."""
        out = np.empty(((self.used if last is None else last) - first, self.used))
        update_kernels.copy_rows(self.tiles, first, out, True)
        return out

    def lower_half(self) -> npt.NDArray[np.float64]:
        """Return ``A`` over the cells in use, up to the diagonal; beyond it is anything."""
        out = np.empty((self.used, self.used))
        update_kernels.copy_rows(self.tiles, 0, out, False)
        return out

    def copy_upper_half(self, out: FloatArray) -> None:
        """Write ``A`` over the cells in use, from the diagonal on, to the upper left of `out`."""
        update_kernels.copy_upper_half(self.tiles, self.used, out)

    def residual(self, ridge: float, weights: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return ``B - A W - r W`` over the cells in use, of ``W[used, L]`` by position."""
        left = self.targets[: self.used] - ridge * weights
        whole = np.zeros((padded(self.used, SIDE), weights.shape[1]))
        whole[: self.used] = weights
        update_kernels.subtract_product(self.tiles, whole, left)
        return left

    def take_over(self, other: Statistics) -> None:
        """Copy what `other` holds, of whatever type, into statistics that are still empty."""
        self.admit_in_order(other.cells)
        self.touched[:] = other.touched
        self.targets[: other.used] = other.targets[: other.used]

    def packed(self) -> FloatArray:
        """Upper half of ``A`` over the cells in use, row by row, by position."""
        out = np.empty(self.used * (self.used + 1) // 2, self.tiles.dtype)
        update_kernels.pack(self.tiles, self.used, out)
        return out

    def unpack(self, cells: npt.NDArray[np.int64], packed: FloatArray, targets: FloatArray) -> None:
        """Take over what `packed` gave, into statistics that are still empty."""
        self.admit_in_order(cells)
        update_kernels.unpack(self.tiles, self.used, packed)
        self.targets[: self.used, : targets.shape[1]] = targets

    def admit_in_order(self, cells: npt.NDArray[np.int64]) -> None:
        """Give `cells` positions 0, 1, ... in the order given."""
        self._check_limit(len(cells))
        self.used = len(cells)
        self._cells[: self.used] = cells
        self.position_of[cells] = np.arange(self.used)
