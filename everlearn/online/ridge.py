"""Follow the leader on sparse features: the exact ridge solution, one active block at a time.

After every sample the weights at its active cells ``s`` become the minimiser of the ridge loss
of everything seen, the other rows held (paper, equation 5)::

    W_s <- (A_ss + r I)^-1 (B_s - A_s,rest W_rest),    A = sum phi phi^T,  B = sum phi y^T

In terms of the residual ``G = B - A W - r W`` that is ``W_s += (A_ss + r I)^-1 G_s``, and most
of ``G_s`` is known without touching ``A``: see `RidgeLearner._residual_of_active`.
"""

from __future__ import annotations

import logging

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import update as update_kernels
from everlearn.online.solver import BlockSolver, UnsolvableError
from everlearn.online.statistics import Statistics
from everlearn.support.errors import MemoryLimitError
from everlearn.support.threads import Threads
from everlearn.world_model.vectors import LANES, aligned_zeros, padded

logger = logging.getLogger(__name__)

Cells = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]

REFRESH = 64
"""Updates after which the residual of every row has been computed anew."""

RESOLUTION = 1e-5
"""Ridge over largest diagonal entry of ``A_ss`` below which float32 is given up for float64.

Entries of ``A`` grow with the samples and float32 rounds them; once that rounding is no
longer small beside the ridge, the weakest directions of the solution are noise.
"""

CHUNK = 256
"""Rows of A turned to float64 at a time."""


