"""Assumptions, gap, growth and bound against their definitions, and by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from everlearn.audit import audit_stream, synthetic_case, theory
from everlearn.audit.leader import ExactLeader, Solution, measure_gap
from everlearn.audit.result import first_verdict, second_verdict
from everlearn.audit.stream import EncodedStream, audit_times, spans
from everlearn.audit.theory import Constants, fit_growth
from tests.audit import plain

RIDGE = 0.3


@pytest.fixture
def solved() -> tuple[EncodedStream, Solution]:
    model = plain.small_model(precision="float64")
    encoded = EncodedStream(model, plain.walked(40))
    leader = ExactLeader(len(encoded.used), encoded.outputs, RIDGE)
    leader.add(encoded.dense(slice(0, 40)), encoded.targets)
    return encoded, leader.solve()


@pytest.mark.parametrize("small", [0, 10_000])
def test_assumption_1_is_the_spectral_norm(solved, small: int, monkeypatch: pytest.MonkeyPatch):
    # By Lanczos iteration and by all eigenvalues.
    monkeypatch.setattr(theory, "SMALL", small)
    encoded, solution = solved
    features = encoded.dense(slice(0, 40))
    largest = theory.largest_eigenvalue(solution.products)
    assert largest[0] == pytest.approx(np.linalg.norm(solution.products, 2))
    found = theory.stability(solution, features, largest, 1e-6)
    norms = [np.linalg.norm(np.outer(f, f) - solution.products / 40, 2) for f in features]
    # The one that is furthest by the cheap estimate need not be the furthest, but is close.
    assert 0.95 * max(norms) <= found.largest <= max(norms) * (1 + 1e-6)
    assert (found.allowed, found.inputs, found.held) == (RIDGE / 40, 40, 0)


@pytest.mark.parametrize("small", [0, 10_000])
def test_assumption_1_holds_for_one_input_for_ever(small: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(theory, "SMALL", small)
    feature = np.array([0.5, 0.25, 0.25])
    leader = ExactLeader(3, 1, RIDGE)
    leader.add(np.repeat(feature[None], 9, axis=0), np.ones((9, 1)))
    largest = (9 * float(feature @ feature), feature / np.linalg.norm(feature))
    found = theory.stability(leader.solve(), feature[None], largest, 1e-6)
    assert found.held == 1
    assert found.largest < 1e-12


def test_coupling_and_schur_ratio_are_what_the_paper_writes(solved):
    encoded, solution = solved
    A, cells = solution.products, len(solution.products)
    for step in (0, 17, 39):
        s = encoded.rows(step)
        rest = np.setdiff1d(np.arange(cells), s)
        block = A[np.ix_(s, s)] + RIDGE * np.eye(len(s))
        ratio = A[np.ix_(rest, s)] @ np.linalg.inv(block)
        assert theory.coupling(solution, s) == pytest.approx(np.linalg.norm(ratio, 2))
        outer = A[np.ix_(rest, rest)] + RIDGE * np.eye(len(rest))
        M = A[np.ix_(s, rest)] @ np.linalg.inv(outer) @ A[np.ix_(rest, s)]
        wanted = np.linalg.norm((block + M) @ np.linalg.inv(block - M), "fro")
        assert theory.schur_ratio(solution, s) == pytest.approx(wanted, rel=1e-8)


def test_dense_features_have_no_coupling_and_no_gap():
    feature = np.array([[1.0, 2.0], [0.5, 1.0], [1.0, 1.0]])
    leader = ExactLeader(2, 1, RIDGE)
    leader.add(feature, np.array([[1.0], [2.0], [0.5]]))
    solution, everything = leader.solve(), np.arange(2)
    assert theory.coupling(solution, everything) == 0
    assert theory.schur_ratio(solution, everything) == pytest.approx(math.sqrt(2))
    gap = measure_gap(solution, solution.weights, feature[2], np.array([0.5]), everything)
    assert (gap.norm, gap.excess) == (0, 0)
    assert gap.one_step == pytest.approx(0, abs=1e-12)


def test_one_sparse_step_and_delta_are_what_the_paper_writes(solved):
    encoded, solution = solved
    features, targets = encoded.dense(slice(0, 40)), encoded.targets
    s = encoded.rows(39)
    gap = measure_gap(solution, 0 * solution.weights, features[39], targets[39], s)
    size = len(solution.products)
    A, B = features.T @ features, features.T @ targets
    before = features[:39]
    weights = np.linalg.solve(before.T @ before + RIDGE * np.eye(size), before.T @ targets[:39])
    rest = np.setdiff1d(np.arange(size), s)
    right = B[s] - A[np.ix_(s, rest)] @ weights[rest]
    weights[s] = np.linalg.solve(A[np.ix_(s, s)] + RIDGE * np.eye(len(s)), right)
    inverse = np.linalg.inv(A + RIDGE * np.eye(size))
    assert gap.one_step == pytest.approx(np.linalg.norm(weights - inverse @ B), rel=1e-8)
    delta = np.outer(inverse @ features[39], targets[39])
    assert gap.change == pytest.approx(np.linalg.norm(delta))
    assert gap.relative == pytest.approx(1)


@pytest.mark.parametrize(
    ("law", "exponent"), [("log T", None), ("sqrt T", 0.5), ("T", 1.0)], ids=lambda x: str(x)
)
def test_growth_finds_the_law_it_was_given(law: str, exponent: float | None):
    times = audit_times(10_000, 30)
    curves = {"log T": np.log, "sqrt T": np.sqrt, "T": np.array}
    growth = fit_growth(times, list(3 * curves[law](times)))
    assert growth is not None
    assert growth.best == law
    assert growth.fits[law].slope == pytest.approx(3)
    assert growth.fits[law].offset == pytest.approx(0, abs=1e-9)
    if exponent is not None:
        assert growth.exponent == pytest.approx(exponent)
    negative = fit_growth(times, list(-3 * curves[law](times)))
    assert negative is not None
    assert negative.exponent is None


def test_growth_says_nothing_of_a_constant_or_of_few_points():
    assert fit_growth([10, 20, 30, 40, 50, 60], [2.0] * 6) is None
    assert fit_growth([10, 20], [1.0, 2.0]) is None
    assert fit_growth([], []) is None


def test_targets_and_leverages_are_counted_by_hand():
    targets = np.array([[3.0, 0.0], [-1.0, 4.0], [2.0, -1e-9], [1.0, 1.0]])
    verdict = second_verdict(targets)
    assert not verdict.held
    assert verdict.facts == {
        "steps_held": 0.75,  # the third is negative by less than the tolerance
        "entries_negative": 0.125,
        "entries_zero": 0.25,
        "most_negative": -1.0,
    }
    case = synthetic_case("steady", 20)
    points = audit_stream(case.model, case.stream).points
    facts = first_verdict(points, np.array([0.9, 0.6, 0.3, 0.5])).facts
    assert facts["consequence_share"] == 0.5  # 0.9 <= 1, 0.6 > 1/2, 0.3 <= 1/3, 0.5 > 1/4
    assert facts["consequence_last_ratio"] == 2.0


def test_assumption_3_asks_for_what_the_paper_writes():
    case = synthetic_case("large", 20)
    audit = audit_stream(case.model, case.stream)
    # One input for ever: |A|_2 = tr A = t phi^T phi, and no coupling to cells never seen.
    largest = audit.constants.target_norm
    facts = audit.verdicts[2].facts
    assert facts["last_asked"] == pytest.approx(largest**2 * 21)
    held = sum(largest**2 * (point.step + 1) <= 24 for point in audit.points)
    assert 0 < held < len(audit.points)
    assert facts["times_held"] == facts["times_held_trace"] == held


def test_the_bound_by_hand():
    constants = Constants(
        cells=7,
        used=5,
        active=2,
        outputs=1,
        penalty_inverse=10.0,
        target_norm=0.5,
        weight_norm=3.0,
        schur_ratio=1.5,
    )
    # 9 / 10 + 5 * 10 * (4 * 2.25 + 1) * 0.25 * 7 * (log T + 1)
    assert constants.bound(1) == pytest.approx(0.9 + 875)
    assert constants.bound(math.e) == pytest.approx(0.9 + 1750)
    assert constants.best_penalty_inverse(1) == pytest.approx(3 / math.sqrt(5 * 10 * 0.25 * 7))
    useful = constants.first_useful_step()
    assert useful is not None
    assert constants.bound(useful) == pytest.approx(0.25 * useful)


@pytest.mark.parametrize("steps", [1, 2, 7, 100, 6868])
@pytest.mark.parametrize("count", [1, 8, 30])
def test_times_end_with_the_stream_and_spans_cover_it(steps: int, count: int):
    times = audit_times(steps, count)
    assert times == sorted(set(times))
    assert times[0] >= 1
    assert times[-1] == steps
    covered = spans(times, 64)
    assert [step for first, end in covered for step in range(first, end)] == list(range(steps))
    assert max(end - first for first, end in covered) <= 64
    assert {end for _, end in covered} >= set(times)
