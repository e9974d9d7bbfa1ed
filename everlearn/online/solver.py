"""Solving ``(A_ss + ridge I) X = R`` for the active block, never silently wrong.

float32 first (or float64, if the model is); the solution is checked by its residual, improved
once or twice, then tried in float64, and refused with an error if that fails too.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import update as update_kernels
from everlearn.support.errors import EverlearnError
from everlearn.world_model.vectors import LANES

TOLERANCE = 1e-3
"""Largest residual left by a solve, relative to the right-hand side."""

FLOOR = 4.0
"""Residual, in units of what rounding the weights alone leaves, that cannot be improved."""

ATTEMPTS = 3
"""Solves with one factorisation: the first and two of iterative refinement."""


class UnsolvableError(EverlearnError, np.linalg.LinAlgError):
    """The block could not be solved to the promised accuracy, in float64 either."""


def factorise_single(matrix: FloatArray) -> int:
    """Cholesky factorisation in place, float32; returns LAPACK's info (0: done).

    `matrix` is in C order with its upper half filled. LAPACK reads that as the lower half of a
    matrix in Fortran order, the half that it factorises faster.
    """
    _, info = lapack.spotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    return int(info)


def factorise_double(matrix: FloatArray) -> int:
    """As `factorise_single`, in float64."""
    _, info = lapack.dpotrf(matrix.T, lower=1, clean=0, overwrite_a=1)
    return int(info)


def _back_single(factor: FloatArray, right: FloatArray) -> FloatArray:
    solution: FloatArray
    solution, _ = lapack.spotrs(factor.T, right.astype(np.float32), lower=1)
    return solution


def _back_double(factor: FloatArray, right: FloatArray) -> FloatArray:
    solution: FloatArray
    solution, _ = lapack.dpotrs(factor.T, right, lower=1)
    return solution


class BlockSolver:
    """Work space and policy for solving one active block after another.

    Parameters
    ----------
    active
        Most rows of a block (``K``).
    dtype
        Type of the statistics and of the first factorisation.
    """

    def __init__(self, active: int, dtype: npt.DTypeLike) -> None:
        self._space: FloatArray = np.zeros((2, active * active), dtype)
        self._every = np.arange(active)
        self._single = self._space.dtype == np.float32
        self.fallbacks = 0
        self.prepare(active)

    def prepare(self, active: int) -> None:
        """Make `gathered` and `factor` room for a block of so many rows."""
        gathered, factor = self._space[:, : active * active]
        self.gathered: FloatArray = gathered.reshape(active, active)
        self.factor: FloatArray = factor.reshape(active, active)
        self._all = self._every[:active]

    def solve(
        self, ridge: float, right: npt.NDArray[np.float64], weights: FloatArray
    ) -> tuple[FloatArray, npt.NDArray[np.float64]]:
        """Change the block's weights so that the residual vanishes.

        Parameters
        ----------
        ridge
            Added to the diagonal of `gathered`, which holds ``A_ss``; `factor` holds its upper
            half and is overwritten.
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
        diagonal = np.einsum("ii->i", self.factor)
        if self._single:
            diagonal += np.float32(ridge)
            if factorise_single(self.factor) == 0:
                found = self._improve(ridge, right, weights, self.factor, _back_single)
                if found is not None:
                    return found
            self.fallbacks += 1
            double: FloatArray = self.gathered.astype(np.float64)
            np.einsum("ii->i", double)[:] += ridge
        else:
            diagonal += ridge
            double = self.factor
        if factorise_double(double) == 0:
            found = self._improve(ridge, right, weights, double, _back_double)
            if found is not None:
                return found
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
        size = np.abs(right).max()
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
            worst = np.abs(left).max()
            if not np.isfinite(worst):
                return None
            if worst <= TOLERANCE * size:
                return weights, right
            epsilon = float(np.finfo(weights.dtype).eps)
            floor = epsilon * update_kernels.rounding_floor(self.gathered, weights, self._all)
            if worst <= FLOOR * (floor + epsilon * ridge * float(np.abs(weights).max())):
                return weights, right
        return None
