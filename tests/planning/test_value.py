"""Values on landmarks: exact where the answer is known, stable, and kept with the agent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
from gymnasium import spaces

from everlearn import OnlineAgent, OnlineWorldModel
from everlearn.planning.value import EARNED, EXPLORING, ValueConfig, ValuedObjective, ValueMap
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import ModelInputs
from everlearn.world_model.memory import NoMemory

Array = npt.NDArray[Any]
LINE = spaces.Box(-1.0, 1.0, (1,), np.float64)
PUSH = spaces.Box(-1.0, 1.0, (1,), np.float32)
STEP = 0.1


class Line:
    """A point that an action moves by up to `STEP` on a line from -1 to 1, known exactly."""

    def __init__(self) -> None:
        self.inputs = ModelInputs(LINE, PUSH, NoMemory(), 3.0, 1.5)

    def rollout_from(self, obs: Array, actions: Array) -> Array:
        states = [obs]
        for step in range(actions.shape[1]):
            states.append(np.clip(states[-1] + STEP * actions[:, step], -1.0, 1.0))
        return np.stack(states, axis=1)


def arrived(obs: Array, action: Array, after: Array) -> Array:
    """1 for every step that ends at the right end."""
    return np.asarray(after[:, 0] > 0.95, np.float64)


def grown(landmarks: int = 100, objective: Any = arrived, rounds: int = 300) -> ValueMap:
    line = Line()
    values = ValueMap(line.inputs, PUSH, ValueConfig(landmarks), 0.9, 0)
    values.spacing = 0.15
    for position in np.linspace(-1, 1, 41):
        values.add(np.array([position]))
    for _ in range(rounds):
        values.improve(line, objective, None)
    return values


def test_values_come_near_those_of_the_best_policy() -> None:
    values = grown()
    positions = np.array([[-0.9], [-0.4], [0.0], [0.5], [0.85]])
    # At full speed the first reward comes with the step that passes 0.95, then one each step.
    steps = np.ceil(np.round((0.95 - positions[:, 0]) / STEP, 9))
    best = 0.9 ** (steps - 1) / (1 - 0.9)
    found = values.at(positions)
    assert np.all(np.diff(found) > 0)
    np.testing.assert_allclose(found, best, rtol=0.35)


def test_values_stay_below_what_can_be_earned_whatever_is_drawn() -> None:
    values = grown(rounds=1000)
    positions = np.linspace(-3, 3, 200)[:, None]
    assert values.at(positions).max() <= 1 / (1 - 0.9) + 1e-3
    assert values.at(positions).min() >= 0


def test_what_ends_an_episode_earns_nothing_after_it() -> None:
    class Ends:
        def __call__(self, obs: Array, action: Array, after: Array) -> Array:
            return np.ones(len(obs))

        def continues(self, obs: Array, action: Array, after: Array) -> Array:
            return np.asarray(np.abs(after[:, 0]) < 0.35, np.float64)

    values = grown(objective=Ends())
    inside, outside = values.at(np.array([[0.0], [0.9]]))
    assert inside == pytest.approx(10.0, rel=0.1)
    assert outside < 3.0


def test_values_are_the_average_that_they_are_said_to_be() -> None:
    values = grown(rounds=3)
    state, _ = values.state()
    points = 3.0 * state["states"][:, 0]
    at = 3.0 * 0.123
    width = 0.7 * values.spacing
    kernel = np.exp(-0.5 * ((points - at) / width) ** 2)
    expected = kernel @ state["values"][EARNED] / kernel.sum()
    assert values.at(np.array([[0.123]]))[0] == pytest.approx(expected, rel=1e-3)


def test_landmarks_keep_their_distance_and_their_number() -> None:
    line = Line()
    values = ValueMap(line.inputs, PUSH, ValueConfig(10), 0.9, 0)
    values.spacing = 0.01
    for position in np.random.default_rng(0).uniform(-1, 1, 500):
        values.add(np.array([position]))
    assert 3 <= values.count <= 10
    places = np.sort(3.0 * values.state()[0]["states"][:, 0])
    assert np.diff(places).min() >= 0.999 * values.spacing


def test_exploring_values_reach_for_what_is_new() -> None:
    line = Line()
    values = ValueMap(line.inputs, PUSH, ValueConfig(100), 0.9, 0)
    values.spacing = 0.15
    for position in np.linspace(-1, 1, 41):
        values.add(np.array([position]))

    def nothing(obs: Array, action: Array, after: Array) -> Array:
        return np.zeros(len(obs))

    def new_on_the_left(obs: Array, action: Array, after: Array) -> Array:
        return np.asarray(after[:, 0] < -0.95, np.float64)

    for _ in range(300):
        values.improve(line, nothing, new_on_the_left)
    ends = np.array([[-0.9], [0.9]])
    assert np.all(values.at(ends, EARNED) == 0)
    left, right = values.at(ends, EXPLORING)
    assert left > 2 * right > 0


def test_final_values_count_as_much_as_is_said() -> None:
    values = grown(rounds=20)
    objective = ValuedObjective(arrived, values, EARNED)
    assert objective.continues is None
    states = np.array([[0.3], [0.6]])
    np.testing.assert_array_equal(objective.final(states), values.at(states))


def test_a_state_goes_on_to_the_bit_and_bad_ones_change_nothing() -> None:
    line, first = Line(), grown(rounds=7)
    arrays, meta = first.state()
    second = ValueMap(line.inputs, PUSH, ValueConfig(100), 0.9, 99)
    second.restore(arrays, meta)
    for values in (first, second):
        values.improve(line, arrived, None)
        values.add(np.array([0.777]))
    for name, array in first.state()[0].items():
        np.testing.assert_array_equal(array, second.state()[0][name])
    before = second.state()[0]["values"].copy()
    broken = {**arrays, "plans": arrays["plans"] + 5}
    with pytest.raises(InvalidInputError, match="out of bounds"):
        second.restore(broken, meta)
    with pytest.raises(InvalidInputError, match="cannot have"):
        ValueMap(line.inputs, PUSH, ValueConfig(3), 0.9, 0).restore(arrays, meta)
    np.testing.assert_array_equal(second.state()[0]["values"], before)


SMALL: dict[str, Any] = {
    "model.features": 10,
    "planner.candidates": 20,
    "planner.elites": 5,
    "planner.horizon": 5,
    "value.landmarks": 30,
}


def lived(agent: OnlineAgent, env: gymnasium.Env[Any, Any], steps: int, seed: int = 0) -> Array:
    obs, _ = env.reset(seed=seed)
    agent.begin_episode()
    actions = []
    for _ in range(steps):
        action = agent.act(obs)
        after, reward, terminated, _, _ = env.step(action)
        agent.observe(obs, action, after, float(reward), terminated)
        actions.append(action)
        obs = after
    return np.array(actions)


def test_an_agent_from_its_file_acts_on_to_the_bit(tmp_path: Path) -> None:
    env = gymnasium.make("Pendulum-v1")
    agent = OnlineAgent.for_env(env, seed=3, threads=1, **SMALL)
    lived(agent, env, 40)
    assert agent.values is not None
    assert agent.values.count > 3
    agent.save(tmp_path / "agent")
    other = OnlineAgent.from_file(tmp_path / "agent", threads=1)
    np.testing.assert_array_equal(lived(agent, env, 30, 5), lived(other, env, 30, 5))


def test_evaluation_changes_no_value() -> None:
    env = gymnasium.make("Pendulum-v1")
    agent = OnlineAgent.for_env(env, threads=1, **SMALL)
    lived(agent, env, 30)
    assert agent.values is not None
    before = {name: array.copy() for name, array in agent.values.state()[0].items()}
    lived(agent.evaluation_copy(0), env, 20)
    for name, array in agent.values.state()[0].items():
        np.testing.assert_array_equal(array, before[name])


def test_another_objective_starts_values_anew() -> None:
    env = gymnasium.make("Pendulum-v1")

    def upright(obs: Array, action: Array, after: Array) -> Array:
        return np.asarray(after[:, 0])

    agent = OnlineAgent.for_env(env, upright, threads=1, **SMALL)
    lived(agent, env, 20)
    assert agent.values is not None
    assert np.any(agent.values.state()[0]["values"])
    agent.begin_task("hanging", lambda obs, action, after: -after[:, 0])
    assert not np.any(agent.values.state()[0]["values"])


def test_what_cannot_have_values_is_refused() -> None:
    env = gymnasium.make("Pendulum-v1")
    with pytest.raises(InvalidInputError, match="discount is 1"):
        OnlineAgent.for_env(env, **SMALL, **{"planner.discount": 1.0})
    with pytest.raises(InvalidInputError, match="landmarks"):
        ValueConfig(landmarks=-1)


def test_models_imagine_from_many_states_as_from_one() -> None:
    model = OnlineWorldModel(LINE, PUSH, features=5, threads=1)
    rng = np.random.default_rng(0)
    for obs, action in rng.uniform(-1, 1, (50, 2, 1)):
        model.learn(obs, action, np.clip(obs + STEP * action, -1, 1))
    starts, plans = rng.uniform(-1, 1, (4, 1)), rng.uniform(-1, 1, (4, 3, 1)).astype(np.float32)
    many = model.rollout_from(starts, plans)
    for start, plan, states in zip(starts, plans, many, strict=True):
        np.testing.assert_allclose(model.rollout(start, plan[None])[0], states, atol=1e-6)
