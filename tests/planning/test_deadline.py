"""A deadline is for acting and learning together: plans get what learning leaves."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from everlearn import OnlineAgent
from everlearn.planning.deadline import FADING, Deadline
from everlearn.support.errors import InvalidInputError
from tests.planning.toy import Point, step

LEARNING, ITERATION = 0.02, 0.01


def to_origin(obs: Any, action: Any, after: Any) -> Any:
    return -np.linalg.norm(after, axis=1)


def slow_agent(deadline_ms: float | None, learning: float = LEARNING) -> OnlineAgent:
    """An agent whose iterations take a hundredth of a second, and its learning two."""
    planner = {"candidates": 10, "elites": 3, "iterations": 8, "horizon": 3}
    agent = OnlineAgent.for_env(
        Point(), to_origin, seed=0, threads=1, deadline_ms=deadline_ms, planner=planner
    )
    rollout, learn = agent.model.rollout_unchecked, agent.model.learn_unchecked

    def slow_rollout(*inputs: Any, **named: Any) -> Any:
        time.sleep(ITERATION)
        return rollout(*inputs, **named)

    def slow_learn(*inputs: Any, **named: Any) -> None:
        time.sleep(learning)
        learn(*inputs, **named)

    agent.model.rollout_unchecked, agent.model.learn_unchecked = slow_rollout, slow_learn
    return agent


def iterations(agent: OnlineAgent, steps: int) -> list[int]:
    obs, done = np.zeros(2), []
    agent.begin_episode()
    for _ in range(steps):
        action = agent.act(obs)
        assert agent.last_plan is not None
        done.append(agent.last_plan.iterations_done)
        after = step(obs, action)
        agent.observe(obs, action, after, 0.0, False)
        obs = after
    return done


def test_a_plan_leaves_time_for_learning() -> None:
    # Sleeping takes as long as it should or longer, so these are the most that fit.
    first, *others = iterations(slow_agent(55.0), 4)
    assert first <= 5  # nothing is known of learning yet
    assert max(others) <= 3
    assert iterations(slow_agent(None), 2) == [8, 8]


def test_an_evaluation_copy_has_all_the_time_for_plans() -> None:
    agent = slow_agent(1000.0, learning=0.97)
    assert max(iterations(agent, 2)[1:]) <= 3
    copy = agent.evaluation_copy(0)
    assert copy.deadline_ms == 1000.0
    assert iterations(copy, 2) == [8, 8]


def test_the_longest_time_beside_plans_fades() -> None:
    deadline = Deadline(100.0)
    for seconds in (0.05, 0.0, 0.0):
        deadline.begin_step()
        deadline._spent = seconds + 0.03
        deadline.planned(0.03)
        deadline.end_step()
    assert deadline.for_plan == pytest.approx(100 - 50 * FADING**2)
    # A step without a plan, in which a decision goes on, says nothing about one with a plan.
    deadline._spent = 0.09
    deadline.end_step()
    assert deadline.for_plan == pytest.approx(100 - 50 * FADING**2)


def test_learning_that_takes_longer_leaves_one_iteration() -> None:
    assert iterations(slow_agent(5.0), 3) == [1, 1, 1]


@pytest.mark.parametrize("wrong", [-1.0, float("nan"), "soon"])
def test_a_wrong_deadline_is_refused(wrong: Any) -> None:
    agent = slow_agent(None)
    with pytest.raises(InvalidInputError, match="deadline_ms"):
        agent.deadline_ms = wrong
