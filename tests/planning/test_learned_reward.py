"""An agent without a reward function learns the reward, and does about as well as with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from everlearn.agents import OnlineAgent, run_episode
from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError, NotReadyError

OPTIONS: dict[str, Any] = {
    "model": {"features": 150},
    "planner": {"candidates": 60, "horizon": 10, "elites": 10},
}


def reward_fn(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Minus the distance from a goal and the cost of a push: not known to the agent."""
    distance = np.hypot(next_obs[:, 0] - 0.5, next_obs[:, 1] + 0.3)
    return np.asarray(-distance - 0.02 * np.sum(np.asarray(action, np.float64) ** 2, axis=1))


class PointMass(gymnasium.Env[Any, Any]):
    """Two positions and two velocities, pushed by two forces."""

    observation_space = spaces.Box(-1.0, 1.0, (4,), np.float64)
    action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[FloatArray, Any]:
        super().reset(seed=seed)
        self.state = np.array([-0.6, 0.6, 0.0, 0.0]) + self.np_random.uniform(-0.1, 0.1, 4)
        self.steps = 0
        return self.state.copy(), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, Any]:
        before, place, speed = self.state, self.state[:2], self.state[2:]
        speed = 0.8 * speed + 0.1 * np.asarray(action, np.float64)
        self.state = np.clip(np.concatenate([place + speed, speed]), -1.0, 1.0)
        self.steps += 1
        reward = float(reward_fn(before[None], np.asarray(action)[None], self.state[None])[0])
        return self.state.copy(), reward, False, self.steps >= 60, {}


def learned(episodes: int, given: bool, **options: Any) -> tuple[OnlineAgent, list[float]]:
    env = PointMass()
    agent = OnlineAgent.for_env(env, reward_fn if given else None, **{**OPTIONS, **options})
    returns = [run_episode(agent, env, seed=number).total_reward for number in range(episodes)]
    return agent, returns


@pytest.mark.parametrize("seed", [0, 1])
def test_earns_what_an_agent_earns_that_is_given_the_reward(seed: int) -> None:
    guided, best = learned(6, given=True, seed=seed)
    agent, returns = learned(15, given=False, seed=seed)
    assert agent.learns_reward
    assert not guided.learns_reward
    assert returns[0] < 2 * best[-1]  # there was something to learn
    assert np.mean(returns[-3:]) > 1.6 * np.mean(best[-3:])  # both are costs
    # Frozen, it still does.
    copy = agent.evaluation_copy(1)
    assert run_episode(copy, PointMass(), seed=9).total_reward > 1.6 * np.mean(best[-3:])
    assert agent.given == ()
    assert guided.given == ("reward function",)


def test_predicts_rewards_beside_states() -> None:
    agent, _ = learned(4, given=False)
    # The return, whether the episode has ended, and how new the steps are.
    assert agent.model.observation_space.shape == (4 + 3,)
    assert agent.observation_space.shape == (4,)
    env = PointMass()
    obs, _ = env.reset(seed=50)
    agent.begin_episode()
    errors, rewards = [], []
    for _ in range(40):
        action = agent.act(obs, explore=False)
        predicted = agent.model.predict(np.append(obs, np.zeros(3)), action)[4]
        after, reward, *_ = env.step(action)
        errors.append(predicted - reward)
        rewards.append(reward)
        agent.observe(obs, action, after, reward, False)
        obs = after
    assert np.std(errors) < 0.3 * np.std(rewards)
    assert agent.last_plan is not None
    states = agent.last_plan.states
    # No episode ends here: the value of a plan is its discounted return, and what comes after it.
    discounts = agent.planner.config.discount ** np.arange(states.shape[1])
    returned = np.diff(states[0, :, 4]) @ discounts[:-1]
    assert agent.values is not None
    beyond = agent.values.config.weight * agent.values.at(states[:1, -1])[0]
    # One observation was learned since the plan was made, which moves the values a little.
    assert agent.last_plan.value == pytest.approx(returned + discounts[-1] * beyond, rel=0.02)


def test_resumes_to_the_bit(tmp_path: Path) -> None:
    agent, _ = learned(2, given=False, memory="history")
    agent.save(tmp_path / "agent")
    fresh = OnlineAgent.for_env(PointMass(), None, **OPTIONS, memory="history")
    begun = OnlineAgent.for_env(PointMass(), None, **OPTIONS, memory="history")
    begun.begin_task("task", None)
    for other in (fresh, begun):
        other.load(tmp_path / "agent")
    made = OnlineAgent.from_file(tmp_path / "agent")
    ends = []
    for other in (agent, fresh, begun, made):
        run_episode(other, PointMass(), seed=7)
        other.save(tmp_path / "after")
        ends.append((tmp_path / "after").read_bytes())
    assert ends[0] == ends[1] == ends[2] == ends[3]


def test_the_choice_is_made_before_anything_is_learned() -> None:
    agent = OnlineAgent.for_env(PointMass(), None, **OPTIONS)
    agent.begin_task("given", reward_fn)
    plain = agent.model
    assert plain.observation_space.shape == (4,)
    agent.begin_task("learned", None)
    assert agent.learns_reward
    agent.begin_task("given", reward_fn)
    assert not agent.learns_reward
    run_episode(agent, PointMass(), seed=0, max_steps=3)
    with pytest.raises(NotReadyError, match="without the reward"):
        agent.begin_task("learned", None)
    assert agent.given == ("reward function",)


def test_one_that_learned_the_reward_may_be_given_another() -> None:
    agent, _ = learned(3, given=False)

    def stay_away(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        assert obs.shape[1] == next_obs.shape[1] == 4
        return np.asarray(-next_obs[:, 1])

    agent.begin_task("down", stay_away)
    assert agent.given == ("reward function",)
    env = PointMass()
    run_episode(agent, env, seed=0)
    assert env.state[1] < -0.7
    agent.begin_task("back", None)
    assert agent.given == ()


def test_a_reward_that_is_no_number_changes_nothing(tmp_path: Path) -> None:
    agent, _ = learned(1, given=False)
    agent.save(tmp_path / "before")
    zero = np.zeros(4)
    for reward in (np.nan, np.inf, "x", np.zeros(2)):
        with pytest.raises(InvalidInputError, match="reward"):
            agent.observe(zero, np.zeros(2), zero, reward, False)
    agent.save(tmp_path / "after")
    assert (tmp_path / "before").read_bytes() == (tmp_path / "after").read_bytes()


@pytest.mark.parametrize("given", [True, False])
def test_an_evaluation_reads_no_reward(given: bool) -> None:
    """Rewards that an evaluation copy observes may be anything."""
    agent, _ = learned(3, given, escape={"patience": 4, "progress": 0.01})
    actions, bursts = [], []
    for wrong in (0.0, np.nan):
        copy = agent.evaluation_copy(3)
        copy.begin_episode()
        env = PointMass()
        obs, _ = env.reset(seed=3)
        taken = []
        for _ in range(40):
            taken.append(copy.act(obs))
            after, *_ = env.step(taken[-1])
            copy.observe(obs, taken[-1], after, wrong, False)
            obs = after
        actions.append(np.array(taken))
        bursts.append(copy.bursts)
    np.testing.assert_array_equal(*actions)
    assert bursts[0] == bursts[1]
    assert bursts[0]
    assert learned(0, given)[0].bursts is None  # its patience never ends
    copy.begin_episode()
    assert copy.bursts == 0
