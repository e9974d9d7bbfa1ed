from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.reference import ReferenceModel
from everlearn.interfaces import Bodies, CommandedPosition, EnvironmentFacts
from everlearn.online import OnlineWorldModel
from everlearn.support.errors import EverlearnError, InvalidInputError, UnknownNameError
from everlearn.support.settings import options_of, values_of
from everlearn.world_model.memory import (
    MEMORIES,
    CommandMemory,
    HistoryMemory,
    HistoryMemoryConfig,
    Memory,
    MotionMemory,
    MotionMemoryConfig,
    NoMemory,
    NoMemoryConfig,
    restored_memory,
)
from tests.online.worlds import (
    ACTIONS,
    HAND,
    OBSERVATIONS,
    ROBOT,
    ROBOT_ACTIONS,
    memories,
    recorded,
    small_model,
    walk,
)

each_memory = pytest.mark.parametrize("memory", memories(), ids=lambda m: m.name)


@each_memory
def test_protocol_shapes_and_purity(memory: Memory) -> None:
    assert isinstance(memory, Memory)
    rng = np.random.default_rng(0)
    obs, following = rng.uniform(-1, 1, (2, 5, 3))
    action = rng.uniform(-1, 1, (5, 2))
    state = memory.start(obs)
    assert state.shape == (5, memory.size)
    before = state.copy(), obs.copy()
    after = memory.advance(state, obs, action, following)
    assert after.shape == state.shape
    assert memory.features(after, following).shape == (5, memory.inputs)
    np.testing.assert_array_equal(before[0], state)
    np.testing.assert_array_equal(before[1], obs)
    # One at a time is the same as all at once.
    single = np.concatenate(
        [
            memory.advance(
                state[i : i + 1], obs[i : i + 1], action[i : i + 1], following[i : i + 1]
            )
            for i in range(5)
        ]
    )
    np.testing.assert_array_equal(single, after)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@pytest.mark.parametrize("grid_dim", [2, 3])
@each_memory
def test_rollout_carries_the_memory_step_by_step(
    memory: Memory, grid_dim: int, precision: Any
) -> None:
    model = small_model(memory=memory, precision=precision, grid_dim=grid_dim)
    for transition in walk(60, memory=memory):
        model.learn(*transition)
    rng = np.random.default_rng(3)
    obs = rng.uniform(-0.5, 0.5, (37, 3))
    plans = rng.uniform(-1, 1, (37, 6, 2))
    state = memory.advance(memory.start(obs), obs, plans[:, 0], obs + 0.01)
    states = model.rollout(obs, plans, state)
    assert states.shape == (37, 7, 3)
    assert states.dtype == model.dtype
    tolerance = 1e-12 if precision == "float64" else 2e-5
    now = obs
    for step in range(6):
        np.testing.assert_allclose(states[:, step], now, atol=tolerance)
        following = model.predict(now, plans[:, step], state).astype(np.float64)
        state = memory.advance(state, now, plans[:, step], following)
        now = following
    np.testing.assert_allclose(states[:, 6], now, atol=tolerance)


@each_memory
def test_a_memory_without_compiled_form_gives_the_same_rollout(memory: Any) -> None:
    class Interpreted(type(memory)):  # type: ignore[misc]
        def compiled(self) -> None:
            return None

    slow = memory.__class__.__new__(Interpreted)
    slow.__dict__.update(memory.__dict__)
    models = [small_model(memory=m, precision="float64") for m in (memory, slow)]
    for transition in walk(40, memory=memory):
        for model in models:
            model.learn(*transition)
    plans = np.random.default_rng(0).uniform(-1, 1, (9, 5, 2))
    fast, stepped = (m.rollout(np.zeros(3), plans) for m in models)
    np.testing.assert_allclose(fast, stepped, atol=1e-12)


