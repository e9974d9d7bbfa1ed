from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.agents import OnlineAgent, PlanningAgent, RandomAgent, make_agent
from everlearn.interfaces import Agent, CommandedPosition, FloatArray
from everlearn.planning import CEMConfig, CEMPlanner
from everlearn.support.errors import (
    DamagedFileError,
    InvalidInputError,
    NotReadyError,
    UnknownNameError,
)
from tests.planning.toy import (
    ACTIONS,
    CountingMemory,
    Point,
    RidgeModel,
    goal_at,
    step,
)

SMALL: dict[str, Any] = {"candidates": 40, "horizon": 6, "elites": 6, "iterations": 2}


def toy_agent(seed: int = 0, remember: bool = False) -> PlanningAgent:
    model = RidgeModel(CountingMemory() if remember else None)
    return PlanningAgent(model, CEMPlanner(ACTIONS, CEMConfig(**SMALL), seed), goal_at(1.0, 1.0))


def live(agent: Agent, obs: FloatArray, steps: int) -> tuple[FloatArray, list[FloatArray]]:
    """Act and observe for some steps; return the last state and the actions."""
    actions = []
    for _ in range(steps):
        action = agent.act(obs)
        actions.append(action)
        following = step(obs, action)
        agent.observe(obs, action, following, 0.0, False)
        obs = following
    return obs, actions


def everything(agent: PlanningAgent) -> tuple[Any, ...]:
    """All that an agent's future depends on."""
    model_arrays, model_meta = agent.model.state()
    planner_arrays, planner_meta = agent.planner.state()
    memory = agent._memory_state
    return (
        {name: array.tobytes() for name, array in model_arrays.items()},
        model_meta,
        {name: array.tobytes() for name, array in planner_arrays.items()},
        planner_meta,
        None if memory is None else np.asarray(memory).tobytes(),
        agent.steps,
        agent.episodes,
    )


# --- the loop ---


def test_learns_from_nothing_and_follows_the_objective() -> None:
    agent = toy_agent()
    agent.begin_episode()
    obs, _ = live(agent, np.array([-1.0, 0.5]), 60)
    assert np.linalg.norm(obs - [1.0, 1.0]) < 0.15
    learned = agent.model.state()[0]
    agent.begin_task("elsewhere", goal_at(-1.0, 0.0))
    # A task switch changes the objective only.
    for name, array in agent.model.state()[0].items():
        np.testing.assert_array_equal(array, learned[name])
    obs, _ = live(agent, obs, 40)
    assert np.linalg.norm(obs - [-1.0, 0.0]) < 0.15
    assert agent.steps == 100


def test_the_name_of_the_task_is_not_read() -> None:
    class Unreadable(str):
        def __getattribute__(self, name: str) -> Any:
            raise AssertionError("read")

    agent = toy_agent()
    assert agent.boundary_aware is False
    agent.begin_task(Unreadable("x"), goal_at(0.0, 0.0))
    one, other = toy_agent(3), toy_agent(3)
    one.begin_task("a", goal_at(0.0, 0.0))
    other.begin_task("b", goal_at(0.0, 0.0))
    np.testing.assert_array_equal(live(one, np.ones(2), 5)[1], live(other, np.ones(2), 5)[1])


def test_equal_seeds_act_equally() -> None:
    np.testing.assert_array_equal(
        live(toy_agent(1), np.zeros(2), 10)[1], live(toy_agent(1), np.zeros(2), 10)[1]
    )
    assert np.any(
        np.array(live(toy_agent(1), np.zeros(2), 2)[1])
        != np.array(live(toy_agent(2), np.zeros(2), 2)[1])
    )


def test_task_and_episode_reset_the_plan() -> None:
    fresh = toy_agent().planner.state()[0]
    for call in ("task", "episode"):
        agent = toy_agent()
        live(agent, np.zeros(2), 3)
        assert len(agent.planner.state()[0]["elites"]) > 0
        if call == "task":
            agent.begin_task("next", goal_at(0.0, 0.0))
        else:
            agent.begin_episode()
        for name, array in agent.planner.state()[0].items():
            np.testing.assert_array_equal(array, fresh[name])


