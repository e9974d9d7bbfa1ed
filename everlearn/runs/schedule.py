"""The schedule of a run as pure functions: which episode belongs where, and which seed it gets.

Time ``w`` is the number of training episodes done. Every seed is a function of the run's seed
and of a place in the run, never of what was drawn before; so evaluation takes nothing away
from training, and a resumed run needs no generator of the runner.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlearn.runs.config import (
    MANY_EPISODES,
    MAX_EVALUATORS,
    RunConfig,
    evaluation_episodes,
    seen_tasks,
)

STREAMS = {"agent": 0, "environment": 1, "evaluation": 2}
"""The named generators into which a run's seed fans out."""

_RESET, _ACTING = 0, 1


@dataclass(frozen=True)
class Position:
    """Where a training episode lies: entry of the task sequence, and episode inside it."""

    entry: int
    episode: int


def position(config: RunConfig, episode: int) -> Position:
    """Return the place of training episode `episode`, counted from 0."""
    return Position(*divmod(episode, config.episodes_per_task))


def at_switch(config: RunConfig, done: int) -> bool:
    """Whether a task's period ends after `done` episodes; the end of the run counts."""
    return done > 0 and done % config.episodes_per_task == 0


def evaluated_tasks(config: RunConfig, done: int) -> tuple[str, ...]:
    """Names of the tasks that an evaluation after `done` episodes is about.

    Those seen and, where an entry of the sequence is about to begin, the task of that entry: its
    success before the first training episode is measured and not assumed.
    """
    entry, inside = divmod(done, config.episodes_per_task)
    next_task = config.tasks[entry : entry + 1] if inside == 0 else ()
    return tuple(dict.fromkeys(seen_tasks(config, done) + next_task))


def evaluation_total(config: RunConfig, start: int = 0) -> int:
    """Count the evaluation episodes from the evaluation after `start` training episodes on."""
    schedule, length = config.evaluation, config.episodes_per_task
    total, known = 0, set[str]()
    for entry, task in enumerate(config.tasks):
        known.add(task)  # evaluated from the switch to it on
        first = max(0, start - entry * length)
        count = 0 if first else schedule.boundary_episodes
        if schedule.every:
            inside = (length - 1) // schedule.every - (max(first, 1) - 1) // schedule.every
            count += schedule.episodes * max(0, inside)
        total += count * len(known)
    return total + (schedule.boundary_episodes * len(known) if start <= config.episodes else 0)


def is_complete(config: RunConfig, lines: Sequence[Mapping[str, Any]]) -> bool:
    """Whether lines of metrics are those of a finished run, its last evaluation included."""
    episodes = [line["episode"] for line in lines if line["kind"] == "episode"]
    if not episodes or episodes[-1] != config.episodes:
        return False
    evaluated = {
        line["task"]
        for line in lines
        if line["kind"] == "eval" and line["episode"] == config.episodes
    }
    due = evaluation_episodes(config, config.episodes) > 0
    return not due or evaluated.issuperset(seen_tasks(config, config.episodes))


def default_evaluators(config: RunConfig, threads: int) -> int:
    """Return how many processes evaluate if nobody says it; see `RunConfig.evaluators`."""
    many = evaluation_total(config) >= MANY_EPISODES
    return min(threads, MAX_EVALUATORS) if many else 1


def agent_seed(config: RunConfig) -> int:
    """Seed of the agent."""
    return _number(_sequence(config.seed, "agent"))


def environment_seed(config: RunConfig, episode: int) -> int:
    """Seed of the reset of training episode `episode`, counted from 0."""
    return _number(_sequence(config.seed, "environment", episode))


def evaluation_seeds(
    config: RunConfig, done: int, task: str, episode: int
) -> tuple[int, np.random.SeedSequence]:
    """Seed of the reset, and of the acting agent, of one evaluation episode.

    The evaluation is known by `done`, so that one at the same time is the same in every
    schedule, and the first five of twenty episodes are those of five.
    """
    key = (done, zlib.crc32(task.encode()), episode)
    reset = _sequence(config.seed, "evaluation", *key, _RESET)
    return _number(reset), _sequence(config.seed, "evaluation", *key, _ACTING)


def _sequence(seed: int, stream: str, *place: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed, spawn_key=(STREAMS[stream], *place))


def _number(sequence: np.random.SeedSequence) -> int:
    return int(sequence.generate_state(1)[0])