@each_memory
def test_rollout_equals_the_reference(memory: Memory) -> None:
    model = small_model(memory=memory, precision="float64")
    reference = ReferenceModel(model)
    data = walk(60, memory=memory)
    for transition in data:
        model.learn(*transition)
        reference.learn(*transition)
    plans = np.random.default_rng(0).uniform(-1, 1, (11, 8, 2))
    obs, _, _, state = data[-1]
    expected = reference.rollout(obs, plans, state)
    np.testing.assert_allclose(model.rollout(obs, plans, state), expected, atol=1e-9)


def test_commands_are_summed_scaled_and_clipped() -> None:
    memory = CommandMemory(CommandedPosition(0.1, (-1.0,), (0.25,), (1,), (2,)), gain=30)
    obs = np.array([[9.0, 9.0, 0.1]])
    state = memory.start(obs)
    state = memory.advance(state, obs, np.array([[0.0, 5.0]]), obs)
    np.testing.assert_allclose(state, [[0.2]])
    np.testing.assert_allclose(memory.features(state, obs), [[3.0]])
    state = memory.advance(state, obs, np.array([[0.0, 1.0]]), obs)
    np.testing.assert_allclose(state, [[0.25]])


def test_without_a_state_the_memory_starts_anew() -> None:
    memory = memories()[1]
    model = small_model(memory=memory)
    for transition in walk(30, memory=memory):
        model.learn(*transition)
    obs, plans = np.array([0.1, 0.2, 0.3]), np.full((4, 3, 2), 0.5)
    anew = model.rollout(obs, plans, memory.start(obs[None])[0])
    np.testing.assert_array_equal(model.rollout(obs, plans), anew)
    other = model.rollout(obs, plans, np.array([0.5, -0.5]))
    assert (other != anew).any()
    repeated = model.rollout(np.tile(obs, (4, 1)), plans, np.tile([0.5, -0.5], (4, 1)))
    np.testing.assert_array_equal(other, repeated)


def test_commands_predict_the_robot_better() -> None:
    """The hand follows its command with a lag: knowing the command must pay, one step ahead."""
    errors = {}
    for memory in (NoMemory(), CommandMemory(HAND)):
        model = OnlineWorldModel(ROBOT, ROBOT_ACTIONS, features=30, ridge=1.0, memory=memory)
        for transition in recorded(memory, None, "button_[nr]*"):
            model.learn(*transition)
        obs, action, following, state = (
            np.array(part) for part in zip(*recorded(memory, None, "button_s*"), strict=True)
        )
        wrong = model.predict(obs, action, state)[:, :3] - following[:, :3]
        errors[memory.name] = float(np.sqrt((wrong**2).mean()))
    assert errors["commands"] < 0.8 * errors["none"]


FACTS = EnvironmentFacts(HAND, Bodies((0, 1, 2), (0.0, 0.0, 0.0), (3,), (), ((7, 0.1), (8, 0.2))))


def test_registered_configs_build_with_the_gains_that_they_record() -> None:
    assert MEMORIES.names() == ("none", "history", "motion")
    built = {
        name: MEMORIES.get(name)().build(ROBOT, ROBOT_ACTIONS, FACTS) for name in MEMORIES.names()
    }
    assert {name: memory.name for name, memory in built.items()} == {n: n for n in built}
    for name, memory in built.items():
        recorded_gains = values_of(MEMORIES.get(name)())
        described = memory.description()
        assert {gain: described[gain] for gain in recorded_gains} == recorded_gains
    assert built["history"].description()["displacement_gain"] == 30.0
    assert built["motion"].description()["displacement_gain"] == 100.0
    assert built["motion"].description()["objects"] == (7, 8)
    other = HistoryMemoryConfig(displacement_gain=7.0).build(ROBOT, ROBOT_ACTIONS, FACTS)
    assert other.description()["displacement_gain"] == 7.0
    with pytest.raises(UnknownNameError, match="motion"):
        MEMORIES.get("motions")
    with pytest.raises(InvalidInputError, match="commanded_position"):
        MotionMemoryConfig().build(ROBOT, ROBOT_ACTIONS, EnvironmentFacts())
    with pytest.raises(InvalidInputError, match="action_gain"):
        HistoryMemoryConfig(action_gain=float("nan"))