def test_memory_follows_the_executed_actions() -> None:
    agent = toy_agent(remember=True)
    agent.begin_episode()
    obs = np.array([0.5, -0.5])
    agent.act(obs)
    np.testing.assert_allclose(agent._memory_state, obs)
    executed = [np.array([0.25, 0.5], np.float32), np.array([-1.0, 0.0], np.float32)]
    for action in executed:  # not what was planned: the memory goes by what was done
        agent.observe(obs, action, step(obs, action), 0.0, False)
        obs = step(obs, action)
        agent.act(obs)
    np.testing.assert_allclose(agent.model.memory_seen[0], [0.5, -0.5])
    np.testing.assert_allclose(agent.model.memory_seen[1], [0.75, 0.0])
    np.testing.assert_allclose(agent._memory_state, [-0.25, 0.0])
    agent.begin_episode()
    agent.observe(np.array([2.0, 2.0]), executed[0], np.array([2.0, 2.0]), 0.0, False)
    np.testing.assert_allclose(agent.model.memory_seen[2], [2.0, 2.0])


def test_the_last_plan_can_be_looked_at() -> None:
    agent = toy_agent()
    assert agent.last_plan is None
    action = agent.act(np.zeros(2))
    assert agent.last_plan is not None
    np.testing.assert_array_equal(agent.last_plan.action, action)
    assert action.dtype == ACTIONS.dtype


# --- refusals change nothing ---


@pytest.mark.parametrize(
    "obs", [np.array([np.nan, 0.0]), np.array([np.inf, 0.0]), np.zeros(3), np.zeros((1, 2)), "x"]
)
def test_bad_observations_change_nothing(obs: Any) -> None:
    agent = toy_agent(remember=True)
    live(agent, np.zeros(2), 3)
    before = everything(agent)
    good = np.zeros(2)
    with pytest.raises(InvalidInputError, match="observation"):
        agent.act(obs)
    with pytest.raises(InvalidInputError, match="observation"):
        agent.observe(obs, good, good, 0.0, False)
    with pytest.raises(InvalidInputError, match="next observation"):
        agent.observe(good, good, obs, 0.0, False)
    with pytest.raises(InvalidInputError, match="action"):
        agent.observe(good, obs, good, 0.0, False)
    assert everything(agent) == before


def test_a_first_step_that_fails_does_not_start_the_memory() -> None:
    agent = toy_agent(remember=True)
    agent.begin_task("t", lambda obs, action, next_obs: np.zeros(3))
    before = everything(agent)
    with pytest.raises(InvalidInputError, match="objective"):
        agent.act(np.zeros(2))
    assert everything(agent) == before


def test_an_objective_is_needed() -> None:
    agent = PlanningAgent(RidgeModel(), CEMPlanner(ACTIONS))
    with pytest.raises(NotReadyError, match="begin_task"):
        agent.act(np.zeros(2))
    with pytest.raises(InvalidInputError, match="objective"):
        agent.begin_task("task", None)


# --- evaluation ---


def test_evaluation_leaves_the_training_agent_as_it_was() -> None:
    agent = toy_agent(remember=True)
    obs, _ = live(agent, np.zeros(2), 20)
    before = everything(agent)
    copy = agent.evaluation_copy(5)
    assert copy.model is agent.model
    copy.begin_task("other", goal_at(0.0, -1.0))
    copy.begin_episode()
    end, actions = live(copy, np.array([1.0, 1.0]), 30)
    assert np.linalg.norm(end - [0.0, -1.0]) < 0.3
    assert everything(agent) == before
    again = agent.evaluation_copy(5)
    again.begin_task("other", goal_at(0.0, -1.0))
    again.begin_episode()
    np.testing.assert_array_equal(live(again, np.array([1.0, 1.0]), 30)[1], actions)
    # And training goes on as if nothing had been evaluated.
    twin = toy_agent(remember=True)
    same, _ = live(twin, np.zeros(2), 20)
    np.testing.assert_array_equal(live(agent, obs, 5)[1], live(twin, same, 5)[1])


def test_an_evaluation_copy_cannot_load(tmp_path: Path) -> None:
    agent = toy_agent()
    agent.save(tmp_path / "agent")
    with pytest.raises(NotReadyError, match="evaluation"):
        agent.evaluation_copy(0).load(tmp_path / "agent")


