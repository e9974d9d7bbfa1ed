"""Run folders as data: where they are, what their lines say, and how far each run came.

Reads files and nothing else: an agent, a world or a task is a name here, so runs of any of them
can be read on a machine that has none of them installed.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from everlearn.runs.config import RunConfig, evaluation_episodes, seen_tasks
from everlearn.runs.metrics_file import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    KINDS,
    MAX_NUMBER,
    METRICS,
    SINGLE,
    STRUCTURE,
    VARIANTS,
    Line,
    is_word,
    open_lines,
    snapshot_name,
    snapshot_names,
)
from everlearn.support.errors import DamagedFileError, EverlearnError, InvalidInputError
from everlearn.support.files import check_folder, exists, read_record, reading
from everlearn.support.terminal import printable

if TYPE_CHECKING:
    from everlearn.support.structure import Structure

Floats = npt.NDArray[np.float64]
Columns = dict[str, npt.NDArray[Any]]
"""Lines of one kind as arrays by the names of their values; NaN where a line lacks a number."""

MAX_COLUMNS, MAX_CELLS, MAX_TEXT = 100, 10**7, 1 << 26
"""Most sorts of values in lines of one kind, cells of a table, and characters of a column."""


@dataclass(frozen=True, eq=False)
class Evaluations:
    """A run's evaluations as a table.

    Attributes
    ----------
    tasks
        Names of the columns of `values`, in the order of learning.
    episodes, steps
        When, ``[W]``, in both units of time.
    values
        Success rates, or mean returns where the world measures these, ``[W, T]``; NaN where a task
        was not evaluated.
    seen
        Whether the task had been trained by then, ``[W, T]``.
    """

    tasks: tuple[str, ...]
    episodes: Floats
    steps: Floats
    values: Floats
    seen: npt.NDArray[np.bool_]

    @property
    def values_of_seen(self) -> Floats:
        """The values with NaN also where a task's training was still to begin."""
        return np.where(self.seen, self.values, np.nan)


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run that was read.

    Attributes
    ----------
    folder, config
        Where it is, and what it is.
    columns
        Its lines by kind: ``episode``, ``eval`` and ``model``.
    evaluations
        The ``eval`` lines as a table.
    alone
        Runs of single tasks that lie below it, by task; forward transfer compares with them.
    environment
        Versions and machine, as far as its folder says.
    variants
        Other ways to evaluate the agent at the end, by name: success rates or returns by task.
    origin
        Name of the set that it belongs to, where sets are compared.
    structure
        What its agent found about its world; None where the run does not say.
    """

    folder: Path
    config: RunConfig
    columns: Mapping[str, Columns]
    evaluations: Evaluations
    alone: Mapping[str, RunRecord]
    environment: Mapping[str, Any]
    variants: Mapping[str, Mapping[str, float]]
    origin: str = ""
    structure: Structure | None = None

    def episode_column(self, name: str) -> npt.NDArray[Any]:
        """One value of every training episode, in order; empty before the first episode."""
        return self.columns["episode"].get(name, np.zeros(0))

    @property
    def episodes(self) -> int:
        """Training episodes that it has."""
        return len(self.episode_column("episode"))

    @property
    def steps(self) -> int:
        """Environment steps of its training."""
        return int(np.sum(self.episode_column("length")))

    @property
    def missing_evaluations(self) -> int:
        """Evaluations that were due by its last episode and are not there.

        Not that before the first episode, which older runs do not have.
        """
        present = set(self.evaluations.episodes.astype(int))
        return sum(done not in present for done in range(1, self.episodes + 1) if self._due(done))

    @property
    def finished(self) -> bool:
        """Whether all its episodes are there, and the evaluation after the last if one is due."""
        last = self.config.episodes
        if self.episodes < last:
            return False
        return not self._due(last) or last in self.evaluations.episodes

    @property
    def evaluated_at_start(self) -> bool:
        """Whether it was evaluated before training, so that evaluated regret starts measured."""
        return 0 in self.evaluations.episodes

    @property
    def state(self) -> str:
        """Whether the run is finished or, if not, after how many episodes it stands."""
        words = []
        if self.episodes < self.config.episodes:
            words.append(f"unfinished: {self.episodes} of {self.config.episodes} episodes")
        if missing := self.missing_evaluations:
            words.append(f"{missing} {'evaluation' if missing == 1 else 'evaluations'} missing")
        return "; ".join(words) or "finished"

    @property
    def processor(self) -> str:
        """Names of the processors that the run used, first that of its start."""
        resumed = self.environment.get("resumed_with")
        stored = [self.environment, *(resumed if isinstance(resumed, list) else [])]
        names = [one.get("processor") for one in stored if isinstance(one, dict)]
        known = dict.fromkeys(name for name in names if isinstance(name, str) and name)
        return printable(", ".join(known))[:80] or "processor not stored"

    @property
    def training_seconds(self) -> float:
        """Time spent in training episodes; NaN if an episode does not say."""
        return self._seconds("episode")

    @property
    def evaluation_seconds(self) -> float:
        """Time spent in evaluations; NaN if one does not say, as in older runs."""
        return self._seconds("eval")

    def _seconds(self, kind: str) -> float:
        seconds = self.columns[kind].get("seconds")
        return math.nan if seconds is None else float(np.sum(seconds))

    def _due(self, done: int) -> bool:
        return evaluation_episodes(self.config, done) > 0


def find_runs(root: str | Path) -> list[Path]:
    """Folders of runs at or below `root`, in order; links below it are not followed."""
    found, waiting = [], [Path(root)]
    while waiting:
        folder = waiting.pop()
        try:
            with os.scandir(folder) as entries:
                below = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        except OSError:  # gone, no folder, or one that this user may not look into
            continue
        if {CONFIG, METRICS} <= below.keys():
            found.append(folder)
        waiting += [folder / name for name, is_folder in below.items() if is_folder]
    return sorted(found)


def is_last(snapshots: list[str], config: RunConfig) -> bool:
    """Whether the newest of a run's snapshots, by their names, is the one at its end."""
    return bool(snapshots) and snapshots[-1] == snapshot_name(config.episodes, evaluated=True)


