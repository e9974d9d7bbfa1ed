"""The paper's bound on the regret, with the constants as measured."""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class Constants:
    """What the theorem's bound is made of.

    Attributes
    ----------
    cells
        ``D``.
    used
        Cells that the stream touched; all others could be left out.
    active
        ``K``.
    outputs
        ``S``.
    penalty_inverse
        ``lambda``, one over the ridge.
    target_norm
        ``c_y``, the largest ``|y_t|``.
    weight_norm
        ``c_W``, the largest norm of the sparse and the exact model at the points audited and
        of the comparators.
    schur_ratio
        ``r_M``, the largest found: the supremum is no less.
    """

    cells: int
    used: int
    active: int
    outputs: int
    penalty_inverse: float
    target_norm: float
    weight_norm: float
    schur_ratio: float

    def bound(self, steps: float) -> float:
        """``c_W^2 / lambda + 5 lambda (K^2 r_M^2 + 1) c_y^2 D (log T + 1)``."""
        first = self.weight_norm**2 / self.penalty_inverse
        return first + 5 * self.penalty_inverse * self._factor() * (math.log(steps) + 1)

    def _factor(self) -> float:
        """``(K^2 r_M^2 + 1) c_y^2 D``."""
        return (self.active**2 * self.schur_ratio**2 + 1) * self.target_norm**2 * self.cells

    def best_penalty_inverse(self, steps: float) -> float:
        """``lambda`` of the theorem's second part, which asks for it to be at least 1."""
        return self.weight_norm / math.sqrt(5 * self._factor() * (math.log(steps) + 1))

    def first_useful_step(self) -> float | None:
        """Return the step from which on the bound is below ``c_y^2 T``.

        That is the most that a model that predicts no change ever loses. Before, the bound
        says nothing that is not known without it. None if nothing ever moves.
        """
        allowed = self.target_norm**2
        if allowed == 0:
            return None
        steps = max(1.0, self.bound(1.0) / allowed)
        for _ in range(200):  # a contraction: the logarithm hardly moves
            steps = max(1.0, self.bound(steps) / allowed)
        return steps
