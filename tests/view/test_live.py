"""A live session and what a page can do to it, over a page's own connection."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("viser")

from benchmarks.page_client import Client
from everlearn.agents import OnlineAgent
from everlearn.continual_bench.goals import BlockGoal, within_reach
from everlearn.continual_bench.rewards import BLOCK_TARGET
from everlearn.support.errors import InvalidInputError
from everlearn.view.live import LiveSession
from everlearn.worlds import Environments, world_named

pytestmark = pytest.mark.xdist_group("live")  # one session for all, in this order

SMALL: dict[str, Any] = {
    "model.features": 20,
    "planner.candidates": 20,
    "planner.elites": 4,
    "planner.horizon": 5,
}


class Running:
    """A session whose control loop runs in a thread, and one page."""

    def __init__(self, task: str = "pick-place", learning: bool = True) -> None:
        self.environments = Environments(world_named("continual-bench"))
        env = self.environments.of(task)
        self.agent = OnlineAgent.for_env(env, **SMALL)
        self.session = LiveSession(self.environments, self.agent, task, learning=learning, port=0)
        self.stop = threading.Event()
        self.loop = threading.Thread(target=self.session.run, args=(self.stop.is_set,), daemon=True)
        self.client = Client(self.session.page.url)
        self.loop.start()
        self.client.until_controls("pause", "task", "learning")

    def wait(self, holds: Any, seconds: float = 30.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < end, "waited in vain"
            assert self.loop.is_alive()
            self.client.receive(0.02)

    @property
    def steps(self) -> int:
        return self.session.observer._steps

    def close(self) -> None:
        self.client.close()
        self.stop.set()
        self.loop.join(20)
        assert not self.loop.is_alive()
        self.session.close()


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    made = Running()
    yield made
    made.close()


def test_pause_and_single_steps(running: Running) -> None:
    running.wait(lambda: running.steps > 3)
    running.client.use("pause")
    running.wait(lambda: running.session.pace.paused)
    time.sleep(0.2)
    stopped = running.steps
    time.sleep(0.3)
    assert running.steps == stopped
    for number in (1, 2):
        running.client.use("one step")
        running.wait(lambda number=number: running.steps == stopped + number)
        time.sleep(0.2)
        assert running.steps == stopped + number


AT_BLOCK = (0.5, 0.2, 0.03)
"""Where the block lies when an episode begins."""


def wanted(running: Running, goal: tuple[float, float, float]) -> Any:
    """What the steps of the last plan are worth with the goal of the block there."""
    plan = running.agent.last_plan
    assert plan is not None
    step = plan.states[0, :-1], plan.actions, plan.states[0, 1:]
    objective = BlockGoal(goal)
    bonus = running.agent.objective_config.success_bonus
    return objective(*step) + bonus * objective.succeeded(*step)


def test_dragging_the_goal_plans_for_it_at_once(running: Running) -> None:
    session = running.session
    if not session.pace.paused:
        running.client.use("pause")
    running.wait(lambda: session.pace.paused)
    steps, before = running.steps, running.agent.last_plan
    running.client.drag_goal(*AT_BLOCK)
    running.wait(lambda: running.agent.last_plan is not before)
    assert session.observer.goal == AT_BLOCK
    assert running.steps == steps, "it plans without a step"
    plan = running.agent.last_plan
    assert plan is not None
    # The plan is for the new goal: its value is what the new objective says of its states.
    weights = running.agent.planner._weights  # type: ignore[attr-defined]
    rewards = weights @ wanted(running, AT_BLOCK)
    assert plan.value == pytest.approx(float(rewards), rel=1e-3)
    other = weights @ wanted(running, BLOCK_TARGET)
    assert plan.value > other + 10, "the block lies at the new goal already"
    assert isinstance(session._goal, BlockGoal)
    # Out of reach is brought within; what is no number is ignored.
    running.client.drag_goal(5.0, 5.0, -3.0)
    running.wait(lambda: session.observer.goal != AT_BLOCK)
    goal = session.observer.goal
    assert goal is not None
    assert np.hypot(goal[0], goal[1]) <= 0.75
    assert goal[2] == 0.02
    running.client.drag_goal(float("nan"), 0.0, 0.0)
    running.wait(lambda: True)
    assert np.isfinite(session.observer.goal).all()


def test_a_page_that_is_opened_during_a_pause_shows_that_moment(running: Running) -> None:
    session = running.session
    if not session.pace.paused:
        running.client.use("pause")
    running.wait(lambda: session.pace.paused)
    shown = session.page._shown
    other = Client(session.page.url)
    running.wait(lambda: session.page._shown > shown)
    other.close()


def test_learning_off_leaves_the_model_as_it_is(running: Running) -> None:
    session = running.session
    running.client.use("learning", False)
    running.wait(lambda: not session.learning)
    if session.pace.paused:
        running.client.use("pause")
    running.wait(lambda: not session.pace.paused)
    learned, steps = running.agent.steps, running.steps
    running.wait(lambda: running.steps > steps + 3)
    assert running.agent.steps == learned
    running.client.use("learning", True)
    running.wait(lambda: running.agent.steps > learned)


def test_the_task_can_be_switched_and_nothing_else_named(running: Running) -> None:
    session = running.session
    for word in ("door-open", "window-close"):
        # A page that has yet to show the task would set its control back.
        running.wait(lambda: session.page._current_task == session.task)
        running.client.use("task", word)
        running.wait(lambda word=word: session.task == word)
        running.wait(lambda word=word: session._env.unwrapped.task == word)
    running.client.use("task", "__import__('os')")
    running.client.use("speed", "as fast as light")
    steps = running.steps
    running.wait(lambda: running.steps > steps + 2)
    assert session.task == "window-close"
    assert session.pace.limit == np.inf


def test_a_closed_session_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    one = Running("door-open", learning=False)
    one.wait(lambda: one.steps > 1)
    one.close()
    left = [thread for thread in threading.enumerate() if thread not in before]
    assert [thread for thread in left if thread.is_alive()] == []


@pytest.mark.parametrize("goal", [(9.0, 0.0, 0.1), (0.1, 0.1, float("nan")), (1, 2), "here"])
def test_goals_out_of_reach_are_refused(goal: Any) -> None:
    with pytest.raises(InvalidInputError, match="goal of the block"):
        BlockGoal(goal)


def test_the_moved_goal_is_the_task_at_its_own_place() -> None:
    from everlearn.continual_bench import TASKS

    generator = np.random.default_rng(0)
    obs = generator.uniform(-0.7, 0.7, (500, 26))
    obs[:250, 20:23] = np.array([0.52, 0.33, 0.2]) + generator.normal(0, 0.05, (250, 3))
    actions = generator.uniform(-1, 1, (500, 4))
    known, moved = TASKS.get("pick-place").objective(), BlockGoal()
    np.testing.assert_allclose(moved(obs, actions, obs), known(obs, actions, obs))
    np.testing.assert_array_equal(
        moved.succeeded(obs, actions, obs),
        known.succeeded(obs, actions, obs),  # type: ignore[attr-defined]
    )
    assert 0 < moved.succeeded(obs, actions, obs).sum() < 500
    assert within_reach(np.array([np.nan, 9.0, 9.0])) == pytest.approx((0.0, 0.7, 0.45))
