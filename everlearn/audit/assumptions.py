"""The quantities in the theorem's three assumptions, at one moment of a stream.

Symbols as in the paper: ``A = sum phi phi^T`` over the first t samples, ``s`` the active cells of
an input and ``rest`` all others, ``r = 1 / lambda``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve, eigvalsh, solve_triangular
from scipy.sparse.linalg import LinearOperator, eigsh

from everlearn.audit.encoded import Doubles
from everlearn.audit.leader import Solution

SMALL = 400
"""Rows up to which all eigenvalues are computed; beyond, the largest by Lanczos iteration."""

Rows = npt.NDArray[Any]


@dataclass(frozen=True)
class Stability:
    """Assumption 1 at one time: ``sup_x |phi phi^T - A / t|_2 <= r / t``.

    Attributes
    ----------
    largest
        The spectral norm at the input where it was found largest.
    allowed
        ``r / t``.
    inputs, held
        Inputs that were tried, and for how many of them it held.
    """

    largest: float
    allowed: float
    inputs: int
    held: int


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
    norms = {furthest: _spread(solution.products, count, features[furthest])}
    held = 0
    for i in np.flatnonzero(at_least <= limit):
        if i not in norms:
            norms[i] = _spread(solution.products, count, features[i])
        held += norms[i] <= limit
    return Stability(max(norms.values()), allowed, len(features), int(held))


def _spread(products: Doubles, count: int, feature: Doubles) -> float:
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
    # Features of grids are not negative, so the vector looked for is not orthogonal to this start.
    values, vectors = eigsh(products, k=1, which="LA", v0=np.ones(len(products)), tol=1e-9)
    return float(values[0]), vectors[:, 0]


def coupling(solution: Solution, active: Rows) -> float:
    """``|A_rest,s (A_ss + r I)^-1|_2``, of assumption 3."""
    block = solution.products[np.ix_(active, active)]
    np.einsum("ii->i", block)[:] += solution.ridge
    others = np.delete(solution.products[:, active], active, axis=0)
    if not len(others):
        return 0.0
    ratio = cho_solve(cho_factor(block, lower=True), others.T)
    return float(np.sqrt(max(eigvalsh(ratio @ ratio.T)[-1], 0.0)))


def schur_ratio(solution: Solution, active: Rows) -> float:
    """``|(A_ss + r I + M)(A_ss + r I - M)^-1|_F``, whose supremum is the paper's ``r_M``.

    ``M = A_s,rest (A_rest,rest + r I)^-1 A_rest,s``. The Schur complement ``A_ss + r I - M`` is
    the inverse of the block ``P_ss`` of ``P = (A + r I)^-1``, so the product is
    ``2 (A_ss + r I) P_ss - I``, and one solve with the factor at hand does it.
    """
    unit = np.zeros((len(solution.products), len(active)))
    unit[active, np.arange(len(active))] = 1
    half = solve_triangular(solution.factor, unit, lower=True, check_finite=False)
    block = solution.products[np.ix_(active, active)]
    np.einsum("ii->i", block)[:] += solution.ridge
    ratio = 2 * block @ (half.T @ half)
    np.einsum("ii->i", ratio)[:] -= 1
    return float(np.linalg.norm(ratio))
