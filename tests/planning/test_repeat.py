"""Decisions that are for several steps, and their transitions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from everlearn import OnlineAgent, run_episode
from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.planning.config import PlanningAgentConfig

OPTIONS: dict[str, Any] = {
    "model": {"features": 10},
    "planner": {"candidates": 20, "horizon": 5, "elites": 5},
}


class Line(gymnasium.Env[Any, Any]):
    """A point that moves by a tenth of the action; 20 steps a second."""

    observation_space = spaces.Box(-10.0, 10.0, (1,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)
    dt = 0.02

    def __init__(self, ends_after: int = 10**6) -> None:
        self.ends_after = ends_after

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[FloatArray, Any]:
        super().reset(seed=seed)
        self.x, self.steps = 0.0, 0
        return np.array([self.x]), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, Any]:
        self.x += 0.1 * float(action[0])
        self.steps += 1
        return np.array([self.x]), float(self.steps), self.steps >= self.ends_after, False, {}


def recorded(agent: OnlineAgent, env: Line, steps: int) -> tuple[list[Any], list[Any]]:
    """Actions of an episode, and the transitions that its model learned from."""
    learned: list[Any] = []
    actions: list[Any] = []
    agent.begin_task("line", None)  # makes the model
    learn = agent.model.learn_unchecked

    def spy(obs: FloatArray, action: FloatArray, after: FloatArray, **rest: Any) -> None:
        learned.append((float(obs[0]), float(action[0]), *after.tolist()[:3]))
        learn(obs, action, after, **rest)

    agent.model.learn_unchecked = spy
    run_episode(
        agent,
        env,
        seed=0,
        max_steps=steps,
        on_step=lambda obs, action, after, reward: actions.append(float(action[0])),
    )
    return actions, learned


def test_an_action_is_repeated_and_learned_from_as_one() -> None:
    agent = OnlineAgent.for_env(Line(), **OPTIONS, decision_period=0.065)
    actions, learned = recorded(agent, Line(), 9)
    # 0.065 s hold three steps of 0.02 s.
    assert actions == [a for a in actions[::3] for _ in range(3)]
    assert [action for _, action, *_ in learned] == actions[::3]
    position = 0.0
    for n, (before, action, after, reward, end) in enumerate(learned):
        assert before == pytest.approx(position)
        position += 0.3 * action
        assert after == pytest.approx(position)
        assert reward == 3 * (3 * n + 2)  # the rewards of three steps count up
        assert end == 0


def test_the_end_of_an_episode_ends_a_decision() -> None:
    agent = OnlineAgent.for_env(Line(), **OPTIONS, decision_period=0.065)
    _, learned = recorded(agent, Line(ends_after=5), 100)
    assert [end for *_, end in learned] == [0, 1]
    assert learned[-1][3] == 4 + 5  # two steps only


def test_a_step_with_an_action_of_ones_own_is_a_decision_of_its_own() -> None:
    agent = OnlineAgent.for_env(Line(), **OPTIONS, decision_period=0.065)
    agent.begin_task("line", None)
    agent.begin_episode()
    agent.observe(np.zeros(1), np.array([0.5]), np.ones(1), 0.0, False)
    for _ in range(3):
        agent.observe(np.ones(1), np.array([-0.5]), np.ones(1), 0.0, False)
    assert agent.steps == 1


def test_an_observation_may_be_written_over_during_a_decision() -> None:
    agent = OnlineAgent.for_env(
        Line(), lambda obs, action, after: after[:, 0], **OPTIONS, decision_period=0.065
    )
    agent.begin_episode()
    learned: list[float] = []
    learn = agent.model.learn_unchecked

    def spy(obs: FloatArray, *rest: Any, **more: Any) -> None:
        learned.append(float(obs[0]))
        learn(obs, *rest, **more)

    agent.model.learn_unchecked = spy
    shared = np.zeros(1)
    for step in range(3):
        shared[0] = 1.0 + step
        agent.observe(shared, np.array([0.5]), np.ones(1), 0.0, False)
    assert learned == [1.0]


@pytest.mark.parametrize(
    ("period", "control", "steps"),
    [(None, 0.01, 1), (0.075, None, 1), (0.075, 0.01, 4), (0.075, 0.02, 3), (0.075, 0.05, 1)],
)
def test_decisions_follow_the_control_period(
    period: float | None, control: float | None, steps: int
) -> None:
    config = PlanningAgentConfig(decision_period=period)
    assert config.repeat(EnvironmentFacts(control_period=control)) == steps


def test_the_control_period_is_read_where_an_environment_tells_it() -> None:
    env = Line()
    assert EnvironmentFacts.of(env).control_period == 0.02
    env.dt = None  # type: ignore[assignment]
    assert EnvironmentFacts.of(env).control_period is None
    env.metadata = {"render_fps": 50}
    assert EnvironmentFacts.of(env).control_period == 0.02
    assert EnvironmentFacts.from_json({"commanded_position": None, "bodies": None}) == (
        EnvironmentFacts()
    )


def test_it_goes_on_in_the_middle_of_a_decision(tmp_path: Path) -> None:
    ends = []
    for stored in (False, True):
        env, agent = Line(), OnlineAgent.for_env(Line(), **OPTIONS, decision_period=0.075)
        obs, _ = env.reset()
        agent.begin_episode()
        for step in range(14):
            if step == 7 and stored:
                agent.save(tmp_path / "agent")
                agent = OnlineAgent.from_file(tmp_path / "agent")
            action = agent.act(obs)
            after, reward, *_ = env.step(action)
            agent.observe(obs, action, after, reward, False)
            obs = after
        agent.save(tmp_path / "end")
        ends.append((tmp_path / "end").read_bytes())
    assert ends[0] == ends[1]
