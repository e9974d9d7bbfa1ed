"""The exact leader (equation 4), the best fixed models in hindsight, and the gap to the sparse one.

Equation 4 of the paper, ``W^(t) = (A + r I)^-1 B`` with ``A = sum phi phi^T`` and ``B = sum phi
y^T`` over the first t - 1 samples and ``r = 1 / lambda``, would cost a factorisation a step. Within
a block of steps it need not be repeated. With ``L L^T = A + r I`` and ``W`` at the start of the
block, ``F`` the block's features and ``Z = L^-1 F^T``, the factor of ``I + Z^T Z = C C^T`` says how
each sample of the block helps to predict the later ones. The errors of the leaders W^(t), each
before it has seen its own sample, are

    e_t = C_tt (C^-1 (Y - F W))_t      and      1 + phi^T (A^(t-1) + r I)^-1 phi = C_tt^2.

So all losses are exact, and no inverse is carried along in which rounding could add up. A stream
that is shorter than the cells it touches is one block from its start, where ``L`` is ``sqrt(r) I``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, cholesky, eigh, solve_triangular

from everlearn.audit.stream import Doubles, EncodedStream, Indices
from everlearn.online.ridge import UnsolvableError

TILE = 1024
"""Steps whose features are dense at the same time."""

RANK_CUTOFF = 1e-12
"""Eigenvalues of ``A`` below this part of the largest are taken for zero.

That is singular values of the features below 1e-6 of the largest. There are always some: the
cells of each grid add up to one, so the grids are linearly dependent.
"""


@dataclass(frozen=True, eq=False)
class Solution:
    """The ridge solution after some samples, and what it was computed from.

    The statistics are the leader's own, not copies: they change when it adds samples.
    """

    samples: int
    ridge: float
    """``r = 1 / lambda``"""
    products: Doubles
    """``A[V, V]``"""
    targets: Doubles
    """``B[V, S]``"""
    squares: float
    """Sum of all ``|y|^2``."""
    factor: Doubles
    """Lower Cholesky factor of ``A + r I``."""
    weights: Doubles
    """``W[V, S]``"""

    def block(self, active: Indices) -> Doubles:
        """``A_ss + r I`` of active cells ``s``."""
        block: Doubles = self.products[np.ix_(active, active)]
        np.einsum("ii->i", block)[:] += self.ridge
        return block

    @property
    def regularised_minimum(self) -> float:
        """``min over W of (sum of squared errors + r |W|^2)``."""
        return float(self.squares - np.sum(self.weights * self.targets))


class ExactLeader:
    """Statistics of a stream in float64, and the exact leader they give.

    Nothing here is shared with the model under audit: ``A`` is a plain product of features.
    """

    def __init__(self, cells: int, outputs: int, ridge: float) -> None:
        self.products: Doubles = np.zeros((cells, cells))
        self.targets: Doubles = np.zeros((cells, outputs))
        self.ridge = ridge
        self.squares = 0.0
        self.samples = 0

    def add(self, features: Doubles, targets: Doubles) -> None:
        """Add samples ``features[n, V]``, ``targets[n, S]``."""
        self.products += features.T @ features
        self.targets += features.T @ targets
        self.squares += float(np.sum(targets**2))
        self.samples += len(features)

    def solve(self) -> Solution:
        """Equation 4 over the samples so far."""
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
        return Solution(
            self.samples,
            self.ridge,
            self.products,
            self.targets,
            self.squares,
            factor,
            weights=_solve(factor, self.targets),
        )


def _solve(factor: Doubles, right: Doubles) -> Doubles:
    """``(L L^T)^-1 right``."""
    half = solve_triangular(factor, right, lower=True, check_finite=False)
    out: Doubles = solve_triangular(factor, half, lower=True, trans="T", check_finite=False)
    return out


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
    return _losses_in_turn(half.T @ half, targets - features @ solution.weights)


def stream_losses(encoded: EncodedStream, ridge: float) -> tuple[Doubles, Doubles]:
    """Losses and leverages of the leaders of a stream, as one block from its start.

    Costs ``T^2 V`` operations and ``8 T^2`` bytes, and no factorisation over cells.
    """
    inner = np.zeros((encoded.steps, encoded.steps))
    blocks = [slice(first, first + TILE) for first in range(0, encoded.steps, TILE)]
    for i, rows in enumerate(blocks):
        features = encoded.dense(rows)
        for columns in blocks[: i + 1]:  # the upper half is never read
            inner[rows, columns] = features @ encoded.dense(columns).T
    inner /= ridge
    return _losses_in_turn(inner, encoded.targets)


def _losses_in_turn(covariance: Doubles, errors: Doubles) -> tuple[Doubles, Doubles]:
    """Losses and leverages, given ``Z^T Z`` (overwritten) and ``Y - F W``."""
    np.einsum("ii->i", covariance)[:] += 1
    # Transposed, it is in the order of LAPACK and need not be copied; its upper half is read.
    corner = cholesky(covariance.T, lower=False, overwrite_a=True, check_finite=False)
    scale = np.diagonal(corner)
    whitened = solve_triangular(corner, errors, lower=False, trans="T", check_finite=False)
    losses = np.sum((scale[:, None] * whitened) ** 2, axis=1)
    return losses, 1 - 1 / scale**2


@dataclass(frozen=True)
class FixedModel:
    """A comparator ``xi``: its loss ``sum |xi^T phi_t - y_t|^2`` over the samples, and its norm."""

    loss: float
    norm: float


def ridge_comparator(solution: Solution) -> FixedModel:
    """Ridge in hindsight: the least loss of all models whose norm is not larger than its own.

    (A better one would also have the lower regularised loss.)
    """
    norm = float(np.linalg.norm(solution.weights))
    # Minimum of loss + r |W|^2, less the second part: exact, and free of cancellation in A.
    return FixedModel(solution.regularised_minimum - solution.ridge * norm**2, norm)


def least_squares_comparator(solution: Solution) -> tuple[FixedModel, int]:
    """Least squares in hindsight, of least norm: the best of all models; and the features' rank."""
    values, vectors = eigh(solution.products, driver="evd", check_finite=False)
    kept = values > RANK_CUTOFF * max(float(values[-1]), 0.0)
    coordinates = vectors[:, kept].T @ solution.targets
    norms = np.sum(coordinates**2, axis=1)
    # What rounding leaves of a perfect fit can be a hair below zero.
    loss = max(float(solution.squares - np.sum(norms / values[kept])), 0.0)
    norm = float(np.sqrt(np.sum(norms / values[kept] ** 2)))
    return FixedModel(loss, norm), int(kept.sum())


