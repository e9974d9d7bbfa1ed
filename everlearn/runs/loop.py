"""The loop that everything else serves: train, evaluate, write down, snapshot.

    while there are episodes left:
        if an evaluation is due:   evaluate every seen task, with learning off
        if the task changes:       tell the agent its new objective
        train one episode, write its line
        now and then:              snapshot

All that the loop carries from one episode to the next is `RunState` and the agent.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.agents import make_agent, run_episode
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.interfaces import FloatArray
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.evaluate import Evaluator, LearningAgent, StoppedError
from everlearn.runs.evaluators import evaluator_threads, helpers_for
from everlearn.runs.folder import Line, MetricsLog, RunFolder, open_run, read_lines
from everlearn.runs.listeners import Listener, Listeners, listeners_for
from everlearn.runs.options import check_options, resolved_options
from everlearn.runs.snapshots import (
    RunState,
    Snapshot,
    newest_usable,
    prune,
    remove_leftovers,
    save_snapshot,
)
from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.signals import Stop, stop_on_signals
from everlearn.support.threads import check_threads, limited_threads


@dataclass(frozen=True)
class RunResult:
    """How a run ended: its state, and the signal that stopped it early, if one did."""

    state: RunState
    finished: bool
    stopped_by: int | None = None


def execute(
    config: RunConfig,
    out: str | Path,
    *,
    fresh: bool = False,
    listeners: Sequence[Listener] = (),
) -> RunResult:
    """Run `config` in the folder `out`, or go on with it if it is there already.

    Parameters
    ----------
    config
        What to run.
    out
        Folder of the run; a run that is there must have the same settings.
    fresh
        Overwrite a run that is there.
    listeners
        Who is told what happens, such as a `screen.Screen`.

    Notes
    -----
    The first SIGTERM or SIGINT ends the run after the episode at hand, with a snapshot; an
    evaluation is left at once, as it can be repeated. The second one kills the process, and
    the same call goes on from the last snapshot.
    """
    check_threads(config.threads)
    env, agent = make(config)
    settings = resolved_options(config.agent, env, config.agent_options)
    config = dataclasses.replace(config, resolved=settings)
    everyone = Listeners([*listeners, *listeners_for(config)])
    with (
        closing(env),
        open_run(Path(out), config, fresh, everyone.message) as folder,
        limited_threads(folder.config.threads),
        stop_on_signals() as stop,
    ):
        return _Runner(folder, env, agent, everyone, stop).run()


def make(config: RunConfig) -> tuple[ContinualBenchEnv, LearningAgent]:
    """Make the training environment and the agent of a config; refuses options it lacks."""
    check_options(config.agent, config.agent_options)
    env = ContinualBenchEnv(config.tasks[0], reset_noise=config.reset_noise)
    agent = make_agent(config.agent, env, schedule.agent_seed(config), **config.agent_options)
    if not hasattr(agent, "evaluation_copy"):
        raise InvalidInputError(
            f"agent {config.agent!r} has no evaluation_copy(seed) and cannot be evaluated; add it"
        )
    return env, agent


class _Runner:
    """The parts of one run in one place; `run` reads as the protocol does."""

    def __init__(
        self,
        folder: RunFolder,
        env: ContinualBenchEnv,
        agent: LearningAgent,
        listeners: Listeners,
        stop: Stop,
    ) -> None:
        self.folder, self.config = folder, folder.config
        self.env, self.agent = env, agent
        self.listeners, self.stop = listeners, stop

    def run(self) -> RunResult:
        state, offset, lines = self._restore()
        self.log = MetricsLog(self.folder.metrics, offset)
        self.saved, self.saved_at = state, time.monotonic()
        with (
            closing(self.log),
            closing(self._evaluator(state)) as self.evaluator,
            self.listeners.during(self.config, self.folder.path, lines),
        ):
            state = self._loop(state)
            # Also at the end: the state after the last evaluation is what `eval` starts from.
            self._snapshot(state)
        finished = self._is_over(state)
        return RunResult(state, finished, None if finished else self.stop.number)

    def _is_over(self, state: RunState) -> bool:
        return state.episode == self.config.episodes and state.evaluated

    def _evaluator(self, state: RunState) -> Evaluator:
        return Evaluator(
            self.config,
            lambda: self.stop.number is not None,
            self.listeners.evaluated,
            helpers=None if self._is_over(state) else helpers_for(self.config),
            notify=self.listeners.message,
        )

    def _loop(self, state: RunState) -> RunState:
        config = self.config
        while True:
            if time.monotonic() - self.saved_at >= config.checkpoint_seconds:
                self._snapshot(state)
            if not state.evaluated:
                try:
                    self._write(self._evaluate(state))
                except StoppedError:
                    return state
                state = dataclasses.replace(state, evaluated=True)
            if schedule.at_switch(config, state.episode):
                self._snapshot(state)
            if state.episode == config.episodes or self.stop.number is not None:
                return state
            state = self._train(state)

    def _train(self, state: RunState) -> RunState:
        """One training episode."""
        config = self.config
        place = schedule.position(config, state.episode)
        task = config.tasks[place.entry]
        if place.entry != state.begun:
            self.agent.begin_task(task, TASKS.get(task).objective())
        record = _Recording() if config.record else None
        episode = run_episode(
            self.agent,
            self.env,
            seed=schedule.environment_seed(config, state.episode),
            options={"task": task},
            max_steps=config.max_steps,
            on_step=record,
        )
        done, steps = state.episode + 1, state.step + episode.length
        line = {
            "kind": "episode",
            "episode": done,
            "step": steps,
            "task": task,
            "success": bool(episode.info["success"]),
            "length": episode.length,
            "return": episode.total_reward,
            "seconds": round(episode.seconds, 4),
        }
        if record is not None:
            # Before the line: where the metrics have an episode, its transitions are there.
            facts = {name: line[name] for name in ("episode", "task", "success")}
            self.folder.save_transitions(done, *record.arrays(), facts)
        self._write([line])
        due = schedule.evaluation_episodes(config, done) > 0
        return RunState(done, steps, place.entry, evaluated=not due)

    def _evaluate(self, state: RunState) -> list[Line]:
        config, done, began = self.config, state.episode, time.perf_counter()
        when = {"episode": done, "step": state.step}
        tasks = schedule.seen_tasks(config, done)
        episodes = schedule.evaluation_episodes(config, done)
        snapshot = None
        if (config.evaluators or 1) > 1:
            self._snapshot(state)  # what helpers take the agent from
            snapshot = self.folder.checkpoints / state.name
        with limited_threads(evaluator_threads(config)):
            rates = self.evaluator.success_rates(self.agent, tasks, done, episodes, snapshot)
        models = list(self.evaluator.model_lines(self.agent, tasks))
        # Tasks are evaluated side by side, so that each has its share of the time.
        seconds = round((time.perf_counter() - began) / len(tasks), 4)
        lines: list[Line] = []
        for task, rate in rates.items():
            found = {"task": task, "success_rate": rate, "episodes": episodes, "seconds": seconds}
            lines.append({"kind": "eval", **when, **found})
        return lines + [{"kind": "model", **when, **facts} for facts in models]

    def _write(self, lines: list[Line]) -> None:
        self.log.append(lines)
        for line in lines:
            self.listeners.line(line)

    def _snapshot(self, state: RunState) -> None:
        """Save `state`, unless it is the one saved last."""
        if state != self.saved:
            self.log.sync()
            place = self.folder.checkpoints
            save_snapshot(place, state, self.log.offset, self.log.digest, self.agent)
            self.saved = state
            self.listeners.saved(state.name)
        self.saved_at = time.monotonic()

    def _restore(self) -> tuple[RunState, int, list[Line]]:
        """Put the agent where the newest usable snapshot has it."""
        lines, ends = read_lines(self.folder.metrics, self.listeners.message)
        remove_leftovers(self.folder.checkpoints)

        def use(snapshot: Snapshot) -> None:
            self.folder.check_metrics(snapshot.offset, snapshot.digest, ends)
            restore_agent(self.config, snapshot, self.agent)

        snapshot = newest_usable(self.folder.checkpoints, use, self.listeners.message)
        if snapshot is None:
            if lines:
                self.listeners.message("no snapshot was taken yet; starting from the first episode")
            return RunState(), 0, []
        prune(self.folder.checkpoints)  # a crash may have come before that; one is known good
        self.listeners.message(f"going on after episode {snapshot.state.episode}")
        kept = [line for line, end in zip(lines, ends, strict=True) if end <= snapshot.offset]
        return snapshot.state, snapshot.offset, kept


def restore_agent(config: RunConfig, snapshot: Snapshot, agent: Any) -> None:
    """Load an agent from a snapshot; its objective is a function and must be given anew."""
    state = snapshot.state
    begun = schedule.position(config, state.episode - 1).entry if state.episode else -1
    if state.episode > config.episodes or state.begun != begun or snapshot.path.name != state.name:
        raise DamagedFileError(
            f"{snapshot.path} stands after episode {state.episode} in entry {state.begun} of the "
            f"sequence, which is no place of this run of {config.episodes} episodes"
        )
    if state.begun >= 0:
        task = config.tasks[state.begun]
        # Before loading, as an agent may forget its plan when a task begins.
        agent.begin_task(task, TASKS.get(task).objective())
    agent.load(snapshot.agent)


class _Recording:
    """Collects an episode's transitions."""

    def __init__(self) -> None:
        self._observations: list[FloatArray] = []
        self._actions: list[FloatArray] = []
        self._rewards: list[float] = []

    def __call__(
        self, obs: FloatArray, action: FloatArray, next_obs: FloatArray, reward: float
    ) -> None:
        if not self._observations:
            self._observations.append(obs)
        self._observations.append(next_obs)
        self._actions.append(action)
        self._rewards.append(reward)

    def arrays(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        return np.array(self._observations), np.array(self._actions), np.array(self._rewards)