class RidgeLearner:
    """Statistics and weights of sparse ridge regression.

    Parameters
    ----------
    cells, active, corners
        Cells in all, active in one input at most, and active in one grid of it.
    outputs
        Numbers in a target (``S``).
    dtype
        Type of ``A`` and ``W``.
    ridge, growing
        Strength of the ridge; if `growing`, it is multiplied by the number of samples.
    max_bytes
        Refuse to grow beyond this; None for no limit.
    threads
        Used for every update.
    """

    def __init__(
        self,
        cells: int,
        active: int,
        corners: int,
        outputs: int,
        dtype: npt.DTypeLike,
        ridge: float,
        growing: bool,
        max_bytes: float | None,
        threads: Threads,
    ) -> None:
        self.cells, self.active, self.corners, self.outputs = cells, active, corners, outputs
        self.dtype = np.dtype(dtype)
        self.width = padded(outputs, LANES)
        # A tuple as long as a row of weights has vectors: the kernels compile for that width.
        self.vectors = (0,) * (self.width // LANES)
        self._ridge, self._growing = ridge, growing
        self._threads = threads
        self._max_bytes = max_bytes
        fixed = self._fixed_bytes()
        if max_bytes is not None and max_bytes < fixed:
            raise MemoryLimitError(
                f"weights and work space alone need {fixed / 1e9:.3g} GB, more than the "
                f"{max_bytes / 1e9:.3g} GB allowed; raise max_memory_gb or take fewer features"
            )
        self.statistics = self.empty_statistics(self.dtype)
        self.weights = aligned_zeros((cells, self.width), self.dtype)
        # What predictions read: the weights themselves, or their copy in the first type.
        self.table = self.weights
        self.solver = BlockSolver(active, self.dtype)
        self.samples = 0
        self.previous: Cells = np.zeros(0, np.int64)
        self.carried: Doubles = np.zeros((0, self.width))
        self.previous_ridge = 0.0
        self._slot: Cells = np.full(cells, -1, np.int64)

    def _fixed_bytes(self) -> int:
        """Bytes that do not grow: weights, their copy, solver, and the table of rows."""
        item = self.dtype.itemsize
        return (2 * self.cells * self.width + 2 * self.active**2) * item + 24 * self.cells

    def empty_statistics(self, dtype: npt.DTypeLike) -> Statistics:
        """Statistics of nothing, under this learner's limit."""
        limit = None if self._max_bytes is None else self._max_bytes - self._fixed_bytes()
        return Statistics(self.cells, self.width, dtype, limit)

    @property
    def ridge(self) -> float:
        """The ridge in force."""
        return self._ridge * max(self.samples, 1) if self._growing else self._ridge

    def promote(self) -> None:
        """Go on in float64: statistics, weights and solver; predictions keep their type."""
        statistics = self.empty_statistics(np.float64)
        statistics.take_over(self.statistics)
        self.statistics = statistics
        self.retype(np.float64)

    def retype(self, dtype: npt.DTypeLike) -> None:
        """Hold weights and solve in another type; the table keeps the first one."""
        if self.dtype == dtype:
            return
        self.dtype = np.dtype(dtype)
        if self.dtype == self.table.dtype:
            self.weights = self.table
        else:
            self.weights = aligned_zeros((self.cells, self.width), self.dtype)
            self.weights[:] = self.table
        fallbacks = self.solver.fallbacks
        self.solver = BlockSolver(self.active, self.dtype)
        self.solver.fallbacks = fallbacks

    def _promote_if_needed(self, cells: Cells) -> None:
        if self.dtype == np.float64:
            return
        used = cells[self.statistics.row_of[cells] >= 0]
        busiest = self.statistics.diagonal(used).max(initial=0.0)
        if self.ridge < RESOLUTION * busiest:
            logger.warning(
                "after %d samples float32 no longer resolves the ridge (%g) beside the statistics "
                "(%g): going on in float64, with twice the memory. A larger ridge, or "
                "ridge_growth='samples', stays in float32",
                self.samples,
                self.ridge,
                busiest,
            )
            self.promote()

    def set_weights(self, cells: Cells, weights: FloatArray) -> None:
        """Write rows of ``W``, and of the table that predictions read."""
        self.weights[cells] = weights
        if self.table is not self.weights:
            self.table[cells] = weights

    def learn(self, cells: Cells, values: FloatArray, target: Doubles) -> None:
        """Take in one sample and update the weights at its cells (equation 5)."""
        self._promote_if_needed(cells)
        values = values.astype(self.dtype, copy=False)
        rows = self.statistics.admit(cells)
        self.solver.prepare(len(cells))
        with self._threads.limited():
            update_kernels.accumulate(
                self.statistics.products,
                rows,
                cells,
                values,
                self.solver.gathered,
                self.solver.factor,
            )
            self.statistics.add_target(rows, values, target)
            self.samples += 1
            error = np.zeros(self.width)
            update_kernels.prediction(self.weights, cells, values, error)
            error[: self.outputs] = target - error[: self.outputs]
            gained: Doubles = np.multiply.outer(values, error)
            self._update(cells, rows, gained)

    def refine(self, cells: Cells) -> None:
        """Equation 5 at `cells`, from the data already seen."""
        # Cells that no sample activated have zero rows and zero weights: nothing to change.
        # They get rows all the same, so that the block keeps its size.
        rows = self.statistics.admit(cells)
        self.solver.prepare(len(cells))
        with self._threads.limited():
            update_kernels.gather(
                self.statistics.products, rows, cells, self.solver.gathered, self.solver.factor
            )
            self._update(cells, rows, np.zeros((len(cells), self.width)))

    def _update(self, cells: Cells, rows: Cells, gained: Doubles) -> None:
        """``W_s += (A_ss + r I)^-1 G_s``; `gained` is what the new sample added to ``G_s``."""
        ridge = self.ridge
        right = self._residual_of_active(cells, rows, gained, ridge)
        before = self.weights[cells]
        self.forget_previous()
        after, left = self.solver.solve(ridge, right, before)
        self.set_weights(cells, after)
        self.remember(cells, left, ridge)

    def _residual_of_active(
        self, cells: Cells, rows: Cells, gained: Doubles, ridge: float
    ) -> Doubles:
        """``G_s`` after the new sample.

        The last update left its own rows with a known, almost zero residual. On those of them
        that are active again only the sample (``phi e^T``) and a change of the ridge
        (``-(r - r_before) W``) have been added. Rows that were not active need ``A W``.
        """
        weights = self.weights[cells].astype(np.float64)
        # A few known rows are computed anew each time, in rotation, so that what rounding adds
        # to the statistics cannot pile up in rows that are active for ever.
        slots = self._slot[cells]
        slots[self.samples % REFRESH :: REFRESH] = -1
        fresh = np.flatnonzero(slots < 0)
        known = np.flatnonzero(slots >= 0)
        right = np.empty((len(cells), self.width))
        right[known] = self.carried[slots[known]] + gained[known]
        if ridge != self.previous_ridge:
            right[known] -= (ridge - self.previous_ridge) * weights[known]
        part = self.statistics.targets[rows[fresh]] - ridge * weights[fresh]
        update_kernels.subtract_products(
            self.statistics.products,
            rows[fresh],
            self.statistics.sorted_cells,
            self.weights,
            part,
            self.vectors,
        )
        right[fresh] = part
        return right

    def remember(self, cells: Cells, residual: Doubles, ridge: float) -> None:
        """From here on the residual of `cells` is known."""
        self.previous, self.carried, self.previous_ridge = cells, residual, ridge
        self._slot[cells] = np.arange(len(cells))

    def forget_previous(self) -> None:
        """From here on no row's residual is known."""
        self._slot[self.previous] = -1
        self.previous = self.previous[:0]
        self.carried = self.carried[:0]

    def add(self, cells: Cells, values: FloatArray, targets: Doubles) -> None:
        """Take samples ``[N, K]`` into the statistics; the weights stay as they are."""
        # The kernels read neighbours in a row by their address.
        cells, values = np.ascontiguousarray(cells), np.ascontiguousarray(values)
        self.statistics.admit(cells.ravel())
        self.forget_previous()
        with self._threads.limited():
            self.statistics.add(cells, values.astype(self.dtype, copy=False), targets, self.corners)
        self.samples += len(cells)

    def solve(self) -> None:
        """Set the weights to the exact ridge solution of everything seen, in float64."""
        statistics, used = self.statistics, self.statistics.used
        needed = self._fixed_bytes() + used * statistics.row_bytes() + 8 * used**2
        if self._max_bytes is not None and needed > self._max_bytes:
            raise MemoryLimitError(
                f"solving over {used} cells needs {needed / 1e9:.3g} GB, more than the "
                f"{self._max_bytes / 1e9:.3g} GB allowed; raise max_memory_gb, or learn one "
                "transition at a time, which needs less"
            )
        if used == 0:
            return
        cells = statistics.cells
        matrix = np.empty((used, used))
        for row in range(used):
            matrix[row] = statistics.products[row, cells]
        matrix.ravel()[:: used + 1] += self.ridge
        with self._threads.limited(blas=True):
            factor, info = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
            if info != 0:
                raise UnsolvableError(
                    f"the statistics of {used} cells with ridge {self.ridge:g} are not positive "
                    "definite; use a larger ridge or precision='float64'"
                )
            solution, _ = lapack.dpotrs(factor, statistics.targets[:used], lower=0)
        self.forget_previous()
        self.set_weights(cells, solution)

    def residual(self) -> Doubles:
        """``G = B - A W - r W`` of every cell ``[D, S]``, from the statistics, in float64."""
        statistics = self.statistics
        cells = statistics.cells
        weights = self.weights[:, : self.outputs].astype(np.float64)
        out = np.zeros_like(weights)
        for first in range(0, statistics.used, CHUNK):
            rows = slice(first, min(first + CHUNK, statistics.used))
            block = statistics.products[rows].astype(np.float64)
            out[cells[rows]] = (
                statistics.targets[rows, : self.outputs]
                - block @ weights
                - self.ridge * weights[cells[rows]]
            )
        return out