def run_state(run: Path, config: RunConfig) -> str:
    """Say whether a run is running, finished or stopped, and where."""
    from everlearn.support.lock import is_locked  # lists ask, reports do not

    if is_locked(run):
        return "running"
    snapshots = snapshot_names(run / CHECKPOINTS)
    if is_last(snapshots, config):
        return "finished"
    done = int(snapshots[-1].partition("-")[0]) if snapshots else 0
    return f"stopped after episode {done} of {config.episodes}"


def read_runs(paths: Iterable[str | Path], origin: str = "") -> tuple[list[RunRecord], list[str]]:
    """Read the runs at or below some folders; `origin` names their set.

    Returns
    -------
    runs, left_out
        The runs, and a line about each that could not be read.

    Raises
    ------
    InvalidInputError
        A folder does not exist or has no run, or none of the runs can be read.
    """
    folders: dict[Path, None] = {}
    for root in map(Path, paths):
        if not root.exists():
            raise InvalidInputError(f"there is no {root}; give folders of runs, or above them")
        below = [folder for folder in find_runs(root) if folder.parent.name != SINGLE]
        if not below:
            raise InvalidInputError(
                f"{root} holds no run: no folder at or below it has {CONFIG} and {METRICS}; give "
                "the folder of a run or of a sweep"
            )
        folders |= dict.fromkeys(below)
    runs, left_out = [], []
    for folder in folders:
        try:
            with reading(folder, "run"):
                runs.append(read_run(folder, origin))
        except (EverlearnError, OSError) as error:  # one unreadable run must not hide the others
            left_out.append(f"{folder}: {error}")
    if not runs:
        reasons = "; ".join(left_out[:3]) or "no folder was given"
        raise InvalidInputError(f"there is no run to report on: {reasons}")
    return runs, left_out


def read_run(run: str | Path, origin: str = "") -> RunRecord:
    """Read one run of the set `origin`, and the runs of its tasks alone if there are any."""
    folder = Path(run)
    columns = read_columns(folder)
    config = RunConfig.read(folder / CONFIG)
    if (columns["episode"].get("length", np.ones(1)) < 1).any():
        raise DamagedFileError(f"{folder / METRICS} has an episode of no steps; restore it")
    return RunRecord(
        folder,
        config,
        columns,
        evaluation_table(config, columns["eval"]),
        {
            task: read_run(folder / SINGLE / task)
            for task in dict.fromkeys(config.tasks)
            if _has_run_alone(folder, task)
        },
        _environment(folder / ENVIRONMENT),
        _variants(folder / VARIANTS, config),
        origin,
        _structure(folder / STRUCTURE),
    )


def read_columns(run: str | Path) -> dict[str, Columns]:
    """Columns of a run's metrics by kind of line."""
    file = Path(run) / METRICS
    if not exists(file):
        raise InvalidInputError(f"{run} holds no run: it has no {METRICS}; give a run's folder")
    by_kind: dict[str, _Table] = {kind: _Table() for kind in KINDS}
    with open_lines(file) as lines:
        for line, _ in lines:
            by_kind[line["kind"]].add(line)
    return {kind: table.columns() for kind, table in by_kind.items()}


