"""The environment against episodes recorded in the published one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from everlearn.continual_bench import TASKS, rewards
from everlearn.continual_bench.env import ContinualBenchEnv

from .conftest import GOLDEN, PUBLISHED_NAMES


def test_there_are_eighteen_episodes():
    assert len(GOLDEN) == 18


@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_replay(env: ContinualBenchEnv, path: Path):
    golden = np.load(path)
    names = [PUBLISHED_NAMES[str(name)] for name in golden["reward_order"]]
    obs, info = env.reset(options={"task": PUBLISHED_NAMES[str(golden["task"])]})
    np.testing.assert_allclose(obs, golden["reset_obs"], rtol=0, atol=1e-9)
    np.testing.assert_array_equal(env.data.qpos, golden["reset_qpos"])
    np.testing.assert_array_equal(env.data.qacc_warmstart, golden["reset_warmstart"])
    np.testing.assert_allclose(env.start[:3], golden["init_tcp"], rtol=0, atol=1e-12)
    for t, action in enumerate(golden["actions"]):
        obs, reward, terminated, truncated, info = env.step(action)
        np.testing.assert_array_equal(env.data.qpos, golden["qpos"][t])
        np.testing.assert_allclose(obs, golden["obs"][t], rtol=0, atol=1e-9)
        values = [info["rewards"][name] for name in names]
        np.testing.assert_allclose(values, golden["rewards"][t], rtol=0, atol=1e-12)
        assert [info["successes"][name] for name in names] == list(golden["success"][t] > 0.5)
        assert reward == info["rewards"][env.task]
        assert info["success"] == info["successes"][env.task]
        assert not terminated
        assert not truncated


# What the finger estimate costs, in reward units: mean and worst over the golden episodes of
# the task itself. Pick-place never uses the true fingers, and door-open uses none at all, so
# these two must agree; a better estimate would lower the others.
ESTIMATE_COSTS = {
    "pick-place": (1e-9, 1e-9),
    "button-press": (0.04, 0.60),
    "door-open": (1e-9, 1e-9),
    "peg-unplug": (0.01, 0.19),
    "window-close": (0.065, 0.26),
    "faucet-close": (0.035, 0.10),
}


@pytest.mark.parametrize("task", ESTIMATE_COSTS)
def test_planner_reward_agrees_within_the_cost_of_the_finger_estimate(task: str):
    differences = []
    for path in GOLDEN:
        golden = np.load(path)
        if PUBLISHED_NAMES[str(golden["task"])] != task:
            continue
        start = np.concatenate([golden["init_tcp"], golden["active_obj_init_pos"]])
        column = [PUBLISHED_NAMES[str(name)] for name in golden["reward_order"]].index(task)
        objective = TASKS.get(task).objective(start)
        planned = objective(golden["obs"], golden["actions"], golden["obs"])
        differences.append(np.abs(planned - golden["rewards"][:, column]))
    difference = np.concatenate(differences)
    mean, worst = ESTIMATE_COSTS[task]
    assert difference.mean() <= mean
    assert difference.max() <= worst


def test_objective_does_not_depend_on_precision_or_batch():
    golden = np.load(GOLDEN[0])
    for name in PUBLISHED_NAMES.values():
        objective = TASKS.get(name).objective()
        whole = objective(golden["obs"], golden["actions"], golden["obs"])
        one_by_one = [
            objective(golden["obs"][t : t + 1], a[None], golden["obs"][t : t + 1])[0]
            for t, a in enumerate(golden["actions"])
        ]
        np.testing.assert_array_equal(whole, one_by_one)
        single = golden["obs"].astype(np.float32)
        np.testing.assert_allclose(
            objective(single, golden["actions"].astype(np.float32), single), whole, atol=2e-3
        )


def test_nominal_start_is_the_measured_one(env: ContinualBenchEnv):
    for name in PUBLISHED_NAMES.values():
        env.reset(options={"task": name})
        np.testing.assert_allclose(env.start, TASKS.get(name).start(), rtol=0, atol=1e-12)


def test_tolerances_against_their_definition():
    # One inside the bounds, a tenth one margin away, by definition of the published shapes.
    for shape in (rewards.long_tail, rewards.gaussian):
        assert shape(0.3, 0.2, 0.4, 0.5) == 1.0
        assert shape(0.9, 0.2, 0.4, 0.5) == pytest.approx(0.1)
        assert shape(-0.3, 0.2, 0.4, 0.5) == pytest.approx(0.1)
        assert shape(0.5, 0.2, 0.4, 0.0) == 0.0
    assert rewards.long_tail(1.4, 0.2, 0.4, 0.5) == pytest.approx(1 / 37)
    assert rewards.gaussian(1.4, 0.2, 0.4, 0.5) == pytest.approx(1e-4)
    assert rewards.hamacher(0.0, 0.0) == 0.0
    assert rewards.hamacher(1.0, 0.3) == pytest.approx(0.3)
    assert rewards.hamacher(0.5, 0.5) == pytest.approx(1 / 3)
