"""The compiled network against plain NumPy in float64."""

from __future__ import annotations

import itertools

import numba
import numpy as np
import pytest

from everlearn.deep.mlp import rollout_kernel as dense
from everlearn.world_model.step_kernels import Limits, StepTables, Trajectories, given_features

ACTIONS = 2


def network(sizes: list[int], seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    matrices, biases = [], []
    for inputs, outputs in itertools.pairwise(sizes):
        matrices.append((rng.normal(size=(outputs, inputs)) / inputs**0.5).astype(np.float32))
        biases.append((0.1 * rng.normal(size=outputs)).astype(np.float32))
    return matrices, biases


def plain(matrices, biases, scaling, obs, actions, bound) -> np.ndarray:
    """States [N, H + 1, S] by the definition."""
    state = obs.astype(np.float64)
    states = [state]
    for step in range(actions.shape[1]):
        x = np.concatenate([state, actions[:, step]], axis=1)
        x = (x - scaling[0]) * scaling[1]
        for layer, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
            x = x @ matrix.T.astype(np.float64) + bias
            if layer < len(matrices) - 1:
                x = np.maximum(x, 0)
        state = np.clip(state + x, -bound, bound)
        states.append(state)
    return np.stack(states, axis=1)


def compiled(matrices, biases, scaling, obs, actions, bound, unread=0) -> np.ndarray:
    size = obs.shape[1]
    states = np.empty((actions.shape[1] + 1, len(obs), size), np.float32)
    states[0] = obs
    bounds = np.float32([np.full(size, -bound), np.full(size, bound), np.zeros(size)])
    centre, multiplier = scaling.astype(np.float32)
    memory = given_features(0).astype(np.float32)
    dense.imagine(
        Trajectories(states, actions, np.zeros((len(obs), 0), np.float32)),
        StepTables(centre, multiplier, Limits(*bounds), memory, size - unread),
        dense.pack(matrices, biases),
    )
    return states.swapaxes(0, 1)


def case(count: int, hidden: list[int], size: int = 7, horizon: int = 4) -> tuple:
    rng = np.random.default_rng(count)
    inputs = size + ACTIONS
    scaling = np.stack([rng.normal(size=inputs), rng.uniform(0.5, 2.0, inputs)])
    obs = rng.normal(size=(count, size)).astype(np.float32)
    actions = rng.uniform(-1, 1, (count, horizon, ACTIONS)).astype(np.float32)
    return (*network([inputs, *hidden, size]), scaling, obs, actions, 3.0)


@pytest.mark.parametrize("count", [1, 16, 17, 64, 65, 80, 81, 150, 200, 401])
def test_any_number_of_candidates(count: int) -> None:
    given = case(count, [11, 20])
    np.testing.assert_allclose(compiled(*given), plain(*given), atol=2e-5)


def test_company_changes_no_bit() -> None:
    # 200 candidates are a wide block and two narrow ones; a few are a narrow one.
    *network_, obs, actions, bound = case(200, [20, 20])
    together = compiled(*network_, obs, actions, bound)
    for part in (slice(0, 1), slice(70, 90), slice(120, 200)):
        alone = compiled(*network_, obs[part], actions[part], bound)
        np.testing.assert_array_equal(alone, together[part])


@pytest.mark.parametrize("shut", ["some", "all", "none"])
def test_units_that_are_shut_for_all(shut: str) -> None:
    matrices, biases, scaling, obs, actions, bound = case(200, [30, 30, 30])
    for bias in biases[:-1]:
        bias[{"some": slice(3, 20), "all": slice(None), "none": slice(0)}[shut]] = -100.0
    if shut == "none":
        for bias in biases[:-1]:
            bias += 100.0
    scaling[1, 2] = 0.0  # an input that is zero for all
    bound = 1e6
    given = (matrices, biases, scaling, obs, actions, bound)
    np.testing.assert_allclose(compiled(*given), plain(*given), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("used", ["none", "one", "one of one candidate", "all but one"])
def test_inputs_that_are_zero_for_all(used: str) -> None:
    matrices, biases, scaling, obs, actions, bound = case(80, [20, 20])
    scaling[0] = 0.0
    if used == "all but one":
        obs[:, 3] = 0.0
    else:
        obs[:], actions[:] = 0.0, 0.0
    if used == "one":
        obs[:, 5] = 1.0
    if used == "one of one candidate":
        obs[79, 5] = 1.0
    given = (matrices, biases, scaling, obs, actions[:, :1], bound)
    expected = plain(*given)
    np.testing.assert_allclose(compiled(*given), expected, atol=2e-5)
    alike = np.abs(expected[:, 1] - expected[0, 1]).max(axis=1) < 1e-9
    assert alike.sum() == {"one of one candidate": 79, "all but one": 1}.get(used, 80)


def test_one_candidate_keeps_a_unit_open() -> None:
    # A unit that only the last of 80 opens counts for it, and for it alone.
    matrices, biases, scaling, obs, actions, _ = case(80, [6, 6])
    biases[0][2] = -50.0
    matrices[0][2] = 0.0
    matrices[0][2, 0] = 1.0
    scaling[:, 0] = 0.0, 1.0
    obs[:, 0] = 0.0
    obs[79, 0] = 51.0
    matrices[1][:, 2] = 10.0
    given = (matrices, biases, scaling, obs, actions[:, :1], 1e6)
    expected = plain(*given)
    np.testing.assert_allclose(compiled(*given), expected, rtol=1e-4, atol=1e-4)
    matrices[1][:, 2] = 0.0
    without = plain(*given)
    np.testing.assert_array_equal(without[:79], expected[:79])
    assert np.abs(without[79, 1] - expected[79, 1]).max() > 1e-2


@pytest.mark.parametrize("hidden", [[], [1], [5, 4], [200, 200, 200, 200], [3, 33]])
def test_any_layers(hidden: list[int]) -> None:
    given = case(33, hidden)
    expected = plain(*given)
    np.testing.assert_allclose(compiled(*given), expected, atol=2e-5)
    assert np.ptp(expected[:, -1]) > 0.5  # something happened
    assert np.abs(expected[:, 1:]).max() <= 3.0


def test_threads_change_no_bit() -> None:
    given = case(300, [20, 20])
    before = numba.get_num_threads()
    found = []
    try:
        for threads in {1, before}:
            numba.set_num_threads(threads)
            found.append(compiled(*given))
    finally:
        numba.set_num_threads(before)
    np.testing.assert_array_equal(found[0], found[-1])


@pytest.mark.parametrize("hidden", [[20], [11, 7]])
def test_what_is_not_a_number_stays_so_and_where_it_is(hidden: list[int]) -> None:
    matrices, biases, scaling, obs, actions, bound = case(90, hidden)
    obs[85, 2] = np.nan
    states = compiled(matrices, biases, scaling, obs, actions, bound)
    assert np.isnan(states[85, 1:]).all()
    others = np.delete(states, 85, axis=0)
    obs[85, 2] = 0.0
    expected = compiled(matrices, biases, scaling, obs, actions, bound)
    np.testing.assert_array_equal(others, np.delete(expected, 85, axis=0))


def test_observations_that_are_not_read_are_zero_to_the_network() -> None:
    matrices, biases, scaling, obs, actions, _ = case(40, [20, 20])
    blind = [matrix.copy() for matrix in matrices]
    blind[0][:, 6] = 0.0
    biases[0] += (matrices[0][:, 6] * (0.0 - scaling[0, 6]) * scaling[1, 6]).astype(np.float32)
    expected = plain(blind, biases, scaling, obs, actions, 1e6)
    biases[0] -= (matrices[0][:, 6] * (0.0 - scaling[0, 6]) * scaling[1, 6]).astype(np.float32)
    states = compiled(matrices, biases, scaling, obs, actions, 1e6, unread=1)
    np.testing.assert_allclose(states, expected, atol=1e-4)
