"""The best fixed model in hindsight.

The theorem's loss is the plain squared error, ``f_t(W) = |W^T phi_t - y_t|^2``, and its regret is
against any fixed ``xi`` of norm at most ``c_W``. Two of those are the best of their kind:

- the ridge solution ``W^(T+1)`` has the least squared error of all models whose norm is not
  larger than its own (else that model would also have the lower regularised loss);
- the least-squares solution has the least of all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from everlearn.audit.leader import Solution

RANK_CUTOFF = 1e-12
"""Eigenvalues of ``A`` below this part of the largest are taken for zero.

That is singular values of the features below 1e-6 of the largest. There are always some: the
cells of each grid add up to one, so the grids are linearly dependent.
"""


@dataclass(frozen=True)
class FixedModel:
    """A comparator: its plain squared loss over everything seen, and its norm."""

    loss: float
    norm: float


def ridge_comparator(solution: Solution) -> FixedModel:
    """Return the ridge solution of everything seen, measured by the plain squared loss."""
    norm = float(np.linalg.norm(solution.weights))
    # Minimum of loss + r |W|^2, less the second part: exact, and free of cancellation in A.
    return FixedModel(solution.regularised_minimum - solution.ridge * norm**2, norm)


def least_squares_comparator(solution: Solution) -> tuple[FixedModel, int]:
    """Return the least-squares solution of least norm, and the rank of the features."""
    values, vectors = eigh(solution.products, driver="evd", check_finite=False)
    kept = values > RANK_CUTOFF * max(float(values[-1]), 0.0)
    coordinates = vectors[:, kept].T @ solution.targets
    norms = np.sum(coordinates**2, axis=1)
    # What rounding leaves of a perfect fit can be a hair below zero.
    loss = max(float(solution.squares - np.sum(norms / values[kept])), 0.0)
    norm = float(np.sqrt(np.sum(norms / values[kept] ** 2)))
    return FixedModel(loss, norm), int(kept.sum())
