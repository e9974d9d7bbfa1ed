"""What an audit reads: the transitions of a run as samples ``(phi(x_t), y_t)``, and its model."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online import OnlineWorldModel
from everlearn.registry import load_plugins, require_imported
from everlearn.runs.config import RunConfig
from everlearn.runs.folder import load_transitions, transitions_path
from everlearn.runs.loop import make
from everlearn.runs.metrics_file import CONFIG
from everlearn.runs.presets import checked
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import reading
from everlearn.world_model.memory import Memory, states_along

Doubles = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

ENCODED_AT_ONCE = 256


@dataclass(frozen=True, eq=False)
class TransitionStream:
    """Transitions ``(x_t, y_t)``, one after the other."""

    name: str
    """Printed on the page."""
    observations: FloatArray
    """``[T, S]``"""
    actions: FloatArray
    """``[T, A]``"""
    next_observations: FloatArray
    """``[T, S]``"""
    starts: npt.NDArray[np.bool_]
    """Whether a transition is the first of an episode ``[T]``, where memories start anew."""
    marks: tuple[tuple[int, str], ...] = ()
    """Steps at which a task begins, and its name; for figures."""

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
        """Join episodes of ``observations[n + 1, S]`` and ``actions[n, A]``."""
        kept = [(obs, actions) for obs, actions in episodes if len(actions)]
        if not kept:
            raise InvalidInputError(f"{name} has no transitions; expected at least one")
        return cls(
            name,
            np.concatenate([obs[:-1] for obs, _ in kept]),
            np.concatenate([actions for _, actions in kept]),
            np.concatenate([obs[1:] for obs, _ in kept]),
            np.concatenate([np.arange(len(actions)) == 0 for _, actions in kept]),
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
        check_whole("steps", steps, 1)
        return TransitionStream(
            self.name,
            self.observations[:steps],
            self.actions[:steps],
            self.next_observations[:steps],
            self.starts[:steps],
            tuple((step, name) for step, name in self.marks if step < steps),
        )

    def memory_states(self, memory: Memory) -> FloatArray:
        """State of `memory` at every transition ``[T, M]``, as the acting agent would have it."""
        if memory.size == 0:
            return np.zeros((self.steps, 0))
        states = []
        for first, end in pairwise([*np.flatnonzero(self.starts), self.steps]):
            observations = np.concatenate(
                [self.observations[first:end], self.next_observations[end - 1 : end]]
            )
            states.append(states_along(memory, observations, self.actions[first:end]))
        return np.concatenate(states)


def read_stream(run: str | Path, steps: int | None = None) -> TransitionStream:
    """Read the transitions that a run recorded so far, the first `steps` of them if given."""
    folder = Path(run)
    config = RunConfig.read(folder / CONFIG)
    episodes: list[tuple[FloatArray, FloatArray]] = []
    marks: list[tuple[int, str]] = []
    count = 0
    for episode in range(1, config.episodes + 1):
        if not transitions_path(folder, episode).exists() or (steps and count >= steps):
            break
        arrays, facts = load_transitions(folder, episode)
        with reading(transitions_path(folder, episode), "transitions"):
            if not marks or marks[-1][1] != facts["task"]:
                marks.append((count, facts["task"]))
            episodes.append((arrays["observations"], arrays["actions"]))
            count += len(arrays["actions"])
    if not episodes:
        raise InvalidInputError(f"{folder} has no recorded transitions; run it without --no-record")
    stream = TransitionStream.from_episodes(folder.name, episodes)
    stream = dataclasses.replace(stream, marks=tuple(marks))
    return stream if steps is None else stream.first(steps)


def model_for(
    run: str | Path, agent: str | None = None, options: Iterable[str] = ()
) -> OnlineWorldModel:
    """Make a new model like the one that the agent of a run started with.

    Parameters
    ----------
    run
        Folder of the run.
    agent
        Name of an agent whose model is audited instead, such as ``oa`` on the transitions of a
        run of ``random``.
    options
        Settings that override the agent's, as words of the command line.
    """
    config = RunConfig.read(Path(run) / CONFIG)
    load_plugins()
    require_imported(config.imports, str(run))
    if agent is not None and agent != config.agent:
        config = dataclasses.replace(config, agent=agent, options={}, resolved=None)
    config = checked(
        dataclasses.replace(config, options=config.agent_options, resolved=None), options
    )
    environments, made, _ = make(config)
    with closing(environments):
        model = getattr(made, "model", None)
    if not isinstance(model, OnlineWorldModel):
        raise InvalidInputError(
            f"agent {config.agent!r} has no online world model; its transitions can be audited "
            "with the model of another one: --agent oa"
        )
    return model


class EncodedStream:
    """Features ``phi(x_t)`` and targets ``y_t`` of a stream, of the cells that it touches.

    Cells that no input activates have zero rows in ``A``, ``B`` and ``W`` of every model here:
    leaving them out changes nothing but the size of the matrices.

    Parameters
    ----------
    model
        Its encoding is used. Inputs without bounds get their scale from the first ``warm_up``
        transitions now, before anything is learned: the theorem's features never change.
    stream
        The transitions.
    order
        The order in which to take them ``[T]``, if not their own. Memory states are not
        recomputed.
    """

    def __init__(
        self, model: OnlineWorldModel, stream: TransitionStream, order: Indices | None = None
    ) -> None:
        if model.steps or model.pending:
            raise InvalidInputError(
                f"the model has learned {model.steps} transitions; an audit starts with a new one"
            )
        memory = stream.memory_states(model.memory)
        order = np.arange(stream.steps) if order is None else order
        self.observations: Doubles = stream.observations[order].astype(np.float64)
        self.actions: Doubles = stream.actions[order].astype(np.float64)
        self.next_observations: Doubles = stream.next_observations[order].astype(np.float64)
        self.memory: Doubles = memory[order].astype(np.float64)
        self.targets: Doubles = self.next_observations - self.observations
        if model.warming_up:
            part = slice(0, model.config.warm_up)
            model.inputs.scaling.freeze(
                model.inputs.raw(self.observations[part], self.actions[part], self.memory[part])
            )
        self.steps, self.outputs = self.targets.shape
        self.active = model.encoding.active
        self.cells: Indices = np.empty((self.steps, self.active), np.int64)
        self.values: FloatArray = np.empty((self.steps, self.active), model.dtype)
        for first in range(0, self.steps, ENCODED_AT_ONCE):
            part = slice(first, first + ENCODED_AT_ONCE)
            self.cells[part], self.values[part] = model.encode(
                self.observations[part], self.actions[part], self.memory[part]
            )
        self.used: Indices = np.unique(self.cells)
        """Cells that the stream touches ``[V]``, in increasing order."""
        self._row_of = np.zeros(model.encoding.cells, np.int64)
        self._row_of[self.used] = np.arange(len(self.used))

    def rows(self, step: int) -> Indices:
        """Rows of the active cells ``s`` of transition `step` (from 0)."""
        rows: Indices = self._row_of[self.cells[step]]
        return rows

    def dense(self, steps: slice | npt.NDArray[Any]) -> Doubles:
        """Features ``[n, V]`` of some transitions in float64."""
        rows = self._row_of[self.cells[steps]]
        out = np.zeros((len(rows), len(self.used)))
        np.put_along_axis(out, rows, self.values[steps].astype(np.float64), axis=1)
        return out


@dataclass(frozen=True)
class AuditConfig:
    """How much of a stream is measured, and when."""

    exact: bool | None = None
    """Whether to follow the exact leader at every step; None decides by what it would cost."""
    points: int | None = None
    """Times at which hindsight, gap and assumptions are computed; None takes 30, or 8 if there are
    many cells."""
    block: int = 512
    """Steps between two factorisations."""
    probes: int = 16
    """Inputs of the stream on which assumption 1 is tried at each of those times."""
    blocks: int = 4
    """Active blocks on which ``r_M`` is tried at each of those times."""
    shuffle: bool = False
    """Take the transitions in random order: the regret that is left is not due to their order."""
    seed: int = 0
    """Chooses probes, blocks and order."""

    def __post_init__(self) -> None:
        for name in ("points", "block", "probes", "blocks"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)


def audit_times(steps: int, count: int) -> list[int]:
    """Choose times up to `steps`: a third of them early and ever rarer, the others even.

    Growth is judged by what comes after the first tenth, so most times lie there.
    """
    early = max(count // 3, 1)
    first = np.geomspace(min(8, steps), max(steps / 10, 1), early, endpoint=False)
    later = np.linspace(max(steps / 10, 1), steps, max(count - early, 1))
    both: Indices = np.unique(np.round([*first, *later, steps]).astype(np.int64))
    return [int(time) for time in both if time <= steps]


def spans(times: list[int], block: int) -> list[tuple[int, int]]:
    """Cut the steps up to the last of `times` at all of them, into pieces of at most `block`."""
    borders = [0]
    for end in times:
        borders += [*range(borders[-1] + block, end, block), end]
    return list(pairwise(borders))
