"""Evaluation of seen tasks: with learning off, in an environment and generators of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, Protocol

import numpy as np

from everlearn.agents import run_episode
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.video import Film, check_path
from everlearn.interfaces import Agent
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.evaluators import HelperLostError, Helpers, Outcomes, Unit
from everlearn.runs.heldout import HORIZON, HeldOutSet, has_script, heldout_set, model_error

POLL = 0.1
"""Seconds between two looks at a stop signal while helpers end their episodes."""


class LearningAgent(Agent, Protocol):
    """An agent that can be evaluated without being changed or copied."""

    def evaluation_copy(self, seed: int | np.random.SeedSequence) -> Agent:
        """Return an agent that acts with what this one knows and learns nothing."""
        ...


Stop = Callable[[], bool]
OnEvaluated = Callable[[str, bool], None]


class StoppedError(Exception):
    """Evaluation was left because the run should stop; nothing was changed."""


class Evaluator:
    """Evaluates an agent; what it does never reaches the agent or its environment.

    Parameters
    ----------
    config
        The run's.
    should_stop
        Asked after every step; True leaves the evaluation with `StoppedError`.
    on_episode
        Called after every evaluation episode with its task and success.
    videos
        Folder to film every episode into, as ``door-open-03-failed.mp4``; None films nothing.
    helpers
        Processes that play some of the episodes.
    notify
        Told of a helper that died.
    """

    def __init__(
        self,
        config: RunConfig,
        should_stop: Stop = lambda: False,
        on_episode: OnEvaluated = lambda task, success: None,
        videos: Path | None = None,
        helpers: Helpers | None = None,
        notify: Callable[[str], None] = lambda text: None,
    ) -> None:
        if videos is not None:
            check_path(videos / "any.mp4")
        self.config = config
        self._videos = videos
        self._should_stop = should_stop
        self._on_episode = on_episode
        self._helpers, self._notify = helpers, notify
        self._env: ContinualBenchEnv | None = None
        self._heldout: dict[str, HeldOutSet] = {}

    def success_rates(
        self,
        agent: LearningAgent,
        tasks: Sequence[str],
        done: int,
        episodes: int,
        snapshot: Path | None = None,
    ) -> dict[str, float]:
        """Share of `episodes` of each task that the agent solves.

        Parameters
        ----------
        agent
            Who is evaluated, after `done` training episodes.
        tasks, done, episodes
            Names, and what the seeds are made from.
        snapshot
            Where helpers find the same agent; without one they are left alone.
        """
        units = deque((task, episode) for task in tasks for episode in range(episodes))
        solved = dict.fromkeys(tasks, 0)
        for (task, _), success in self._outcomes(agent, done, units, snapshot):
            solved[task] += success
            self._on_episode(task, success)
        return {task: count / episodes for task, count in solved.items()}

    def _outcomes(
        self, agent: LearningAgent, done: int, units: deque[Unit], snapshot: Path | None
    ) -> Iterator[tuple[Unit, bool]]:
        if self._helpers is None or snapshot is None:
            for unit in units:
                yield unit, self.episode(agent, unit[0], done, unit[1])
            return
        missing = len(units)
        with self._helpers.taking(units, snapshot) as found:
            while missing:
                try:
                    unit = units.popleft()
                except IndexError:  # all are taken: wait for those that helpers have
                    pass
                else:
                    missing -= 1
                    yield unit, self.episode(agent, unit[0], done, unit[1])
                for outcome in self._told(found, wait=not units and missing > 0):
                    missing -= 1
                    yield outcome
                if self._should_stop():
                    raise StoppedError
        # No episode is missing, but a helper may have been lost while the last one ended.
        yield from self._told(found, wait=False)

    def _told(self, outcomes: Outcomes, *, wait: bool) -> Iterator[tuple[Unit, bool]]:
        """Give the episodes that helpers have played, and pass on which helpers were lost."""
        for outcome in _ready(outcomes, wait=wait):
            if isinstance(outcome, HelperLostError):
                self._notify(f"going on without a helper in evaluations: {outcome}")
            else:
                yield outcome

    def episode(self, agent: LearningAgent, task: str, done: int, episode: int) -> bool:
        """Whether the agent solves an episode of `task` after `done` training episodes."""
        if self._env is None:
            self._env = ContinualBenchEnv(
                task,
                reset_noise=self.config.reset_noise,
                render_mode="rgb_array" if self._videos else None,
            )
        reset, acting = schedule.evaluation_seeds(self.config, done, task, episode)
        copy = agent.evaluation_copy(acting)
        copy.begin_task(task, TASKS.get(task).objective())
        at: dict[str, Any] = {"seed": reset, "options": {"task": task}}
        film = None
        if self._videos is not None:
            self._env.reset(**at)
            film = Film(self._env)
        outcome = run_episode(
            copy,
            self._env,
            **at,
            explore=False,
            max_steps=self.config.max_steps,
            on_step=partial(self._after_step, film),
        )
        success = bool(outcome.info["success"])
        if film is not None and self._videos is not None:
            how = "solved" if success else "failed"
            film.write(self._videos / f"{task}-{episode + 1:02d}-{how}.mp4")
        return success

    def model_lines(self, agent: Any, tasks: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Facts about the agent's world model on the fixed set of each task, if it has one."""
        model, count = getattr(agent, "model", None), self.config.evaluation.heldout
        if not hasattr(model, "rollout") or not count:
            return
        # Some agents predict each task with a part of their model.
        model_for = getattr(agent, "model_for", lambda task: model)
        for task in filter(has_script, tasks):
            if task not in self._heldout:
                self._heldout[task] = heldout_set(task, count, self.config.reset_noise)
            fixed = self._heldout[task]
            yield {
                "task": task,
                "error_one_step": model_error(model_for(task), fixed, 1),
                f"error_{HORIZON}_steps": model_error(model_for(task), fixed),
                "transitions": fixed.transitions,
                "utilization": getattr(model, "utilization", None),
            }

    def close(self) -> None:
        """Free the environment and end the helpers."""
        if self._helpers is not None:
            self._helpers.close()
        if self._env is not None:
            self._env.close()
            self._env = None

    def _after_step(self, film: Film | None, *_: object) -> None:
        if self._should_stop():
            raise StoppedError
        if film is not None:
            film()


def _ready(outcomes: Outcomes, *, wait: bool) -> Iterator[tuple[Unit, bool] | HelperLostError]:
    """Give what helpers have found, after a little waiting for the first of it if `wait`."""
    with suppress(Empty):
        if wait:
            yield outcomes.get(timeout=POLL)
        while True:
            yield outcomes.get_nowait()
