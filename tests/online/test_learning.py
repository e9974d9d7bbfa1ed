"""The update against the paper's equation, against batch ridge, and against itself."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.reference import ReferenceModel
from everlearn.online import OnlineWorldModel, ridge
from everlearn.online.ridge import UnsolvableError
from everlearn.world_model.memory import CommandMemory, NoMemory
from tests.online.worlds import (
    HAND,
    ROBOT,
    ROBOT_ACTIONS,
    memories,
    recorded,
    small_model,
    states_equal,
    walk,
)
from tests.torture.length import often


def batch_solution(model: OnlineWorldModel, data: list[tuple[Any, ...]]) -> np.ndarray:
    """Ridge regression on the dense features of everything seen."""
    features = np.zeros((len(data), model.encoding.cells))
    for n, (obs, action, _, memory) in enumerate(data):
        cells, values = model.encode(obs, action, memory)
        features[n, cells] = values
    targets = np.array([following - obs for obs, _, following, _ in data])
    inverse = features.T @ features + model.config.ridge * np.eye(model.encoding.cells)
    return np.linalg.solve(inverse, features.T @ targets)


def loss(model: OnlineWorldModel, data: list[tuple[Any, ...]]) -> float:
    total = model.config.ridge * float((model.weights.astype(np.float64) ** 2).sum())
    for obs, action, following, memory in data:
        cells, values = model.encode(obs, action, memory)
        total += float(((values @ model.weights[cells] - (following - obs)) ** 2).sum())
    return total


@pytest.mark.parametrize("grid_dim", [1, 2, 3])
@pytest.mark.parametrize("linear", [False, True])
@pytest.mark.parametrize("memory", memories(), ids=lambda m: m.name)
def test_float64_equals_the_reference(memory: Any, linear: bool, grid_dim: int) -> None:
    model = small_model(
        precision="float64",
        memory=memory,
        linear=linear,
        grid_dim=grid_dim,
        bins=4,
    )
    reference = ReferenceModel(model)
    data = walk(150, memory=memory)
    for transition in data:
        model.learn(*transition)
        reference.learn(*transition)
    np.testing.assert_allclose(model.weights, reference.W, atol=1e-9)
    obs, action, _, states = (np.array(part) for part in zip(*data, strict=True))
    expected = reference.predict(obs, action, states)
    np.testing.assert_allclose(model.predict(obs, action, states), expected, atol=1e-9)


def recorded_models(precision: str, features: int, steps: int | None, **options: Any) -> Any:
    memory = CommandMemory(HAND)
    model = OnlineWorldModel(
        ROBOT, ROBOT_ACTIONS, features=features, precision=precision, memory=memory, **options
    )
    reference = ReferenceModel(model)
    train = recorded(memory, steps, "*_[sr]*")
    test = recorded(memory, steps, "*_noisy1")
    for transition in train:
        model.learn(*transition)
        reference.learn(*transition)
    obs, action, following, states = (np.array(part) for part in zip(*test, strict=True))
    predicted = model.predict(obs, action, states), reference.predict(obs, action, states)
    errors = [float(np.mean((p - following) ** 2)) for p in predicted]
    return model, reference, predicted, errors


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-3)])
def test_recorded_robot_transitions(precision: str, tolerance: float) -> None:
    model, reference, predicted, errors = recorded_models(precision, 8, 40)
    size = np.abs(reference.W).max()
    assert np.abs(model.weights - reference.W).max() < tolerance * max(size, 1)
    assert np.abs(predicted[0] - predicted[1]).max() < tolerance
    assert errors[0] == pytest.approx(errors[1], rel=0.01)
    assert model.fallbacks == 0


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-3)])
def test_recorded_robot_transitions_at_paper_size(precision: str, tolerance: float) -> None:
    model, reference, predicted, errors = recorded_models(precision, often(300, 60), often(60, 10))
    assert np.abs(model.weights - reference.W).max() < tolerance
    assert np.abs(predicted[0] - predicted[1]).max() < tolerance
    assert errors[0] == pytest.approx(errors[1], rel=0.01)


def test_with_every_cell_active_the_update_is_batch_ridge() -> None:
    model = small_model(bins=2, precision="float64")
    data = walk(60)
    for n, transition in enumerate(data):
        model.learn(*transition)
        if n % 10 == 9:
            expected = batch_solution(model, data[: n + 1])
            np.testing.assert_allclose(model.weights, expected, atol=1e-8)


@settings(max_examples=40, deadline=None)
@given(
    features=st.integers(1, 8),
    bins=st.integers(2, 7),
    grid_dim=st.integers(1, 3),
    ridge=st.sampled_from([1e-4, 0.005, 1.0, 100.0]),
    repeats=st.integers(1, 4),
    seed=st.integers(0, 10),
)
def test_gradient_vanishes_on_the_active_block(
    features: int, bins: int, grid_dim: int, ridge: float, repeats: int, seed: int
) -> None:
    model = small_model(
        features=features,
        bins=bins,
        grid_dim=grid_dim,
        ridge=ridge,
        precision="float64",
        seed=seed,
    )
    corner = np.ones(3), np.ones(2), -np.ones(3), None
    for transition in [*walk(6, seed), corner, corner] * repeats:
        model.learn(*transition)
        cells, _ = model.encode(transition[0], transition[1], transition[3])
        assert np.abs(model.residual()[cells]).max() < 1e-11
        unused = np.setdiff1d(np.arange(model.encoding.cells), model.learner.statistics.cells)
        assert not model.weights[unused].any()


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_learning_changes_only_the_active_rows(precision: Any) -> None:
    model = small_model(precision=precision)
    for transition in walk(50):
        before = model.weights.copy()
        model.learn(*transition)
        cells, _ = model.encode(transition[0], transition[1])
        others = np.setdiff1d(np.arange(model.encoding.cells), cells)
        np.testing.assert_array_equal(model.weights[others], before[others])
        assert (model.weights[cells] != before[cells]).any()


def test_no_update_raises_the_loss_of_what_it_has_seen_and_solve_ends_at_the_minimum() -> None:
    """Each update minimises over its block, so what it saw costs no more than before."""
    model = small_model(precision="float64", bins=4)
    data = walk(40)
    for n, transition in enumerate(data):
        before = loss(model, data[: n + 1])
        model.learn(*transition)
        assert loss(model, data[: n + 1]) <= before + 1e-12
    expected = batch_solution(model, data)
    assert np.abs(model.weights - expected).max() > 1e-3, "equation 5 is not the batch solution"
    model.solve()
    np.testing.assert_allclose(model.weights, expected, atol=1e-9)


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_a_batch_is_the_exact_solution_and_learning_goes_on(precision: Any) -> None:
    tolerance = 1e-9 if precision == "float64" else 1e-4
    model, data = small_model(precision=precision), walk(80)
    obs, action, following, _ = (np.array(part) for part in zip(*data[:60], strict=True))
    model.learn_batch(obs, action, following)
    np.testing.assert_allclose(model.weights, batch_solution(model, data[:60]), atol=tolerance)
    reference = ReferenceModel(model)
    for transition in data[:60]:
        reference.learn(*transition)
    reference.W[:] = model.weights
    for transition in data[60:]:
        model.learn(*transition)
        reference.learn(*transition)
    np.testing.assert_allclose(model.weights, reference.W, atol=tolerance)


def drift(model: OnlineWorldModel, steps: int) -> float:
    """Largest error of the carried residual, relative to the terms that cancel in it."""
    data = walk(400, memory=model.memory)
    for n in range(steps):
        model.learn(*data[n % len(data)])
    learner = model.learner
    exact = model.residual()[learner.previous]
    size = np.abs(learner.statistics.targets).max()
    return float(np.abs(exact - learner.carried[:, :3]).max() / size)


def test_neither_residual_nor_prediction_drifts_in_20000_updates() -> None:
    models = {
        precision: small_model(precision=precision, features=5, bins=4, ridge=0.005)
        for precision in ("float32", "float64")
    }
    # The first goes on in float64 once float32 cannot resolve the ridge beside A.
    assert drift(models["float32"], 20_000) < 1e-5
    assert drift(models["float64"], 20_000) < 1e-13
    assert models["float32"].learner.dtype == np.float64
    assert models["float32"].predict(np.zeros(3), np.zeros(2)).dtype == np.float32
    obs, action, following, _ = (np.array(part) for part in zip(*walk(400), strict=True))
    single, double = (model.predict(obs, action) for model in models.values())
    assert np.abs(single - double).max() < 1e-3
    errors = [float(np.mean((p - following) ** 2)) for p in (single, double)]
    assert errors[0] == pytest.approx(errors[1], rel=0.01)


@pytest.mark.torture
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    ("ridge", "steps", "kept"),
    # The second goes on in float64 long before its end, which makes it slow and safe.
    [(5e-5, often(20_000, 1_000), np.float32), (1e-6, often(5_000, 500), np.float64)],
)
def test_residual_does_not_drift_at_paper_size(ridge: float, steps: int, kept: Any) -> None:
    """The ridge is given for each step, as statistics grow with them."""
    ridge *= steps
    model = small_model(features=often(300, 60), bins=9, ridge=ridge, threads=None)
    assert drift(model, steps) < 1e-4
    assert model.learner.dtype == kept


def test_failing_float32_falls_back_to_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    model, good = small_model(), small_model()
    data = walk(30)
    for transition in data:
        good.learn(*transition)
    monkeypatch.setattr(ridge, "factorise_single", lambda matrix: 1)
    for transition in data:
        model.learn(*transition)
    assert model.fallbacks == 30
    assert good.fallbacks == 0
    np.testing.assert_allclose(model.weights, good.weights, atol=1e-4)


def test_inaccurate_float32_falls_back_too(monkeypatch: pytest.MonkeyPatch) -> None:
    model, good = small_model(), small_model()
    monkeypatch.setattr(ridge, "_back_single", lambda factor, right: np.zeros_like(right))
    for transition in walk(5):
        model.learn(*transition)
        good.learn(*transition)
    assert model.fallbacks == 5
    np.testing.assert_allclose(model.weights, good.weights, atol=1e-4)


def test_when_nothing_helps_it_says_so_and_keeps_the_weights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = small_model()
    data = walk(12)
    for transition in data[:10]:
        model.learn(*transition)
    before = model.weights.copy()
    with monkeypatch.context() as patch:
        patch.setattr(ridge, "factorise_single", lambda matrix: 1)
        patch.setattr(ridge, "factorise_double", lambda matrix: 1)
        with pytest.raises(UnsolvableError, match="larger ridge"):
            model.learn(*data[10])
    np.testing.assert_array_equal(model.weights, before)
    # The statistics hold the transition: the next update is right again.
    model.learn(*data[11])
    cells, _ = model.encode(data[11][0], data[11][1])
    assert np.abs(model.residual()[cells]).max() < 1e-5


@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_an_enormous_number_of_repetitions_is_never_silently_wrong(precision: Any) -> None:
    """A busy block: A grows to where float32 cannot see the ridge beside it."""
    model = small_model(ridge=0.005, features=4, precision=precision)
    transition = walk(1)[0]
    for _ in range(3):
        model.learn(*transition)
    statistics = model.learner.statistics
    statistics.touched[:] *= 1e6
    statistics.targets *= 1e6
    model.learner.forget_previous()
    for step in [transition, *walk(3, seed=5)]:
        if precision == "float64":
            model.learn(*step)
        else:
            with contextlib.suppress(UnsolvableError):
                model.learn(*step)
    predicted = model.predict(transition[0], transition[1])
    np.testing.assert_allclose(predicted, transition[2], atol=2e-3)


def test_the_statistics_stay_symmetric() -> None:
    model = small_model()
    data = walk(100)
    obs, action, following, _ = (np.array(part) for part in zip(*data, strict=True))
    model.learn_batch(obs[:50], action[:50], following[:50], solve=False)
    for transition in data[50:]:
        model.learn(*transition)
    statistics = model.learner.statistics
    block = statistics.rows()
    np.testing.assert_array_equal(block, block.T)


def test_same_seed_same_numbers_and_another_seed_others() -> None:
    models = [small_model(seed=s) for s in (1, 1, 2)]
    for transition in walk(30):
        for model in models:
            model.learn(*transition)
    np.testing.assert_array_equal(models[0].weights, models[1].weights)
    assert (models[0].weights[:10] != models[2].weights[:10]).any()
    assert isinstance(models[0].memory, NoMemory)


def test_going_on_in_float64_is_announced_saved_and_undone_by_an_older_state(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    model = small_model(ridge=1e-4)
    data = walk(120)
    for transition in data[:5]:
        model.learn(*transition)
    early = model.state()
    for transition in data[5:80]:
        model.learn(*transition)
    assert model.learner.dtype == np.float64
    assert caplog.text.count("going on in float64") == 1
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    for transition in data[80:]:
        model.learn(*transition)
        loaded.learn(*transition)
    assert states_equal(model.state(), loaded.state())
    plans = np.zeros((3, 4, 2))
    np.testing.assert_array_equal(
        model.rollout(np.zeros(3), plans), loaded.rollout(np.zeros(3), plans)
    )
    model.restore(*early)
    assert model.learner.dtype == np.float32
    assert states_equal(model.state(), early)


def test_every_tenth_sample_the_solution_is_exact() -> None:
    """Equation 5 leaves a gradient on rows that are not active; the exact solution does not."""
    data = walk(40)
    model = small_model(precision="float64", linear=True, solve_every=10)
    left = []
    for transition in data:
        model.learn(*transition)
        left.append(float(np.abs(model.residual()).max()))
    exact = np.arange(1, 41) % 10 == 0
    assert max(np.array(left)[exact]) < 1e-9
    assert min(np.array(left)[~exact][20:]) > 1e-6
    batch = small_model(precision="float64", linear=True)
    batch.learn_batch(*(np.array(part) for part in zip(*data, strict=True)))
    np.testing.assert_allclose(model.weights, batch.weights, atol=1e-9)


def test_exact_solutions_survive_a_snapshot_to_the_bit() -> None:
    data = walk(60)
    whole = small_model(solve_every=25)
    for transition in data:
        whole.learn(*transition)
    first = small_model(solve_every=25)
    for transition in data[:25]:
        first.learn(*transition)
    again = small_model(solve_every=25)
    again.restore(*first.state())
    for transition in data[25:]:
        again.learn(*transition)
    np.testing.assert_array_equal(again.weights, whole.weights)


@pytest.mark.parametrize("size", [1e-30, 1e-42, 1e-44, 1e-46, 1e-310, 5e-324])
@pytest.mark.parametrize("precision", ["float32", "float64"])
def test_targets_too_small_for_weights_are_learned_as_far_as_they_go(
    precision: Any, size: float
) -> None:
    model = small_model(precision=precision)
    obs, action = np.zeros(3), np.zeros(2)
    for _ in range(3):
        model.learn(obs, action, np.full(3, size))
    # phi.phi / (phi.phi + r / 3) of the target, or nothing if no weight is that small.
    predicted = model.weights[model.encode(obs, action)[0]].astype(np.float64)
    predicted = model.encode(obs, action)[1] @ predicted
    smallest = float(np.finfo(precision).smallest_subnormal)
    np.testing.assert_allclose(predicted, size, rtol=0.02, atol=10 * smallest)
    model.learn(obs, action, np.full(3, 0.1))
    assert np.abs(model.residual()[model.learner.previous]).max() < 1e-5


def test_a_ridge_that_float64_does_not_resolve_is_refused_before_weights_grow() -> None:
    """Two places in turn: noise in directions that only the ridge holds adds up."""
    model = small_model(precision="float64", ridge=1e-9)
    corner = np.ones(3), np.ones(2)

    def learn(number: int) -> None:
        obs, action = (part * (-1) ** number for part in corner)
        model.learn(obs, action, -obs)

    for number in range(64):
        learn(number)
    before = model.weights.copy()
    assert np.abs(before).max() < 1
    statistics = model.learner.statistics
    statistics.touched[:] *= 1e4  # as after 640,000 updates
    statistics.targets *= 1e4
    model.learner.forget_previous()
    for number in range(200):
        with pytest.raises(UnsolvableError, match="does not resolve a ridge of 1e-09"):
            learn(number)
    np.testing.assert_array_equal(model.weights, before)


def test_a_ridge_that_float64_does_not_resolve_is_refused_at_many_places() -> None:
    """Corners that take turns: what rounding leaves in one block grows in the next."""
    model = small_model(ridge=1e-9, precision="float64")
    corners = np.array([np.where(np.arange(5) == n % 5, 1.0, -1.0) for n in range(5)])
    for corner in corners:
        model.learn(corner[:3], corner[3:], -corner[:3])
    # As if each had been seen some thousand times: 27,000 real updates diverge to 1e66.
    statistics = model.learner.statistics
    statistics.touched[:] *= 4000
    statistics.targets *= 4000
    model.learner.forget_previous()
    before = model.weights.copy()
    for corner in corners:
        with pytest.raises(UnsolvableError, match="does not resolve a ridge of 1e-09"):
            model.learn(corner[:3], corner[3:], -corner[:3])
    np.testing.assert_array_equal(model.weights, before)


def test_a_ridge_that_float32_does_not_resolve_is_learned_in_float64_from_the_first() -> None:
    model = small_model(ridge=1e-9)
    reference = ReferenceModel(model)
    for transition in walk(3):
        model.learn(*transition)
        reference.learn(*transition)
    assert model.learner.dtype == np.float64
    np.testing.assert_allclose(model.weights, reference.W, atol=1e-5)
