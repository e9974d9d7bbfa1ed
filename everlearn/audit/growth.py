"""How a regret grows: like log T, like the square root of T, or like T."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from everlearn.audit.encoded import Doubles

SHAPES: dict[str, Callable[[Doubles], Doubles]] = {
    "log T": np.log,
    "sqrt T": np.sqrt,
    "T": lambda times: times,
}

LATE = 0.1
"""Part of the stream left out at its start: a law of growth is about what comes later."""

FEWEST = 5
"""Points that a fit needs."""


@dataclass(frozen=True)
class Fit:
    """``regret = offset + slope * shape(T)``, by least squares.

    Attributes
    ----------
    offset, slope
        Coefficients.
    explained
        Part of the variance explained (R squared).
    """

    offset: float
    slope: float
    explained: float


@dataclass(frozen=True)
class Growth:
    """How a curve grows after the first tenth.

    Attributes
    ----------
    fits
        One for each of `SHAPES`.
    best
        The shape that explains most.
    exponent
        Slope of log regret on log T: 0 for a constant, about 1 / log T for a logarithm, 0.5
        for a root, 1 for a line. None if the regret is not positive everywhere.
    points
        Points that were fitted.
    """

    fits: dict[str, Fit]
    best: str
    exponent: float | None
    points: int


def fit_growth(times: Sequence[int], regrets: Sequence[float]) -> Growth | None:
    """Fit the three shapes; None if there are too few points or nothing grows."""
    all_times, all_regrets = np.array(times, np.float64), np.array(regrets, np.float64)
    late = all_times >= LATE * all_times.max(initial=0.0)
    x, y = all_times[late], all_regrets[late]
    spread = float(np.sum((y - y.mean()) ** 2)) if len(y) else 0.0
    if len(y) < FEWEST or spread <= 1e-24 * float(np.sum(y**2)):
        return None
    fits = {}
    for name, shape in SHAPES.items():
        design = np.stack([np.ones_like(x), shape(x)], axis=1)
        coefficients = np.linalg.lstsq(design, y, rcond=None)[0]
        left = float(np.sum((y - design @ coefficients) ** 2))
        fits[name] = Fit(float(coefficients[0]), float(coefficients[1]), 1 - left / spread)
    exponent = None
    if (y > 0).all():
        exponent = float(np.polyfit(np.log(x), np.log(y), 1)[0])
    best = max(fits, key=lambda name: fits[name].explained)
    return Growth(fits, best, exponent, len(y))
