"""Beginnings of motions count more: the same as seeing them more often."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.observation import BODIES
from everlearn.online import OnlineWorldModel
from everlearn.online.onsets import Onsets
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import HistoryMemory, Memory, MotionMemory, NoMemory
from tests.online.worlds import ROBOT, ROBOT_ACTIONS

DOOR_ANGLE = 10
MEMORY = MotionMemory(ROBOT, ContinualBenchEnv.commanded_position)


def model_of(weight: float, **options: Any) -> OnlineWorldModel:
    settings: dict[str, Any] = {
        "memory": MEMORY,
        "bodies": BODIES,
        "features": 24,
        "bins": 5,
        "ridge": 0.1,
        "linear": True,
        "threads": 1,
        "precision": "float64",
    }
    return OnlineWorldModel(ROBOT, ROBOT_ACTIONS, onset_weight=weight, **(settings | options))


def transitions(count: int = 60) -> list[np.ndarray]:
    """A hand that wanders and a door that moves now and then: obs, actions, next, memories."""
    rng = np.random.default_rng(3)
    obs = ContinualBenchEnv("door-open").reset(seed=0)[0]
    state = MEMORY.start(obs[None])
    rows = []
    for step in range(count):
        action = rng.uniform(-1, 1, 4)
        following = obs.copy()
        following[:3] += 0.01 * action[:3]
        following[DOOR_ANGLE] -= 0.02 * ((step // 5) % 2)
        rows.append((obs, action, following, state[0]))
        state = MEMORY.advance(state, obs[None], action[None], following[None])
        obs = following
    return [np.array(part, float) for part in zip(*rows, strict=True)]


def beginnings(count: int = 60) -> np.ndarray:
    """The steps in which that door begins to move: the first of every second five."""
    return np.arange(count) % 10 == 5


def test_an_onset_is_a_thing_that_rested_and_moves() -> None:
    obs, _, following, states = transitions()
    weights = Onsets(7.0, MEMORY, BODIES).weights(following - obs, states)
    np.testing.assert_array_equal(weights, np.where(beginnings(), 7.0, 1.0))


@pytest.mark.parametrize(
    ("before", "now", "weight"),
    [
        (0.0, 0.0007, 4.0),
        (0.0, -0.0007, 4.0),
        (0.0, 0.0005, 1.0),
        (0.00002, 0.0007, 4.0),
        (0.00004, 0.0007, 1.0),
        (0.01, 0.01, 1.0),
        (0.01, 0.0, 1.0),
    ],
)
def test_limits_are_shares_of_what_is_small_for_a_thing(
    before: float, now: float, weight: float
) -> None:
    """0.003 rad is small for the door: it rested below 0.00003, and moves above 0.0006."""
    memory = HistoryMemory(ROBOT, ROBOT_ACTIONS)
    last, change = np.zeros((1, 26)), np.zeros((1, 26))
    last[0, DOOR_ANGLE], change[0, DOOR_ANGLE] = before, now
    # The hand is no thing at rest, however it moves.
    change[0, :3] = 0.05
    state = memory.advance(memory.start(last), np.zeros((1, 26)), np.zeros((1, 4)), last)
    assert Onsets(4.0, memory, BODIES).weights(change, state) == [weight]


def test_counting_three_times_is_seeing_three_times() -> None:
    obs, actions, following, states = transitions()
    often = np.repeat(np.arange(len(obs)), np.where(beginnings(), 3, 1))
    assert len(often) == 60 + 2 * 6
    weighted, repeated, plain = model_of(3.0), model_of(1.0), model_of(1.0)
    weighted.learn_batch(obs, actions, following, states)
    repeated.learn_batch(obs[often], actions[often], following[often], states[often])
    plain.learn_batch(obs, actions, following, states)
    np.testing.assert_allclose(weighted.weights, repeated.weights, atol=1e-10)
    assert np.abs(plain.weights - repeated.weights).max() > 1e-4
    assert weighted.steps == 60


def test_one_at_a_time_is_as_exact_as_all_at_once() -> None:
    rows = transitions()
    single, batch = model_of(10.0), model_of(10.0)
    for obs, action, following, state in zip(*rows, strict=True):
        single.learn(obs, action, following, state)
        cells, _ = single.encode(obs, action, state)
        # Equation 5: on the last active cells the residual of the weighted loss is zero.
        assert np.abs(single.residual()[cells]).max() < 1e-8
    batch.learn_batch(*rows)
    single.solve()
    np.testing.assert_allclose(single.weights, batch.weights, atol=1e-9)


@pytest.mark.parametrize("weight", [0.0, -1.0, float("nan"), float("inf")])
def test_bad_weights_are_refused(weight: float) -> None:
    with pytest.raises(InvalidInputError, match="onset_weight"):
        model_of(weight)


@pytest.mark.parametrize(
    "options",
    [
        {"memory": NoMemory()},
        {"bodies": None},
        {"bodies": dataclasses.replace(BODIES, resting=())},
    ],
)
def test_it_needs_to_know_what_rests_and_what_moved(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=r"onset_weight is 2.*bodies.*memory"):
        model_of(2.0, **options)


def test_memories_of_motion_give_the_last_displacement() -> None:
    obs, actions, following, _ = transitions(2)
    memories: tuple[Memory, ...] = (MEMORY, HistoryMemory(ROBOT, ROBOT_ACTIONS))
    for memory in memories:
        state = memory.advance(memory.start(obs[:1]), obs[:1], actions[:1], following[:1])
        np.testing.assert_array_equal(memory.displacement(state), following[:1] - obs[:1])  # type: ignore[attr-defined]
