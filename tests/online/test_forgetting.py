"""Forgetting where the world has changed, against batch solutions and plain learners."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn import OnlineWorldModel
from everlearn.online.forgetting import WALK, ForgettingLearner, fade
from everlearn.support.errors import InvalidInputError

OBSERVATIONS = spaces.Box(-1.0, 1.0, (2,), np.float64)
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float64)
SETTINGS: dict[str, Any] = {
    "features": 20,
    "bins": 9,
    "ridge": 0.1,
    "row_inputs": 2,
    "linear": True,
    "precision": "float64",
    "surprise": 60.0,
    "threads": 1,
}
UPDATES = ("active", "exact")


def model_of(update: str, worlds: int = 1, **options: Any) -> OnlineWorldModel:
    if update == "active":
        options = {"solve_every": 100, **options}
    return OnlineWorldModel(
        OBSERVATIONS, ACTIONS, **SETTINGS, update=update, worlds=worlds, **options
    )


def samples(count: int, seed: int, push: float, low: float = -1.0, high: float = 1.0) -> Any:
    """What a push does: elsewhere always the same, on the right side `push` as much."""
    rng = np.random.default_rng(seed)
    obs = np.stack([rng.uniform(low, high, count), rng.uniform(-1, 1, count)], axis=1)
    action = rng.uniform(-1, 1, (count, 1))
    there = np.where(obs[:, :1] > 0, push, 1.0)
    change = np.concatenate([0.1 * there * action, 0.05 * np.sin(3 * obs[:, 1:])], axis=1)
    noise = 0.001 * rng.normal(size=change.shape)
    return obs, action, obs + change + noise


def error(model: OnlineWorldModel, push: float, low: float, high: float) -> float:
    """Mean error of predictions, in units of what pushes do."""
    obs, action, next_obs = samples(200, 99, push, low, high)
    return float(np.abs(model.predict(obs, action) - next_obs)[:, 0].mean() / 0.05)


def learn(model: OnlineWorldModel, data: Any) -> None:
    for one in zip(*data, strict=True):
        model.learn(*one)


def dense(model: OnlineWorldModel, data: Any) -> tuple[np.ndarray, np.ndarray]:
    obs, action, next_obs = data
    cells, values = model.encode(obs, action)
    features = np.zeros((len(obs), model.encoding.cells))
    np.put_along_axis(features, cells, values.astype(np.float64), axis=1)
    return features, next_obs - obs


def test_faded_evidence_is_the_ridge_problem_that_it_stands_for():
    """A share of the samples stays whole; in the rest the faded weights are taken for given."""
    model, data, keep = model_of("active"), samples(300, 0, 1.0), 0.3
    learn(model, data)
    weights = np.array(model.weights)
    before = model.residual()
    features, targets = dense(model, data)
    chosen = np.zeros(model.encoding.cells, bool)
    chosen[model.learner.cells_in_use[::3]] = True
    fade(model.learner, np.flatnonzero(chosen), keep)
    np.testing.assert_array_equal(model.weights, weights)
    after = model.residual()
    scale = np.abs(features.T @ targets).max()
    np.testing.assert_allclose(after[~chosen], before[~chosen], atol=1e-9 * scale)

    rest = np.where(chosen, 0.0, features)
    given = targets - features[:, chosen] @ weights[chosen]
    both = np.concatenate([np.sqrt(keep) * features, np.sqrt(1 - keep) * rest])
    aims = np.concatenate([np.sqrt(keep) * targets, np.sqrt(1 - keep) * given])
    system = both.T @ both + SETTINGS["ridge"] * np.eye(len(chosen))
    model.learner.solve()
    np.testing.assert_allclose(model.weights, np.linalg.solve(system, both.T @ aims), atol=1e-8)


def test_the_exact_learner_trusts_faded_weights_less_and_moves_none():
    model = model_of("exact")
    learn(model, samples(103, 0, 1.0))
    learner, weights = model.learner, np.array(model.weights)
    features, _ = dense(model, samples(103, 0, 1.0))
    used = learner.cells_in_use
    system = features[:, used].T @ features[:, used] + SETTINGS["ridge"] * np.eye(len(used))
    expected = np.linalg.inv(system)
    some = np.arange(0, len(used), 4)
    expected[some, some] += 0.75 * WALK / SETTINGS["ridge"]
    fade(learner, used[some], 0.25)
    count = len(used)
    np.testing.assert_allclose(learner.inverse[:count, :count], expected, atol=1e-8)
    np.testing.assert_array_equal(model.weights, weights)


@pytest.mark.parametrize("update", UPDATES)
def test_without_a_change_no_bit_differs(update: str):
    data = samples(400, 1, 1.0)
    plain, watching = model_of(update), model_of(update, worlds=3)
    assert not isinstance(plain.learner, ForgettingLearner)
    learn(plain, data)
    learn(watching, data)
    assert watching.learner.changes == 0
    np.testing.assert_array_equal(plain.weights, watching.weights)
    np.testing.assert_array_equal(plain.predict(*data[:2]), watching.predict(*data[:2]))


@pytest.mark.parametrize("update", UPDATES)
def test_a_changed_world_is_learned_where_it_changed_and_an_old_one_comes_back(update: str):
    plain, forgetting = model_of(update), model_of(update, worlds=2)
    old, new = samples(1500, 2, 1.0), samples(300, 3, -1.0, 0.0, 1.0)
    for model in (plain, forgetting):
        learn(model, old)
    elsewhere = error(forgetting, 1.0, -1.0, -0.1)
    for model in (plain, forgetting):
        learn(model, new)
    learner = forgetting.learner
    assert learner.changes == 1
    # A model that believes in the new world has an error of 2 where it is not; that grids see both
    # sides costs the plain one something there as well.
    assert error(forgetting, -1.0, 0.1, 1.0) < 0.4 * error(plain, -1.0, 0.1, 1.0)
    assert error(forgetting, -1.0, -1.0, -0.1) < 0.7
    assert elsewhere < 0.05
    learn(forgetting, samples(60, 4, 1.0, 0.0, 1.0))
    assert learner.returns == 1
    assert error(forgetting, 1.0, 0.1, 1.0) < 0.2
    assert error(forgetting, 1.0, -1.0, -0.1) < 0.2
    learn(forgetting, samples(60, 5, -1.0, 0.0, 1.0))
    assert learner.returns == 2
    assert error(forgetting, -1.0, 0.1, 1.0) < 0.6


@pytest.mark.parametrize("update", UPDATES)
def test_it_goes_on_from_its_state_to_the_bit(update: str):
    model = model_of(update, worlds=2)
    learn(model, samples(600, 2, 1.0))
    learn(model, samples(50, 3, -1.0, 0.0, 1.0))
    assert model.learner.surprising
    other = model_of(update, worlds=2)
    other.restore(*model.state())
    rest = samples(150, 4, -1.0, 0.0, 1.0)
    learn(model, rest)
    learn(other, rest)
    np.testing.assert_array_equal(model.weights, other.weights)
    assert model.learner.returns == other.learner.returns
    with pytest.raises(InvalidInputError, match="worlds"):
        model_of(update).restore(*model.state())


def test_fading_leaves_alone_what_fills_up_vectors():
    model = model_of("active", worlds=2)
    learn(model, samples(600, 2, 1.0))
    learn(model, samples(150, 3, -1.0, 0.0, 1.0))
    present = model.learner.present
    assert model.learner.changes == 1
    assert present.width > present.outputs
    assert np.abs(present.statistics.targets[:, : present.outputs]).max() > 0.1
    assert not present.statistics.targets[:, present.outputs :].any()
    assert not present.weights[:, present.outputs :].any()


def test_there_are_no_more_learners_than_asked_for():
    model = model_of("exact", worlds=2)
    learn(model, samples(600, 2, 1.0))
    for number, push in enumerate((-1.0, 3.0, -3.0)):
        learn(model, samples(300, number, push, 0.0, 1.0))
    assert model.learner.changes >= 3
    assert len(model.learner.stored) == 1
