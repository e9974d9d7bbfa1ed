"""What an audit found, as values that survive a trip through JSON."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from everlearn.audit.assumptions import Stability
from everlearn.audit.bound import Constants
from everlearn.audit.encoded import Doubles
from everlearn.audit.gap import Gap
from everlearn.audit.growth import Growth
from everlearn.audit.hindsight import FixedModel
from everlearn.audit.verdicts import Verdict

Learner = Literal["online", "leader"]
Comparator = Literal["ridge", "least_squares"]


@dataclass(frozen=True)
class Point:
    """The state of a stream after some steps.

    Attributes
    ----------
    step
        Transitions seen (``t``).
    online_loss, leader_loss, still_loss
        Sum of squared errors up to here of the sparse online model, of the exact leader (None
        if left out), and of a model that predicts no change.
    ridge, least_squares
        The best fixed models of these steps; the second is None where it was left out.
    regularised_minimum
        ``min over W of (loss + r |W|^2)``.
    rank
        Of the features, None where least squares was left out.
    online_norm
        ``|W~|_F`` of the sparse model.
    gap
        Sparse against exact.
    stability
        Assumption 1.
    spectral, trace, feature_square, coupling
        ``|A|_2``, ``tr A``, ``phi_t^T phi_t`` and ``|A_rest,s (A_ss + r I)^-1|_2``, of
        assumption 3.
    schur_ratio, blocks
        Largest term of ``r_M`` over so many active blocks that were tried.
    """

    step: int
    online_loss: float
    leader_loss: float | None
    still_loss: float
    ridge: FixedModel
    least_squares: FixedModel | None
    regularised_minimum: float
    rank: int | None
    online_norm: float
    gap: Gap
    stability: Stability
    spectral: float
    trace: float
    feature_square: float
    coupling: float
    schur_ratio: float
    blocks: int


@dataclass(frozen=True, eq=False)
class StepLosses:
    """Numbers of every step ``[T]``: squared errors of both learners, and leverages.

    Those of the leader are None if it was left out.
    """

    online: Doubles
    leader: Doubles | None
    leverage: Doubles | None


@dataclass(frozen=True)
class LeaderFacts:
    """What is true of the exact leader without any assumption, and how well it was computed.

    With ``h_t = phi_t^T (A^(t) + r I)^-1 phi_t`` the losses satisfy
    ``sum (1 - h_t) f_t(W^(t)) = min over W of (sum f_t(W) + r |W|^2)``: so the regret against that
    minimum is ``sum h_t f_t(W^(t))``, at most ``max f_t`` times ``log det(I + A / r)``. (F. Zhdanov
    and Y. Kalnishkan, An Identity for Kernel Ridge Regression, arXiv:1112.1390.)

    Attributes
    ----------
    regret
        Against the regularised minimum.
    log_determinant
        ``log det(I + A / r)``.
    bound
        ``max f_t`` times that.
    identity_error
        Largest difference between the two sides at the points audited, as a part of the loss
        of predicting no change.
    """

    regret: float
    log_determinant: float
    bound: float
    identity_error: float


@dataclass(frozen=True)
class PropositionFacts:
    """The proposition on the gap, read as one of norms: ``|W~ - W|_F <= K r_M |Delta_t|_F``.

    Attributes
    ----------
    allowed
        ``K r_M``.
    times, held
        Points, and at how many of them it held for the sparse model itself.
    largest
        The largest ``|W~ - W|_F / |Delta_t|_F`` among those where anything moved.
    one_step_held, one_step_largest
        The same for one sparse step from the exact solution, as in its proof; None if the
        ridge grows.
    """

    allowed: float
    times: int
    held: int
    largest: float
    one_step_held: int | None
    one_step_largest: float | None


@dataclass(frozen=True)
class Audit:
    """A whole audit.

    Attributes
    ----------
    name, steps, episodes, marks
        Of the stream.
    shuffled
        Whether its transitions were taken in random order.
    model
        Settings of the model audited.
    constants, bound, first_useful_step, best_penalty_inverse
        Of the theorem, at the end of the stream; see `Constants`.
    verdicts
        Assumptions 1 to 3.
    remarks
        Why the theorem does not apply, beside its assumptions; empty if it does.
    points
        In time.
    growth
        Fits by learner and comparator, as in ``growth["online/least_squares"]``.
    proposition
        On the gap between sparse and exact.
    leader
        None if the exact leader was left out, or the ridge grows.
    seconds
        What the audit took.
    losses
        Of every step; not part of the JSON.
    """

    name: str
    steps: int
    episodes: int
    marks: tuple[tuple[int, str], ...]
    shuffled: bool
    model: dict[str, Any]
    constants: Constants
    bound: float
    first_useful_step: float | None
    best_penalty_inverse: float
    verdicts: tuple[Verdict, ...]
    remarks: tuple[str, ...]
    points: tuple[Point, ...]
    growth: dict[str, Growth | None]
    proposition: PropositionFacts
    leader: LeaderFacts | None
    seconds: float
    losses: StepLosses = dataclasses.field(repr=False)

    @property
    def last(self) -> Point:
        """The state at the end."""
        return self.points[-1]

    def regret(self, learner: Learner, comparator: Comparator) -> tuple[list[int], list[float]]:
        """Return steps and regrets, in the plain squared loss, at every point that has both."""
        return regret_curve(self.points, learner, comparator)

    def to_json(self) -> dict[str, Any]:
        """Everything but the losses of single steps, as plain values."""
        values = dataclasses.asdict(self)
        del values["losses"]
        return values


def regret_curve(
    points: tuple[Point, ...], learner: Learner, comparator: Comparator
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


def proposition_facts(points: tuple[Point, ...], constants: Constants) -> PropositionFacts:
    """Count where the proposition on the gap held."""
    allowed = constants.active * constants.schur_ratio

    def count(gaps: list[float]) -> tuple[int, float]:
        changes = [point.gap.change for point in points]
        pairs = list(zip(gaps, changes, strict=True))
        ratios = [gap / change for gap, change in pairs if change > 0]
        return sum(gap <= allowed * change for gap, change in pairs), max(ratios, default=0.0)

    held, largest = count([point.gap.norm for point in points])
    steps = [point.gap.one_step for point in points if point.gap.one_step is not None]
    step_held, step_largest = count(steps) if len(steps) == len(points) else (None, None)
    return PropositionFacts(allowed, len(points), held, largest, step_held, step_largest)
