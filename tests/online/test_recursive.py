"""The exact update against a batch solution in float64, and what is kept of it."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from everlearn import OnlineWorldModel
from everlearn.online.recursive import RecursiveLearner
from everlearn.support.errors import InvalidInputError, MemoryLimitError

OBSERVATIONS = spaces.Box(-1.0, 1.0, (3,), np.float64)
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float64)
SPARSE = {
    "features": 20,
    "bins": 5,
    "ridge": 2.0,
    "row_inputs": 2,
    "linear": True,
    "linear_observations": True,
    "linear_gain": 3.0,
}


def transitions(count, seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    obs = rng.uniform(-1, 1, (count, 3)) * scale
    action = rng.uniform(-1, 1, (count, 1))
    change = 0.1 * np.stack([np.sin(3 * obs[:, 0]), obs[:, 0] * action[:, 0], action[:, 0]], axis=1)
    return obs, action, obs + change


def batch_weights(model, obs, action, next_obs):
    """The ridge solution over all cells, from dense features in float64."""
    cells, values = model.encode(obs, action)
    features = np.zeros((len(obs), model.encoding.cells))
    np.put_along_axis(features, cells, values.astype(np.float64), axis=1)
    system = features.T @ features + model.config.ridge * np.eye(model.encoding.cells)
    return np.linalg.solve(system, features.T @ (next_obs - obs))


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_after_every_sample_all_weights_are_the_ridge_solution(precision, tolerance):
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact", precision=precision)
    obs, action, next_obs = transitions(60)
    for n in range(60):
        model.learn(obs[n], action[n], next_obs[n])
        if n in (0, 7, 8, 12, 15, 16, 59):  # while changes fill up and rows take them in, at turns
            seen = slice(0, n + 1)
            expected = batch_weights(model, obs[seen], action[seen], next_obs[seen])
            error = np.abs(model.weights - expected).max()
            assert error < tolerance * np.abs(expected).max()


def test_it_does_not_drift_in_thousands_of_samples():
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact")
    data = transitions(4000, seed=1)
    for one in zip(*data, strict=True):
        model.learn(*one)
    expected = batch_weights(model, *data)
    assert np.abs(model.weights - expected).max() < 1e-4 * np.abs(expected).max()
    model.learn(*(part[0] for part in data))
    assert 0 < model.learner.state()[1]["folded"] < model.learner.used
    model.learner.fold()
    inverse = model.learner.inverse[: model.learner.used, : model.learner.used]
    np.testing.assert_array_equal(inverse, inverse.T)  # files hold one half


def test_a_batch_and_single_samples_learn_the_same():
    data = transitions(40)
    single, batch = (
        OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact", precision="float64")
        for _ in range(2)
    )
    for one in zip(*data, strict=True):
        single.learn(*one)
    batch.learn_batch(*data)
    np.testing.assert_allclose(batch.weights, single.weights, atol=1e-12)


def test_the_variance_is_that_of_ridge_regression():
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact", precision="float64")
    obs, action, next_obs = transitions(30)
    cells, values = model.encode(obs, action)
    empty = model.learner.variance(cells[0], values[0])
    assert empty == pytest.approx((values[0] ** 2).sum() / model.config.ridge)
    for one in zip(obs, action, next_obs, strict=True):
        model.learn(*one)
    features = np.zeros((30, model.encoding.cells))
    np.put_along_axis(features, cells, values, axis=1)
    system = features.T @ features + model.config.ridge * np.eye(model.encoding.cells)
    new_cells, new_values = model.encode(*transitions(5, seed=3)[:2])
    for one, value in zip(new_cells, new_values, strict=True):
        phi = np.zeros(model.encoding.cells)
        phi[one] = value
        expected = phi @ np.linalg.solve(system, phi)
        assert model.learner.variance(one, value) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("learned", [5, 8, 16, 27])
def test_it_goes_on_from_a_file_to_the_bit(learned, tmp_path):
    data = transitions(50)
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact")
    for n in range(learned):
        model.learn(*(part[n] for part in data))
    model.save(tmp_path / "model")
    other = OnlineWorldModel.load(tmp_path / "model")
    used = model.learner.used
    mine, read = (one.learner.inverse[:used, :used] for one in (model, other))
    np.testing.assert_array_equal(mine, read)
    # A triangle of the inverse and little else: no more than the cells in use demand.
    assert (tmp_path / "model").stat().st_size < 4 * used**2 + 200_000
    for n in range(learned, 50):
        for one in (model, other):
            one.learn(*(part[n] for part in data))
    np.testing.assert_array_equal(model.weights, other.weights)


def test_a_file_with_one_group_of_changes_is_read():
    data = transitions(5)
    model, other = (
        OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact") for _ in range(2)
    )
    for one in zip(*data, strict=True):
        model.learn(*one)
    arrays, meta = model.state()
    del meta["folded"]
    other.restore({**arrays, "changes": arrays["changes"][0]}, meta)
    for one in zip(*transitions(9, seed=2), strict=True):
        model.learn(*one)
        other.learn(*one)
    np.testing.assert_allclose(other.weights, model.weights, rtol=1e-6, atol=1e-7)


def test_a_damaged_state_changes_nothing():
    model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **SPARSE, update="exact")
    for one in zip(*transitions(10), strict=True):
        model.learn(*one)
    before = model.weights.copy()
    for name, damage in (
        ("cells", lambda a: a * 0),
        ("inverse", lambda a: a[:-1]),
        ("weights", lambda a: a * np.nan),
    ):
        arrays, meta = model.state()
        arrays[name] = damage(arrays[name])
        with pytest.raises(InvalidInputError):
            model.restore(arrays, meta)
        np.testing.assert_array_equal(model.weights, before)


def test_it_refuses_to_outgrow_its_memory():
    learner = RecursiveLearner(cells=1000, outputs=1, dtype=np.float32, ridge=1.0, max_bytes=8000.0)
    learner.learn(np.array([1, 2]), np.ones(2), np.ones(1))
    with pytest.raises(MemoryLimitError, match="raise max_memory_gb"):
        learner.learn(np.array([3]), np.ones(1), np.ones(1))
    assert learner.used == 2


def test_the_linear_part_has_a_ridge_of_its_own():
    # One sample, so the solution is phi y / (r + |phi|^2): the linear cells get gain^2 times more
    # of it than with a gain of 1, relative to the grids.
    shares = []
    for gain in (1.0, 4.0):
        options = SPARSE | {"linear_gain": gain, "clip": False}
        model = OnlineWorldModel(OBSERVATIONS, ACTIONS, **options, update="exact")
        obs, action, next_obs = transitions(1)
        model.learn(obs[0], action[0], next_obs[0])
        cells, values = model.encode(obs[0], action[0])
        linear = cells >= model.encoding.cells - model.encoding.linear_cells
        contribution = values[:, None] * model.weights[cells]
        shares.append(contribution[linear].sum(axis=0) / contribution[~linear].sum(axis=0))
        # Imagination reads the same features as learning.
        predicted = model.predict(obs[0], action[0])
        np.testing.assert_allclose(predicted, obs[0] + contribution.sum(axis=0), atol=1e-6)
    np.testing.assert_allclose(shares[1], 16 * shares[0], rtol=1e-3)