@dataclass(frozen=True)
class Gap:
    """The sparse model ``W~`` against the exact leader ``W`` after some samples.

    Proposition 3 bounds ``W^(t+1) - W~^(t+1)`` by ``K r_M Delta_t``. The matrices are not square,
    so the sign between them is read as one of norms. Its proof makes one sparse step *from the
    exact solution*; the sparse model makes its steps from its own. Both are measured.
    """

    norm: float
    """``|W~ - W|_F``"""
    relative: float
    """The same as a part of ``|W|_F``."""
    excess: float
    """By which part the sparse model's regularised loss over all samples is above its minimum."""
    one_step: float
    """``|W' - W|_F`` of one sparse step from the exact solution before the last sample."""
    change: float
    """``|Delta_t|_F`` with ``Delta_t = (A + r I)^-1 phi_t y_t^T`` (Lemma 2)."""


def measure_gap(
    solution: Solution, online: Doubles, feature: Doubles, target: Doubles, active: Indices
) -> Gap:
    """Compare ``W~ = online[V, S]`` with the leader after the sample `feature`, `target`.

    `active` are the rows of the sample's cells.
    """
    exact = solution.weights
    apart = online - exact
    norm = float(np.linalg.norm(apart))
    size = float(np.linalg.norm(exact))
    energy = np.sum(apart * (solution.products @ apart)) + solution.ridge * norm**2
    minimum = solution.regularised_minimum
    gain = _solve(solution.factor, feature[:, None])[:, 0]
    stepped = _sparse_step(solution, gain, feature, target, active)
    return Gap(
        norm=norm,
        relative=norm / size if size else 0.0,
        excess=float(energy / minimum) if minimum > 0 else 0.0,
        one_step=float(np.linalg.norm(stepped - exact)),
        change=float(np.linalg.norm(gain) * np.linalg.norm(target)),
    )


def _sparse_step(
    solution: Solution, gain: Doubles, feature: Doubles, target: Doubles, active: Indices
) -> Doubles:
    """Equation 5 at the last sample, from the exact solution before it."""
    # The solution before the sample, from the one after it (Sherman and Morrison).
    leverage = float(gain @ feature)
    error = (target - solution.weights.T @ feature) / (1 - leverage)
    weights = solution.weights - np.outer(gain, error)
    # W_s += (A_ss + r I)^-1 (B_s - A_s W - r W_s) is equation 5 with W_s on both sides.
    residual = (
        solution.targets[active]
        - solution.products[active] @ weights
        - solution.ridge * weights[active]
    )
    weights[active] += cho_solve(cho_factor(solution.block(active), lower=True), residual)
    return weights
