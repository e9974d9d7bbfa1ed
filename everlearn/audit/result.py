"""What an audit measured and which assumptions held, as values that survive a trip through JSON."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from everlearn.audit.leader import FixedModel, Gap
from everlearn.audit.stream import Doubles
from everlearn.audit.theory import Constants, Growth, Stability, required_active

Learner = Literal["online", "leader"]
Comparator = Literal["ridge", "least_squares"]

LEARNERS: dict[Learner, str] = {"online": "sparse online model", "leader": "exact leader"}
COMPARATORS: dict[Comparator, str] = {
    "ridge": "ridge, the best of its norm",
    "least_squares": "least squares, the best of all",
}

TOLERANCE = 1e-6
"""Relative slack before an assumption counts as failed."""


@dataclass(frozen=True)
class Point:
    """What was measured after some steps of a stream."""

    step: int
    """Transitions seen (``t``)."""
    online_loss: float
    """Sum of squared errors so far of the sparse online model."""
    leader_loss: float | None
    """The same of the exact leader; None if it was left out."""
    still_loss: float
    """The same of a model that predicts no change."""
    ridge: FixedModel
    """Ridge in hindsight, over these steps."""
    least_squares: FixedModel | None
    """Least squares in hindsight; None if it was left out."""
    regularised_minimum: float
    """``min over W of (loss + r |W|^2)``"""
    rank: int | None
    """Rank of the features; None if least squares was left out."""
    online_norm: float
    """``|W~|_F`` of the sparse model."""
    gap: Gap
    """Sparse against exact weights."""
    stability: Stability
    """Assumption 1."""
    spectral: float
    """``|A|_2``, of assumption 3 as are the next three."""
    trace: float
    """``tr A``"""
    feature_square: float
    """``phi_t^T phi_t``"""
    coupling: float
    """``|A_rest,s (A_ss + r I)^-1|_2``"""
    schur_ratio: float
    """Largest term of ``r_M`` over the active blocks that were tried."""
    blocks: int
    """How many were tried."""


@dataclass(frozen=True, eq=False)
class StepLosses:
    """Squared errors of both learners and leverages at every step ``[T]``."""

    online: Doubles
    leader: Doubles | None
    """None if the leader was left out, as are leverages."""
    leverage: Doubles | None


@dataclass(frozen=True)
class Verdict:
    """Whether one assumption of theorem 1 held on a stream."""

    assumption: int
    """Its number in the paper."""
    held: bool
    """Whether it held wherever it was tried."""
    facts: dict[str, float | int | None]
    """How often it held, and the numbers behind it."""


@dataclass(frozen=True)
class LeaderIdentity:
    """What is true of the exact leader without any assumption, and how well it was computed.

    With ``h_t = phi_t^T (A^(t) + r I)^-1 phi_t`` the losses satisfy
    ``sum (1 - h_t) f_t(W^(t)) = min over W of (sum f_t(W) + r |W|^2)``: so the regret against that
    minimum is ``sum h_t f_t(W^(t))``, at most ``max f_t`` times ``log det(I + A / r)``. (F. Zhdanov
    and Y. Kalnishkan, An Identity for Kernel Ridge Regression, arXiv:1112.1390.)
    """

    regret: float
    """Against the regularised minimum."""
    log_determinant: float
    """``log det(I + A / r)``"""
    bound: float
    """``max f_t`` times that."""
    identity_error: float
    """Largest difference between both sides at the points, as a part of the loss of predicting no
    change."""


@dataclass(frozen=True)
class GapProposition:
    """Proposition 3, read as one of norms: ``|W~ - W|_F <= K r_M |Delta_t|_F``."""

    allowed: float
    """``K r_M``"""
    times: int
    """Points at which it was tried."""
    held: int
    """At how many of them it held for the sparse model."""
    largest: float
    """The largest ``|W~ - W|_F / |Delta_t|_F`` among those where anything moved."""
    one_step_held: int
    """As `held`, for one sparse step from the exact solution, as in the proof."""
    one_step_largest: float
    """As `largest`, for that step."""


@dataclass(frozen=True)
class Audit:
    """All that was measured on one stream."""

    name: str
    steps: int
    episodes: int
    marks: tuple[tuple[int, str], ...]
    """Steps at which a task begins, and its name."""
    shuffled: bool
    """Whether the transitions were taken in random order."""
    model: dict[str, Any]
    """Settings of the model."""
    constants: Constants
    bound: float
    """The bound at the end of the stream; the next two are described in `Constants`."""
    first_useful_step: float | None
    best_penalty_inverse: float | None
    verdicts: tuple[Verdict, ...]
    """Assumptions 1 to 3."""
    remarks: tuple[str, ...]
    """Why the theorem does not apply, beside its assumptions; empty if it does."""
    points: tuple[Point, ...]
    """In time."""
    growth: dict[str, Growth | None]
    """By learner and comparator, as in ``growth["online/least_squares"]``."""
    proposition: GapProposition
    leader: LeaderIdentity | None
    """None if the exact leader was left out."""
    seconds: float
    """Duration of the audit."""
    losses: StepLosses = dataclasses.field(repr=False)
    """Not part of the JSON."""

    @property
    def last(self) -> Point:
        """What was measured at the end."""
        return self.points[-1]

    @property
    def strongest(self) -> Comparator:
        """The best fixed model that was computed."""
        return "ridge" if self.last.least_squares is None else "least_squares"

    def regret(self, learner: Learner, comparator: Comparator) -> tuple[list[int], list[float]]:
        """Return steps and regrets, in the plain squared loss, at every point that has both."""
        return regret_curve(self.points, learner, comparator)

    def to_json(self) -> dict[str, Any]:
        """Everything but the losses of single steps, as plain values."""
        values = dataclasses.asdict(self)
        del values["losses"]
        return values


def regret_curve(
    points: Sequence[Point], learner: Learner, comparator: Comparator
) -> tuple[list[int], list[float]]:
    """``sum f_t(W of the learner) - sum f_t(best fixed model)`` at every point that has both."""
    steps: list[int] = []
    regrets: list[float] = []
    for point in points:
        loss = point.online_loss if learner == "online" else point.leader_loss
        best = point.ridge if comparator == "ridge" else point.least_squares
        if loss is not None and best is not None:
            steps.append(point.step)
            regrets.append(loss - best.loss)
    return steps, regrets


def gap_proposition(points: Sequence[Point], constants: Constants) -> GapProposition:
    """Count where proposition 3 held."""
    allowed = constants.active * constants.schur_ratio
    changes = [point.gap.change for point in points]

    def count(gaps: list[float]) -> tuple[int, float]:
        pairs = list(zip(gaps, changes, strict=True))
        ratios = [gap / change for gap, change in pairs if change > 0]
        return sum(gap <= allowed * change for gap, change in pairs), max(ratios, default=0.0)

    sparse = count([point.gap.norm for point in points])
    one_step = count([point.gap.one_step for point in points])
    return GapProposition(allowed, len(points), *sparse, *one_step)


def leader_identity(points: Sequence[Point], losses: Doubles, leverages: Doubles) -> LeaderIdentity:
    """Compare both sides of the identity at all points, computed separately."""
    kept = np.cumsum((1 - leverages) * losses)
    errors = [
        abs(float(kept[point.step - 1]) - point.regularised_minimum) / (point.still_loss or 1.0)
        for point in points
    ]
    # det(A^(t) + r I) / det(A^(t-1) + r I) = 1 / (1 - h_t)
    determinant = float(-np.log1p(-leverages).sum())
    return LeaderIdentity(
        regret=float(losses.sum() - points[-1].regularised_minimum),
        log_determinant=determinant,
        bound=float(losses.max()) * determinant,
        identity_error=max(errors),
    )


def first_verdict(points: Sequence[Point], leverages: Doubles | None) -> Verdict:
    """Assumption 1: features settle, ``sup_x |phi phi^T - A / t|_2 <= 1 / (lambda t)``.

    What the proofs take from it, ``(A^(t) + r I)^-1 phi_t phi_t^T <= I / t``, can be checked at
    every step: the one eigenvalue on the left that is not zero is the leverage.
    """
    measured = [point.stability for point in points]
    facts: dict[str, float | int | None] = {
        "times": len(measured),
        "times_held": sum(item.held == item.inputs for item in measured),
        "pairs": sum(item.inputs for item in measured),
        "pairs_held": sum(item.held for item in measured),
        "last_norm": measured[-1].largest,
        "last_allowed": measured[-1].allowed,
        "last_ratio": measured[-1].largest / measured[-1].allowed,
        "consequence_share": None,
        "consequence_last_ratio": None,
    }
    if leverages is not None:
        scaled = leverages * np.arange(1, len(leverages) + 1)
        facts["consequence_share"] = float(np.mean(scaled <= 1 + 1e-9))
        facts["consequence_last_ratio"] = float(np.median(scaled[-max(len(scaled) // 10, 1) :]))
    return Verdict(1, facts["pairs_held"] == facts["pairs"], facts)


def second_verdict(targets: Doubles) -> Verdict:
    """Assumption 2: ``y >= 0``; the bounds ``c_y`` and ``c_W`` exist on any stream that ends."""
    slack = TOLERANCE * float(np.linalg.norm(targets, axis=1).max())
    negative = targets < -slack
    facts: dict[str, float | int | None] = {
        "steps_held": float(np.mean(~negative.any(axis=1))),
        "entries_negative": float(np.mean(negative)),
        "entries_zero": float(np.mean(np.abs(targets) <= slack)),
        "most_negative": float(targets.min()),
    }
    return Verdict(2, not bool(negative.any()), facts)


def third_verdict(points: Sequence[Point], constants: Constants) -> Verdict:
    """Assumption 3: K is at least `required_active`, or D.

    The paper divides a matrix by a number; the matrix is read as its spectral norm. Its
    appendix has the sum of ``phi^T phi``, the trace, in that place, and asks for c_y >= 1: both
    are counted too.
    """
    square = constants.target_norm**2
    held = {"spectral": 0, "trace": 0, "appendix": 0}
    asked: list[float] = []
    for point in points:
        rest = (point.feature_square, point.coupling)
        readings = {
            "spectral": required_active(square, point.spectral, *rest),
            "trace": required_active(square, point.trace, *rest),
            "appendix": required_active(max(square, 1.0), point.trace, *rest),
        }
        for name, value in readings.items():
            needed = min(float(constants.cells), value)
            held[name] += int(constants.active >= needed * (1 - TOLERANCE))
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
