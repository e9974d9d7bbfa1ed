"""Follow the leader on sparse features: ridge regression, one active block at a time.

After every sample the weights at its active cells ``s`` become the minimiser of the ridge loss
of everything seen, the other rows held (paper, equation 5)::

    W_s <- (A_ss + r I)^-1 (B_s - A_s,rest W_rest),    A = sum phi phi^T,  B = sum phi y^T

So the gradient of the loss vanishes at the active cells after every sample, and in general
nowhere else. `RidgeLearner.solve` makes it vanish everywhere: ``W = (A + r I)^-1 B``.

In terms of the residual ``G = B - A W - r W``, minus half that gradient, the update is
``W_s += (A_ss + r I)^-1 G_s``, and most of ``G_s`` is known without touching ``A``: see
`RidgeLearner._residual_of_active`. `BlockSolver` solves the block in float32, checks the result by
what it leaves of ``G_s``, and does not return one that is wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import cholesky
from everlearn.online.kernels import update as update_kernels
from everlearn.online.statistics import Statistics
from everlearn.support.archive import check_arrays
from everlearn.support.errors import EverlearnError, InvalidInputError, MemoryLimitError
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

DOUBLE_RESOLUTION = 1e-13
"""Ridge over the trace of ``A_ss`` below which float64 does not resolve it either.

