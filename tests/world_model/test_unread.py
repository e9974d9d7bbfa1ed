"""Observations that are predicted and not read: a learned reward, as the return so far."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.observation import BODIES
from everlearn.online import OnlineWorldModel
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import HistoryMemory, Memory, MotionMemory
from tests.online.worlds import (
    ACTIONS,
    OBSERVATIONS,
    ROBOT,
    ROBOT_ACTIONS,
    memories,
    recorded,
    states_equal,
    walk,
)

each_memory = pytest.mark.parametrize("memory", memories(), ids=lambda m: m.name)


def extended(space: spaces.Box) -> spaces.Box:
    """`space` and a return, which has no bounds."""
    low, high = np.append(space.low, -np.inf), np.append(space.high, np.inf)
    return spaces.Box(low, high, dtype=np.float64)


def reward(obs: np.ndarray, action: np.ndarray) -> float:
    return float(50 * np.sin(2 * obs[0]) - 20 * action[1] ** 2)


def rewarded(data: list[Any], start: float = 0.0) -> list[Any]:
    """Transitions with the return so far at the end of observations."""
    out, total = [], start
    for obs, action, following, state in data:
        after = total + reward(obs, action)
        out.append((np.append(obs, total), action, np.append(following, after), state))
        total = after
    return out


def both(memory: Memory | None = None, **options: Any) -> tuple[OnlineWorldModel, OnlineWorldModel]:
    """A model without a return, and the same with one."""
    settings: dict[str, Any] = {"features": 20, "bins": 5, "ridge": 0.05, "threads": 1}
    settings |= {"memory": memory} | options
    return (
        OnlineWorldModel(OBSERVATIONS, ACTIONS, **settings),
        OnlineWorldModel(extended(OBSERVATIONS), ACTIONS, unread=1, **settings),
    )


def trained(
    memory: Memory | None = None, steps: int = 150, **options: Any
) -> tuple[OnlineWorldModel, OnlineWorldModel]:
    plain, model = both(memory, **options)
    data = walk(steps, memory=memory)
    for transition, longer in zip(data, rewarded(data), strict=True):
        plain.learn(*transition)
        model.learn(*longer)
    return plain, model


@pytest.mark.parametrize(("precision", "tolerance"), [("float64", 1e-10), ("float32", 5e-5)])
@pytest.mark.parametrize("linear", [False, True])
@each_memory
def test_everything_else_is_predicted_as_without(
    memory: Memory, linear: bool, precision: Any, tolerance: float
) -> None:
    plain, model = trained(memory, linear=linear, precision=precision)
    np.testing.assert_array_equal(model.encoding.projection[:, 3], 0)
    obs, action, _, state = (np.array(x) for x in zip(*walk(60, 4, memory), strict=True))
    longer = np.column_stack([obs, np.linspace(-1e3, 1e3, 60)])
    predicted = model.predict(longer, action, state)
    np.testing.assert_allclose(
        predicted[:, :3], plain.predict(obs, action, state), atol=tolerance, rtol=0
    )
    plans = np.random.default_rng(1).uniform(-1, 1, (20, 6, 2))
    np.testing.assert_allclose(
        model.rollout(longer[0], plans, state[0])[:, :, :3],
        plain.rollout(obs[0], plans, state[0]),
        atol=10 * tolerance,
        rtol=0,
    )


def test_large_rewards_do_not_excuse_errors_of_small_changes() -> None:
    plain, model = both()
    data = walk(200)
    for obs, action, following, _ in data:
        plain.learn(obs, action, following)
        huge = 1e6 * reward(obs, action)
        model.learn(np.append(obs, 0.0), action, np.append(following, huge))
    np.testing.assert_allclose(model.weights[: len(plain.weights), :3], plain.weights, atol=1e-4)
    cells, _ = model.encode(np.append(data[-1][0], 0.0), data[-1][1])
    left = np.abs(model.residual()[cells])
    assert left[:, :3].max() < 1e-3


@pytest.mark.parametrize("fraction", [0.0, 0.8])
def test_it_goes_with_local_grids_and_reach(fraction: float) -> None:
    memory = MotionMemory(ROBOT, ContinualBenchEnv.commanded_position)
    settings: dict[str, Any] = {"features": 40, "bins": 5, "ridge": 1.0, "linear": True}
    settings |= {"local_grids": fraction, "local_reach": 0.3, "precision": "float64"}
    settings |= {"memory": memory, "bodies": BODIES, "threads": 1, "still": np.full(26, 1e-4)}
    plain = OnlineWorldModel(ROBOT, ROBOT_ACTIONS, **settings)
    model = OnlineWorldModel(extended(ROBOT), ROBOT_ACTIONS, unread=1, **settings)
    data = recorded(memory, 60, "b*_scripted")
    for transition, longer in zip(data, rewarded(data), strict=True):
        plain.learn(*transition)
        model.learn(*longer)
    obs, _, _, state = data[40]
    plans = np.random.default_rng(0).uniform(-1, 1, (20, 8, 4))
    imagined = model.rollout(np.append(obs, 0.0), plans, state)
    np.testing.assert_allclose(imagined[:, :, :26], plain.rollout(obs, plans, state), atol=1e-9)
    assert np.ptp(imagined[:, -1, 26]) > 1


def test_a_reward_is_learned() -> None:
    _, model = trained(steps=800, features=60, ridge=0.01)
    obs, action, following, _ = (np.array(part) for part in zip(*walk(200, 9), strict=True))
    expected = np.array([reward(o, a) for o, a in zip(obs, action, strict=True)])
    start = np.column_stack([obs, np.zeros(200)])
    earned = model.predict(start, action)[:, 3]
    assert np.corrcoef(earned, expected)[0, 1] > 0.98
    assert len(following) == 200


@each_memory
def test_no_prediction_depends_on_it(memory: Memory) -> None:
    _, model = trained(memory)
    obs, action, _, state = (np.array(part) for part in zip(*walk(40, 4, memory), strict=True))
    start = np.column_stack([obs, np.zeros(40)])
    changes = model.predict(start, action, state) - start.astype(np.float32)
    for value in (-3.0, 1e4, 1e30):
        start[:, 3] = value
        after = model.predict(start, action, state)
        np.testing.assert_array_equal(
            after[:, :3] - start[:, :3].astype(np.float32), changes[:, :3]
        )
    start[:, 3] = 512.0
    moved = model.predict(start, action, state)[:, 3] - 512.0
    np.testing.assert_allclose(moved, changes[:, 3], atol=1e-3)
    cells = [model.encode(np.append(obs[0], value), action[0], state[0]) for value in (0.0, 1e9)]
    np.testing.assert_array_equal(cells[0][1], cells[1][1])


def test_where_it_starts_makes_no_difference_to_what_is_learned() -> None:
    low, high = (both(precision="float64")[1] for _ in range(2))
    for start, model in ((0.0, low), (4096.0, high)):
        for transition in rewarded(walk(80), start):
            model.learn(*transition)
    np.testing.assert_allclose(low.weights, high.weights, atol=1e-8)


def test_it_is_taken_however_large_and_nothing_clips_it() -> None:
    space = spaces.Box(
        np.append(OBSERVATIONS.low, -1.0), np.append(OBSERVATIONS.high, 1.0), dtype=np.float64
    )
    model = OnlineWorldModel(space, ACTIONS, features=10, ridge=0.01, threads=1, unread=1)
    assert not model.warming_up
    for transition in rewarded(walk(100), start=1e6):
        model.learn(*transition)
    assert model.predict(np.append(np.zeros(3), 7e5), np.zeros(2))[3] > 6e5
    with pytest.raises(InvalidInputError, match="finite"):
        model.learn(np.append(np.zeros(3), np.inf), np.zeros(2), np.zeros(4))
    with pytest.raises(InvalidInputError, match="far outside"):
        model.learn(np.array([0, 50.0, 0, 0]), np.zeros(2), np.zeros(4))
    # In imagination it may overflow; what is read does not notice.
    model.learner.weights[:, 3] = 1e38
    plans = np.random.default_rng(0).uniform(-1, 1, (20, 10, 2))
    imagined = model.rollout(np.zeros(4), plans)
    assert not np.isfinite(imagined[:, -1, 3]).any()
    model.learner.weights[:, 3] = 0
    np.testing.assert_array_equal(model.rollout(np.zeros(4), plans)[:, :, :3], imagined[:, :, :3])


@each_memory
def test_imagination_sums_it_up(memory: Any) -> None:
    class Interpreted(type(memory)):  # type: ignore[misc]
        def compiled(self) -> None:
            return None

    slow = memory.__class__.__new__(Interpreted)
    slow.__dict__.update(memory.__dict__)
    plans = np.random.default_rng(2).uniform(-1, 1, (9, 6, 2))
    start = np.array([0.1, -0.2, 0.3, 5.0])
    for remembers in (memory, slow):
        _, model = trained(remembers, precision="float64")
        imagined = model.rollout(start, plans)
        now, state = np.tile(start, (9, 1)), memory.start(np.tile(start[:3], (9, 1)))
        total = np.full(9, 5.0)
        for step in range(6):
            at_zero = now.copy()
            at_zero[:, 3] = 0.0
            after = model.predict(at_zero, plans[:, step], state)
            total += after[:, 3]
            state = memory.advance(state, now[:, :3], plans[:, step], after[:, :3])
            now = after
        np.testing.assert_allclose(imagined[:, -1, 3], total, atol=1e-9)


def test_a_warm_up_leaves_it_out(tmp_path: Path) -> None:
    unbounded = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    memory = HistoryMemory(unbounded, ACTIONS)
    settings: dict[str, Any] = {"features": 10, "bins": 5, "warm_up": 20, "threads": 1}
    plain = OnlineWorldModel(unbounded, ACTIONS, memory=memory, **settings)
    model = OnlineWorldModel(extended(unbounded), ACTIONS, memory=memory, unread=1, **settings)
    data = walk(60, memory=memory)
    steps = list(zip(data, rewarded(data, 1e200), strict=True))
    for transition, longer in steps[:10]:
        plain.learn(*transition)
        model.learn(*longer)
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    assert loaded.warming_up
    for transition, longer in steps[10:]:
        plain.learn(*transition)
        model.learn(*longer)
        loaded.learn(*longer)
    assert states_equal(model.state(), loaded.state())
    assert not model.warming_up
    assert model.steps == 60
    assert model.inputs.scaling.multiplier[3] == 0
    kept = np.delete(np.arange(model.inputs.count), 3)
    np.testing.assert_array_equal(
        model.inputs.scaling.multiplier[kept], plain.inputs.scaling.multiplier
    )
    obs, action, _, state = data[-1]
    np.testing.assert_allclose(
        model.predict(np.append(obs, 0.0), action, state)[:3],
        plain.predict(obs, action, state),
        atol=1e-5,
    )


@each_memory
def test_a_model_with_a_return_comes_back_to_the_bit(memory: Memory, tmp_path: Path) -> None:
    plain, model = trained(memory)
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    assert states_equal(model.state(), loaded.state())
    for transition in rewarded(walk(20, 5, memory)):
        model.learn(*transition)
        loaded.learn(*transition)
    assert states_equal(model.state(), loaded.state())
    bounds = spaces.Box(
        np.append(OBSERVATIONS.low, -1.0), np.append(OBSERVATIONS.high, 1.0), dtype=np.float64
    )
    with pytest.raises(InvalidInputError, match="saved"):
        plain.restore(*model.state())
    if memory.size == 0:
        read, unread = (
            OnlineWorldModel(bounds, ACTIONS, features=5, threads=1, unread=n) for n in (0, 1)
        )
        with pytest.raises(InvalidInputError, match="saved with unread=1"):
            read.restore(*unread.state())
