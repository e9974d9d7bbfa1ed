"""How far the sparse model is from the exact leader, and what the paper's proposition allows.

The proposition bounds ``W^(t+1) - W~^(t+1)`` by ``K r_M Delta_t``, with
``Delta_t = (A + r I)^-1 phi_t y_t^T``. The matrices are not square, so the sign between them is
read as one of norms. Its proof makes one sparse step *from the exact solution*; the sparse model
makes its steps from its own. Both are measured.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from everlearn.audit.assumptions import Rows
from everlearn.audit.encoded import Doubles
from everlearn.audit.leader import Solution


@dataclass(frozen=True)
class Gap:
    """Sparse against exact after some samples.

    Attributes
    ----------
    norm, relative
        ``|W~ - W|_F``, and as a part of ``|W|_F``.
    excess
        By which part the regularised loss of the sparse model over everything seen is above
        its minimum.
    one_step
        ``|W' - W|_F`` of one sparse step from the exact solution before the last sample; None
        if the ridge grows, which the proposition does not cover.
    change
        ``|Delta_t|_F``; the proposition allows ``K r_M`` times this.
    """

    norm: float
    relative: float
    excess: float
    one_step: float | None
    change: float


def measure_gap(
    solution: Solution,
    online: Doubles,
    feature: Doubles,
    target: Doubles,
    active: Rows,
    growing: bool = False,
) -> Gap:
    """Compare weights ``online[V, S]`` with the leader after the sample `feature`, `target`.

    `active` are the rows of the sample's cells, `growing` whether the ridge grows.
    """
    exact = solution.weights
    apart = online - exact
    norm = float(np.linalg.norm(apart))
    size = float(np.linalg.norm(exact))
    energy = np.sum(apart * (solution.products @ apart)) + solution.ridge * norm**2
    minimum = solution.regularised_minimum
    gain = solution.solve(feature[:, None])[:, 0]
    one_step = None
    if not growing:
        stepped = _sparse_step(solution, gain, feature, target, active)
        one_step = float(np.linalg.norm(stepped - exact))
    return Gap(
        norm=norm,
        relative=norm / size if size else 0.0,
        excess=float(energy / minimum) if minimum > 0 else 0.0,
        one_step=one_step,
        change=float(np.linalg.norm(gain) * np.linalg.norm(target)),
    )


def _sparse_step(
    solution: Solution, gain: Doubles, feature: Doubles, target: Doubles, active: Rows
) -> Doubles:
    """Equation 5 at the last sample, from the exact solution before it."""
    leverage = float(gain @ feature)
    error = (target - solution.weights.T @ feature) / (1 - leverage)
    weights = solution.weights - np.outer(gain, error)
    block = solution.products[np.ix_(active, active)]
    np.einsum("ii->i", block)[:] += solution.ridge
    residual = (
        solution.targets[active]
        - solution.products[active] @ weights
        - solution.ridge * weights[active]
    )
    weights[active] += cho_solve(cho_factor(block, lower=True), residual)
    return weights
