"""Names of worlds, what is refused, and worlds of one's own."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from everlearn.continual_bench import PAPER_TASKS
from everlearn.runs.config import PAPER_TASKS as CONFIG_TASKS
from everlearn.support.errors import InvalidInputError, MissingExtraError, UnknownNameError
from everlearn.worlds import WORLDS, Environments, dm_control, register_world, world_named


class Anywhere(gymnasium.Env[np.ndarray, np.ndarray]):
    """An environment that does nothing, with spaces of any size."""

    def __init__(self, observations: int = 2, actions: int = 1):
        self.observation_space = spaces.Box(-1, 1, (observations,))
        self.action_space = spaces.Box(-1, 1, (actions,))
        self.closed = False

    def close(self) -> None:
        self.closed = True


class Mixed:
    """A world whose second task has one more observation."""

    name = "mixed"
    tasks = ("small", "same", "large")
    measure = "return"
    max_steps = 5

    def __init__(self) -> None:
        self.made: list[Anywhere] = []

    def make(self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None) -> Any:
        self.made.append(Anywhere(3 if task == "large" else 2))
        return self.made[-1]

    def objective(self, task: str) -> None:
        return None


@pytest.fixture
def registered():
    before = set(WORLDS)
    yield register_world
    for name in set(WORLDS) - before:
        WORLDS.unregister(name)


def test_the_configs_tasks_are_the_benchmarks():
    """Configs are read where there is no simulator, so that they have a list of their own."""
    assert CONFIG_TASKS == PAPER_TASKS
    assert world_named("continual-bench").max_steps == 500


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("continual-benhc", "Did you mean 'continual-bench'?"),
        ("gim:Pendulum-v1", "Did you mean 'gym'?"),
        ("gym", "write one of it as gym:NAME"),
        ("gym:", "write one of it as gym:NAME"),
        ("gym:Pendulm-v1", "Did you mean 'Pendulum-v1'?"),
        ("gym:Pendulum-v99", "Pendulum-v99"),
        ("gym:no_module:Thing-v0", "no_module"),
        ("continual-bench:door-open", "write it without ':door-open'"),
        ("", "unknown world ''"),
    ],
)
def test_wrong_names_get_suggestions(name: str, message: str):
    with pytest.raises(UnknownNameError) as said:
        world_named(name)
    assert message in str(said.value)


def test_wrong_names_of_the_suite_get_suggestions():
    pytest.importorskip("dm_control")
    with pytest.raises(UnknownNameError, match="Did you mean 'cartpole-swingup'"):
        world_named("dm_control:cartpole-swinup")
    with pytest.raises(UnknownNameError, match="Did you mean 'ball_in_cup-catch'"):
        world_named("dm_control:ball_in_cup-cach")
    world = world_named("dm_control:ball-in-cup-catch")
    assert world.make("ball-in-cup-catch").observation_space.shape == (8,)


def test_the_suite_is_an_extra(monkeypatch: pytest.MonkeyPatch):
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name.partition(".")[0])

    monkeypatch.setattr(dm_control.importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"everlearn\[suite\]"):
        world_named("dm_control:cartpole-swingup")


@pytest.mark.parametrize("name", ["CartPole-v1", "FrozenLake-v1"])
def test_actions_that_are_no_box_are_refused_with_advice(name: str):
    with pytest.raises(InvalidInputError, match=r"action space Discrete.*continuous actions"):
        world_named(f"gym:{name}").make(name)


@pytest.mark.parametrize("name", ["gym:Pendulum-v1", "dm_control:cartpole-swingup"])
def test_noise_and_other_tasks_are_refused_with_advice(name: str):
    if name.startswith("dm_control"):
        pytest.importorskip("dm_control")
    world = world_named(name)
    with pytest.raises(InvalidInputError, match=r"reset_noise is 0\.01.*leave it at 0"):
        world.make(world.tasks[0], reset_noise=0.01)
    with pytest.raises(UnknownNameError, match=f"unknown task 'door-open'.*{world.tasks[0]}"):
        world.make("door-open")


def test_observations_of_several_parts_are_flattened():
    class Parts(gymnasium.Env[Any, Any]):
        observation_space = spaces.Dict(
            {"a": spaces.Box(-1, 1, (2, 2), np.float64), "b": spaces.Box(0, 1, (1,), np.float64)}
        )
        action_space = spaces.Box(-1, 1, (1,), np.float64)

        def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
            super().reset(seed=seed)
            return self.observation_space.sample(), {}

    gymnasium.register("everlearn-test/Parts-v0", Parts)
    try:
        env = world_named("gym:everlearn-test/Parts-v0").make("everlearn-test/Parts-v0")
        assert env.observation_space.shape == (5,)
        assert env.reset(seed=0)[0].shape == (5,)
    finally:
        del gymnasium.registry["everlearn-test/Parts-v0"]


def test_an_environment_without_a_limit_gets_one():
    gymnasium.register("everlearn-test/Endless-v0", Anywhere)
    try:
        assert world_named("gym:everlearn-test/Endless-v0").max_steps == 1000
    finally:
        del gymnasium.registry["everlearn-test/Endless-v0"]
    assert world_named("gym:Pendulum-v1").max_steps == 200


def test_different_spaces_in_one_world_are_refused():
    world = Mixed()
    environments = Environments(world)
    assert environments.of("small") is environments.of("small"), "made once"
    environments.of("same")
    with pytest.raises(InvalidInputError, match="'small' and 'large' of world 'mixed'"):
        environments.of("large")
    assert [env.closed for env in world.made] == [False, False, True]
    environments.close()
    assert all(env.closed for env in world.made)


def test_a_world_of_ones_own(registered):
    world = Mixed()
    registered("mixed", world)
    assert world_named("mixed") is world
    with pytest.raises(InvalidInputError, match="already registered"):
        registered("mixed", Mixed())
    other = Mixed()
    registered("mixed", other, replace=True)
    assert world_named("mixed") is other
    with pytest.raises(UnknownNameError, match="is one world"):
        world_named("mixed:small")


def test_a_family_of_ones_own(registered):
    def family(member: str) -> Mixed:
        world = Mixed()
        world.name = f"family:{member}"
        return world

    registered("family", family)
    assert world_named("family:a:b").name == "family:a:b"
    with pytest.raises(UnknownNameError, match="family:NAME"):
        world_named("family")


def test_a_class_is_a_family_though_it_looks_like_a_world(registered):
    class Sized(Mixed):
        def __init__(self, member: str) -> None:
            super().__init__()
            self.max_steps = int(member)

    registered("sized", Sized)
    assert world_named("sized:7").max_steps == 7
    with pytest.raises(UnknownNameError, match="sized:NAME"):
        world_named("sized")


@pytest.mark.parametrize("wrong", [3, "mine", None, object()])
def test_what_is_no_world_is_refused(wrong: object, registered):
    with pytest.raises(InvalidInputError, match=r"expected name, tasks, measure"):
        registered("wrong", wrong)
    registered("wrong", lambda member: wrong)
    with pytest.raises(InvalidInputError, match=r"'wrong:x' is .*expected name, tasks, measure"):
        world_named("wrong:x")
