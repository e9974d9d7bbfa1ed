"""What every registered agent must keep: the protocol, its seed, its file, its evaluation."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everlearn.agents import AGENTS, make_agent
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.interfaces import Agent
from everlearn.support.errors import DamagedFileError
from everlearn.support.settings import options_of, values_of, with_options

TASK = "button-press"
PLANNER = {"candidates": 12, "elites": 3, "horizon": 4, "iterations": 2}
OPTIONS: dict[str, dict[str, Any]] = {
    "oa": {"model": {"features": 10}, "planner": PLANNER},
    "mlp": {"model": {"hidden": 9, "layers": 2, "train_every": 5}, "planner": PLANNER},
    "sac": {"hidden": 9, "batch": 8, "warm_up": 3, "random_steps": 3, "retraining": 3},
}
"""Of each family, the first part of a name."""

DRAW_NOTHING = ("scripted",)
"""Agents whose actions do not depend on their seed: a script without noise."""

TOLD = {"boundaries", "name"}
GIVEN = {"reward function", "success test", "scene", "command law"}
"""Words that tables explain."""


@pytest.fixture(params=AGENTS.names())
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def make(name: str, seed: int = 0) -> tuple[ContinualBenchEnv, Agent]:
    env = ContinualBenchEnv(TASK)
    agent = make_agent(name, env, seed, **OPTIONS.get(name.partition("-")[0], {}))
    agent.begin_task(TASK, TASKS.get(TASK).objective())
    return env, agent


def play(env: ContinualBenchEnv, agent: Agent, steps: int, first: bool = True) -> np.ndarray:
    """Actions of the agent; `first` starts an episode, otherwise the last one goes on."""
    obs = env.reset()[0] if first else env.get_state().observation
    if first:
        agent.begin_episode()
    actions = []
    for _ in range(steps):
        action = agent.act(obs)
        assert env.action_space.contains(action)
        following, reward, terminated, *_ = env.step(action)
        agent.observe(obs, action, following, reward, terminated)
        actions.append(action)
        obs = following
    return np.array(actions)


def test_follows_the_protocol(name: str):
    _, agent = make(name)
    assert isinstance(agent, Agent)
    assert agent.boundary_aware is ("boundaries" in agent.told)


def test_says_what_it_is_told_and_given(name: str):
    _, agent = make(name)
    assert {*agent.told} <= TOLD
    assert {*agent.given} <= GIVEN
    if name.partition("-")[0] not in (*OPTIONS, "random", "scripted"):
        return
    last = name.rpartition("-")[2]
    heads = name.startswith("sac-")  # each task has outputs of its own
    boundaries = heads or last in ("scripted", "packnet", "finetune", "ewc", "si")
    by_name = heads or last in ("scripted", "packnet")
    told = (*(["boundaries"] if boundaries else []), *(["name"] if by_name else []))
    assert agent.told == told
    everything = ("reward function", "success test", "scene", "command law")
    if name == "oa" or (name.startswith("mlp-") and "paper" not in name):
        assert agent.given == everything
    elif "paper" in name:
        assert agent.given == ("reward function",)
    else:
        assert agent.given == (("scene",) if name == "scripted" else ())


def test_settings_say_what_they_are(name: str):
    spec = AGENTS.get(name)
    assert spec.summary
    for path, option in options_of(spec.config).items():
        assert option.summary, path
    assert with_options(spec.config, values_of(spec.config)) == spec.config


def test_same_seed_same_actions(name: str):
    first, second, other = (play(*make(name, seed), 8) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, second)
    if name not in DRAW_NOTHING:
        assert not np.array_equal(first, other)


def test_a_saved_agent_goes_on_to_the_bit(name: str, tmp_path: Path):
    env, agent = make(name, 1)
    play(env, agent, 6)
    agent.save(tmp_path / "agent")
    state = env.get_state()
    expected = play(env, agent, 6, first=False)
    env, other = make(name, 1)  # of the same settings, but knowing nothing
    other.load(tmp_path / "agent")
    env.set_state(state)
    np.testing.assert_array_equal(play(env, other, 6, first=False), expected)


def test_a_pickled_agent_goes_on_to_the_bit(name: str):
    env, agent = make(name, 1)
    play(env, agent, 6)
    state, content = env.get_state(), pickle.dumps(agent)
    expected = play(env, agent, 6, first=False)
    env.set_state(state)
    np.testing.assert_array_equal(play(env, pickle.loads(content), 6, first=False), expected)


def test_a_damaged_file_changes_nothing(name: str, tmp_path: Path):
    env, agent = make(name)
    play(env, agent, 4)
    agent.save(tmp_path / "agent")
    data = bytearray((tmp_path / "agent").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (tmp_path / "damaged").write_bytes(data)
    with pytest.raises(DamagedFileError):
        agent.load(tmp_path / "damaged")
    state = env.get_state()
    after = play(env, agent, 4, first=False)
    env.set_state(state)
    agent.load(tmp_path / "agent")
    np.testing.assert_array_equal(play(env, agent, 4, first=False), after)


def test_evaluation_leaves_no_trace(name: str, tmp_path: Path):
    env, agent = make(name)
    play(env, agent, 5)
    agent.save(tmp_path / "before")
    copy = agent.evaluation_copy(7)
    copy.begin_task(TASK, TASKS.get(TASK).objective())
    play(ContinualBenchEnv(TASK), copy, 5)
    agent.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()
