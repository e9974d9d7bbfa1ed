"""Deep agents: the planner of ``oa``, another model, and who is told what."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from everlearn.agents import AGENTS, OnlineAgent, PlanningAgent, make_agent, mlp_agent
from everlearn.deep.strategies import STRATEGIES, Coreset
from everlearn.planning.presets import OA, OA_PAPER
from everlearn.support.errors import InvalidInputError, UnknownNameError
from tests.planning.toy import ACTIONS, Point, goal_at, step

PLANNER: dict[str, Any] = {"candidates": 40, "horizon": 6, "elites": 6, "iterations": 2}
SMALL: dict[str, Any] = {
    "model.hidden": 20,
    "model.layers": 2,
    "model.train_every": 30,
    "planner": PLANNER,
}
NAMES = [name for name in AGENTS if name.startswith("mlp-") and "paper" not in name]


def make(name: str, seed: int = 0, **options: Any) -> PlanningAgent:
    agent = make_agent(name, Point(), seed, **{**SMALL, **options})
    assert isinstance(agent, PlanningAgent)
    return agent


def live(agent: PlanningAgent, steps: int, obs: Any = (0.0, 0.0)) -> tuple[Any, np.ndarray]:
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
    agent = make("mlp-perfect-memory", **{"model.hidden": 50})
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
    by_name = ("boundaries", "name") if name == "mlp-packnet" else ("boundaries",)
    assert make(name).told == (by_name if name in told else ())
    assert make(name).given == ("reward function",)
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
    online = OnlineAgent.for_env(env)
    deep: Any = make_agent("mlp-coreset", env)
    assert deep.planner.config == online.planner.config
    assert deep.model.memory.description() == online.model.memory.description()
    assert deep.model.memory.name == online.model.memory.name
    assert deep.deadline_ms == online.deadline_ms
    assert deep.objective_config == online.objective_config
    assert deep.escape.state() == online.escape.state()
    assert deep.given == online.given == ("reward function", "success test", "scene", "command law")
    np.testing.assert_array_equal(deep.model.still, online.model.still)
    assert deep.model.still.any()
    paper: Any = make_agent("mlp-paper-coreset", env)
    assert paper.model.memory.size == 0
    assert paper.given == ("reward function",)
    config = paper.blueprint.config
    assert dataclasses.replace(config, model=OA_PAPER.model) == OA_PAPER
    assert dataclasses.replace(deep.blueprint.config, model=OA.model) == OA
    env.close()


def test_the_defaults_are_the_papers() -> None:
    model: Any = mlp_agent("si").config.model.build(Point().observation_space, ACTIONS, seed=0)
    shapes = [tuple(parameter.shape) for parameter in model.network.parameters()]
    assert shapes == [(200, 4), (200,)] + [(200, 200), (200,)] * 3 + [(2, 200), (2,)]
    config = model.config
    assert (config.learning_rate, config.batch, config.train_every) == (4e-4, 256, 250)
    assert (config.holdout, config.training_patience) == (0.05, 5)
    assert model.strategy.settings() == {"c": 0.5, "xi": 0.05}
    assert mlp_agent("coreset").config.model.strategy.capacity == 10_000
    assert mlp_agent(Coreset(7)).config.model.strategy.capacity == 7


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
    with pytest.raises(UnknownNameError, match=r"Did you mean 'model\.strategy\.capacity'"):
        make("mlp-coreset", capacity=3)
    with pytest.raises(UnknownNameError, match=r"unknown option 'model\.strategy\.capacity'"):
        make("mlp-finetune", **{"model.strategy.capacity": 3})
    with pytest.raises(UnknownNameError, match=r"unknown option 'model\.features'"):
        make("mlp-finetune", **{"model.features": 3})
    with pytest.raises(UnknownNameError, match="memory 'good'"):
        make("mlp-finetune", memory="good")
    with pytest.raises(InvalidInputError, match="c must be"):
        make("mlp-si", **{"model.strategy.c": -1.0})
    assert make("mlp-coreset", **{"model.strategy.capacity": 7}).model.strategy.capacity == 7
    other = make("mlp-finetune", **{"model.strategy": "coreset", "model.strategy.capacity": 8})
    assert other.model.strategy == Coreset(8)
    assert (
        make_agent("oa", Point(), model="mlp", planner=PLANNER).model.strategy.name
        == "perfect-memory"
    )  # type: ignore[attr-defined]


def test_it_does_not_learn_rewards() -> None:
    with pytest.raises(InvalidInputError, match="reward function"):
        make("mlp-coreset").begin_task("first", None)


def test_an_agent_is_made_from_its_file(tmp_path: Path) -> None:
    agent = make("mlp-packnet", 3)
    for task in ("first", "second"):
        agent.begin_task(task, goal_at(1.0, 1.0))
        live(agent, 40)
    agent.save(tmp_path / "agent")
    other = PlanningAgent.from_file(tmp_path / "agent")
    assert other.blueprint == agent.blueprint
    other.begin_task("second", goal_at(1.0, 1.0))
    agent.begin_task("second", goal_at(1.0, 1.0))
    np.testing.assert_array_equal(live(other, 40)[1], live(agent, 40)[1])
