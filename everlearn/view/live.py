"""An agent that acts while its user looks on and takes part: pause, tasks, goals, learning."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.goals import BlockGoal
from everlearn.interfaces import EnvironmentFacts, FloatArray, Objective
from everlearn.support.errors import InvalidInputError
from everlearn.view.commands import (
    Command,
    Learning,
    MoveGoal,
    Pause,
    SpeedLimit,
    Step,
    SwitchTask,
)
from everlearn.view.observer import Observer
from everlearn.view.page import Controls, Page
from everlearn.view.scene import Simulation
from everlearn.worlds import Environments

GOAL_TASK = "pick-place"
LINGER = 0.8
"""Seconds for which the end of an episode is shown."""

WAIT = 0.05
"""Seconds between two looks at whether to go on."""


@dataclasses.dataclass
class Pace:
    """How the session goes on."""

    paused: bool = False
    steps_left: int = 0
    limit: float = np.inf


class LiveSession:
    """Episodes of an agent, one after the other, until it is told to stop.

    Parameters
    ----------
    environments
        Of the world, by task.
    agent
        Who acts. If it cannot learn, an evaluation copy of it acts.
    task
        Name of the first task.
    seed
        Of the resets and of evaluation copies.
    learning
        Whether it learns at first.
    page
        Where it is shown: host and port.
    """

    def __init__(
        self,
        environments: Environments,
        agent: Any,
        task: str,
        *,
        seed: int = 0,
        learning: bool = True,
        host: str = "127.0.0.1",
        port: int = 8080,
    ) -> None:
        self._environments, self._agent, self._seed = environments, agent, seed
        self.can_learn = bool(getattr(agent, "learns", True))
        self.learning = learning and self.can_learn
        self.task, self._goal = task, BlockGoal()
        self.pace = Pace()
        self.episode = 0
        env = environments.of(task)
        simulation = Simulation.of(env)
        tasks = environments.world.tasks
        self.page = Page(
            simulation,
            Controls(
                tasks if len(tasks) > 1 else (),
                pace=True,
                learning=self.learning if self.can_learn else None,
            ),
            host=host,
            port=port,
        )
        self.observer = Observer(
            simulation, EnvironmentFacts.of(env), self.page.frames.put, lambda: self.page.watched
        )
        self._visits = 0
        self._begin_task(task)

    def run(self, stopped: Callable[[], bool], episodes: int | None = None) -> None:
        """Go on until `stopped` says so, or for so many episodes."""
        while not stopped() and (episodes is None or self.episode < episodes):
            self.run_episode(stopped)

    # Tasks -----------------------------------------------------------------------------

    def _begin_task(self, task: str) -> None:
        self.task = task
        for one in (self._agent, self._acting_copy()):
            one.begin_task(task, self._objective())
        self._env: Any = self._environments.of(task)
        if isinstance(self._env.unwrapped, ContinualBenchEnv):
            # The objective says what solves the task, also where its goal has been moved.
            self._env.unwrapped.terminate_on_success = False
        self.observer.simulation = Simulation.of(self._env)
        self.observer.goal = self._goal.target if task == GOAL_TASK else None

    def _objective(self) -> Objective | None:
        if self.task == GOAL_TASK and self._environments.world.name == "continual-bench":
            return self._goal
        return self._environments.world.objective(self.task)

    def _acting_copy(self) -> Any:
        """Return who acts: the agent itself while it learns, else a copy that does not."""
        self._actor = self._agent if self.learning else self._agent.evaluation_copy(self._seed)
        return self._actor

    # Episodes --------------------------------------------------------------------------

    def run_episode(self, stopped: Callable[[], bool]) -> bool | None:
        """Run one episode; returns whether it was solved, None if it was left."""
        self.episode += 1
        obs, _ = self._env.reset(seed=self._seed + self.episode, options=self._reset_options())
        self._actor.begin_episode()
        self.observer.begin_episode(self._actor, self.task, self.episode)
        self.observer.note = "learning" if self.learning else "not learning"
        self.observer.show(obs)
        due = time.monotonic()
        for _ in range(self._environments.world.max_steps):
            if not self._may_step(obs, due, stopped):
                return None
            due = max(due + 1 / self.pace.limit, time.monotonic() - 1 / self.pace.limit)
            action = self._actor.act(obs, self.learning)
            after, reward, terminated, truncated, info = self._env.step(action)
            objective = self._objective()
            if objective is not None and hasattr(objective, "succeeded"):
                step = (obs[None], np.asarray(action)[None], after[None])
                reward = float(objective(*step)[0])
                solved: bool | None = bool(objective.succeeded(*step)[0])
                terminated = terminated or bool(solved)
            else:
                success = info.get("success")
                solved = None if success is None else bool(success)
            self._actor.observe(obs, action, after, float(reward), bool(terminated))
            self.observer(obs, action, after, float(reward))
            obs = after
            if terminated or truncated:
                break
        self.observer.end_episode(solved)
        if solved is not None:
            self.observer.note = "**solved**" if solved else "not solved"
        self.observer.show(obs)
        self._wait(LINGER, stopped)
        return solved

    def _reset_options(self) -> dict[str, Any] | None:
        return {"task": self.task} if isinstance(self._env.unwrapped, ContinualBenchEnv) else None

    def _may_step(self, obs: FloatArray, due: float, stopped: Callable[[], bool]) -> bool:
        """Do what the user asked for, and wait as long as they want; False ends the episode."""
        while not stopped():
            while (command := self.page.next_command()) is not None:
                if not self._do(command, obs):
                    return False
            if self.pace.steps_left:
                self.pace.steps_left -= 1
                return True
            if self.page.visits != self._visits:  # whoever comes while it waits sees this moment
                self._visits = self.page.visits
                self.observer.show(obs)
            left = due - time.monotonic()
            if not self.pace.paused and left <= 0:
                return True
            command = self.page.next_command(WAIT if self.pace.paused else min(left, WAIT))
            if command is not None and not self._do(command, obs):
                return False
        return False

    def _wait(self, seconds: float, stopped: Callable[[], bool]) -> None:
        """Let the user look at the end of an episode."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not stopped() and self.page.watched:
            command = self.page.next_command(WAIT)
            if command is not None and not self._do(command, None):
                return

    def _do(self, command: Command, obs: FloatArray | None) -> bool:
        """Do what the user asked for; returns whether the episode goes on."""
        if isinstance(command, Pause):
            self.pace.paused = command.on
        elif isinstance(command, Step):
            self.pace.paused, self.pace.steps_left = True, 1
        elif isinstance(command, SpeedLimit):
            self.pace.limit = command.steps
        elif isinstance(command, SwitchTask) and command.task in self._environments.world.tasks:
            if command.task != self.task:
                self._begin_task(command.task)
                return False
        elif isinstance(command, MoveGoal) and self.task == GOAL_TASK:
            self._move_goal(command, obs)
        elif isinstance(command, Learning) and self.can_learn:
            self.learning = command.on
            self._acting_copy().begin_task(self.task, self._objective())
            return False
        return True

    def _move_goal(self, command: MoveGoal, obs: FloatArray | None) -> None:
        """Plan for another goal, and show the plan at once."""
        try:
            self._goal = BlockGoal(command.point)
        except InvalidInputError:
            return  # a page shows no such place
        self._actor.begin_task(GOAL_TASK, self._goal)
        self.observer.goal = self._goal.target
        if obs is not None:
            self._actor.act(obs, self.learning)
            self.observer.show(obs)

    def close(self) -> None:
        """Stop serving the page, and free the environments."""
        self.page.close()
        self._environments.close()
