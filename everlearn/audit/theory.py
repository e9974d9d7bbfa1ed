"""The paper's theorem 1: its bound, the quantities in its assumptions, and laws of growth.

Symbols as in the paper: ``A = sum phi phi^T`` over the first t samples, ``s`` the active cells of
an input and ``rest`` all others. The ridge is ``r = 1 / lambda``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigvalsh, solve_triangular
from scipy.sparse.linalg import LinearOperator, eigsh

from everlearn.audit.leader import Solution
from everlearn.audit.stream import Doubles, Indices

SMALL = 400
"""Rows up to which all eigenvalues are computed; beyond, the largest by Lanczos iteration."""

LAWS: dict[str, Callable[[Doubles], Doubles]] = {
    "log T": np.log,
    "sqrt T": np.sqrt,
    "T": lambda times: times,
}

LATE = 0.1
"""Part of the stream left out at its start: a law of growth is about what comes later."""

FEWEST = 5
"""Points that a fit needs."""


@dataclass(frozen=True)
class Constants:
    """The constants of theorem 1, as measured on a stream."""

    cells: int
    """``D``"""
    used: int
    """Cells that the stream touched; all others could be left out."""
    active: int
    """``K``"""
    outputs: int
    """``S``"""
    penalty_inverse: float
    """``lambda``, one over the ridge."""
    target_norm: float
    """``c_y``, the largest ``|y_t|``."""
    weight_norm: float
    """``c_W``, the largest norm of sparse model, exact model and comparators at the points."""
    schur_ratio: float
    """``r_M``, the largest that was measured: the supremum is no less."""

    def bound(self, steps: float) -> float:
        """``c_W^2 / lambda + 5 lambda (K^2 r_M^2 + 1) c_y^2 D (log T + 1)`` of theorem 1."""
        first = self.weight_norm**2 / self.penalty_inverse
        return first + 5 * self.penalty_inverse * self._factor() * (math.log(steps) + 1)

    def _factor(self) -> float:
        """``(K^2 r_M^2 + 1) c_y^2 D``."""
        return (self.active**2 * self.schur_ratio**2 + 1) * self.target_norm**2 * self.cells

    def best_penalty_inverse(self, steps: float) -> float | None:
        """``lambda = c_W / sqrt(5 (K^2 r_M^2 + 1) c_y^2 D (log T + 1))``.

        The second part of theorem 1 sets this and needs it to be at least 1. None if nothing
        ever moves.
        """
        if self.target_norm == 0:
            return None
        return self.weight_norm / math.sqrt(5 * self._factor() * (math.log(steps) + 1))

    def first_useful_step(self) -> float | None:
        """Return the step from which on the bound is below ``c_y^2 T``; None if nothing ever moves.

        That is the most that a model that predicts no change can lose. Before that step the
        bound adds nothing to it.
        """
        allowed = self.target_norm**2
        if allowed == 0:
            return None
        steps = max(1.0, self.bound(1.0) / allowed)
        for _ in range(200):  # a contraction: the logarithm hardly changes
            steps = max(1.0, self.bound(steps) / allowed)
        return steps


@dataclass(frozen=True)
class Stability:
    """Assumption 1 at one time: ``sup_x |phi phi^T - A / t|_2 <= 1 / (lambda t)``."""

    largest: float
    """The spectral norm at the input where it was largest."""
    allowed: float
    """``1 / (lambda t)``"""
    inputs: int
    """Inputs that were tried."""
    held: int
    """For how many of them it held."""


def stability(
    solution: Solution, features: Doubles, largest: tuple[float, Doubles], tolerance: float
) -> Stability:
    """Measure assumption 1 on the inputs ``features[N, V]``; the supremum over all is no less.

    `largest` is the largest eigenvalue of ``A`` and its vector. The norm is at least what any
    unit vector gives, here the input itself and that eigenvector: where this is too much
    already, the assumption has failed there and the norm need not be computed.
    """
    count = solution.samples
    allowed = solution.ridge / count
    value, vector = largest
    squares = np.sum(features**2, axis=1)
    quadratic = np.sum(features * (features @ solution.products), axis=1) / count
    at_least = np.maximum(
        np.abs(squares - quadratic / squares), np.abs((features @ vector) ** 2 - value / count)
    )
    # Rounding of A is no failure of the assumption.
    limit = allowed * (1 + tolerance) + 1e-12 * float(squares.max())
    furthest = int(np.argmax(at_least))
    norms = {furthest: _deviation(solution.products, count, features[furthest])}
    held = 0
    for i in np.flatnonzero(at_least <= limit):
        if i not in norms:
            norms[i] = _deviation(solution.products, count, features[i])
        held += norms[i] <= limit
    return Stability(max(norms.values()), allowed, len(features), int(held))


def _deviation(products: Doubles, count: int, feature: Doubles) -> float:
    """``|phi phi^T - A / t|_2``."""
    if len(products) <= SMALL:
        values = eigvalsh(np.outer(feature, feature) - products / count)
        return float(np.abs(values).max())

    def apply(vector: Doubles) -> Doubles:
        flat = vector.ravel()
        out: Doubles = feature * (feature @ flat) - products @ flat / count
        return out

    start = apply(feature)
    size = float(np.linalg.norm(start))
    if size <= 1e-13 * float(feature @ feature) ** 1.5:
        return size / float(np.linalg.norm(feature))  # all inputs alike: nothing to iterate on
    operator = LinearOperator(products.shape, matvec=apply, dtype=np.float64)
    values = eigsh(operator, k=1, which="LM", v0=feature, return_eigenvectors=False, tol=1e-6)
    return float(np.abs(values[0]))


def largest_eigenvalue(products: Doubles) -> tuple[float, Doubles]:
    """Largest eigenvalue of ``A`` and its vector."""
    if len(products) <= SMALL:
        values, vectors = np.linalg.eigh(products)
        return float(values[-1]), vectors[:, -1]
    # Features of grids are not negative, so the eigenvector is not orthogonal to this start.
    values, vectors = eigsh(products, k=1, which="LA", v0=np.ones(len(products)), tol=1e-9)
    return float(values[0]), vectors[:, 0]


def required_active(
    target_square: float, matrix_size: float, feature_square: float, coupling: float
) -> float:
    """``c_y^2 (|A| / phi_t^T phi_t + 1) sqrt(|A_rest,s (A_ss + r I)^-1|_2^2 + 1)``.

    Assumption 3 needs K to be at least this, or D.
    """
    return target_square * (matrix_size / feature_square + 1) * math.sqrt(coupling**2 + 1)


def coupling(solution: Solution, active: Indices) -> float:
    """``|A_rest,s (A_ss + r I)^-1|_2``, of assumption 3."""
    others = np.delete(solution.products[:, active], active, axis=0)
    if not len(others):
        return 0.0
    ratio = cho_solve(cho_factor(solution.block(active), lower=True), others.T)
    return float(np.sqrt(max(eigvalsh(ratio @ ratio.T)[-1], 0.0)))


def schur_ratio(solution: Solution, active: Indices) -> float:
    """``|(A_ss + r I + M)(A_ss + r I - M)^-1|_F``, whose supremum is ``r_M`` (proposition 3).

    ``M = A_s,rest (A_rest,rest + r I)^-1 A_rest,s``. The Schur complement ``A_ss + r I - M`` is
    the inverse of the block ``P_ss`` of ``P = (A + r I)^-1``, so the product is
    ``2 (A_ss + r I) P_ss - I``: one solve with the factor that is known already.
    """
    unit = np.zeros((len(solution.products), len(active)))
    unit[active, np.arange(len(active))] = 1
    half = solve_triangular(solution.factor, unit, lower=True, check_finite=False)
    ratio = 2 * solution.block(active) @ (half.T @ half)
    np.einsum("ii->i", ratio)[:] -= 1
    return float(np.linalg.norm(ratio))


@dataclass(frozen=True)
class Fit:
    """``regret = offset + slope * law(T)``, by least squares."""

    offset: float
    slope: float
    explained: float
    """Part of the variance explained (R squared)."""


@dataclass(frozen=True)
class Growth:
    """How a regret grows after the first tenth of the stream."""

    fits: dict[str, Fit]
    """One for each of `LAWS`."""
    best: str
    """The law that explains most."""
    exponent: float | None
    """Slope of log regret on log T: 0 for a constant, about 1 / log T for a logarithm, 0.5 for a
    root, 1 for a line. None if the regret is not positive everywhere."""
    points: int
    """Points that were fitted."""


def fit_growth(times: Sequence[int], regrets: Sequence[float]) -> Growth | None:
    """Fit the three laws; None if there are too few points or nothing grows."""
    all_times, all_regrets = np.array(times, np.float64), np.array(regrets, np.float64)
    late = all_times >= LATE * all_times.max(initial=0.0)
    x, y = all_times[late], all_regrets[late]
    spread = float(np.sum((y - y.mean()) ** 2)) if len(y) else 0.0
    if len(y) < FEWEST or spread <= 1e-24 * float(np.sum(y**2)):
        return None
    fits = {}
    for name, law in LAWS.items():
        design = np.stack([np.ones_like(x), law(x)], axis=1)
        coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
        left = float(np.sum((y - design @ coefficients) ** 2))
        fits[name] = Fit(float(coefficients[0]), float(coefficients[1]), 1 - left / spread)
    exponent = None
    if (y > 0).all():
        exponent = float(np.polyfit(np.log(x), np.log(y), 1)[0])
    best = max(fits, key=lambda name: fits[name].explained)
    return Growth(fits, best, exponent, len(y))
