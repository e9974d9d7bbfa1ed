"""What every registered memory must keep, alone and inside the model's imagination."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.deep.mlp.model import MLPWorldModel
from everlearn.deep.strategies import PerfectMemory
from everlearn.interfaces import EnvironmentFacts
from everlearn.online import OnlineWorldModel
from everlearn.world_model.base import ImaginingModel
from everlearn.world_model.memory import MEMORIES

MODELS: dict[str, Callable[..., Any]] = {
    "online": partial(OnlineWorldModel, features=8, threads=1),
    "mlp": partial(MLPWorldModel, strategy=PerfectMemory(), hidden=8, layers=2, threads=1),
}


@pytest.fixture(params=itertools.product(MODELS, MEMORIES.names()), ids="-".join)
def model(request: pytest.FixtureRequest) -> ImaginingModel:
    kind, name = request.param
    env = ContinualBenchEnv()
    spaces = env.observation_space, env.action_space
    memory = MEMORIES.get(name)().build(*spaces, EnvironmentFacts.of(env))
    model = MODELS[kind](*spaces, memory=memory)
    generator = np.random.default_rng(0)
    obs, state = env.reset()[0], None
    for _ in range(260):  # more than any warm-up
        action = generator.uniform(-1, 1, 4)
        following = env.step(action)[0]
        state = memory.start(obs[None])[0] if state is None else state
        model.learn(obs, action, following, memory=state)
        state = memory.advance(state[None], obs[None], action[None], following[None])[0]
        obs = following
    return model


def test_shapes_and_purity(model: ImaginingModel):
    memory = model.memory
    obs = np.stack([model.observation_space.sample() for _ in range(5)])
    action = np.zeros((5, 4))
    state = memory.start(obs)
    kept = state.copy()
    assert state.shape == (5, memory.size)
    assert memory.features(state, obs).shape == (5, memory.inputs)
    assert memory.advance(state, obs, action, obs).shape == (5, memory.size)
    np.testing.assert_array_equal(state, kept)


def test_imagination_carries_it_like_single_steps(model: ImaginingModel):
    memory, generator = model.memory, np.random.default_rng(1)
    obs = ContinualBenchEnv("door-open").reset()[0]
    actions = generator.uniform(-1, 1, (6, 7, 4))
    imagined = model.rollout(obs, actions)
    now = np.tile(obs, (6, 1))
    state = memory.start(now)
    for step in range(7):
        following = model.predict(now, actions[:, step], memory=state)
        state = memory.advance(state, now, actions[:, step], following)
        now = following.astype(np.float64)
        np.testing.assert_allclose(imagined[:, step + 1], now, atol=1e-4)
