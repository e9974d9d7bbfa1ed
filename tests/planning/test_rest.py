"""What rests is counted where nothing declares it, and held still in imagination."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.undeclared import Undeclared
from everlearn.agents import OnlineAgent, make_agent, run_episode
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.planning.structure import MOVED
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError

PLANNER: dict[str, Any] = {"candidates": 12, "elites": 4, "horizon": 4, "iterations": 2}
SMALL: dict[str, Any] = {"model.features": 20, "model.update": "active", "planner": PLANNER}
OBJECTS = np.arange(4, 23)
STEPS = 440  # a hundred decisions, the first review, and some


def played(rest: bool) -> tuple[ContinualBenchEnv, OnlineAgent]:
    """An agent that was told nothing and has lived for some steps."""
    env = ContinualBenchEnv("button-press")
    options = {**SMALL, "observation.rest": rest, "value.landmarks": 0}
    agent = make_agent("oa", Undeclared(env), 0, **options)
    agent.begin_task("button-press", env.objective())
    run_episode(agent, env, seed=0, max_steps=STEPS)
    return env, agent


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rested") / "agent"
    _, agent = played(rest=True)
    agent.save(path)
    return path


def imagined(agent: OnlineAgent, env: ContinualBenchEnv) -> FloatArray:
    """States of the best plans at a start where nothing was touched."""
    obs, _ = env.reset(seed=5)
    agent.begin_episode()
    agent.act(obs)
    assert agent.last_plan is not None
    return np.asarray(agent.last_plan.states)


def acted(agent: OnlineAgent, env: ContinualBenchEnv, steps: int) -> list[bytes]:
    taken: list[bytes] = []
    run_episode(
        agent,
        env,
        seed=7,
        max_steps=steps,
        on_step=lambda obs, action, after, reward: taken.append(action.tobytes()),
    )
    return taken


def test_what_rests_does_not_creep_in_imagination() -> None:
    env, agent = played(rest=True)
    limits = agent.resting_limits()
    assert limits is not None
    rests = np.flatnonzero(limits)
    # All objects but for the button, if it was pressed too often for that.
    assert {*OBJECTS} - {16, 17, 18} <= {*rests} <= {*OBJECTS}
    # Each limit is a share of the range of an entry, which its bounds say.
    width = env.observation_space.high - env.observation_space.low
    np.testing.assert_allclose(limits[rests], MOVED * width[rests])
    moves = np.abs(np.diff(imagined(agent, env), axis=1))[:, :, rests]
    assert ((moves == 0) | (moves > 0.99 * limits[rests])).all()
    env, agent = played(rest=False)
    assert agent.resting_limits() is None
    moves = np.abs(np.diff(imagined(agent, env), axis=1))[:, :, rests]
    assert ((moves > 0) & (moves < 0.9 * limits[rests])).any(), "it creeps without"


def test_nothing_is_declared_and_nothing_given() -> None:
    env, agent = played(rest=True)
    assert EnvironmentFacts.of(Undeclared(env)).bodies is None
    assert agent.given == ("reward function",)
    declared = make_agent("oa", env, 0, **{"model.features": 20, "planner": PLANNER})
    assert declared.resting_limits() is None, "what is declared is not counted"
    assert "scene" in declared.given


def test_it_goes_on_to_the_bit_in_the_middle_of_an_episode(file: Path, tmp_path: Path) -> None:
    env = ContinualBenchEnv("button-press")
    agent = OnlineAgent.from_file(file)
    agent.begin_task("button-press", env.objective())
    obs, _ = env.reset(seed=3)
    agent.begin_episode()
    for _ in range(9):  # not a whole number of decisions
        action = agent.act(obs)
        after, reward, terminated, _, _ = env.step(action)
        agent.observe(obs, action, after, float(reward), terminated)
        obs = after
    agent.save(tmp_path / "agent")
    other = OnlineAgent.from_file(tmp_path / "agent")
    other._objective, other._planned = agent._objective, agent._planned
    other._valued = agent._valued
    for _ in range(12):
        action = agent.act(obs)
        assert other.act(obs).tobytes() == action.tobytes()
        after, reward, terminated, _, _ = env.step(action)
        for one in (agent, other):
            one.observe(obs, action, after, float(reward), terminated)
        obs = after


def test_an_exported_agent_holds_still_as_well(file: Path, tmp_path: Path) -> None:
    env = ContinualBenchEnv("button-press")
    agent = OnlineAgent.from_file(file)
    agent.begin_task("button-press", env.objective())
    agent.export(tmp_path / "exported")
    other = OnlineAgent.from_export(tmp_path / "exported")
    other.begin_task("button-press", env.objective())
    np.testing.assert_array_equal(other.resting_limits(), agent.resting_limits())
    expected = acted(agent.evaluation_copy(0), env, 30)
    assert acted(other.evaluation_copy(0), env, 30) == expected
    arrays, meta = load_archive(tmp_path / "exported", "everlearn-exported-agent", 1)
    for wrong in (-arrays["agent/still"] - 1, arrays["agent/still"][:3].copy()):
        save_archive(
            tmp_path / "bad",
            "everlearn-exported-agent",
            1,
            {**arrays, "agent/still": wrong},
            meta,
        )
        with pytest.raises((DamagedFileError, InvalidInputError)):
            OnlineAgent.from_export(tmp_path / "bad")