# --- save and load ---


@pytest.mark.parametrize("remember", [False, True])
def test_save_and_load_continue_to_the_bit(tmp_path: Path, remember: bool) -> None:
    agent = toy_agent(1, remember)
    agent.begin_episode()
    obs, _ = live(agent, np.zeros(2), 12)
    agent.save(tmp_path / "agent")
    other = toy_agent(2, remember)
    live(other, np.ones(2), 3)
    other.load(tmp_path / "agent")
    assert everything(other) == everything(agent)
    np.testing.assert_array_equal(live(other, obs, 10)[1], live(agent, obs, 10)[1])
    assert everything(other) == everything(agent)


def test_damaged_and_foreign_files_change_nothing(tmp_path: Path) -> None:
    agent = toy_agent()
    live(agent, np.zeros(2), 3)
    path = tmp_path / "agent"
    agent.save(path)
    before = everything(agent)
    content = path.read_bytes()
    damaged = tmp_path / "damaged"
    half = len(content) // 2
    for bad in (b"", content[:half], content[:half] + b"\x55\xaa" + content[half + 2 :], b"hello"):
        damaged.write_bytes(bad)
        with pytest.raises(DamagedFileError):
            agent.load(damaged)
        assert everything(agent) == before
    RandomAgent(ACTIONS).save(damaged)
    with pytest.raises(DamagedFileError):
        agent.load(damaged)
    with pytest.raises(OSError, match="nowhere"):
        agent.load(tmp_path / "nowhere")
    assert everything(agent) == before


def test_a_file_of_other_settings_changes_nothing(tmp_path: Path) -> None:
    agent = toy_agent()
    agent.save(tmp_path / "agent")
    other = PlanningAgent(RidgeModel(), CEMPlanner(ACTIONS), goal_at(0.0, 0.0))
    before = everything(other)
    with pytest.raises(InvalidInputError, match="settings"):
        other.load(tmp_path / "agent")
    assert everything(other) == before


def test_an_agent_made_from_parts_is_not_made_from_its_file(tmp_path: Path) -> None:
    toy_agent().save(tmp_path / "agent")
    with pytest.raises(InvalidInputError, match="load the file into it"):
        PlanningAgent.from_file(tmp_path / "agent")


# --- for any environment ---


COMMANDED = CommandedPosition(0.2, (-5.0, -5.0), (5.0, 5.0), (0, 1), (0, 1))


@pytest.mark.parametrize(
    ("attributes", "options", "expected"),
    [
        ({}, {}, "NoMemory"),
        ({}, {"memory": "history"}, "HistoryMemory"),
        ({"commanded_position": COMMANDED}, {}, "NoMemory"),
        ({"commanded_position": COMMANDED}, {"memory": "motion"}, "MotionMemory"),
        ({"commanded_position": COMMANDED}, {"memory": "history"}, "HistoryMemory"),
    ],
)
def test_for_env_chooses_the_memory(
    attributes: dict[str, Any], options: dict[str, Any], expected: str, tmp_path: Path
) -> None:
    def agent(seed: int) -> OnlineAgent:
        return OnlineAgent.for_env(
            Point(**attributes),
            goal_at(1.0, 1.0),
            model={"features": 20},
            planner=SMALL,
            seed=seed,
            **options,
        )

    one, other = agent(0), agent(1)
    assert type(one.model.memory).__name__ == expected
    assert isinstance(one, Agent)
    one.begin_episode()
    obs, _ = live(one, np.zeros(2), 30)
    assert np.linalg.norm(obs - [1.0, 1.0]) < 1.0
    one.save(tmp_path / "agent")
    other = agent(0)
    other.load(tmp_path / "agent")
    np.testing.assert_array_equal(live(one, obs, 5)[1], live(other, obs, 5)[1])
    assert everything(one) == everything(other)


