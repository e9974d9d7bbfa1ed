from __future__ import annotations

import numpy as np
import pytest

from everlearn.continual_bench import PAPER_TASKS, observation
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import SCRIPTS, ScriptedController
from everlearn.support.errors import InvalidInputError, UnknownNameError


def play(env: ContinualBenchEnv, controller: ScriptedController, seed: int) -> tuple[int, bool]:
    obs, _ = env.reset(seed=seed, options={"task": env.task})
    controller.reset()
    ended, steps = False, 0
    while not ended:
        action = controller.act(obs)
        assert env.action_space.contains(action)
        obs, _, terminated, truncated, info = env.step(action)
        ended = terminated or truncated
        steps += 1
    return steps, info["success"]


@pytest.mark.parametrize("task", SCRIPTS)
def test_every_task_is_solved_in_150_steps(task: str):
    steps, success = play(ContinualBenchEnv(task), ScriptedController(task), seed=0)
    assert success
    assert steps <= 150


@pytest.mark.parametrize("task", SCRIPTS)
def test_and_from_other_starts_with_noise(task: str):
    env = ContinualBenchEnv(task, reset_noise=0.02)
    outcomes = [play(env, ScriptedController(task, 0.2, seed), seed) for seed in range(3)]
    assert all(success for _, success in outcomes), outcomes


OBJECTS = {
    "pick-place": observation.BLOCK_POSITION,
    "button-press": observation.BUTTON_POSITION,
    "door-open": observation.DOOR_HANDLE,
    "peg-unplug": observation.PEG_END,
    "window-close": observation.WINDOW_HANDLE,
    "faucet-close": observation.FAUCET_HANDLE,
}


@pytest.mark.parametrize("task", PAPER_TASKS)
def test_a_task_moves_its_own_object_and_no_other(task: str):
    env, controller = ContinualBenchEnv(task), ScriptedController(task)
    env.reset()
    for _ in range(15):  # the block is pushed out of the table and the peg settles first
        obs, _, terminated, *_ = env.step(np.zeros(4))
    before = obs
    while not terminated:
        obs, _, terminated, *_ = env.step(controller.act(obs))
    for name, place in OBJECTS.items():
        moved = np.linalg.norm(obs[place] - before[place])
        assert (moved > 0.04) if name == task else (moved < 0.005), name


def test_noise_is_seeded():
    obs = np.zeros(observation.SIZE)
    first, same, other = (ScriptedController("pick-place", 0.5, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first.act(obs), same.act(obs))
    assert not np.array_equal(first.act(obs), other.act(obs))


def test_bad_arguments():
    assert set(SCRIPTS) >= set(PAPER_TASKS)
    with pytest.raises(UnknownNameError, match="window-close"):
        ScriptedController("window-open")
    with pytest.raises(InvalidInputError, match="noise"):
        ScriptedController("pick-place", noise=-1.0)
