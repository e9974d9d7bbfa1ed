"""An agent in other processes and threads: it comes along, or says why it cannot."""

from __future__ import annotations

import copy
import multiprocessing
import os
import subprocess
import sys
import threading
from typing import Any

import numpy as np
import pytest

from everlearn import OnlineAgent
from everlearn.planning.agent import PlanningAgent
from everlearn.support.errors import InvalidInputError, NotReadyError
from tests.planning.toy import Point

PLANNER = {"candidates": 8, "elites": 3, "horizon": 3, "iterations": 1}


def reward(obs: Any, action: Any, next_obs: Any) -> Any:
    """Of a module, so that it can be pickled."""
    return next_obs[:, 0]


@pytest.fixture
def agent() -> OnlineAgent:
    made = OnlineAgent.for_env(Point(), reward, model={"features": 5}, planner=PLANNER, threads=1)
    made.begin_episode()
    act(made)
    return made


def act(agent: PlanningAgent) -> Any:
    return agent.act(agent.observation_space.sample() * 0 + 0.1)


def test_a_spawned_process_plays_with_a_pickled_agent(agent: OnlineAgent) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(act, (agent,))
    np.testing.assert_array_equal(found, act(agent))


def test_a_deepcopy_shares_nothing_and_an_evaluation_copy_the_model(agent: OnlineAgent) -> None:
    other, evaluated = copy.deepcopy(agent), agent.evaluation_copy(0)
    assert other.model is not agent.model
    assert evaluated.model is agent.model
    np.testing.assert_array_equal(act(other), act(agent))
    assert not copy.deepcopy(evaluated)._learning


def test_an_agent_of_given_parts_says_that_it_cannot_be_pickled(agent: OnlineAgent) -> None:
    made = PlanningAgent(agent.model, agent.planner, reward)
    with pytest.raises(InvalidInputError, match="for_env"):
        copy.deepcopy(made)


FORK = """
import os
from tests.planning.test_processes import OnlineAgent, PLANNER, Point, act, reward
agent = OnlineAgent.for_env(Point(), reward, model={"features": 5}, planner=PLANNER, threads=1)
agent.begin_episode()
act(agent)
child = os.fork()
if child == 0:
    try:
        act(agent)
    except Exception as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
_, status = os.waitpid(child, 0)
print(status)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_process_says_what_is_wrong() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORK], check=True, capture_output=True, text=True, timeout=300
    )
    said, status = done.stdout.strip().splitlines()
    assert status == "0"
    assert said.startswith("NotReadyError this process was forked")
    assert "spawn" in said


def test_two_threads_on_one_agent(agent: OnlineAgent) -> None:
    planning, go_on = threading.Event(), threading.Event()

    def slow(obs: Any, action: Any, next_obs: Any) -> Any:
        planning.set()
        assert go_on.wait(60)
        return next_obs[:, 0]

    agent.begin_task("slow", slow)
    other = threading.Thread(target=act, args=(agent,))
    other.start()
    try:
        assert planning.wait(300)
        for one in (agent, agent.evaluation_copy(0)):
            with pytest.raises(NotReadyError, match="another thread"):
                act(one)
    finally:
        go_on.set()
        other.join()
    act(agent)


THREADS = """
import copy
import threading
import numpy as np
from tests.planning.test_processes import OnlineAgent, PLANNER, Point, act, reward
agent = OnlineAgent.for_env(Point(), reward, model={"features": 5}, planner=PLANNER, threads=1)
agent.begin_episode()
agents = [copy.deepcopy(agent) for _ in range(3)]
expected = [act(agent) for _ in range(5)]
found = [None] * len(agents)

def play(number):
    found[number] = [act(agents[number]) for _ in range(5)]

threads = [threading.Thread(target=play, args=(number,)) for number in range(len(agents))]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
for actions in found:
    np.testing.assert_array_equal(actions, expected)
print("equal")
"""


def test_threads_with_agents_of_their_own() -> None:
    """With the layer of numba that serves one caller at a time, and aborts if there are two."""
    done = subprocess.run(
        [sys.executable, "-c", THREADS],
        env={**os.environ, "NUMBA_THREADING_LAYER": "workqueue"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "equal\n"), done.stderr
