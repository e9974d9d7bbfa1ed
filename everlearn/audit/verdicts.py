"""Which of the theorem's assumptions held, how often, and by how much they did not."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from everlearn.audit.encoded import Doubles

if TYPE_CHECKING:
    from everlearn.audit.bound import Constants
    from everlearn.audit.result import Point


@dataclass(frozen=True)
class Verdict:
    """One assumption on one stream.

    Attributes
    ----------
    assumption
        Its number in the paper.
    held
        Whether it held wherever it was tried.
    facts
        How often it held, and the numbers behind it.
    """

    assumption: int
    held: bool
    facts: dict[str, float | int | None]


def first_verdict(points: tuple[Point, ...], leverages: Doubles | None) -> Verdict:
    """Assumption 1: features settle, ``sup_x |phi phi^T - A / t|_2 <= 1 / (lambda t)``.

    What the proofs take from it, ``(A^(t) + r I)^-1 phi_t phi_t^T <= I / t``, can be checked at
    every step: the one eigenvalue on the left that is not zero is the leverage.
    """
    found = [point.stability for point in points]
    facts: dict[str, float | int | None] = {
        "times": len(found),
        "times_held": sum(item.held == item.inputs for item in found),
        "pairs": sum(item.inputs for item in found),
        "pairs_held": sum(item.held for item in found),
        "last_norm": found[-1].largest,
        "last_allowed": found[-1].allowed,
        "last_ratio": found[-1].largest / found[-1].allowed,
        "consequence_share": None,
        "consequence_last_ratio": None,
    }
    if leverages is not None:
        scaled = leverages * np.arange(1, len(leverages) + 1)
        facts["consequence_share"] = float(np.mean(scaled <= 1 + 1e-9))
        facts["consequence_last_ratio"] = float(np.median(scaled[-max(len(scaled) // 10, 1) :]))
    return Verdict(1, facts["pairs_held"] == facts["pairs"], facts)


def second_verdict(targets: Doubles, tolerance: float) -> Verdict:
    """Assumption 2: ``y >= 0``; the bounds ``c_y`` and ``c_W`` exist on any stream that ends."""
    largest = float(np.linalg.norm(targets, axis=1).max())
    negative = targets < -tolerance * largest
    share = float(np.mean(~negative.any(axis=1)))
    facts: dict[str, float | int | None] = {
        "steps_held": share,
        "entries_negative": float(np.mean(negative)),
        "entries_zero": float(np.mean(np.abs(targets) <= tolerance * largest)),
        "most_negative": float(targets.min()),
    }
    return Verdict(2, not bool(negative.any()), facts)


def third_verdict(points: tuple[Point, ...], constants: Constants, tolerance: float) -> Verdict:
    """Assumption 3: K is at least ``c_y^2 (|A|_2 / phi^T phi + 1) sqrt(coupling^2 + 1)``, or D.

    The paper divides a matrix by a number; the matrix is read as its spectral norm. Its
    appendix has the sum of ``phi^T phi``, the trace, in that place, and asks for c_y >= 1: both
    are counted too.
    """
    held = {"spectral": 0, "trace": 0, "appendix": 0}
    asked: list[float] = []
    for point in points:
        root = math.sqrt(point.coupling**2 + 1)
        square = constants.target_norm**2
        readings = {
            "spectral": square * (point.spectral / point.feature_square + 1) * root,
            "trace": square * (point.trace / point.feature_square + 1) * root,
            "appendix": max(square, 1.0) * (point.trace / point.feature_square + 1) * root,
        }
        for name, value in readings.items():
            needed = min(float(constants.cells), value)
            held[name] += int(constants.active >= needed * (1 - tolerance))
        asked.append(readings["spectral"])
    facts: dict[str, float | int | None] = {
        "times": len(points),
        "times_held": held["spectral"],
        "times_held_trace": held["trace"],
        "times_held_appendix": held["appendix"],
        "first_asked": asked[0],
        "last_asked": asked[-1],
        "active": constants.active,
    }
    return Verdict(3, held["spectral"] == len(points), facts)
