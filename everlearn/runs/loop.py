"""The loop that everything else serves: train, evaluate, write down, snapshot.

    while there are episodes left:
        if an evaluation is due:   evaluate every seen task, and before a task's first episode
                                   that task, with learning off
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

from everlearn.agents import AGENTS
from everlearn.interfaces import Agent, FloatArray, Objective
from everlearn.planning.episode import OnStep, run_episode
from everlearn.registry import load_plugins
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.endless import begin_any, beginning, facts_of, is_endless, restore_world
from everlearn.runs.evaluate import Evaluator, StoppedError, solved
from everlearn.runs.evaluators import evaluator_threads, evaluators_for
from everlearn.runs.folder import RunFolder, open_run
from everlearn.runs.listeners import Listener, Listeners, listeners_for
from everlearn.runs.metrics_file import Line, MetricsLog, read_lines
from everlearn.runs.snapshots import (
    RunState,
    Snapshot,
    newest_usable,
    prune,
    save_snapshot,
)
from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.files import remove_leftovers
from everlearn.support.settings import values_of, with_options
from everlearn.support.signals import Stop, stop_on_signals
from everlearn.support.structure import Structure
from everlearn.support.threads import check_threads, limited_threads
from everlearn.worlds import Environments, world_named


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
    extend: bool = False,
    listeners: Sequence[Listener] = (),
) -> RunResult:
    """Run `config` in the folder `out`, or resume the run that is there.

    Parameters
    ----------
    config
        What to run.
    out
        Folder of the run; a run that is there must have the same settings.
    fresh
        Start over if there is a run; its metrics are kept under another name.
    extend
        Let `config` have more tasks at the end, or more episodes of its only task, than the run
        that is there; it goes on from its last snapshot.
    listeners
        Who is told what happens, such as a `progress.Screen`.

    Notes
    -----
    The first SIGTERM or SIGINT ends the run after the episode at hand, with a snapshot; an
    evaluation is left at once, as it can be repeated. The second one kills the process, and
    the same call resumes from the last snapshot.
    """
    check_threads(config.threads)
    load_plugins(config.imports)
    environments, agent, settings = make(config)
    for task in dict.fromkeys(config.tasks):
        environments.of(task)  # what cannot be made is refused now, not at the switch to it
    # So is an agent that needs an objective where there is none.
    first = config.tasks[0]
    begin_any(environments.world, agent.evaluation_copy(0), first)
    config = dataclasses.replace(
        config,
        resolved=values_of(settings),
        told=_words(agent, "told", ("boundaries",) if agent.boundary_aware else ()),
        given=_given(agent, environments.world.objective(config.tasks[0])),
        measure=environments.world.measure,
    )
    everyone = Listeners([*listeners, *listeners_for(config)])
    with (
        closing(environments),
        open_run(Path(out), config, everyone.message, fresh=fresh, extend=extend) as folder,
        limited_threads(folder.config.threads),
        stop_on_signals() as stop,
    ):
        return _Runner(folder, environments, agent, everyone, stop).run()


def make(config: RunConfig) -> tuple[Environments, Agent, Any]:
    """Make the environments, the agent and its settings; refuses what config names wrongly.

    Modules that `config` names are not imported here: whoever calls this knows who wrote it.
    """
    environments = Environments(world_named(config.world), config.reset_noise)
    env = environments.of(config.tasks[0])
    spec = AGENTS.get(config.agent)
    settings = with_options(spec.settings(env), config.agent_options)
    agent = spec.make(env, settings, schedule.agent_seed(config))
    for name in _AGENT_PARTS:
        if not hasattr(agent, name):
            raise InvalidInputError(
                f"agent {config.agent!r} ({type(agent).__name__}) has no {name!r}, which runs "
                "need; add it as everlearn.interfaces.Agent says"
            )
    return environments, agent, settings


_AGENT_PARTS = (
    *("boundary_aware", "begin_task", "begin_episode", "act", "observe"),
    *("evaluation_copy", "save", "load"),
)


def _words(agent: Agent, attribute: str, default: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(getattr(agent, attribute, default))


def _given(agent: Agent, objective: Objective | None) -> tuple[str, ...]:
    """Return what an agent is given; a world without an objective gives no reward function."""
    absent = ("reward function", "success test") if objective is None else ()
    return tuple(word for word in _words(agent, "given", ()) if word not in absent)


class _Runner:
    """The parts of one run in one place; `run` reads as the protocol does."""

    def __init__(
        self,
        folder: RunFolder,
        environments: Environments,
        agent: Agent,
        listeners: Listeners,
        stop: Stop,
    ) -> None:
        self.folder, self.config = folder, folder.config
        self.environments, self.agent = environments, agent
        self.world = environments.world
        self.listeners, self.stop = listeners, stop
        self.saved: RunState | None = None
        self.known: frozenset[str] = frozenset()  # tasks evaluated at this time already

    def run(self) -> RunResult:
        state, offset, lines = self._restore()
        if self.saved is None and lines:  # finished, and its snapshots were removed
            return RunResult(state, finished=True)
        self.log = MetricsLog(self.folder.metrics, offset)
        self.saved_at = time.monotonic()
        with (
            closing(self.log),
            closing(self._evaluator(state)) as self.evaluator,
            self.listeners.during(self.config, self.folder.path, lines),
        ):
            if self.saved is None:
                # Before the first line: metrics without any snapshot are not a run to go on with.
                self._snapshot(state)
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
            others=None if self._is_over(state) else evaluators_for(self.config),
            notify=self.listeners.message,
        )

    def _loop(self, state: RunState) -> RunState:
        config = self.config
        while True:
            if time.monotonic() - self.saved_at >= config.snapshot_seconds:
                self._snapshot(state)
            if not state.evaluated:
                try:
                    self._write(self._evaluate(state))
                except StoppedError:
                    return state
                state = dataclasses.replace(state, evaluated=True)
            if schedule.at_switch(config, state.episode):
                self._note_structure(state)
                self._snapshot(state)
            if state.episode == config.episodes or self.stop.number is not None:
                return state
            state = self._train(state)

    def _train(self, state: RunState) -> RunState:
        """One training episode."""
        config = self.config
        place = schedule.position(config, state.episode)
        task = config.tasks[place.entry]
        env, first = self.environments.of(task), place.entry != state.begun
        if first and not is_endless(self.world):
            self.agent.begin_task(task, self.world.objective(task))
        goes_on = is_endless(self.world) and not first
        record = _Recording() if config.record else None
        env = self.environments.of(task)
        told = self.listeners.episode(self.agent, env, task, state.episode + 1)
        episode = run_episode(
            self.agent,
            env,
            seed=None if goes_on else schedule.environment_seed(config, state.episode),
            max_steps=config.max_steps,
            on_step=_all_of([*([] if record is None else [record]), *told]),
            begin=beginning(self.world, self.agent, env, first),
        )
        done, steps = state.episode + 1, state.step + episode.length
        line = {
            "kind": "episode",
            "episode": done,
            "step": steps,
            "task": task,
            "success": solved(self.world, task, episode),
            "length": episode.length,
            "return": episode.total_reward,
            "seconds": round(episode.seconds, 4),
            "processor_seconds": round(episode.processor_seconds, 4),
            **facts_of(self.world, episode.info),
        }
        if record is not None:
            # Before the line: where the metrics have an episode, its transitions are there.
            facts = {name: line[name] for name in ("episode", "task", "success")}
            self.folder.save_transitions(done, *record.arrays(), facts)
        self._write([line])
        return RunState(done, steps, place.entry, evaluated=not self._due(done))

    def _due(self, done: int) -> bool:
        return schedule.evaluation_episodes(self.config, done) > 0

    def _evaluate(self, state: RunState) -> list[Line]:
        config, done = self.config, state.episode
        began, used = time.perf_counter(), time.process_time()
        when = {"episode": done, "step": state.step}
        # An extended run has evaluated all but the task that comes next.
        tasks = [task for task in schedule.evaluated_tasks(config, done) if task not in self.known]
        if not tasks:
            return []
        episodes = schedule.evaluation_episodes(config, done)
        snapshot = None
        if (config.evaluators or 1) > 1:
            self._snapshot(state)  # what the other processes take the agent from
            snapshot = self.folder.checkpoints / state.name
        with limited_threads(evaluator_threads(config)):
            results = self.evaluator.evaluate(self.agent, tasks, done, episodes, snapshot)
        seen = [task for task in schedule.seen_tasks(config, done) if task not in self.known]
        models = list(self.evaluator.model_lines(self.agent, tuple(seen)))
        # Tasks are evaluated side by side, so that each has its share of the time.
        spent = {"seconds": round((time.perf_counter() - began) / len(tasks), 4)}
        if (config.evaluators or 1) == 1:  # what other processes use is not known here
            spent["processor_seconds"] = round((time.process_time() - used) / len(tasks), 4)
        lines: list[Line] = [
            {"kind": "eval", **when, "task": task, **result, **spent}
            for task, result in results.items()
        ]
        self.known = frozenset()
        return lines + [{"kind": "model", **when, **errors} for errors in models]

    def _write(self, lines: list[Line]) -> None:
        self.log.append(lines)
        for line in lines:
            self.listeners.line(line)

    def _snapshot(self, state: RunState) -> None:
        """Save `state`, unless it is the one saved last."""
        if state != self.saved:
            self.log.sync()
            place = self.folder.checkpoints
            world = self._life(state).state() if self._lives(state) else None
            save_snapshot(place, state, self.log.offset, self.log.digest, self.agent, world)
            self.saved = state
            self.listeners.saved(state.name)
        self.saved_at = time.monotonic()

    def _note_structure(self, state: RunState) -> None:
        """Write down what the agent found about its world, if it counts that and has counted."""
        found = getattr(self.agent, "structure", None)
        if isinstance(found, Structure) and found.steps:
            self.folder.save_structure(found.to_json(), state.episode)

    def _lives(self, state: RunState) -> bool:
        """Whether the next episode may go on from the last one."""
        return is_endless(self.world) and state.begun >= 0

    def _life(self, state: RunState) -> Any:
        return self.environments.of(self.config.tasks[state.begun])

    def _restore(self) -> tuple[RunState, int, list[Line]]:
        """Put the agent where the newest usable snapshot has it."""
        lines, ends = read_lines(self.folder.metrics, self.listeners.message)
        remove_leftovers(self.folder.checkpoints)

        def use(snapshot: Snapshot) -> None:
            self.folder.check_metrics(snapshot.offset, snapshot.digest, ends)
            restore_agent(self.config, snapshot, self.agent)
            if self._lives(snapshot.state):
                restore_world(snapshot.path, self._life(snapshot.state))

        snapshot = newest_usable(self.folder.checkpoints, use, self.listeners.message)
        if snapshot is None and lines:
            if not schedule.is_complete(self.config, lines):
                raise InvalidInputError(
                    f"{self.folder.path} has metrics and no snapshot that could continue them; to "
                    "start over give --fresh, which keeps the metrics under another name"
                )
            end = RunState(self.config.episodes, lines[-1]["step"], len(self.config.tasks) - 1)
            return end, ends[-1], lines
        if snapshot is None:
            return RunState(evaluated=not self._due(0)), 0, []
        self.saved = state = snapshot.state
        prune(self.folder.checkpoints)  # a crash may have come before that; one is known good
        if state.episode or not state.evaluated:
            self.listeners.message(f"resuming after episode {state.episode}")
        kept = [line for line, end in zip(lines, ends, strict=True) if end <= snapshot.offset]
        if state.evaluated and self._due(state.episode):
            evaluated = frozenset(
                line["task"]
                for line in kept
                if line["kind"] == "eval" and line["episode"] == state.episode
            )
            complete = evaluated.issuperset(schedule.evaluated_tasks(self.config, state.episode))
            # Only this evaluation knows them: the next one is about all tasks again.
            self.known = frozenset() if complete else evaluated
            state = dataclasses.replace(state, evaluated=complete)
        return state, snapshot.offset, kept


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
        begin_any(world_named(config.world), agent, task)
    agent.load(snapshot.agent)


def _all_of(listening: Sequence[OnStep]) -> OnStep | None:
    """Return what calls all of them, the one that there is, or None."""
    if len(listening) < 2:
        return listening[0] if listening else None

    def told(obs: FloatArray, action: FloatArray, next_obs: FloatArray, reward: float) -> None:
        for on_step in listening:
            on_step(obs, action, next_obs, reward)

    return told


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
