"""A whole audit against direct computation, and on streams whose answer is known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from everlearn.audit import SYNTHETIC, AuditConfig, audit_stream, leader, synthetic_case
from everlearn.support.errors import InvalidInputError
from tests.audit import plain
from tests.online.worlds import memories


@pytest.mark.parametrize(
    ("features", "ridge"), [(3, 0.05), (12, 1.0)], ids=["more steps than cells", "fewer"]
)
def test_losses_and_regrets_equal_a_direct_computation(
    features: int, ridge: float, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(leader, "TILE", 64)
    model = plain.small_model(ridge=ridge, precision="float64", features=features)
    stream = plain.walked(150)
    phi, targets = plain.dense_features(model, stream), plain.targets_of(stream)
    # Blocks of 7 end at other places than the points, so all seams are tested.
    audit = audit_stream(model, stream, AuditConfig(block=7, points=12))
    assert (audit.constants.used > stream.steps) == (features == 12)

    exact = plain.leader_losses(phi, targets, ridge)
    sparse, weights = plain.sparse_losses(phi, targets, ridge)
    np.testing.assert_allclose(audit.losses.leader, exact, rtol=1e-8)
    np.testing.assert_allclose(audit.losses.online, sparse, rtol=1e-8)
    assert np.abs(exact - sparse).max() > 1e-6, "the two must be told apart"
    for t in (0, 1, 80, 149):
        A = phi[: t + 1].T @ phi[: t + 1] + ridge * np.eye(phi.shape[1])
        leverage = phi[t] @ np.linalg.solve(A, phi[t])
        assert audit.losses.leverage is not None
        assert audit.losses.leverage[t] == pytest.approx(leverage, rel=1e-8)

    for point in audit.points:
        seen, known = phi[: point.step], targets[: point.step]
        best = np.linalg.lstsq(seen, known, rcond=1e-6)[0]
        least = np.sum((seen @ best - known) ** 2)
        assert point.least_squares is not None
        np.testing.assert_allclose(point.least_squares.loss, least, rtol=1e-5, atol=1e-12)
        np.testing.assert_allclose(point.least_squares.norm, np.linalg.norm(best), rtol=1e-3)
        A = seen.T @ seen + ridge * np.eye(phi.shape[1])
        exact_weights = np.linalg.solve(A, seen.T @ known)
        loss = np.sum((seen @ exact_weights - known) ** 2)
        np.testing.assert_allclose(point.ridge.loss, loss, rtol=1e-8)
        minimum = loss + ridge * np.sum(exact_weights**2)
        np.testing.assert_allclose(point.regularised_minimum, minimum, rtol=1e-8)
        if point.step == stream.steps:
            wanted = np.sum((seen @ weights - known) ** 2) + ridge * np.sum(weights**2)
            np.testing.assert_allclose(1 + point.gap.excess, wanted / minimum, rtol=1e-8)
            np.testing.assert_allclose(
                point.gap.norm, np.linalg.norm(weights - exact_weights), rtol=1e-6
            )
            _, regrets = audit.regret("online", "least_squares")
            np.testing.assert_allclose(regrets[-1], sparse.sum() - least, rtol=1e-6)
    assert audit.leader is not None
    assert audit.leader.identity_error < 1e-12
    assert 0 < audit.leader.regret < audit.leader.bound


def test_the_known_model_is_found_and_regret_grows_like_log():
    case = synthetic_case("iid", 4000, seed=1)
    audit = audit_stream(case.model, case.stream)
    last, true_loss = audit.last, case.true_loss
    assert true_loss is not None
    assert last.least_squares is not None
    # Least squares spends one degree of freedom for each direction and output on the noise.
    freedom = 1 - last.rank / case.stream.steps if last.rank else 0
    assert last.least_squares.loss < true_loss
    assert last.least_squares.loss == pytest.approx(freedom * true_loss, rel=0.01)
    for learner in ("online", "leader"):
        growth = audit.growth[f"{learner}/least_squares"]
        assert growth is not None
        assert growth.best == "log T"
        assert growth.fits["log T"].explained > 0.99
    assert audit.proposition.held == audit.proposition.times


@pytest.mark.parametrize("name", [name for name in SYNTHETIC if name != "iid"])
def test_the_assumption_that_was_broken_is_named_and_no_other(name: str):
    case = synthetic_case(name, 300)
    audit = audit_stream(case.model, case.stream)
    failed = tuple(verdict.assumption for verdict in audit.verdicts if not verdict.held)
    assert failed == case.breaks
    if not failed:
        for comparator in ("ridge", "least_squares"):
            for step, regret in zip(*audit.regret("online", comparator), strict=True):
                assert regret <= audit.constants.bound(step), "where all hold, so must the theorem"


def test_regret_is_a_line_while_inputs_never_come_back_and_order_is_to_blame():
    growths = []
    for shuffle in (False, True):
        case = synthetic_case("drifting", 1000)
        audit = audit_stream(case.model, case.stream, AuditConfig(shuffle=shuffle))
        growths.append(audit.growth["leader/ridge"])
    drifting, shuffled = growths
    assert drifting is not None
    assert shuffled is not None
    assert drifting.best == "T"
    assert drifting.exponent is not None
    assert shuffled.exponent is not None
    assert drifting.exponent > 0.6 > 0.4 > shuffled.exponent
    assert shuffled.best == "log T"


def test_shuffling_changes_the_order_and_not_the_data():
    stream = plain.walked(120)
    audits = [
        audit_stream(plain.small_model(), stream, AuditConfig(shuffle=shuffle, points=6))
        for shuffle in (False, True)
    ]
    own, shuffled = (audit.last for audit in audits)
    assert shuffled.ridge.loss == pytest.approx(own.ridge.loss, rel=1e-9)
    assert shuffled.leader_loss != own.leader_loss
    assert audits[1].shuffled


def test_a_model_with_memory_learns_what_an_agent_would():
    for memory in memories():
        stream = plain.walked(40)
        model, twin = (plain.small_model(memory=memory) for _ in range(2))
        audit_stream(model, stream, AuditConfig(points=2))
        state = memory.start(stream.observations[:1])
        for obs, action, after in zip(
            stream.observations, stream.actions, stream.next_observations, strict=True
        ):
            twin.learn(obs, action, after, memory=state[0])
            state = memory.advance(state, obs[None], action[None], after[None])
        np.testing.assert_array_equal(model.weights, twin.weights)


def test_the_leader_can_be_left_out_and_all_else_stays():
    stream = plain.walked(60)
    with_leader, without = (
        audit_stream(plain.small_model(), stream, AuditConfig(exact=exact, points=5))
        for exact in (True, False)
    )
    assert without.losses.leader is None
    assert without.last.leader_loss is None
    np.testing.assert_array_equal(without.losses.online, with_leader.losses.online)
    assert without.last.gap == with_leader.last.gap
    assert without.regret("leader", "ridge") == ([], [])


def test_equal_audits_are_equal_and_are_json():
    first, second = (
        audit_stream(plain.small_model(), plain.walked(50)).to_json() for _ in range(2)
    )
    first["seconds"] = second["seconds"]
    assert json.loads(json.dumps(first, allow_nan=False)) == json.loads(json.dumps(second))


def test_a_model_that_has_learned_is_refused():
    stream = plain.walked(5)
    model = plain.small_model()
    model.learn(stream.observations[0], stream.actions[0], stream.next_observations[0])
    with pytest.raises(InvalidInputError, match="starts with a new one"):
        audit_stream(model, stream)


@pytest.mark.parametrize("wrong", [{"block": 0}, {"probes": 0}, {"blocks": 0}, {"points": 0}])
def test_wrong_settings_are_refused(wrong: dict[str, int]):
    with pytest.raises(InvalidInputError, match=next(iter(wrong))):
        AuditConfig(**wrong)
