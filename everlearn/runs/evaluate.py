"""Evaluation of tasks: with learning off, in environments and generators of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from queue import Empty
from typing import Any, NamedTuple

import numpy as np

from everlearn.interfaces import Agent, FloatArray, World
from everlearn.planning.episode import Episode, run_episode
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.endless import begin_any, beginning
from everlearn.runs.evaluators import EvaluatorLostError, Evaluators, Outcomes, Unit
from everlearn.runs.metrics_file import COVERAGE_SHARES, COVERAGE_STEPS, coverage_name
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import states_along
from everlearn.worlds import Environments, world_named

POLL = 0.1
"""Seconds between two looks at a stop signal while other processes end their episodes."""

HORIZON = 15
"""Steps of the long error: the paper's planning horizon."""

Episodes = list[tuple[FloatArray, FloatArray]]
"""Observations ``[n + 1, S]`` and actions ``[n, A]`` of each episode."""

ShouldStop = Callable[[], bool]
OnEvaluated = Callable[[str, float], None]


class StoppedError(Exception):
    """Evaluation was left because the run should stop; nothing was changed."""


class Outcome(NamedTuple):
    """How an evaluation episode ended.

    Attributes
    ----------
    score
        1 or 0 where success is measured, the return elsewhere.
    bursts
        Escape bursts of the agent; None for an agent that has none.
    """

    score: float
    bursts: int | None


