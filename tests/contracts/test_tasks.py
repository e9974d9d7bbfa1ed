"""What every registered task must keep, built in or not."""

from __future__ import annotations

import numpy as np
import pytest

from everlearn.continual_bench import TASKS, observation
from everlearn.continual_bench.env import ContinualBenchEnv


@pytest.fixture(params=TASKS.names())
def env(request: pytest.FixtureRequest) -> ContinualBenchEnv:
    return ContinualBenchEnv(request.param)


def walk(env: ContinualBenchEnv, steps: int, seed: int = 0) -> list[tuple]:
    generator = np.random.default_rng(seed)
    env.reset(seed=0)
    return [env.step(generator.uniform(-1, 1, 4)) for _ in range(steps)]


def test_starts_unsolved_and_inside_the_spaces(env: ContinualBenchEnv):
    obs, info = env.reset()
    assert env.observation_space.contains(obs)
    assert not info["success"]
    assert info["task"] == env.task


def test_is_deterministic_and_its_reward_moves(env: ContinualBenchEnv):
    first, second = walk(env, 25), walk(env, 25)
    for (obs, reward, *_), (same_obs, same_reward, *_) in zip(first, second, strict=True):
        np.testing.assert_array_equal(obs, same_obs)
        assert reward == same_reward
    rewards = [reward for _, reward, *_ in first]
    assert all(isinstance(reward, float) for reward in rewards)
    assert np.ptp(rewards) > 0


def test_objective_is_a_pure_batched_function(env: ContinualBenchEnv):
    env.reset()
    generator = np.random.default_rng(1)
    obs = generator.uniform(observation.LOW, observation.HIGH, (64, observation.SIZE))
    action = generator.uniform(-1, 1, (64, 4))
    kept = obs.copy(), action.copy()
    objective = env.objective()
    value = objective(obs, action, obs)
    assert value.shape == (64,)
    assert np.isfinite(value).all()
    np.testing.assert_array_equal(value, objective(obs, action, obs))
    np.testing.assert_array_equal(obs, kept[0])
    np.testing.assert_array_equal(action, kept[1])
    flags = TASKS.get(env.task).success(obs, action, obs)
    assert flags.shape == (64,)
    assert flags.dtype == np.bool_


def test_objective_survives_states_that_cannot_be(env: ContinualBenchEnv):
    # A model may predict anything; a planner needs a number for it.
    wild = np.random.default_rng(2).normal(0, 5, (200, observation.SIZE))
    assert np.isfinite(env.objective()(wild, np.zeros((200, 4)), wild)).all()
