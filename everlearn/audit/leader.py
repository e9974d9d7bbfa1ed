"""The exact leader: the ridge solution of everything seen, before every step.

The paper's equation 4, ``W^(t) = (A + r I)^-1 B`` over the first t - 1 samples, would cost a
factorisation a step. Within a block of steps it need not be repeated. With ``L L^T = A + r I``
and ``W`` at the start of the block, ``F`` the block's features and ``Z = L^-1 F^T``, the matrix
``I + Z^T Z = C C^T`` knows how each sample of the block helps to predict the later ones: the
errors that the leaders W^(t) make, each in its turn, are

    e_t = C_tt (C^-1 (Y - F W))_t      and      1 + phi^T (A^(t-1) + r I)^-1 phi = C_tt^2.

So all losses are exact, and no inverse is carried along that rounding could spoil. A stream that
is shorter than the cells it touches is one block from its start, where ``L`` is ``sqrt(r) I``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cholesky, solve_triangular

from everlearn.audit.encoded import Doubles, EncodedStream
from everlearn.online.ridge import UnsolvableError

TILE = 1024
"""Steps whose features are dense at the same time."""


@dataclass(frozen=True, eq=False)
class Solution:
    """The ridge solution after `samples`, and what it was computed from.

    Statistics are those of the leader itself, not copies: they move on when it takes in more.

    Attributes
    ----------
    samples, ridge
        How many, and ``r``.
    products, targets, squares
        ``A[V, V]``, ``B[V, S]`` and the sum of all ``|y|^2``.
    factor
        Lower Cholesky factor of ``A + r I``.
    weights
        ``W[V, S]``.
    """

    samples: int
    ridge: float
    products: Doubles
    targets: Doubles
    squares: float
    factor: Doubles
    weights: Doubles

    def solve(self, right: Doubles) -> Doubles:
        """Return ``(A + r I)^-1 right``."""
        half = solve_triangular(self.factor, right, lower=True, check_finite=False)
        out: Doubles = solve_triangular(
            self.factor, half, lower=True, trans="T", check_finite=False
        )
        return out

    def loss(self, weights: Doubles) -> float:
        """Sum of squared errors of fixed `weights` over everything seen."""
        fitted = np.sum(weights * (self.products @ weights - 2 * self.targets))
        return float(self.squares + fitted)

    @property
    def regularised_minimum(self) -> float:
        """``min over W of (sum of squared errors + r |W|^2)``."""
        return float(self.squares - np.sum(self.weights * self.targets))


class ExactLeader:
    """Statistics of a stream in float64, and the exact leader they give.

    Nothing here is shared with the model under audit: ``A`` is a plain product of features.

    Parameters
    ----------
    cells, outputs
        Rows and columns of the weights.
    ridge, growing
        Strength of the ridge; if `growing`, it is multiplied by the number of samples.
    """

    def __init__(self, cells: int, outputs: int, ridge: float, growing: bool = False) -> None:
        self.products: Doubles = np.zeros((cells, cells))
        self.targets: Doubles = np.zeros((cells, outputs))
        self.squares = 0.0
        self.samples = 0
        self._ridge, self._growing = ridge, growing

    @property
    def ridge(self) -> float:
        """The ridge in force."""
        return self._ridge * max(self.samples, 1) if self._growing else self._ridge

    def add(self, features: Doubles, targets: Doubles) -> None:
        """Take in samples ``features[n, V]``, ``targets[n, S]``."""
        self.products += features.T @ features
        self.targets += features.T @ targets
        self.squares += float(np.sum(targets**2))
        self.samples += len(features)

    def solve(self) -> Solution:
        """Factorise and solve what has been seen."""
        matrix = self.products.copy()
        np.einsum("ii->i", matrix)[:] += self.ridge
        try:
            # The transpose of a symmetric matrix is in the order that LAPACK wants.
            factor = cholesky(matrix.T, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError as error:
            raise UnsolvableError(
                f"A + r I over {len(matrix)} cells with ridge {self.ridge:g} is not positive "
                "definite to rounding; audit with a larger ridge"
            ) from error
        half = solve_triangular(factor, self.targets, lower=True, check_finite=False)
        weights = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
        return Solution(
            self.samples,
            self.ridge,
            self.products,
            self.targets,
            self.squares,
            factor,
            weights,
        )


def block_losses(
    solution: Solution, features: Doubles, targets: Doubles
) -> tuple[Doubles, Doubles]:
    """Losses of the leaders of a block of steps, each before it has seen its own sample.

    Parameters
    ----------
    solution
        The leader before the first step of the block.
    features, targets
        ``[n, V]`` and ``[n, S]``.

    Returns
    -------
    losses, leverages
        ``f_t(W^(t))``, and ``phi_t^T (A^(t) + r I)^-1 phi_t`` with the sample itself in
        ``A^(t)``, of each step ``[n]``.
    """
    half = solve_triangular(solution.factor, features.T, lower=True, check_finite=False)
    return _in_turn(half.T @ half, targets - features @ solution.weights)


def stream_losses(encoded: EncodedStream, ridge: float) -> tuple[Doubles, Doubles]:
    """Losses and leverages of the leaders of a whole stream, as one block from its start.

    Costs ``T^2 V`` operations and ``8 T^2`` bytes, and no factorisation over cells.
    """
    inner = np.zeros((encoded.steps, encoded.steps))
    blocks = [slice(first, first + TILE) for first in range(0, encoded.steps, TILE)]
    for i, rows in enumerate(blocks):
        features = encoded.dense(rows)
        for columns in blocks[: i + 1]:  # the upper half is never read
            inner[rows, columns] = features @ encoded.dense(columns).T
    inner /= ridge
    return _in_turn(inner, encoded.targets)


def _in_turn(covariance: Doubles, errors: Doubles) -> tuple[Doubles, Doubles]:
    """Losses and leverages, given ``Z^T Z`` (overwritten) and errors of the first leader."""
    np.einsum("ii->i", covariance)[:] += 1
    # Transposed, it is in the order of LAPACK and need not be copied; its upper half is read.
    corner = cholesky(covariance.T, lower=False, overwrite_a=True, check_finite=False)
    scale = np.diagonal(corner)
    whitened = solve_triangular(corner, errors, lower=False, trans="T", check_finite=False)
    losses = np.sum((scale[:, None] * whitened) ** 2, axis=1)
    return losses, 1 - 1 / scale**2
