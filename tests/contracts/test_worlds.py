"""What every registered world must keep, built in or not."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.interfaces import World
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.worlds import WORLDS, Environments, world_named

MEMBERS = {"gym": ("Pendulum-v1", "Reacher-v5"), "dm_control": ("cartpole-swingup",)}
"""Of each family, worlds to look at."""

EXTRAS = {"dm_control": "dm_control"}
"""Packages without which a family has no members."""


def names() -> list[str]:
    found = []
    for name in WORLDS:
        found += [f"{name}:{member}" for member in MEMBERS[name]] if name in MEMBERS else [name]
    return found


@pytest.fixture(params=names())
def world(request: pytest.FixtureRequest) -> World:
    family = request.param.partition(":")[0]
    if family in EXTRAS:
        pytest.importorskip(EXTRAS[family])
    return world_named(request.param)


def walk(world: World, task: str, steps: int, seed: int) -> list[tuple]:
    env = world.make(task)
    generator = np.random.default_rng(seed)
    obs, _ = env.reset(seed=seed)
    found = [(obs.tobytes(),)]
    for _ in range(steps):
        action = generator.uniform(env.action_space.low, env.action_space.high)
        obs, reward, terminated, truncated, info = env.step(action)
        assert env.observation_space.contains(obs)
        assert np.isfinite(float(reward))
        if world.measure == "success":
            assert info["success"] in (True, False)
        found.append((obs.tobytes(), float(reward), bool(terminated), bool(truncated)))
    env.close()
    return found


def test_it_is_a_world_under_its_own_name(world: World):
    assert isinstance(world, World)
    assert world_named(world.name).tasks == world.tasks
    assert world.measure in ("success", "return")
    assert world.max_steps >= 1


def test_tasks_share_spaces_of_one_axis(world: World):
    environments = Environments(world)
    for task in world.tasks:
        env = environments.of(task)  # refuses different spaces
        assert isinstance(env.observation_space, spaces.Box)
        assert isinstance(env.action_space, spaces.Box)
        assert len(env.observation_space.shape) == len(env.action_space.shape) == 1
    environments.close()


def test_equal_seeds_give_equal_episodes(world: World):
    task = world.tasks[-1]
    first, again, other = (walk(world, task, 20, seed) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_a_reset_forgets_the_episode_before(world: World):
    env = world.make(world.tasks[0])
    starts = []
    for seed in (5, 6, 5):
        obs, _ = env.reset(seed=seed)
        starts.append(obs.tobytes())
        env.step(env.action_space.low)
    env.close()
    assert starts[0] == starts[2]


def test_an_episode_is_over_after_the_longest_time(world: World):
    env = world.make(world.tasks[0])
    env.reset(seed=0)
    middle = (env.action_space.low + env.action_space.high) / 2
    for _ in range(world.max_steps):
        *_, terminated, truncated, _ = env.step(middle)
        if terminated or truncated:
            break
    assert terminated or truncated
    env.close()


def test_objectives_are_batched_and_agree_with_the_environment_on_their_size(world: World):
    env = world.make(world.tasks[0])
    obs = np.stack([env.reset(seed=seed)[0] for seed in range(3)])
    actions = np.tile(env.action_space.low, (3, 1))
    for task in world.tasks:
        objective = world.objective(task)
        if objective is not None:
            rewards = objective(obs, actions, obs)
            assert rewards.shape == (3,)
            assert np.isfinite(rewards).all()
    env.close()


def test_unknown_tasks_are_named(world: World):
    with pytest.raises(UnknownNameError, match="no-such-task"):
        world.make("no-such-task")


def test_noise_is_made_or_refused(world: World):
    """A world that cannot spread its starts says so; the others do it."""
    if world.name.partition(":")[0] in MEMBERS:
        with pytest.raises(InvalidInputError, match="reset_noise"):
            world.make(world.tasks[0], reset_noise=0.01)
        return
    env = world.make(world.tasks[0], reset_noise=0.01)
    starts = {env.reset(seed=seed)[0].tobytes() for seed in range(3)}
    assert len(starts) == 3
    env.close()
