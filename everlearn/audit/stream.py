"""Transitions in the order in which they came, from a run's folder or from anywhere."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.runs.config import RunConfig
from everlearn.runs.folder import load_transitions, transitions_path
from everlearn.runs.metrics_file import CONFIG
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import Memory, states_along


@dataclass(frozen=True, eq=False)
class TransitionStream:
    """Transitions ``(x_t, y_t)``, one after the other.

    Attributes
    ----------
    name
        What it is, for the page.
    observations, actions, next_observations
        ``[T, S]``, ``[T, A]`` and ``[T, S]``.
    starts
        Whether a transition is the first of an episode ``[T]``, where memories start anew.
    marks
        Steps at which something else begins, such as a task, and its name; for figures.
    """

    name: str
    observations: FloatArray
    actions: FloatArray
    next_observations: FloatArray
    starts: npt.NDArray[np.bool_]
    marks: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        sizes = [len(part) for part in (self.observations, self.actions, self.next_observations)]
        if {*sizes, len(self.starts)} != {sizes[0]} or sizes[0] == 0:
            raise InvalidInputError(
                f"a stream has {sizes} observations, actions and next observations and "
                f"{len(self.starts)} starts; expected equally many, and at least one"
            )
        if not self.starts[0]:
            raise InvalidInputError("the first transition of a stream must start an episode")

    @classmethod
    def from_episodes(
        cls, name: str, episodes: Iterable[tuple[FloatArray, FloatArray]]
    ) -> TransitionStream:
        """Make a stream of episodes of ``observations[n + 1, S]`` and ``actions[n, A]``."""
        whole = [(obs, actions) for obs, actions in episodes if len(actions)]
        if not whole:
            raise InvalidInputError(f"{name} has no transitions; expected at least one")
        starts = [np.arange(len(actions)) == 0 for _, actions in whole]
        return cls(
            name,
            np.concatenate([obs[:-1] for obs, _ in whole]),
            np.concatenate([actions for _, actions in whole]),
            np.concatenate([obs[1:] for obs, _ in whole]),
            np.concatenate(starts),
        )

    @property
    def steps(self) -> int:
        """Transitions (``T``)."""
        return len(self.actions)

    @property
    def episodes(self) -> int:
        """Episodes begun."""
        return int(self.starts.sum())

    def first(self, steps: int) -> TransitionStream:
        """Return the stream of the first `steps` transitions, or of all if there are fewer."""
        if steps < 1:
            raise InvalidInputError(f"steps is {steps}; expected at least 1")
        part = slice(0, steps)
        return TransitionStream(
            self.name,
            self.observations[part],
            self.actions[part],
            self.next_observations[part],
            self.starts[part],
            tuple((step, name) for step, name in self.marks if step < steps),
        )

    def memory_states(self, memory: Memory) -> FloatArray:
        """State of `memory` at every transition ``[T, M]``, as an agent living it would have."""
        if memory.size == 0:
            return np.zeros((self.steps, 0))
        states = []
        borders = [*np.flatnonzero(self.starts), self.steps]
        for first, end in pairwise(borders):
            observations = np.concatenate(
                [self.observations[first:end], self.next_observations[end - 1 : end]]
            )
            states.append(states_along(memory, observations, self.actions[first:end]))
        return np.concatenate(states)


def read_stream(run: str | Path, steps: int | None = None) -> TransitionStream:
    """Read the transitions that a run recorded, the first `steps` of them if given.

    A run that is still going on can be read: what it has recorded so far is there.
    """
    folder = Path(run)
    config = RunConfig.read(folder / CONFIG)
    episodes: list[tuple[FloatArray, FloatArray]] = []
    marks: list[tuple[int, str]] = []
    count = 0
    for episode in range(1, config.episodes + 1):
        if not transitions_path(folder, episode).exists() or (steps and count >= steps):
            break
        arrays, facts = load_transitions(folder, episode)
        if not marks or marks[-1][1] != facts["task"]:
            marks.append((count, facts["task"]))
        episodes.append((arrays["observations"], arrays["actions"]))
        count += len(arrays["actions"])
    if not episodes:
        raise InvalidInputError(
            f"{folder} has no recorded transitions; run it without --record False"
        )
    stream = TransitionStream.from_episodes(folder.name, episodes)
    stream = dataclasses.replace(stream, marks=tuple(marks))
    return stream if steps is None else stream.first(steps)
