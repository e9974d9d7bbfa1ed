"""Exported agents: they act as the agent they came from, and cannot learn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from everlearn.agents import OnlineAgent, make_agent, run_episode
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError, NotReadyError
from tests.planning.test_agent import toy_agent

SMALL: dict[str, Any] = {
    "model.features": 20,
    "planner.candidates": 20,
    "planner.elites": 4,
    "planner.horizon": 5,
}
STEPS = 25


def learned(task: str | None = "window-close", **options: Any) -> tuple[OnlineAgent, Any]:
    env: Any = ContinualBenchEnv("window-close") if task else gymnasium.make("Pendulum-v1")
    agent = OnlineAgent.for_env(env, env.objective() if task else None, **SMALL, **options)
    run_episode(agent, env, seed=0, max_steps=STEPS)
    return agent, env


@pytest.mark.parametrize("update", ["active", "exact"])
def test_an_exported_agent_acts_to_the_bit_as_its_original(tmp_path: Path, update: str) -> None:
    agent, env = learned(**{"model.update": update})
    agent.export(tmp_path / "a.agent")
    other = OnlineAgent.from_export(tmp_path / "a.agent")
    other.begin_task("window-close", env.objective())
    frozen = [one.evaluation_copy(3) for one in (agent, other)]
    played = []
    for one in frozen:
        states: list[Any] = []
        run_episode(
            one,
            env,
            seed=1,
            max_steps=STEPS,
            on_step=lambda obs, action, after, reward, to=states: to.extend((action, after)),
        )
        played.append(states)
    for mine, theirs in zip(*played, strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert other.steps == agent.steps == STEPS


def test_a_learned_reward_is_exported_too(tmp_path: Path) -> None:
    agent, env = learned(None)
    agent.export(tmp_path / "a.agent")
    other = OnlineAgent.from_export(tmp_path / "a.agent")
    obs, _ = env.reset(seed=4)
    action = env.action_space.sample()
    assert other.predict_reward(obs, action) == agent.predict_reward(obs, action)
    other.begin_task("Pendulum-v1", None)
    assert env.action_space.contains(other.evaluation_copy(0).act(obs, explore=False))


def test_every_way_to_learn_says_why_it_is_refused(tmp_path: Path) -> None:
    agent, env = learned()
    agent.export(tmp_path / "a.agent")
    other = OnlineAgent.from_export(tmp_path / "a.agent")
    other.begin_task("window-close", env.objective())
    before = other.model.exported_state()
    obs, _ = env.reset()
    after, action = obs + 0.01, np.zeros(4)
    for attempt in (
        lambda: run_episode(other, env),
        lambda: other.observe(obs, action, after, 0.0, False),
        lambda: other.model.learn(obs, action, after),
        lambda: other.model.learn_batch(obs[None], action[None], after[None]),
        lambda: other.model.solve(),
        lambda: other.save(tmp_path / "b"),
    ):
        with pytest.raises(NotReadyError, match=r"exported.*from_file"):
            attempt()
    for name, array in other.model.exported_state()[0].items():
        np.testing.assert_array_equal(array, before[0][name])
    assert not (tmp_path / "b").exists()
    other.export(tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == (tmp_path / "a.agent").read_bytes()


def test_what_cannot_be_exported_is_refused(tmp_path: Path) -> None:
    env = ContinualBenchEnv("window-close")
    with pytest.raises(NotReadyError, match="not learned anything"):
        OnlineAgent.for_env(env, env.objective(), **SMALL).export(tmp_path / "a")
    with pytest.raises(InvalidInputError, match="build or for_env"):
        toy_agent().export(tmp_path / "a")
    assert not hasattr(make_agent("random", env), "export")
    assert list(tmp_path.iterdir()) == []


def test_damaged_and_foreign_files_are_refused(tmp_path: Path) -> None:
    agent, _ = learned()
    file = tmp_path / "a.agent"
    agent.export(file)
    agent.save(tmp_path / "saved")
    # Without the statistics, which grow with the square of the cells.
    assert file.stat().st_size < 0.5 * (tmp_path / "saved").stat().st_size
    with pytest.raises(DamagedFileError, match="not a 'everlearn-exported-agent'"):
        OnlineAgent.from_export(tmp_path / "saved")
    with pytest.raises(DamagedFileError, match="not a 'everlearn-planning-agent'"):
        OnlineAgent.from_file(file)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    (tmp_path / "flipped").write_bytes(content)
    with pytest.raises(DamagedFileError, match="checksum"):
        OnlineAgent.from_export(tmp_path / "flipped")
    arrays, meta = load_archive(file, "everlearn-exported-agent", 1)
    changes: list[tuple[str, Any]] = [
        ("model/cells", arrays["model/cells"] + 10**6),
        ("model/weights", arrays["model/weights"][:-1]),
        ("model/weights", np.full_like(arrays["model/weights"], np.nan)),
        ("model/visits", -1 - arrays["model/visits"]),
        ("model/projection", arrays["model/projection"][:3]),
    ]
    for name, array in changes:
        save_archive(tmp_path / "odd", "everlearn-exported-agent", 1, {**arrays, name: array}, meta)
        with pytest.raises((DamagedFileError, InvalidInputError)):
            OnlineAgent.from_export(tmp_path / "odd")
    for steps in (0, "many"):
        odd = {**meta, "agent": {**meta["agent"], "steps": steps}}
        save_archive(tmp_path / "odd", "everlearn-exported-agent", 1, arrays, odd)
        with pytest.raises((DamagedFileError, InvalidInputError)):
            OnlineAgent.from_export(tmp_path / "odd")
