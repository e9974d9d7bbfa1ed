"""Local grids see an object from the hand, and nothing else of the table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.observation import BLOCK_POSITION, BODIES, FAUCET_HANDLE
from everlearn.errors import InvalidInputError
from everlearn.models import MotionMemory, OnlineWorldModel
from tests.models.worlds import ROBOT, ROBOT_ACTIONS


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
    of_block = local[(local - 12) % 6 == 5]
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
    of_faucet = local[(local - 12) % 6 == 3]
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
    of_block = [row for grid in range(5, 60, 6) for row in rows[2 * grid : 2 * grid + 2]]
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
    [{"local_grids": 1.5}, {"local_inputs": 0}, {"local_inputs": 99}, {"local_gain": -1.0}],
)
def test_bad_settings_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match="local_"):
        model_of(**options)


def test_local_grids_need_bodies() -> None:
    with pytest.raises(InvalidInputError, match="bodies"):
        OnlineWorldModel(ROBOT, ROBOT_ACTIONS, features=6, local_grids=0.5)