@pytest.mark.parametrize(
    ("attributes", "options", "message"),
    [
        ({"observation_space": spaces.Discrete(4)}, {}, "observation_space .*Box"),
        ({"action_space": spaces.Discrete(4)}, {}, "action_space .*Box"),
        ({"observation_space": spaces.Box(0, 255, (8, 8, 3))}, {}, "FlattenObservation"),
        ({"action_space": spaces.Box(-1, 1, ())}, {}, "one-dimensional"),
        ({"action_space": spaces.Box(-np.inf, np.inf, (2,))}, {}, "RescaleAction"),
        ({}, {"memory": "motion"}, "commanded_position"),
        ({"commanded_position": (0, 1)}, {}, "CommandedPosition"),
        ({}, {"planner": {"elites": 1000}}, "elites"),
    ],
)
def test_for_env_refuses(attributes: dict[str, Any], options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        OnlineAgent.for_env(Point(**attributes), goal_at(0.0, 0.0), **options)


def test_unknown_options_are_named() -> None:
    with pytest.raises(UnknownNameError, match=r"Did you mean 'planner\.elites'"):
        OnlineAgent.for_env(Point(), goal_at(0.0, 0.0), elites=3)
    with pytest.raises(UnknownNameError, match=r"Did you mean 'planner\.elites'"):
        OnlineAgent.for_env(Point(), goal_at(0.0, 0.0), **{"planner.elite": 3})
    with pytest.raises(UnknownNameError, match="memory 'good'"):
        OnlineAgent.for_env(Point(), goal_at(0.0, 0.0), memory="good")
    with pytest.raises(UnknownNameError, match="planner 'good'"):
        OnlineAgent.for_env(Point(), goal_at(0.0, 0.0), planner="good")
    with pytest.raises(UnknownNameError, match="Known: none"):
        make_agent("random", Point(), 0, ridge=1.0)


# --- every registered agent ---


@pytest.mark.parametrize("name", ["oa", "oa-paper", "random"])
def test_registered_agents(name: str, tmp_path: Path) -> None:
    options = {} if name == "random" else {"model.features": 20, "planner": SMALL}
    one, other = (make_agent(name, Point(), seed, **options) for seed in (4, 4))
    assert isinstance(one, Agent)
    for agent in (one, other):
        agent.begin_task("go", goal_at(1.0, 1.0))
        agent.begin_episode()
    obs, actions = live(one, np.zeros(2), 6)
    np.testing.assert_array_equal(live(other, np.zeros(2), 3)[1], actions[:3])
    assert all(ACTIONS.contains(action) for action in actions)
    one.save(tmp_path / "agent")
    other.load(tmp_path / "agent")
    np.testing.assert_array_equal(live(other, obs, 3)[1], live(one, obs, 3)[1])
    copy = one.evaluation_copy(3)
    copy.begin_episode()
    live(copy, obs, 3)


def test_random_actions_fill_odd_spaces() -> None:
    space = spaces.Box(np.array([2.0, -0.3]), np.array([3.0, 0.1]), dtype=np.float64)
    agent = RandomAgent(space, 1)
    actions = np.array([agent.act(np.zeros(1)) for _ in range(2000)])
    assert np.all(actions >= space.low)
    assert np.all(actions <= space.high)
    np.testing.assert_allclose(actions.mean(axis=0), (space.low + space.high) / 2, atol=0.02)


def test_runs_without_torch() -> None:
    program = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "torch":
            raise ModuleNotFoundError("torch is blocked", name="torch")

sys.meta_path.insert(0, Blocked())
import gymnasium, numpy as np
from everlearn.agents import make_agent
env = gymnasium.make("Pendulum-v1")
small = {"candidates": 20, "elites": 5, "horizon": 3}
agent = make_agent("oa", env, 0, model={"features": 10}, planner=small)
agent.begin_task("x", lambda obs, action, next_obs: next_obs[:, 0])
agent.begin_episode()
obs, _ = env.reset(seed=0)
for _ in range(3):
    action = agent.act(obs)
    after, reward, terminated, *_ = env.step(action)
    agent.observe(obs, action, after, reward, terminated)
    obs = after
print(agent.steps, "torch" in sys.modules)
try:
    make_agent("mlp-coreset", env, 0)
except ImportError as error:
    print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=300
    )
    assert run.returncode == 0, run.stderr
    first, second = run.stdout.splitlines()
    assert first == "3 False"
    assert "everlearn[deep]" in second
