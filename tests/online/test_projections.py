"""Local grids see an object from the hand, and nothing else of the table."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.observation import BLOCK_POSITION, BODIES, FAUCET_HANDLE
from everlearn.online import OnlineWorldModel
from everlearn.online.snapshot import KIND, VERSION
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import EverlearnError, InvalidInputError
from everlearn.world_model.memory import MotionMemory
from tests.online.worlds import ROBOT, ROBOT_ACTIONS


def model_of(**options: Any) -> OnlineWorldModel:
    memory = MotionMemory(ROBOT, ContinualBenchEnv.commanded_position)
    settings = {"features": 60, "local_grids": 0.8, "threads": 1, "precision": "float64"}
    return OnlineWorldModel(
        ROBOT, ROBOT_ACTIONS, memory=memory, bodies=BODIES, **(settings | options)
    )


def cells_of(model: OnlineWorldModel, obs: np.ndarray) -> np.ndarray:
    cells, values = model.encode(obs, np.zeros(4))
    dense = np.zeros(model.encoding.cells)
    dense[cells] = values
    return dense.reshape(60, -1)


def test_moving_hand_and_object_together_changes_no_local_grid_of_it() -> None:
    """Seen from the hand nothing has moved; the dense grids and those of others differ."""
    model = model_of()
    obs = ContinualBenchEnv("pick-place").reset()[0]
    moved = obs.copy()
    for part in (slice(0, 3), BLOCK_POSITION):
        moved[part] += [0.03, -0.02, 0.04]
    change = np.abs(cells_of(model, obs) - cells_of(model, moved)).sum(axis=1)
    local = np.arange(12, 60)
    of_block = local[(local - 12) // 8 == 5]
    assert change[of_block].max() < 1e-9
    assert (change[:12] > 1e-6).all()
    assert (change[np.setdiff1d(local, of_block)] > 1e-6).any()


def test_what_happens_elsewhere_does_not_reach_them() -> None:
    model = model_of()
    obs = ContinualBenchEnv("pick-place").reset()[0]
    turned = obs.copy()
    turned[FAUCET_HANDLE] += [0.1, 0.05, 0.0]
    change = np.abs(cells_of(model, obs) - cells_of(model, turned)).sum(axis=1)
    local = np.arange(12, 60)
    of_faucet = local[(local - 12) // 8 == 3]
    assert change[np.setdiff1d(local, of_faucet)].max() == 0
    assert (change[of_faucet] > 1e-6).any()


def test_a_grip_is_the_middle_of_the_finest_grids() -> None:
    """With the object between the fingers its relative position adds nothing to a projection."""
    model = model_of(local_inputs=3, local_grids=1.0)
    scaling = model.inputs.scaling
    raw = np.zeros(model.inputs.count)
    raw[:3] = [0.5, 0.2, 0.065]
    raw[BLOCK_POSITION] = [0.5, 0.2, 0.02]
    raw[3] = scaling.centre[3]
    scaled = (raw - scaling.centre) * scaling.multiplier
    rows = model.encoding.projection[:, : model.inputs.count + 1]
    of_block = [row for grid in range(50, 60) for row in rows[2 * grid : 2 * grid + 2]]
    np.testing.assert_allclose(np.array(of_block) @ np.append(scaled, 1), 0, atol=1e-9)


def test_dense_grids_leave_displacements_to_the_linear_part() -> None:
    model = model_of(local_grids=0.0)
    rows = model.encoding.projection
    lag = model.inputs.observations + model.inputs.actions
    assert (rows[:, : lag + 3] != 0).all()
    assert not rows[:, lag + 3 :].any()
    assert rows[:, : lag + 3].std() == pytest.approx((lag + 3) ** -0.5, rel=0.05)


@pytest.mark.parametrize(
    "options",
    [
        {"local_grids": 1.5},
        {"local_inputs": 0},
        {"local_inputs": 99},
        {"local_gain": -1.0},
        {"local_reach": -0.1},
        {"local_reach": float("nan")},
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"local_"):
        model_of(**options)


def test_local_grids_need_bodies() -> None:
    with pytest.raises(InvalidInputError, match="bodies"):
        OnlineWorldModel(ROBOT, ROBOT_ACTIONS, features=6, local_grids=0.5)


# --- reach ---


def walk(steps: int = 120) -> list[np.ndarray]:
    """Observations, actions, next ones and memories of a hand that goes to the block and on."""
    memory = MotionMemory(ROBOT, ContinualBenchEnv.commanded_position)
    env = ContinualBenchEnv("pick-place")
    rng = np.random.default_rng(0)
    obs = env.reset(seed=0)[0]
    state = memory.start(obs[None])
    rows = []
    for step in range(steps):
        towards = np.array([1.0, 0.4, -0.6, 0.0]) * (1 if step < 60 else -1)
        action = np.clip(rng.normal(towards, 0.5), -1, 1)
        following = env.step(action)[0]
        rows.append((obs, action, following, state[0]))
        state = memory.advance(state, obs[None], action[None], following[None])
        obs = following
    return [np.array(part) for part in zip(*rows, strict=True)]


def dense_features(model: OnlineWorldModel, data: list[np.ndarray]) -> np.ndarray:
    obs, action, _, memory = data
    cells, values = model.encode(obs, action, memory)
    out = np.zeros((len(obs), model.encoding.cells))
    np.put_along_axis(out, cells, values, axis=1)
    return out


def test_a_reach_scales_the_grids_of_each_object_by_its_distance() -> None:
    """Open up to half the reach, closed from there on to the reach, object by object."""
    data = walk()
    near, far = (dense_features(model_of(local_reach=reach), data) for reach in (0.3, 0.0))
    grids = (len(near), 60, -1)
    near, far = near.reshape(grids), far.reshape(grids)
    np.testing.assert_array_equal(near[:, :12], far[:, :12])
    shares = set()
    for number, item in enumerate(BODIES.objects):
        fingers = data[0][:, list(BODIES.hand)] + np.array(BODIES.grip)
        distance = np.linalg.norm(data[0][:, list(item)] - fingers, axis=1)
        share = np.clip(2 * (1 - distance / 0.3), 0, 1)[:, None, None]
        own = slice(12 + 8 * number, 20 + 8 * number)
        np.testing.assert_allclose(near[:, own], share * far[:, own], atol=1e-12)
        shares |= set(np.sign(share.ravel()) + np.sign(share.ravel() - 1))
    assert shares == {-1.0, 0.0, 1.0}, "closed, half open and open gates were all met"


def test_predictions_with_a_reach_are_those_of_the_features() -> None:
    data = walk()
    obs, action, _, memory = data
    model = model_of(local_reach=0.3, clip=False)
    for row in zip(*data, strict=True):
        model.learn(*row[:3], memory=row[3])
    expected = obs + dense_features(model, data) @ model.weights
    np.testing.assert_allclose(model.predict(obs, action, memory=memory), expected, atol=1e-12)
    # In imagination, blocks of candidates that are near and far side by side, step by step.
    plans = np.stack([action[:40], action[40:80], action[80:]])
    starts, states = obs[[0, 40, 80]], memory[[0, 40, 80]]
    imagined = model.rollout(starts, plans, memory=states)
    at, kept = starts, states
    for step in range(40):
        cells, values = model.encode(at, plans[:, step], kept)
        then = at + np.einsum("nk,nks->ns", values, model.weights[cells])
        kept = model.memory.advance(kept, at, plans[:, step], then)
        at = then
        np.testing.assert_allclose(imagined[:, step + 1], at, atol=1e-9)


def test_learning_with_a_reach_is_the_ridge_solution_of_what_was_open() -> None:
    data = walk()
    obs, action, following, memory = data
    features = dense_features(model_of(local_reach=0.3, bins=4), data)
    matrix = features.T @ features + 2.0 * np.eye(features.shape[1])
    expected = np.linalg.solve(matrix, features.T @ (following - obs))
    batch = model_of(local_reach=0.3, ridge=2.0, bins=4)
    batch.learn_batch(obs, action, following, memory=memory)
    np.testing.assert_allclose(batch.weights, expected, atol=1e-12)
    online = model_of(local_reach=0.3, ridge=2.0, bins=4)
    for row in zip(*data, strict=True):
        online.learn(*row[:3], memory=row[3])
    # Equation 5 at the last active cells: nothing left to gain there.
    last = np.flatnonzero(features[-1])
    assert np.abs(online.residual()[last]).max() < 1e-9
    online.solve()
    np.testing.assert_allclose(online.weights, expected, atol=1e-12)


def test_out_of_reach_nothing_is_learned_about_an_object() -> None:
    data = walk()
    model = model_of(local_reach=0.3)
    for row in zip(*data, strict=True):
        model.learn(*row[:3], memory=row[3])
    used = np.zeros(model.encoding.cells, bool)
    used[model.learner.statistics.cells] = True
    of_grid = used.reshape(60, -1).any(axis=1)
    met = dense_features(model, data).any(axis=0).reshape(60, -1).any(axis=1)
    np.testing.assert_array_equal(of_grid, met)
    assert not of_grid[12:].all()
    assert of_grid[52:].all(), "the block was within reach"


def test_a_model_with_a_reach_comes_back_to_the_bit(tmp_path: Path) -> None:
    data = walk()
    model = model_of(local_reach=0.3)
    for row in zip(*(part[:70] for part in data), strict=True):
        model.learn(*row[:3], memory=row[3])
    model.save(tmp_path / "model")
    again = OnlineWorldModel.load(tmp_path / "model")
    third = model_of(local_reach=0.3)
    third.restore(*model.state())
    for row in zip(*(part[70:] for part in data), strict=True):
        for one in (model, again, third):
            one.learn(*row[:3], memory=row[3])
    np.testing.assert_array_equal(model.weights, again.weights)
    np.testing.assert_array_equal(model.weights, third.weights)


def test_a_state_of_other_bodies_is_refused() -> None:
    other = dataclasses.replace(BODIES, grip=(0.0, 0.0, -0.1))
    memory = MotionMemory(ROBOT, ContinualBenchEnv.commanded_position)
    settings = {"features": 12, "local_grids": 0.5, "threads": 1}
    first, second = (
        OnlineWorldModel(ROBOT, ROBOT_ACTIONS, memory=memory, bodies=bodies, **settings)
        for bodies in (BODIES, other)
    )
    with pytest.raises(InvalidInputError, match="other bodies"):
        second.restore(*first.state())


@pytest.mark.parametrize(
    "bodies",
    [
        {"hand": [0, 1, 99]},
        {"hand": [0, 1, -1]},
        {"hand": [0, 1]},
        {"grip": [0.0, 0.0, float("nan")]},
        {"objects": [[4, 5, 6.5]]},
        {"objects": "all"},
    ],
)
def test_saved_bodies_are_checked(bodies: dict[str, Any], tmp_path: Path) -> None:
    model_of(local_reach=0.3).save(tmp_path / "model")
    arrays, meta = load_archive(tmp_path / "model", KIND, VERSION)
    save_archive(
        tmp_path / "forged", KIND, VERSION, arrays, meta | {"bodies": meta["bodies"] | bodies}
    )
    with pytest.raises(EverlearnError):
        OnlineWorldModel.load(tmp_path / "forged")