The trace bounds the largest eigenvalue, so their ratio bounds the condition of the block. From
about a fifth of this on, the weakest directions grow by a little noise at every update, which no
check of a single one sees, until the weights overflow. Such an update is refused.
"""

CHUNK = 256
"""Rows of A turned to float64 at a time."""

TOLERANCE = 1e-3
"""Largest residual left by a solve, relative to the right-hand side."""

FLOOR = 4.0
"""Residual, in units of what rounding the weights alone leaves, that cannot be improved."""

ATTEMPTS = 3
"""Solves with one factorisation: the first and two of iterative refinement."""


EXACT = 1e-11
"""Largest residual of an exact solution, relative to the targets, of each output."""

REFINEMENTS = 5
"""Solves with one factor in float32 before an exact solution is computed with one in float64."""


def check_cells(cells: npt.NDArray[Any], name: str, total: int) -> None:
    """Refuse anything but different cells of an encoding that has `total`."""
    inside = ((cells >= 0) & (cells < total)).all()
    if cells.dtype != np.int64 or not inside or len(np.unique(cells)) != len(cells):
        raise InvalidInputError(f"{name!r} of a state are not different cells of 0 to {total}")


class UnsolvableError(EverlearnError, np.linalg.LinAlgError):
    """The block could not be solved to the promised accuracy, in float64 either."""


def factorise_single(matrix: FloatArray) -> int:
    """Cholesky factorisation in place, float32; 0 if that worked (kernels/cholesky.py)."""
    return cholesky.factorise(matrix)


def factorise_double(matrix: FloatArray) -> int:
    """As `factorise_single`, in float64."""
    return cholesky.factorise(matrix)


def _back_single(factor: FloatArray, right: FloatArray) -> FloatArray:
    return cholesky.solution(factor, right)


def _back_double(factor: FloatArray, right: FloatArray) -> FloatArray:
    return cholesky.solution(factor, right)


def _add_to_diagonal(matrix: FloatArray, count: int, added: float) -> None:
    matrix.reshape(-1)[: count * matrix.shape[1] : matrix.shape[1] + 1] += matrix.dtype.type(added)


class BlockSolver:
    """Solves ``(A_ss + r I) X = G_s`` for one active block after another, never silently wrong.

    ``A_ss + r I`` is positive definite, so Cholesky does, in the type of the statistics. In
    float32 that is twice as fast and good to three digits or so; the error of the solution is
    itself the solution of a system with the same matrix, so what is left of ``G_s`` (computed in
    float64) is solved for with the same factor and added, which is iterative refinement. If that
    does not get there the block is factorised in float64, and refused if that fails too.

    Parameters
    ----------
    active
        Most rows of a block (``K``).
    dtype
        Type of the statistics and of the first factorisation.
    groups
        Outputs that are judged together: their residuals are of one scale. A large reward must
        not excuse errors of small changes.
    """

    def __init__(self, active: int, dtype: npt.DTypeLike, groups: tuple[slice, ...]) -> None:
        self._groups = groups
        self._gathered: FloatArray = np.zeros(active * active, dtype)
        self._factor = cholesky.room_for(active, dtype).reshape(-1)
        self._every = np.arange(active)
        self._single = self._factor.dtype == np.float32
        self.fallbacks = 0
        self.prepare(active)

    def prepare(self, active: int) -> None:
        """Make `gathered` and `factor` room for a block of so many rows."""
        self.gathered: FloatArray = self._gathered[: active * active].reshape(active, active)
        rows, columns = cholesky.padded_shape(active)
        self.factor: FloatArray = self._factor[: rows * columns].reshape(rows, columns)
        self._all = self._every[:active]

    def solve(
        self, ridge: float, right: npt.NDArray[np.float64], weights: FloatArray
    ) -> tuple[FloatArray, npt.NDArray[np.float64]]:
        """Change the block's weights so that the residual vanishes.

        Parameters
        ----------
        ridge
            Added to the diagonal of `gathered`, which holds ``A_ss``; `factor` holds its upper
            half, with room for whole vectors, and is overwritten.
        right
            Residual ``G_s[K, L]`` before the change.
        weights
            ``W_s[K, L]`` before the change.

        Returns
        -------
        weights, residual
            ``W_s`` and ``G_s`` after it. The residual counts what rounding the weights to their
            type leaves behind; the caller carries it to the next update.
        """
        count = len(right)
        cholesky.pad(self.factor, count)
        _add_to_diagonal(self.factor, count, ridge)
        if self._single:
            if factorise_single(self.factor) == 0:
                solved = self._improve(ridge, right, weights, self.factor, _back_single)
                if solved is not None:
                    return solved
            self.fallbacks += 1
            double = cholesky.room_for(count, np.float64)
            double[:count, :count] = self.gathered
            cholesky.pad(double, count)
            _add_to_diagonal(double, count, ridge)
        else:
            double = self.factor
        trace = float(np.einsum("ii->i", self.gathered).sum(dtype=np.float64))
        if ridge < DOUBLE_RESOLUTION * trace:
            raise UnsolvableError(
                f"float64 does not resolve a ridge of {ridge:g} beside statistics of {trace:g} "
                "(trace of the active block), and weights would become noise. Use a ridge of "
                f"{DOUBLE_RESOLUTION * trace:.1g} or more. The weights were left as they were"
            )
        if factorise_double(double) == 0:
            solved = self._improve(ridge, right, weights, double, _back_double)
            if solved is not None:
                return solved
        raise UnsolvableError(
            f"the active block of {len(right)} cells with ridge {ridge:g} cannot be solved to "
            f"{TOLERANCE:g}: its largest entry is {self.gathered.max():g}. Use a larger ridge, or "
            "precision='float64'. The weights were left as they were"
        )

    def _improve(
        self,
        ridge: float,
        right: npt.NDArray[np.float64],
        weights: FloatArray,
        factor: FloatArray,
        back: Callable[[FloatArray, FloatArray], FloatArray],
    ) -> tuple[FloatArray, npt.NDArray[np.float64]] | None:
        """Solve and refine with one factorisation; None if the residual does not vanish."""
        sizes = [np.abs(right[:, group]).max() for group in self._groups]
        vectors = (0,) * (weights.shape[1] // LANES)
        for _ in range(ATTEMPTS):
            step = back(factor, right)
            new = (weights + step).astype(weights.dtype)
            # What the rounded weights really moved by: exact where they moved little.
            moved = np.ascontiguousarray(new - weights)
            left = right - ridge * moved.astype(np.float64)
            update_kernels.subtract_products(
                self.gathered, self._all, self._all, moved, left, vectors
            )
            weights, right = new, left
            worst = [np.abs(left[:, group]).max() for group in self._groups]
            if not np.isfinite(worst).all():
                return None
            if all(
                most <= TOLERANCE * size or most <= self._rounding(ridge, weights[:, group])
                for group, most, size in zip(self._groups, worst, sizes, strict=True)
            ):
                return weights, right
        return None

    def _rounding(self, ridge: float, weights: FloatArray) -> float:
        """Residual that weights of their type cannot avoid, with some room.

        Rounding them by ``eps |W|`` leaves up to ``eps (|A| + r) |W|``, and no weight is nearer to
        zero than the smallest number of its type.
        """
        epsilon = float(np.finfo(weights.dtype).eps)
        smallest = float(np.finfo(weights.dtype).smallest_subnormal)
        floor = epsilon * update_kernels.rounding_floor(self.gathered, weights, self._all)
        floor += smallest * len(weights) * float(self.gathered.max())
        return FLOOR * (floor + ridge * (epsilon * float(np.abs(weights).max()) + smallest))


class RidgeLearner:
    """Statistics and weights of sparse ridge regression.

    Parameters
    ----------
    cells, active
        Cells in all, and active in one input at most.
    outputs
        Numbers in a target (``S``).
    own_scale
        How many of them, the last ones, are of a scale of their own.
    dtype
        Type of ``A`` and ``W``.
    ridge
        Strength of the ridge (``r``).
    max_bytes
        Refuse to grow beyond this; None for no limit.
    threads
        Used for every update.
    unlearned
        Further columns of `table`, after those of the outputs, that the caller fills.

    Attributes
    ----------
    weights
        ``W[D, L]``.
    table
        What predictions read: the weights themselves or, if they are of another type or there are
        unlearned columns, a copy.
    """

    ARRAYS = ("cells", "products", "targets", "weights", "previous", "carried")
    """Names of what `state` returns."""

    def __init__(
        self,
        *,
        cells: int,
        active: int,
        outputs: int,
        own_scale: int,
        dtype: npt.DTypeLike,
        ridge: float,
        max_bytes: float | None,
        threads: Threads,
        unlearned: int = 0,
    ) -> None:
        self.cells, self.active, self.outputs = cells, active, outputs
        self.dtype, self.ridge = np.dtype(dtype), ridge
        self.width = padded(outputs + unlearned, LANES)
        # A tuple as long as a row of weights has vectors: the kernels compile for that width.
        self.vectors = (0,) * (self.width // LANES)
        first = outputs - own_scale
        self._groups = (slice(0, first), slice(first, outputs)) if own_scale else (slice(None),)
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
        self._unlearned = unlearned
        self.table = aligned_zeros((cells, self.width), dtype) if unlearned else self.weights
        self.solver = BlockSolver(active, self.dtype, self._groups)
        self.samples = 0
        # Cells of the last update, and what it left of their residual.
        self.previous: Cells = np.zeros(0, np.int64)
        self.carried: Doubles = np.zeros((0, self.width))
        self._slot: Cells = np.full(cells, -1, np.int64)

    @property
    def used(self) -> int:
        """Cells that some sample has activated."""
        return self.statistics.used

    @property
    def cells_in_use(self) -> Cells:
        """Cells in the order in which they were first activated."""
        return self.statistics.cells

    @property
    def fallbacks(self) -> int:
        """Updates that float32 could not solve and float64 did."""
        return self.solver.fallbacks

    def knows(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Say of each cell whether some sample has activated it."""
        known: npt.NDArray[np.bool_] = self.statistics.position_of[cells] >= 0
        return known

    def visits(self, cells: Cells) -> FloatArray:
        """Sum of the squared values that `cells`, which are in use, were activated with."""
        return self.statistics.diagonal(self.statistics.position_of[cells])

    def admit(self, cells: Cells) -> None:
        """Make room for `cells`; refuses before anything is changed."""
        self.statistics.admit(cells)

    def _fixed_bytes(self) -> int:
        """Bytes that do not grow: weights, their copy, solver, and the table of rows."""
        item = self.dtype.itemsize
        return (2 * self.cells * self.width + 2 * self.active**2) * item + 24 * self.cells

    def empty_statistics(self, dtype: npt.DTypeLike) -> Statistics:
        """Statistics of nothing, under this learner's limit."""
        limit = None if self._max_bytes is None else self._max_bytes - self._fixed_bytes()
        return Statistics(self.cells, self.width, dtype, limit)

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
        if self.dtype == self.table.dtype and not self._unlearned:
            self.weights = self.table
        else:
            self.weights = aligned_zeros((self.cells, self.width), self.dtype)
            self.weights[:, : self.outputs] = self.table[:, : self.outputs]
        fallbacks = self.solver.fallbacks
        self.solver = BlockSolver(self.active, self.dtype, self._groups)
        self.solver.fallbacks = fallbacks

    def _promote_if_needed(self, cells: Cells, values: FloatArray) -> None:
        """Go on in float64 if float32 will not resolve the ridge after this sample."""
        if self.dtype == np.float64:
            return
        statistics = self.statistics
        busiest = update_kernels.largest_entry(
            statistics.tiles, statistics.position_of[cells], values
        )
        if self.ridge < RESOLUTION * busiest:
            logger.warning(
                "after %d samples float32 no longer resolves the ridge (%g) beside the statistics "
                "(%g): going on in float64, with twice the memory. A larger ridge stays in float32",
                self.samples,
                self.ridge,
                busiest,
            )
            self.promote()

    def set_weights(self, cells: Cells, weights: FloatArray) -> None:
        """Write rows of ``W``, and of the table that predictions read."""
        self.weights[cells] = weights
        if self.table is not self.weights:
            self.table[cells, : self.outputs] = weights[:, : self.outputs]

    def learn(self, cells: Cells, values: FloatArray, target: Doubles) -> None:
        """Take in one sample and update the weights at its cells (equation 5)."""
        self._promote_if_needed(cells, values)
        positions = self.statistics.admit(cells)
        order = np.argsort(-positions)  # the order in which the kernels read A
        cells, positions = cells[order], positions[order]
        values = values[order].astype(self.dtype, copy=False)
        self.solver.prepare(len(cells))
        with self._threads.limited(blas=None):
            update_kernels.accumulate(
                self.statistics.tiles,
                positions,
                values,
                self.solver.gathered,
                self.solver.factor,
            )
            self.statistics.add_target(positions, values, target)
            self.samples += 1
            error = np.zeros(self.width)
            update_kernels.prediction(self.weights, cells, values, error)
            error[: self.outputs] = target - error[: self.outputs]
            gained: Doubles = np.multiply.outer(values, error)
            self._update(cells, positions, gained)

    def _update(self, cells: Cells, positions: Cells, gained: Doubles) -> None:
        """``W_s += (A_ss + r I)^-1 G_s``; `gained` is what the new sample added to ``G_s``."""
        right = self._residual_of_active(cells, positions, gained)
        before = self.weights[cells]
        self.forget_previous()
        after, left = self.solver.solve(self.ridge, right, before)
        self.set_weights(cells, after)
        self.remember(cells, left)

    def _residual_of_active(self, cells: Cells, positions: Cells, gained: Doubles) -> Doubles:
        """``G_s`` after the new sample.

        A sample with error ``e = y - W^T phi`` adds ``phi e^T`` to ``G``. The last update left its
        own rows with a known, almost zero residual, and no other weights have changed since: those
        of them that are active again, nearly all in a slow motion, need only that. Rows that
        were not active need ``B - A W - r W`` over all cells in use.
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
        part = self.statistics.targets[positions[fresh]] - self.ridge * weights[fresh]
        self._subtract_rows(positions[fresh], part)
        right[fresh] = part
        return right

    def _subtract_rows(self, positions: Cells, out: Doubles) -> None:
        """``out[n] -= A[positions[n]] . W``."""
        update_kernels.subtract_rows(
            self.statistics.tiles,
            self.statistics.cells,
            positions,
            self.weights,
            out,
            self.vectors,
            self._threads.number(),
        )

    def remember(self, cells: Cells, residual: Doubles) -> None:
        """From here on the residual of `cells` is known."""
        self.previous, self.carried = cells, residual
        self._slot[cells] = np.arange(len(cells))

    def forget_previous(self) -> None:
        """From here on no row's residual is known."""
        self._slot[self.previous] = -1
        self.previous = self.previous[:0]
        self.carried = self.carried[:0]

    def add(self, cells: Cells, values: FloatArray, targets: Doubles) -> None:
        """Take samples ``[N, K]`` into the statistics; the weights stay as they are."""
        self.statistics.admit(cells.ravel())
        self.forget_previous()
        with self._threads.limited() as threads:
            self.statistics.add(cells, values.astype(self.dtype, copy=False), targets, threads)
        self.samples += len(cells)

    def solve(self) -> None:
        """Set the weights to ``(A + r I)^-1 B``, the exact solution of everything seen."""
        statistics, used = self.statistics, self.statistics.used
        needed = self._fixed_bytes() + statistics.bytes_of(used) + 8 * used**2
        if self._max_bytes is not None and needed > self._max_bytes:
            raise MemoryLimitError(
                f"solving over {used} cells needs {needed / 1e9:.3g} GB, more than the "
                f"{self._max_bytes / 1e9:.3g} GB allowed; raise max_memory_gb, or learn one "
                "transition at a time, which needs less"
            )
        if used == 0:
            return
        solution = self._refined_solution() if self.dtype == np.float32 else None
        if solution is None:
            solution = self._double_solution()
        self.forget_previous()
        self.set_weights(statistics.cells, solution)

    def _refined_solution(self) -> Doubles | None:
        """Solve with a factor in float32, and refine in float64; None if that does not get there.

        What is left of ``B``, computed in float64, is solved for with the same factor and added
        (see `BlockSolver`). That takes half as long as a factor in float64, for the same weights.
        """
        statistics, used = self.statistics, self.statistics.used
        with self._threads.limited(blas=None):
            factor = cholesky.room_for(used, np.float32)
            statistics.copy_upper_half(factor)
            cholesky.pad(factor, used)
            _add_to_diagonal(factor, used, self.ridge)
            if factorise_single(factor) != 0:
                return None
            left = statistics.targets[:used]
            enough = EXACT * np.abs(left).max(axis=0)
            solution = np.zeros_like(left)
            for _ in range(REFINEMENTS):
                solution += cholesky.solution(factor, left)
                left = statistics.residual(self.ridge, solution)
                if (np.abs(left).max(axis=0) <= enough).all():
                    return solution
        return None

    def _double_solution(self) -> Doubles:
        """Solve with a factor in float64."""
        statistics, used = self.statistics, self.statistics.used
        matrix = statistics.lower_half()
        matrix.ravel()[:: used + 1] += self.ridge
        with self._threads.limited(blas=True):
            factor, info = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
            if info != 0:
                raise UnsolvableError(
                    f"the statistics of {used} cells with ridge {self.ridge:g} are not positive "
                    "definite; use a larger ridge or precision='float64'"
                )
            solution: Doubles = lapack.dpotrs(factor, statistics.targets[:used], lower=0)[0]
        return solution

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, for `restore`: arrays and JSON facts."""
        cells, size = self.statistics.cells.copy(), self.outputs
        arrays = {
            "cells": cells,
            "products": self.statistics.packed(),
            "targets": self.statistics.targets[: self.used, :size].copy(),
            "weights": self.weights[cells, :size],
            "previous": self.previous.copy(),
            "carried": self.carried[:, :size].copy(),
        }
        return arrays, {"steps": self.samples, "fallbacks": self.fallbacks}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        self._check(arrays, meta)
        size = self.outputs
        # The type that learning had reached, which need not be this one's at present.
        dtype = arrays["products"].dtype
        statistics = self.empty_statistics(dtype)
        statistics.unpack(arrays["cells"], arrays["products"], arrays["targets"])
        # Nothing below can fail: the learner is either the old one or wholly the new one.
        self.statistics = statistics
        self.retype(dtype)
        self.weights[:] = 0
        self.weights[arrays["cells"], :size] = arrays["weights"]
        self.table[:, :size] = self.weights[:, :size]
        self.forget_previous()
        carried = np.zeros((len(arrays["previous"]), self.width))
        carried[:, :size] = arrays["carried"]
        self.remember(arrays["previous"].copy(), carried)
        self.solver.fallbacks, self.samples = meta["fallbacks"], meta["steps"]

    def _check(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Refuse a state that does not fit: the compiled kernels trust every index."""
        for name in ("steps", "fallbacks"):
            if type(meta.get(name)) is not int or meta[name] < 0:
                raise InvalidInputError(f"{name!r} of a state is {meta.get(name)!r}; not usable")
        used, previous = (
            len(np.atleast_1d(arrays.get(name, ()))) for name in ("cells", "previous")
        )
        check_arrays(
            arrays,
            {
                "cells": ("i", (used,)),
                "products": ("f", (used * (used + 1) // 2,)),
                "targets": ("f", (used, self.outputs)),
                "weights": ("f", (used, self.outputs)),
                "previous": ("i", (previous,)),
                "carried": ("f", (previous, self.outputs)),
            },
        )
        check_cells(arrays["cells"], "cells", self.cells)
        check_cells(arrays["previous"], "previous", self.cells)
        if np.setdiff1d(arrays["previous"], arrays["cells"]).size:
            raise InvalidInputError("'previous' of a state has cells that were never in use")
        if arrays["products"].dtype not in (np.float32, np.float64):
            raise InvalidInputError("'products' of a state are neither float32 nor float64")

    def residual(self) -> Doubles:
        """``G = B - A W - r W`` of every cell ``[D, S]``, from the statistics, in float64."""
        statistics = self.statistics
        cells = statistics.cells
        weights = self.weights[:, : self.outputs].astype(np.float64)
        out = np.zeros_like(weights)
        for first in range(0, statistics.used, CHUNK):
            rows = slice(first, min(first + CHUNK, statistics.used))
            out[cells[rows]] = (
                statistics.targets[rows, : self.outputs]
                - statistics.rows(rows.start, rows.stop) @ weights[cells]
                - self.ridge * weights[cells[rows]]
            )
        return out