def test_settings_of_memories_say_what_they_are_and_what_they_are_given() -> None:
    for name in MEMORIES.names():
        assert all(option.summary for option in options_of(MEMORIES.get(name)()).values())
    given = [config.given for config in (NoMemoryConfig(), HistoryMemoryConfig())]
    assert given == [(), ()]
    assert MotionMemoryConfig().given == ("command law",)
    assert MotionMemoryConfig(object_gain=0.0).given == ("scene", "command law")


@each_memory
def test_a_memory_comes_back_from_its_description(memory: Memory) -> None:
    described = json.loads(json.dumps(memory.description()))
    again = restored_memory(memory.name, described, OBSERVATIONS, ACTIONS)
    assert type(again) is type(memory)
    assert again.description() == memory.description()
    with pytest.raises(InvalidInputError, match="pass it as memory="):
        restored_memory("mine", {}, OBSERVATIONS, ACTIONS)


def test_a_model_with_a_memory_of_ones_own_is_loaded_with_it(tmp_path: Path) -> None:
    class Mine(HistoryMemory):
        name = "mine"

    memory = Mine(OBSERVATIONS, ACTIONS)
    model = small_model(memory=memory)
    for transition in walk(20, memory=memory):
        model.learn(*transition)
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model", memory)
    np.testing.assert_array_equal(loaded.weights, model.weights)
    with pytest.raises(EverlearnError, match="memory="):
        OnlineWorldModel.load(tmp_path / "model")
    with pytest.raises(EverlearnError, match="memory"):
        OnlineWorldModel.load(tmp_path / "model", HistoryMemory(OBSERVATIONS, ACTIONS))


def test_memories_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="other spaces"):
        small_model(memory=CommandMemory(CommandedPosition(0.1, (-1.0,), (1.0,), (0,), (7,))))
    with pytest.raises(InvalidInputError, match="as many"):
        CommandMemory(CommandedPosition(0.1, (-1.0, -1.0), (1.0,), (0,), (0,)))


def test_displacements_of_objects_can_be_kept_from_the_model() -> None:
    shown, half, hidden = (
        MotionMemory(ROBOT, HAND, objects=(7, 8, 9, 10), object_gain=gain)
        for gain in (1.0, 0.5, 0.0)
    )
    rng = np.random.default_rng(0)
    low, high = ROBOT.low, ROBOT.high
    obs, after = rng.uniform(low, high, (2, 6, 26))
    action = rng.uniform(-1, 1, (6, 4))
    all_of_it, shared, kept = (
        memory.features(memory.advance(memory.start(obs), obs, action, after), after)
        for memory in (shown, half, hidden)
    )
    objects = np.zeros(29, bool)
    objects[3 + np.array([7, 8, 9, 10])] = True
    assert all_of_it.all()
    np.testing.assert_allclose(shared, all_of_it * np.where(objects, 0.5, 1.0))
    np.testing.assert_allclose(kept, all_of_it * ~objects)
    with pytest.raises(InvalidInputError, match="objects"):
        MotionMemory(ROBOT, HAND, objects=(26,))


def test_how_far_commands_are_ahead_in_actions() -> None:
    for memory in (CommandMemory(HAND), MotionMemory(ROBOT, HAND)):
        obs = np.zeros((1, 26))
        obs[0, 2] = 0.3
        state = memory.start(obs)
        for _ in range(4):  # the hand stays where it is
            state = memory.advance(state, obs, np.array([[1.0, -0.5, 0.0, 1.0]]), obs)
        np.testing.assert_allclose(memory.ahead(state, obs), [[4.0, -2.0, 0.0]], atol=1e-9)
