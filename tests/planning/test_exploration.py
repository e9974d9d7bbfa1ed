"""Learned ends of episodes, and plans for what is new."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from everlearn import OnlineAgent, run_episode
from everlearn.interfaces import FloatArray
from everlearn.planning.learned_reward import LearnedReward
from everlearn.planning.rollout import imagine
from everlearn.planning.value import EARNED, EXPLORING

OPTIONS: dict[str, Any] = {
    "model": {"features": 30},
    "planner": {"candidates": 60, "horizon": 8, "elites": 10},
    "decision_period": None,
}


class Corridor(gymnasium.Env[Any, Any]):
    """A point on a line; it earns 1 a step until it falls off at either end."""

    observation_space = spaces.Box(-2.0, 2.0, (2,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[FloatArray, Any]:
        super().reset(seed=seed)
        self.x, self.speed, self.steps = 0.0, float(self.np_random.uniform(-0.1, 0.1)), 0
        return np.array([self.x, self.speed]), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, Any]:
        self.speed += 0.1 * float(action[0]) + 0.05 * np.sign(self.x)
        self.x += self.speed
        self.steps += 1
        fallen = abs(self.x) > 1
        return np.array([self.x, self.speed]), 1.0, fallen, self.steps >= 100, {}


def test_it_learns_to_stay_where_every_step_earns_the_same() -> None:
    """Nothing but the end of an episode tells good from bad here."""
    env = Corridor()
    agent = OnlineAgent.for_env(env, **OPTIONS)
    lengths = [run_episode(agent, env, seed=number).length for number in range(25)]
    assert lengths[0] < 40
    assert np.mean(lengths[-5:]) > 90


def test_rewards_after_the_end_do_not_count() -> None:
    class Model:
        """Each step adds 1 to the return, and the third ends the episode by half."""

        def rollout(self, obs: FloatArray, actions: FloatArray, memory: Any = None) -> FloatArray:
            states = np.zeros((len(actions), 6, 3))
            states[:, :, 1] = np.arange(6)
            states[:, :, 2] = [0, 0, 0, 0.5, 0.5, 0.5]
            return states

    actions = np.zeros((2, 5, 1), np.float32)
    discounts = np.array([1, 1, 1, 1, 10.0])
    found = imagine(Model(), np.zeros(3), LearnedReward(1), None, actions, discounts)  # type: ignore[arg-type]
    # Three whole rewards, then half of one and half of ten.
    np.testing.assert_allclose(found.returns, 3 + 0.5 * (1 + 10))


def test_novelty_falls_where_something_was_seen_and_imagination_sums_it_up() -> None:
    env = Corridor()
    agent = OnlineAgent.for_env(env, **OPTIONS, seed=3)
    agent.begin_task("corridor", None)
    state, action = np.zeros(5), np.zeros(1)
    before = agent.model.predict(state, action)[-1]
    assert before == pytest.approx(1.0, abs=1e-5)
    for _ in range(100):
        agent.observe(np.zeros(2), action, np.zeros(2), 0.0, False)
    after = agent.model.predict(state, action)[-1]
    cells, values = agent.model.encode(state, action)
    grids = cells < agent.model.encoding.cells - agent.model.encoding.linear_cells
    expected = np.mean(
        np.add.reduceat(
            values[grids] / np.sqrt(1 + 10 * 100 * values[grids] ** 2),
            np.arange(0, grids.sum(), 4),
        )
    )
    assert after == pytest.approx(expected, rel=1e-4)
    plan = agent.model.rollout(state, np.zeros((1, 3, 1)))
    assert plan[0, -1, -1] == pytest.approx(3 * after, rel=0.05)


def test_only_an_agent_that_learns_and_explores_plans_for_novelty() -> None:
    env = Corridor()
    agent = OnlineAgent.for_env(env, **OPTIONS)
    run_episode(agent, env, seed=0)

    def bonus(agent: OnlineAgent, explore: bool) -> float:
        valued: Any = agent._wanted(explore)
        assert valued.row == (EXPLORING if valued.objective.bonus else EARNED)
        return float(valued.objective.bonus)

    assert bonus(agent, explore=True) > 0
    assert bonus(agent, explore=False) == 0
    assert bonus(agent.evaluation_copy(0), explore=True) == 0
