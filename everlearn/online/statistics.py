"""The sufficient statistics of everything seen: ``A = sum phi phi^T``, ``B = sum phi y^T``.

Only cells that some input has activated have rows. Columns of ``A`` are all cells: adding a
cell adds a row at the end and moves nothing.
"""

from __future__ import annotations

import contextlib
import mmap
import sys

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import update as update_kernels
from everlearn.support.errors import MemoryLimitError


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
    """

    def __init__(
        self, cells: int, width: int, dtype: npt.DTypeLike, max_bytes: float | None
    ) -> None:
        self.max_bytes = max_bytes
        self.products = reserve(cells, cells, dtype)
        self.targets: npt.NDArray[np.float64] = np.zeros((cells, width))
        self.row_of: npt.NDArray[np.int64] = np.full(cells, -1, np.int64)
        self._cells: npt.NDArray[np.int64] = np.zeros(cells, np.int64)
        self.used = 0
        self._sorted: npt.NDArray[np.int64] = np.zeros(0, np.int64)

    @property
    def cells(self) -> npt.NDArray[np.int64]:
        """Cells in use, in the order of their rows."""
        return self._cells[: self.used]

    @property
    def sorted_cells(self) -> npt.NDArray[np.int64]:
        """Cells in use in increasing order, the order in which a row of ``A`` is read."""
        if len(self._sorted) != self.used:
            self._sorted = np.sort(self.cells)
        return self._sorted

    def row_bytes(self) -> int:
        """Bytes of one row of ``A`` and ``B``."""
        return self.products.itemsize * self.products.shape[1] + 8 * self.targets.shape[1]

    def admit(self, cells: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Rows of `cells`, after giving new ones a row; refuses before anything is changed."""
        fresh = np.unique(cells[self.row_of[cells] < 0])
        needed = self.used + len(fresh)
        self._check_limit(needed)
        if len(fresh):
            self.row_of[fresh] = np.arange(self.used, needed)
            self._cells[self.used : needed] = fresh
            self.used = needed
        return self.row_of[cells]

    def _check_limit(self, needed: int) -> None:
        if self.max_bytes is not None and needed * self.row_bytes() > self.max_bytes:
            raise MemoryLimitError(
                f"{needed} cells in use need {needed * self.row_bytes() / 1e9:.3g} GB of "
                f"statistics, more than allowed ({self.max_bytes / 1e9:.3g} GB); raise "
                "max_memory_gb or take fewer features or bins. Nothing was changed"
            )

    def add(
        self,
        cells: npt.NDArray[np.int64],
        values: FloatArray,
        targets: FloatArray,
        corners: int,
    ) -> None:
        """Take in samples ``cells[N, K]``, ``values[N, K]``, ``targets[N, S]``.

        `corners` is the number of active cells in one grid.
        """
        rows = self.admit(cells.ravel()).reshape(cells.shape)
        update_kernels.accumulate_batch(self.products, rows, cells, values, corners)
        for n in range(len(cells)):
            self.add_target(rows[n], values[n], targets[n])

    def add_target(
        self, rows: npt.NDArray[np.int64], values: FloatArray, target: FloatArray
    ) -> None:
        """``B_s += phi y^T``."""
        self.targets[rows, : len(target)] += np.outer(values.astype(np.float64), target)

    def diagonal(self, cells: npt.NDArray[np.int64]) -> FloatArray:
        """Diagonal entries of ``A`` at `cells`, which are in use."""
        return self.products[self.row_of[cells], cells]

    def take_over(self, other: Statistics) -> None:
        """Copy what `other` holds, of whatever type, into statistics that are still empty."""
        self.admit_in_order(other.cells)
        for row in range(other.used):
            self.products[row] = other.products[row]
        self.targets[: other.used] = other.targets[: other.used]

    def packed(self) -> FloatArray:
        """Upper half of ``A`` over the cells in use, row by row, in the order of rows."""
        used, cells = self.used, self.cells
        out = np.empty(used * (used + 1) // 2, self.products.dtype)
        position = 0
        for row in range(used):
            out[position : position + used - row] = self.products[row, cells[row:]]
            position += used - row
        return out

    def unpack(self, cells: npt.NDArray[np.int64], packed: FloatArray, targets: FloatArray) -> None:
        """Take over what `packed` gave, into statistics that are still empty."""
        self.admit_in_order(cells)
        used = len(cells)
        position = 0
        for row in range(used):
            line = packed[position : position + used - row]
            self.products[row, cells[row:]] = line
            self.products[row:used, cells[row]] = line
            position += used - row
        self.targets[:used, : targets.shape[1]] = targets

    def admit_in_order(self, cells: npt.NDArray[np.int64]) -> None:
        """Give `cells` rows 0, 1, ... in the order given."""
        self._check_limit(len(cells))
        self.used = len(cells)
        self._cells[: self.used] = cells
        self.row_of[cells] = np.arange(self.used)