class Evaluator:
    """Evaluates an agent; what it does never reaches the agent or its environment.

    Parameters
    ----------
    config
        The run's.
    should_stop
        Asked after every step; True leaves the evaluation with `StoppedError`.
    on_episode
        Called after every evaluation episode with its task and score.
    videos
        Folder to film every episode into, as ``door-open-03-failed.mp4``; None films nothing.
    others
        Processes that play some of the episodes.
    notify
        Told of a process that died.
    variant
        Further arguments of the agent's `evaluation_copy`: another way to evaluate it. Other
        processes do not know of it.
    """

    def __init__(
        self,
        config: RunConfig,
        should_stop: ShouldStop = lambda: False,
        on_episode: OnEvaluated = lambda task, score: None,
        videos: Path | None = None,
        others: Evaluators | None = None,
        notify: Callable[[str], None] = lambda text: None,
        variant: Mapping[str, Any] | None = None,
    ) -> None:
        self.config, self._variant = config, variant or {}
        self.world = world_named(config.world)
        self._films: Any = None
        if videos is not None:
            from everlearn.continual_bench import rendering

            rendering.check_path(videos / "any.mp4")
            self._films = rendering
        self._videos = videos
        self._should_stop = should_stop
        self._on_episode = on_episode
        self._others, self._notify = others, notify
        render_mode = None if videos is None else "rgb_array"
        self._environments = Environments(self.world, config.reset_noise, render_mode)
        self._heldout: dict[str, Episodes] = {}

    def evaluate(
        self,
        agent: Agent,
        tasks: Sequence[str],
        done: int,
        episodes: int,
        snapshot: Path | None = None,
    ) -> dict[str, dict[str, Any]]:
        """Play `episodes` of each task and return what ``eval`` lines say of them.

        Parameters
        ----------
        agent
            Who is evaluated, after `done` training episodes.
        tasks, done, episodes
            Names, and what the seeds are made from.
        snapshot
            Where other processes find the same agent; without one they are left alone.

        Returns
        -------
        dict
            By task: ``success_rate`` or ``mean_return``, ``episodes``, and ``bursts`` for agents
            that have some.
        """
        units = deque((task, episode) for task in tasks for episode in range(episodes))
        outcomes: dict[str, dict[int, Outcome]] = {task: {} for task in tasks}
        for (task, episode), outcome in self._outcomes(agent, done, units, snapshot):
            outcomes[task][episode] = outcome
            self._on_episode(task, outcome.score)
        return {task: self._summary(by_episode) for task, by_episode in outcomes.items()}

    def _summary(self, outcomes: dict[int, Outcome]) -> dict[str, Any]:
        # Summed in the order of the episodes, whoever played them, so that bits are the same.
        ordered = [outcomes[episode] for episode in sorted(outcomes)]
        name = "success_rate" if self.world.measure == "success" else "mean_return"
        summary: dict[str, Any] = {
            name: sum(outcome.score for outcome in ordered) / len(ordered),
            "episodes": len(ordered),
        }
        bursts = [outcome.bursts for outcome in ordered if outcome.bursts is not None]
        if bursts:
            summary["bursts"] = sum(bursts) / len(bursts)
        return summary

    def _outcomes(
        self, agent: Agent, done: int, units: deque[Unit], snapshot: Path | None
    ) -> Iterator[tuple[Unit, Outcome]]:
        if self._others is None or snapshot is None:
            for unit in units:
                yield unit, self.episode(agent, unit[0], done, unit[1])
            return
        missing = len(units)
        with self._others.taking(units, snapshot) as outcomes:
            while missing:
                try:
                    unit = units.popleft()
                except IndexError:  # all are taken: wait for those that others have
                    pass
                else:
                    missing -= 1
                    yield unit, self.episode(agent, unit[0], done, unit[1])
                for outcome in self._from_others(outcomes, wait=not units and missing > 0):
                    missing -= 1
                    yield outcome
                if self._should_stop():
                    raise StoppedError
        # No episode is missing, but a process may have been lost while the last one ended.
        yield from self._from_others(outcomes, wait=False)

    def _from_others(self, outcomes: Outcomes, *, wait: bool) -> Iterator[tuple[Unit, Outcome]]:
        """Give the episodes that others have played, and pass on which of them were lost."""
        for outcome in _ready(outcomes, wait=wait):
            if isinstance(outcome, EvaluatorLostError):
                self._notify(f"one evaluator process less from now on: {outcome}")
            else:
                unit, answer = outcome
                yield unit, Outcome(**answer)

    def episode(self, agent: Agent, task: str, done: int, episode: int) -> Outcome:
        """Play an episode of `task` after `done` training episodes."""
        env = self._environments.of(task)
        reset, acting = schedule.evaluation_seeds(self.config, done, task, episode)
        copy = agent.evaluation_copy(acting, **self._variant)
        begin_any(self.world, copy, task)
        film = None
        if self._films is not None:
            env.reset(seed=reset)
            film = self._films.Film(env)
        result = run_episode(
            copy,
            env,
            seed=reset,
            explore=False,
            max_steps=self.config.max_steps,
            on_step=partial(self._after_step, film),
            begin=beginning(self.world, copy, env, first=True),
        )
        success = solved(self.world, task, result)
        if film is not None and self._videos is not None:
            how = "played" if success is None else "solved" if success else "failed"
            film.write(self._videos / f"{task}-{episode + 1:02d}-{how}.mp4")
        score = result.total_reward if success is None else float(success)
        return Outcome(score, getattr(copy, "bursts", None))

    def model_lines(self, agent: Any, tasks: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Give what the agent's model predicts of the fixed set of each task, if there are such.

        Its error and, for a model that gives bounds, the share of the truths within them.
        """
        model, count = getattr(agent, "model", None), self.config.evaluation.heldout
        heldout_episodes = getattr(self.world, "heldout_episodes", None)
        if heldout_episodes is None or not hasattr(model, "rollout") or not count:
            return
        # Some agents predict each task with a part of their model.
        model_for = getattr(agent, "model_for", lambda task: model)
        for task in tasks:
            if task not in self._heldout:
                self._heldout[task] = heldout_episodes(task, count, self.config.reset_noise)
            fixed = self._heldout[task]
            if not fixed:
                continue
            predicting = model_for(task)
            line = {
                "task": task,
                "error_one_step": model_error(predicting, fixed, 1),
                f"error_{HORIZON}_steps": model_error(predicting, fixed),
                "transitions": sum(len(actions) for _, actions in fixed),
                "utilization": getattr(model, "utilization", None),
            }
            if getattr(predicting, "gives_intervals", False):
                line |= {
                    coverage_name(share, steps): model_coverage(predicting, fixed, share, steps)
                    for steps in COVERAGE_STEPS
                    for share in COVERAGE_SHARES
                }
            yield line

    def close(self) -> None:
        """Free the environments and end the other processes."""
        if self._others is not None:
            self._others.close()
        self._environments.close()

    def _after_step(self, film: Callable[[], None] | None, *_: object) -> None:
        if self._should_stop():
            raise StoppedError
        if film is not None:
            film()


def model_error(model: Any, episodes: Episodes, horizon: int = HORIZON) -> float | None:
    """Mean squared error of the state imagined `horizon` steps ahead; None if no window fits.

    Mean over all windows of `horizon` steps inside the episodes and over the numbers of an
    observation, in their own units. A model's memory is at each window what it would be had the
    agent lived through the episode; the imagination starts from the true state.
    """
    windows = _windows(model, episodes, horizon)
    if windows is None:
        return None
    states = model.rollout(windows.starts, windows.plans, memory=windows.memories)
    wrong = np.asarray(states[:, -1], dtype=np.float64) - windows.ends
    return float(np.mean(wrong**2))


def model_coverage(
    model: Any, episodes: Episodes, share: float, horizon: int = HORIZON
) -> float | None:
    """Share of the states `horizon` steps ahead that lie within bounds meant to hold `share`.

    Over the windows of `model_error` and the numbers of an observation, without those whose bounds
    are equal: what rests is predicted to the bit, and would only flatter. None if none is left.
    """
    windows = _windows(model, episodes, horizon)
    if windows is None:
        return None
    found = model.rollout(windows.starts, windows.plans, memory=windows.memories, interval=share)
    low, high = found.low[:, -1], found.high[:, -1]
    ends = windows.ends.astype(low.dtype)
    open_bounds = high > low
    if not open_bounds.any():
        return None
    return float(np.mean(((low <= ends) & (ends <= high))[open_bounds]))


class _Windows(NamedTuple):
    """All parts of episodes that are so many steps long."""

    starts: FloatArray
    plans: FloatArray
    ends: FloatArray
    memories: FloatArray | None


def _windows(model: Any, episodes: Episodes, horizon: int) -> _Windows | None:
    """Return the windows of `horizon` steps, or None if no episode is as long."""
    memory = getattr(model, "memory", None)
    if memory is not None and memory.size == 0:
        memory = None
    starts, plans, ends = [], [], []
    memories: list[FloatArray] = []
    for observations, actions in episodes:
        windows = len(actions) - horizon + 1
        if windows < 1:
            continue
        starts.append(observations[:windows])
        plans.append(np.lib.stride_tricks.sliding_window_view(actions, horizon, axis=0))
        ends.append(observations[horizon:])
        if memory is not None:
            memories.append(states_along(memory, observations, actions)[:windows])
    if not starts:
        return None
    return _Windows(
        np.concatenate(starts),
        np.ascontiguousarray(np.concatenate(plans).transpose(0, 2, 1)),
        np.concatenate(ends),
        np.concatenate(memories) if memories else None,
    )


def solved(world: World, task: str, episode: Episode) -> bool | None:
    """Return whether `task` was solved; None in a world that measures returns."""
    if world.measure == "return":
        return None
    if episode.success is None:
        raise InvalidInputError(
            f"world {world.name!r} measures success, but its environment of {task!r} does not say "
            "info['success'] at the last step; add it there, or let the world measure 'return'"
        )
    return episode.success


def _ready(
    outcomes: Outcomes, *, wait: bool
) -> Iterator[tuple[Unit, dict[str, Any]] | EvaluatorLostError]:
    """Give what others have played, after a little waiting for the first of it if `wait`."""
    with suppress(Empty):
        if wait:
            yield outcomes.get(timeout=POLL)
        while True:
            yield outcomes.get_nowait()
