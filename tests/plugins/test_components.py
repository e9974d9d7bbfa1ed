"""What somebody adds from outside the package works wherever a part of it does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from everlearn.agents import AGENTS, OnlineAgent, PlanningAgent, make_agent, register_agent
from everlearn.deep.strategies import STRATEGIES
from everlearn.planning import PLANNERS
from everlearn.registry import load_plugins
from everlearn.runs.presets import compose_config
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.support.settings import options_of, parse_options, values_of, with_options
from everlearn.world_model.memory import MEMORIES
from tests.planning.toy import Point, goal_at, step

SMALL: dict[str, Any] = {"candidates": 20, "horizon": 4, "elites": 5}


@pytest.fixture(scope="module", autouse=True)
def plugins() -> Iterator[None]:
    load_plugins(["tests.plugins.components", "tests.plugins.strategy"])
    yield
    PLANNERS.unregister("shooting")
    MEMORIES.unregister("clock")
    STRATEGIES.unregister("half")
    AGENTS.unregister("mlp-half")
    AGENTS.unregister("shy")


def live(agent: Any, steps: int) -> tuple[Any, np.ndarray]:
    obs, actions = np.zeros(2), []
    agent.begin_task("there", goal_at(1.0, 1.0))
    agent.begin_episode()
    for _ in range(steps):
        actions.append(agent.act(obs))
        after = step(obs, actions[-1])
        agent.observe(obs, actions[-1], after, 0.0, False)
        obs = after
    return obs, np.array(actions)


def by_words(name: str, *words: str) -> Any:
    """An agent made as from a command line."""
    spec = AGENTS.get(name)
    config = spec.settings(Point())
    return spec.make(Point(), with_options(config, parse_options(config, words)), 0)


def test_a_second_planner(tmp_path: Path) -> None:
    words = ("planner=shooting", "planner.candidates=40", "model.features=20")
    agent = by_words("oa", *words)
    assert type(agent.planner).__name__ == "ShootingPlanner"
    assert agent.planner.config.candidates == 40
    obs, _ = live(agent, 40)
    assert np.linalg.norm(obs - [1.0, 1.0]) < 0.6
    agent.save(tmp_path / "agent")
    other = OnlineAgent.from_file(tmp_path / "agent")
    assert other.blueprint == agent.blueprint
    np.testing.assert_array_equal(live(agent, 5)[1], live(other, 5)[1])
    copies = [agent.evaluation_copy(1) for _ in range(2)]
    np.testing.assert_array_equal(live(copies[0], 5)[1], live(copies[1], 5)[1])
    known = options_of(with_options(AGENTS.get("oa").config, {"planner": "shooting"}))
    assert known["planner.horizon"].value == 5
    assert known["planner.horizon"].summary == "Steps of a sequence."
    with pytest.raises(UnknownNameError, match=r"planner\.elites"):
        by_words("oa", "planner=shooting", "planner.elites=3")


def test_another_planner_does_not_get_what_a_preset_gives_the_usual_one() -> None:
    chosen = compose_config(preset="smoke", agent="oa", options=("planner=shooting",)).options
    assert chosen == {"model.features": 30, "planner": "shooting"}
    chosen = compose_config(preset="smoke", agent="oa", options=("planner=cem",)).options
    assert chosen["planner.elites"] == 10


def test_a_new_memory(tmp_path: Path) -> None:
    agent = by_words("oa-paper", "memory=clock", "memory.period=5", "model.features=20")
    live(agent, 4)
    assert agent._memory_state == [4.0]
    assert agent.model.memory.period == 5.0
    agent.save(tmp_path / "agent")
    other = PlanningAgent.from_file(tmp_path / "agent")
    np.testing.assert_array_equal(live(agent, 5)[1], live(other, 5)[1])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("mlp-half", ("model.hidden=10", "model.train_every=20", "model.strategy.rows=16")),
        ("mlp-coreset", ("model.hidden=10", "model.strategy=half", "model.strategy.rows=16")),
        (
            "sac-ewc",
            (
                *("hidden=10", "batch=8", "warm_up=10", "random_steps=10", "multi_head=false"),
                *("strategy=half", "strategy.rows=16"),
            ),
        ),
    ],
)
def test_a_new_strategy(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    if name.startswith("mlp"):
        words = (*words, *(f"planner.{option}={value}" for option, value in SMALL.items()))
    agent = by_words(name, *words)
    assert agent.told == ("boundaries",)
    live(agent, 30)
    holder = agent.model if name.startswith("mlp") else agent
    assert len(holder.storage) == 16
    agent.save(tmp_path / "agent")
    other = by_words(name, *words)
    other.begin_task("there", goal_at(1.0, 1.0))
    other.load(tmp_path / "agent")
    np.testing.assert_array_equal(live(agent, 10)[1], live(other, 10)[1])


def test_an_agent_from_a_function() -> None:
    spec = AGENTS.get("shy")
    assert spec.summary == "Acts at random."
    assert values_of(spec.config) == {"boldness": 0.5}
    agent: Any = make_agent("shy", Point(), 3, boldness=1)
    assert agent.boldness == 1.0
    assert type(agent.boldness) is float
    with pytest.raises(UnknownNameError, match="Did you mean 'boldness'"):
        make_agent("shy", Point(), 3, boldnes=1.0)
    with pytest.raises(InvalidInputError, match="expected a number"):
        make_agent("shy", Point(), 3, boldness="very")
    with pytest.raises(InvalidInputError, match="already registered"):
        register_agent("shy", spec)


def test_functions_that_cannot_be_agents() -> None:
    def without_default(env: Any, seed: int, boldness: float) -> Any: ...
    def open_ended(env: Any, seed: int, **options: Any) -> Any: ...
    def no_seed(env: Any) -> Any: ...
    def shared(env: Any, seed: int, rooms: Any = []) -> Any: ...  # noqa: B006

    for function in (without_default, open_ended, no_seed, shared):
        with pytest.raises(InvalidInputError, match=function.__name__):
            register_agent("bad", function)
    assert "bad" not in AGENTS
