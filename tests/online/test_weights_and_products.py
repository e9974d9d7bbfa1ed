"""Products of inputs as features, and transitions that count less for changing much."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces

from everlearn import OnlineWorldModel
from everlearn.support.errors import InvalidInputError

Array = npt.NDArray[Any]
OBS = spaces.Box(-1.0, 1.0, (3,), np.float64)
ACT = spaces.Box(-1.0, 1.0, (1,), np.float32)
LINEAR: dict[str, Any] = {
    "linear": True,
    "linear_observations": True,
    "precision": "float64",
    "bins": 3,
}


def transitions(count: int, seed: int = 0) -> tuple[Array, Array, Array]:
    rng = np.random.default_rng(seed)
    obs, action = rng.uniform(-0.8, 0.8, (count, 3)), rng.uniform(-1, 1, (count, 1))
    torque = obs[:, :1] * obs[:, 1:2] * action + 0.3 * obs[:, 2:] ** 2
    sizes = np.where(rng.random((count, 1)) < 0.1, 10.0, 1.0)
    return obs, action, np.clip(obs + 0.02 * sizes * torque, -1, 1)


def test_products_are_what_numpy_says() -> None:
    model = OnlineWorldModel(OBS, ACT, features=2, degree=3, linear_gain=2.0, **LINEAR)
    obs, action, _ = transitions(7)
    cells, values = model.encode(obs, action)
    # Observations are scaled to [-3, 3], actions to [-1.5, 1.5]; factors are a third of that.
    factors = np.concatenate([obs, action / 2], axis=1)
    expected = [
        0.3 * 2.0 * np.prod(factors[:, list(chosen)], axis=1)
        for degree in (2, 3)
        for chosen in itertools.combinations_with_replacement(range(4), degree)
    ]
    products = values[:, -len(model.encoding.products) :]
    np.testing.assert_allclose(products[:, : len(expected)], np.transpose(expected), atol=1e-12)
    assert len(np.unique(cells[0])) == cells.shape[1]


@pytest.mark.parametrize("update", ["active", "exact"])
def test_weights_and_products_give_the_weighted_ridge_solution(update: str) -> None:
    options = {**LINEAR, "update": update, "outlier_penalty": 3.0, "degree": 2, "ridge": 0.5}
    model = OnlineWorldModel(OBS, ACT, features=4, **options)
    obs, action, after = transitions(150)
    for sample in zip(obs, action, after, strict=True):
        model.learn(*sample)
    model.solve()
    changes, phi = after - obs, np.zeros((len(obs), model.encoding.cells))
    for row, (cells, values) in zip(phi, zip(*model.encode(obs, action), strict=True), strict=True):
        row[cells] = values
    squares = changes**2
    # What is usual is what was usual by then, the transition itself included.
    usual = np.cumsum(squares, axis=0) / np.arange(1, len(obs) + 1)[:, None]
    beyond = np.maximum((squares / usual).mean(axis=1) - 1, 0)
    weights = 1 / (1 + 3.0 * beyond)
    gram = phi.T @ (weights[:, None] * phi) + 0.5 * np.eye(phi.shape[1])
    solution = np.linalg.solve(gram, phi.T @ (weights[:, None] * changes))
    predicted = model.predict(obs, action) - obs
    np.testing.assert_allclose(predicted, phi @ solution, atol=1e-8)


def test_small_motions_are_learned_better_beside_collisions() -> None:
    rng = np.random.default_rng(1)
    obs, action = rng.uniform(-0.5, 0.5, (400, 3)), rng.uniform(-1, 1, (400, 1))
    after = obs + 0.01 * action
    hits = rng.random(400) < 0.05
    after[hits] += rng.choice([-0.4, 0.4], (hits.sum(), 1))
    errors = []
    for penalty in (0.0, 30.0):
        options = {**LINEAR, "ridge": 0.1, "outlier_penalty": penalty}
        model = OnlineWorldModel(OBS, ACT, features=4, update="exact", **options)
        for sample in zip(obs[:300], action[:300], after[:300], strict=True):
            model.learn(*sample)
        calm = np.flatnonzero(~hits[300:]) + 300
        errors.append(np.abs(model.predict(obs[calm], action[calm]) - after[calm]).mean())
    assert errors[1] < 0.5 * errors[0]


def test_imagination_uses_the_features_that_learning_does() -> None:
    options = {**LINEAR, "precision": "float32", "degree": 3}
    model = OnlineWorldModel(OBS, ACT, features=6, update="exact", threads=1, **options)
    obs, action, after = transitions(200)
    for sample in zip(obs, action, after, strict=True):
        model.learn(*sample)
    cells, values = model.encode(obs, action)
    weights = model.weights
    expected = obs + np.einsum("nk,nks->ns", values, weights[cells])
    np.testing.assert_allclose(model.predict(obs, action), np.clip(expected, -1, 1), atol=1e-5)


def test_a_state_keeps_what_is_usual() -> None:
    options = {**LINEAR, "outlier_penalty": 3.0, "degree": 2}
    one, other = (OnlineWorldModel(OBS, ACT, features=4, **options) for _ in range(2))
    samples = list(zip(*transitions(60), strict=True))
    for sample in samples[:40]:
        one.learn(*sample)
    other.restore(*one.state())
    for model in (one, other):
        for sample in samples[40:]:
            model.learn(*sample)
    np.testing.assert_array_equal(one.weights, other.weights)


def test_products_need_the_linear_part() -> None:
    with pytest.raises(InvalidInputError, match="degree above 1 needs linear"):
        OnlineWorldModel(OBS, ACT, degree=2)
