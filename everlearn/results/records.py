"""Runs as a report sees them: what they say, how far they came, and what is missing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.results import metrics
from everlearn.results.read import Columns, find_runs, read_run
from everlearn.results.summary import (
    Evaluations,
    Summary,
    evaluations,
    periods,
    summary_of,
)
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.metrics_file import CONFIG, ENVIRONMENT, METRICS, SINGLE
from everlearn.support.errors import EverlearnError, InvalidInputError

METRIC_NAMES = (
    "average_performance",
    "regret_eval",
    "regret_online",
    "forgetting",
    "forward_transfer",
)
"""Numbers of a run that tables show, as `Summary` calls them."""


@dataclass(frozen=True, eq=False)
class RunRecord:
    """A run that was read.

    Attributes
    ----------
    folder, config, columns
        Where it is, its config, its lines as columns by kind.
    evaluations, summary
        Its success rates as a table, and its numbers.
    environment
        Versions and machine, as far as its folder says.
    origin
        Name of the set that it belongs to, where sets are compared.
    """

    folder: Path
    config: RunConfig
    columns: dict[str, Columns]
    evaluations: Evaluations
    summary: Summary
    environment: dict[str, Any]
    origin: str = ""

    @property
    def episodes(self) -> int:
        """Training episodes that it has."""
        return len(self.columns["episode"].get("episode", ()))

    @property
    def missing_evaluations(self) -> int:
        """Evaluations that were due by its last episode and are not there."""
        have = set(self.evaluations.episodes.astype(int))
        due = (w for w in range(1, self.episodes + 1) if self._due(w))
        return sum(w not in have for w in due)

    @property
    def finished(self) -> bool:
        """Whether all its episodes are there, and the evaluation after the last if one is due."""
        last = self.config.episodes
        if self.episodes < last:
            return False
        return not self._due(last) or last in self.evaluations.episodes

    @property
    def state(self) -> str:
        """How far it came, in words."""
        words = []
        if self.episodes < self.config.episodes:
            words.append(f"unfinished: {self.episodes} of {self.config.episodes} episodes")
        if self.missing_evaluations:
            missing = self.missing_evaluations
            words.append(f"{missing} {'evaluation' if missing == 1 else 'evaluations'} missing")
        return "; ".join(words) or "finished"

    @property
    def training_seconds(self) -> float:
        """Time spent in training episodes; NaN if an episode does not say."""
        return self._seconds("episode")

    @property
    def evaluation_seconds(self) -> float:
        """Time spent in evaluations; NaN if one does not say, as in older runs."""
        return self._seconds("eval")

    @property
    def steps(self) -> int:
        """Environment steps of its training."""
        return int(np.sum(self.columns["episode"].get("length", 0)))

    def scores(self, metric: str) -> dict[str, float]:
        """Scores of a metric of `METRIC_NAMES` by task; their mean is the run's number.

        A task that comes again in the sequence has one for every period where the metric is
        about periods. Empty where the run does not say.
        """
        found = _SCORES[metric](self)
        return {} if any(math.isnan(value) for value in found.values()) else found

    def _seconds(self, kind: str) -> float:
        seconds = self.columns[kind].get("seconds")
        return math.nan if seconds is None else float(np.sum(seconds))

    def _due(self, done: int) -> bool:
        return schedule.evaluation_episodes(self.config, done) > 0


def read_records(
    places: Iterable[str | Path], origin: str = ""
) -> tuple[list[RunRecord], list[str]]:
    """Read the runs at or below `places`; `origin` names their set.

    Returns
    -------
    records, left_out
        The runs, and a line about each that could not be read.

    Raises
    ------
    InvalidInputError
        A place does not exist or has no run, or none of them can be read.
    """
    folders: dict[Path, None] = {}
    for place in map(Path, places):
        if not place.exists():
            raise InvalidInputError(f"there is no {place}; give folders of runs, or above them")
        found = [folder for folder in find_runs(place) if folder.parent.name != SINGLE]
        if not found:
            raise InvalidInputError(
                f"{place} holds no run: no folder at or below it has {CONFIG} and {METRICS}; give "
                "the folder of a run or of a sweep"
            )
        folders |= dict.fromkeys(found)
    records, left_out = [], []
    for folder in folders:
        try:
            records.append(read_record(folder, origin))
        except EverlearnError as error:  # one unreadable run must not hide the others
            left_out.append(f"{folder}: {error}")
    if not records:
        reasons = "; ".join(left_out[:3]) or "no folder was given"
        raise InvalidInputError(f"there is no run to report on: {reasons}")
    return records, left_out


def read_record(folder: Path, origin: str = "") -> RunRecord:
    """Read one run of the set `origin`."""
    config, columns = RunConfig.read(folder / CONFIG), read_run(folder)
    return RunRecord(
        folder,
        config,
        columns,
        evaluations(config, columns["eval"]),
        summary_of(folder, config, columns),
        _environment(folder / ENVIRONMENT),
        origin,
    )


def _environment(file: Path) -> dict[str, Any]:
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return {}  # nothing is computed from it, and the page says that it is not known
    return found if isinstance(found, dict) else {}


def _final_performance(run: RunRecord) -> dict[str, float]:
    table = run.evaluations
    if not len(table.episodes):
        return {}
    return dict(zip(table.tasks, map(float, table.p[-1]), strict=True))


def _online_regret(run: RunRecord) -> dict[str, float]:
    success = run.columns["episode"].get("success", np.zeros(0, bool))
    length = run.config.episodes_per_task
    return {
        name: metrics.regret_online(success[place * length : (place + 1) * length])
        for place, name in enumerate(entry_names(run.config.tasks))
    }


def _evaluated_regret(run: RunRecord) -> dict[str, float]:
    table, steps = run.evaluations, run.columns["episode"].get("step", np.zeros(0))
    parts = periods(run.config, steps, by_steps=False)
    return {
        name: metrics.regret_eval(table.episodes, table.p, [part])
        for name, part in zip(entry_names(run.config.tasks), parts, strict=False)
    }


def _forgetting(run: RunRecord) -> dict[str, float]:
    table, steps = run.evaluations, run.columns["episode"].get("step", np.zeros(0))
    parts = periods(run.config, steps, by_steps=False)
    found = metrics.forgetting_by_task(table.episodes, table.p, parts)
    return {table.tasks[column]: value for column, value in found.items()}


_SCORES = {
    "average_performance": _final_performance,
    "regret_online": _online_regret,
    "regret_eval": _evaluated_regret,
    "forgetting": _forgetting,
    "forward_transfer": lambda run: dict(run.summary.transfer_by_task),
}


def entry_names(tasks: Iterable[str]) -> list[str]:
    """Names of the entries of a sequence: a task that comes again is told by its number."""
    seen: dict[str, int] = {}
    names = []
    for task in tasks:
        seen[task] = seen.get(task, 0) + 1
        names.append(task if seen[task] == 1 else f"{task} ({seen[task]})")
    return names
