"""Deep agents: the planner of ``oa``, another model, and who is told what."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from everlearn.agents import AGENTS, OnlineAgent
from everlearn.deep.mlp.agent import DeepAgent
from everlearn.deep.strategies import STRATEGIES
from everlearn.support.errors import InvalidInputError, UnknownNameError
from tests.planning.toy import Point, goal_at, step

PLANNER: dict[str, Any] = {"candidates": 40, "horizon": 6, "elites": 6, "iterations": 2}
SMALL: dict[str, Any] = {"hidden": 20, "layers": 2, "train_every": 30, "threads": 1, **PLANNER}
NAMES = [name for name in AGENTS if name.startswith("mlp-")]


def make(name: str, seed: int = 0, **options: Any) -> DeepAgent:
    agent = AGENTS.get(name)(Point(), seed, **{**SMALL, **options})
    assert isinstance(agent, DeepAgent)
    return agent


def live(agent: DeepAgent, steps: int, obs: Any = (0.0, 0.0)) -> tuple[Any, np.ndarray]:
    obs = np.array(obs)
    actions = []
    for _ in range(steps):
        actions.append(agent.act(obs))
        after = step(obs, actions[-1])
        agent.observe(obs, actions[-1], after, 0.0, False)
        obs = after
    return obs, np.array(actions)


def test_there_is_one_for_every_strategy() -> None:
    assert [name.removeprefix("mlp-") for name in NAMES] == list(STRATEGIES)


def test_learns_from_nothing_and_follows_the_objective() -> None:
    agent = make("mlp-perfect-memory", hidden=50)
    agent.begin_task("there", goal_at(1.0, 1.0))
    agent.begin_episode()
    live(agent, 180)
    obs, _ = live(agent, 30, (-1.0, 0.5))
    assert np.linalg.norm(obs - [1.0, 1.0]) < 0.2
    agent.begin_task("elsewhere", goal_at(-1.0, 0.0))
    obs, _ = live(agent, 30, obs)
    assert np.linalg.norm(obs - [-1.0, 0.0]) < 0.2


@pytest.mark.parametrize("name", NAMES)
def test_only_those_told_of_boundaries_read_the_name(name: str, tmp_path: Path) -> None:
    told = {"mlp-finetune", "mlp-ewc", "mlp-si", "mlp-packnet"}
    assert make(name).boundary_aware is (name in told)
    for run, second in (("same", "first"), ("other", "second")):
        agent = make(name)
        for task in ("first", second):
            agent.begin_task(task, goal_at(1.0, 1.0))
            agent.begin_episode()
            live(agent, 40)
        agent.save(tmp_path / run)
    same = (tmp_path / "same").read_bytes() == (tmp_path / "other").read_bytes()
    assert same is (name not in told)


def test_plans_like_the_online_agent_does() -> None:
    env = gymnasium.make("everlearn/ContinualBench-v0")
    online = OnlineAgent.for_env(env, None)
    deep = DeepAgent.for_env(env, None, "coreset")
    assert deep.planner.config == online.planner.config  # type: ignore[attr-defined]
    assert deep.model.memory.description() == online.model.memory.description()
    assert deep.model.memory.name == online.model.memory.name
    assert deep.deadline_ms == online.deadline_ms
    assert deep.success_bonus == online.success_bonus > 0
    assert deep.patience.state() == online.patience.state()
    np.testing.assert_array_equal(deep.model.still, online.model.still)
    assert deep.model.still.any()
    paper = DeepAgent.for_env(env, None, "coreset", memory="none")
    assert paper.model.memory.size == 0
    env.close()


def test_the_defaults_are_the_papers() -> None:
    model = DeepAgent.for_env(Point(), None, "si").model
    shapes = [tuple(parameter.shape) for parameter in model.network.parameters()]
    assert shapes == [(200, 4), (200,)] + [(200, 200), (200,)] * 3 + [(2, 200), (2,)]
    config = model.config
    assert (config.learning_rate, config.batch, config.train_every) == (4e-4, 256, 250)
    assert (config.holdout, config.training_patience) == (0.05, 5)
    assert model.strategy.settings() == {"c": 0.5, "xi": 0.05}
    assert DeepAgent.for_env(Point(), None, "coreset").model.strategy.capacity == 10_000


def test_an_evaluation_predicts_its_task_with_what_that_task_owns(tmp_path: Path) -> None:
    agent = make("mlp-packnet")
    for task in ("first", "second"):
        agent.begin_task(task, goal_at(1.0, 1.0))
        agent.begin_episode()
        live(agent, 60)
    agent.save(tmp_path / "before")
    plans = np.random.default_rng(0).uniform(-1, 1, (3, 4, 2)).astype(np.float32)
    found = {}
    for task in ("first", "second"):
        copy = agent.evaluation_copy(1)
        copy.begin_task(task, goal_at(0.0, 0.0))
        copy.begin_episode()
        live(copy, 40)
        found[task] = copy.model.rollout(np.zeros(2), plans)
        expected = agent.model.for_task(task).rollout(np.zeros(2), plans)
        np.testing.assert_array_equal(found[task], expected)
        np.testing.assert_array_equal(
            agent.model_for(task).rollout(np.zeros(2), plans), found[task]
        )
    assert not np.array_equal(found["first"], found["second"])
    again = copy.evaluation_copy(2)  # of a copy: knows as much
    again.begin_task("first", goal_at(0.0, 0.0))
    np.testing.assert_array_equal(again.model.rollout(np.zeros(2), plans), found["first"])
    agent.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


def test_options_are_checked() -> None:
    with pytest.raises(UnknownNameError, match="Did you mean 'capacity'"):
        make("mlp-coreset", capacities=3)
    with pytest.raises(UnknownNameError, match="unknown option 'capacity'"):
        make("mlp-finetune", capacity=3)
    with pytest.raises(UnknownNameError, match="unknown option 'features'"):
        make("mlp-finetune", features=3)
    with pytest.raises(UnknownNameError, match="memory 'good'"):
        make("mlp-finetune", memory="good")
    with pytest.raises(InvalidInputError, match="c is"):
        make("mlp-si", c=-1.0)
    assert make("mlp-coreset", capacity=7).model.strategy.capacity == 7