def evaluation_table(config: RunConfig, columns: Columns) -> Evaluations:
    """Make a table of a run's ``eval`` columns."""
    tasks = tuple(dict.fromkeys(config.tasks))
    if not columns:
        times, values = np.zeros(0), np.zeros((0, len(tasks)))
        return Evaluations(tasks, times, times, values, values.astype(bool))
    measured = "success_rate" if config.measures_success else "mean_return"
    if measured not in columns:
        raise DamagedFileError(
            f"the evaluations of the run have no {measured}, which its world measures; use the "
            "config that they were written with"
        )
    column_of = {task: column for column, task in enumerate(tasks)}
    if unknown := set(columns["task"]) - set(column_of):
        task = str(sorted(unknown)[0])
        raise DamagedFileError(
            f"the metrics have evaluations of {task!r}, which is no task of the run; use the "
            "config that they were written with"
        )
    episodes, rows = np.unique(columns["episode"], return_inverse=True)
    if len(episodes) * len(tasks) > MAX_CELLS:
        raise DamagedFileError(
            f"the run has {len(episodes)} evaluations of {len(tasks)} tasks, more than a table of "
            f"{MAX_CELLS:,} cells can hold"
        )
    steps, values = np.zeros(len(episodes)), np.full((len(episodes), len(tasks)), np.nan)
    steps[rows] = columns["step"]
    if (np.diff(steps) < 0).any():
        raise DamagedFileError("the evaluations of the run are not in the order of its steps")
    values[rows, [column_of[task] for task in columns["task"]]] = columns[measured]
    counts = [len(seen_tasks(config, int(done))) for done in episodes]
    seen = np.arange(len(tasks)) < np.array(counts)[:, None]
    return Evaluations(tasks, episodes.astype(np.float64), steps, values, seen)


class _Table:
    """Lines of one kind, taken apart as they come: columns need a fraction of their memory."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self._count = 0

    def add(self, line: Line) -> None:
        for name, value in line.items():
            values = self._values.setdefault(name, [])
            if len(values) < self._count:  # the lines before lack it
                values.extend(itertools.repeat(None, self._count - len(values)))
            values.append(value)
        self._count += 1
        columns = len(self._values)
        if columns > MAX_COLUMNS or columns * self._count > MAX_CELLS:
            raise DamagedFileError(
                f"the metrics have {self._count} lines with {columns} sorts of values, more than "
                f"the {MAX_COLUMNS} sorts or {MAX_CELLS:,} values that can be read; restore them"
            )

    def columns(self) -> Columns:
        self._values.pop("kind", None)
        columns = {}
        for name in list(self._values):
            values = self._values.pop(name)
            values.extend(itertools.repeat(None, self._count - len(values)))
            columns[name] = _column(values)
        return columns


def _column(values: list[Any]) -> npt.NDArray[Any]:
    types = set(map(type, values))
    if types == {str}:
        longest = max(map(len, values))
        if longest * len(values) > MAX_TEXT:  # a table of text has the longest in every row
            raise DamagedFileError(
                f"the metrics have a name of {longest} characters in {len(values)} lines, more "
                "than can be read; restore them"
            )
        return np.array(values)
    if types in ({bool}, {int}):
        return np.array(values, dtype=bool if types == {bool} else np.int64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _environment(file: Path) -> dict[str, Any]:
    try:
        return read_record(file)
    except OSError:  # not there, or damaged
        return {}  # nothing is computed from it, and the page says that it is not known


def _variants(file: Path, config: RunConfig) -> dict[str, dict[str, float]]:
    """Read what other ways to evaluate the agent gave; nothing where they were not tried."""
    if not exists(file):
        return {}
    measured = "success_rate" if config.measures_success else "mean_return"
    lowest, highest = (0.0, 1.0) if config.measures_success else (-MAX_NUMBER, MAX_NUMBER)
    tasks = dict.fromkeys(config.tasks)
    try:
        found = {
            name: {task: float(by_task[task][measured]) for task in tasks}
            for name, by_task in read_record(file)["variants"].items()
        }
        right = all(map(is_word, found)) and len(found) <= MAX_COLUMNS
        values = [value for by_task in found.values() for value in by_task.values()]
        right = right and all(lowest <= value <= highest for value in values)
    except (AttributeError, KeyError, TypeError, ValueError):
        right = False
    if not right:
        raise DamagedFileError(
            f"{file} does not have the {measured} of every task of the run; move it away, or "
            "restore it from a copy"
        )
    return found


def _structure(file: Path) -> Structure | None:
    """Read what the agent found about its world; None where the run does not say."""
    if not exists(file):
        return None
    from everlearn.support.structure import Structure  # few runs have one

    with reading(file, "structure of a world"):
        try:
            return Structure.from_json(read_record(file))
        except InvalidInputError as error:
            raise DamagedFileError(
                f"{file}: {error}; move it away, or restore it from a copy"
            ) from error


def _has_run_alone(folder: Path, task: str) -> bool:
    """Whether the run of one task alone lies below a run; refuses links on the way to it."""
    below = folder / SINGLE
    for part in ("", *task.split("/")):  # some names have several parts
        below = below / part
        check_folder(below)
    return exists(below / METRICS)
