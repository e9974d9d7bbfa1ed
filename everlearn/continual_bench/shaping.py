"""What the rewards are made of: degrees in [0, 1] that fall with a distance, and their conjunction.

All are compiled scalar functions, for `rewards.py` and `inverses.py`.
"""

from __future__ import annotations

import math

import numpy as np

from everlearn.support.compiled import njit

TABLE_EDGE = 0.8
"""A block further than this from the z axis is lost."""

_VALUE_AT_MARGIN = 0.1
_LONG_TAIL = 1.0 / _VALUE_AT_MARGIN - 1.0
_GAUSSIAN = -math.log(_VALUE_AT_MARGIN)


@njit(cache=True, inline="always")
def _excess(x, low, high, margin):  # type: ignore[no-untyped-def]
    """Distance from [low, high] in margins; infinite for a margin of zero."""
    if low <= x <= high:
        return 0.0
    beyond = low - x if x < low else x - high
    return beyond / margin if margin != 0.0 else np.inf


@njit(cache=True)
def long_tail(x, low, high, margin):  # type: ignore[no-untyped-def]
    """One inside [low, high], 0.1 a margin away, falling like 1 / x^2."""
    d = _excess(x, low, high, margin)
    return 1.0 / (d * d * _LONG_TAIL + 1.0)


@njit(cache=True)
def gaussian(x, low, high, margin):  # type: ignore[no-untyped-def]
    """One inside [low, high], 0.1 a margin away, falling like a Gaussian."""
    d = _excess(x, low, high, margin)
    return math.exp(-d * d * _GAUSSIAN)


@njit(cache=True)
def hamacher(a, b):  # type: ignore[no-untyped-def]
    """Soft conjunction of two degrees in [0, 1]."""
    total = a + b - a * b
    return a * b / total if total > 0.0 else 0.0


@njit(cache=True)
def distance(x, y, z, p, q, r):  # type: ignore[no-untyped-def]
    """Distance of two points."""
    return math.sqrt((x - p) ** 2 + (y - q) ** 2 + (z - r) ** 2)


@njit(cache=True)
def caging(  # type: ignore[no-untyped-def]
    x, y, z, radius, effort, finger_x, finger_z, left_y, right_y, start, anchor
):
    """How well the fingers enclose an object at (x, y, z), and close on it once they do.

    `anchor` is where the object started; both margins are measured from it. A pad is right
    between the object's radius and 5 cm from its centre.
    """
    reach = 0.05
    caging_y = hamacher(
        long_tail(abs(left_y - y), radius, reach, abs(abs(left_y - anchor[1]) - reach)),
        long_tail(abs(right_y - y), radius, reach, abs(abs(right_y - anchor[1]) - reach)),
    )
    near = 0.005
    margin = math.sqrt((anchor[0] - start[0]) ** 2 + (anchor[2] - start[2]) ** 2) - near
    off = math.sqrt((finger_x - x) ** 2 + (finger_z - z) ** 2)
    enclosed = hamacher(caging_y, long_tail(off, 0.0, near, margin))
    gripping = min(max(0.0, effort), 0.8) / 0.8 if enclosed > 0.97 else 0.0
    return (hamacher(enclosed, gripping) + enclosed) / 2.0
