"""Runs in groups: what was asked (a study), and who answered (its methods).

Runs of one protocol form a study. In it, runs of one agent with the same settings form a method
and differ by their seed alone. Which settings count is not decided here: those in which the
methods of an agent differ tell them apart, and the agent without any option has none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlearn.agents import AGENTS
from everlearn.results.records import RunRecord, entry_names
from everlearn.results.statistics import NOTHING, Estimate, Resampling, estimate
from everlearn.support.plotting import LineStyle, line_style

LONGEST_LABEL = 60
"""Characters; what goes beyond is in the list of runs."""

TELLING_OPTIONS = ("task_identity", "multi_head")
"""Options that let networks depend on the task's name; off unless asked for."""

_TOLD = {
    "scripted": ("boundaries", "name"),
    **{f"{family}-packnet": ("boundaries", "name") for family in ("mlp", "sac")},
    **{
        f"{family}-{strategy}": ("boundaries",)
        for family in ("mlp", "mlp-paper", "sac")
        for strategy in ("finetune", "ewc", "si")
    },
}


def told_of_tasks(agent: str, options: Mapping[str, Any]) -> tuple[str, ...]:
    """Return what an agent is told of tasks, for runs that do not store it."""
    telling = (name for name in TELLING_OPTIONS if options.get(name))
    return (*_TOLD.get(agent, ()), *telling)


@dataclass(frozen=True)
class Protocol:
    """What all runs of a study share: the sequence of tasks and the budget."""

    tasks: tuple[str, ...]
    episodes_per_task: int
    max_steps: int
    reset_noise: float

    @property
    def episodes(self) -> int:
        """Training episodes of the whole sequence."""
        return len(self.tasks) * self.episodes_per_task

    @property
    def names(self) -> tuple[str, ...]:
        """Each task once, in the order of learning."""
        return tuple(dict.fromkeys(self.tasks))

    def periods(self, task: str) -> list[tuple[int, int]]:
        """First and last episode of every period in which a task is learned."""
        length = self.episodes_per_task
        return [
            (place * length, (place + 1) * length)
            for place, name in enumerate(self.tasks)
            if name == task
        ]

    def __str__(self) -> str:
        tasks = "1 task" if len(self.tasks) == 1 else f"{len(self.tasks)} tasks"
        words = f"{tasks}, {self.episodes_per_task} episodes each of up to {self.max_steps} steps"
        return words + (f", resets spread by {self.reset_noise:g} m" if self.reset_noise else "")


@dataclass(frozen=True, eq=False)
class Method:
    """An agent with its settings, and its runs.

    Attributes
    ----------
    label
        What figures and tables call it; unique in its study.
    agent
        Registered name.
    settings
        All its settings where the runs say them, those given otherwise.
    varied
        The settings that tell it from other methods of the same agent.
    runs
        One a seed, in the order of seeds.
    """

    label: str
    agent: str
    settings: Mapping[str, Any]
    varied: Mapping[str, Any]
    runs: tuple[RunRecord, ...]

    @property
    def complete(self) -> tuple[RunRecord, ...]:
        """The runs that came to their end."""
        return tuple(run for run in self.runs if run.finished)

    @property
    def seeds(self) -> str:
        """How many seeds, in words; runs that did not come to their end are said to."""
        done = len(self.complete)
        words = "1 seed" if len(self.runs) == 1 else f"{len(self.runs)} seeds"
        return words if done == len(self.runs) else f"{words}, {done} finished"

    def estimate(self, metric: str, resampling: Resampling | None = None) -> Estimate:
        """Estimate a metric of `runs.METRIC_NAMES` from the finished runs that say it."""
        rows = self.score_rows(metric)
        return estimate(np.array(rows), resampling) if rows else NOTHING

    def score_rows(self, metric: str) -> list[list[float]]:
        """Scores of the finished runs that say a metric, ``[runs][tasks]``."""
        tables = [run.scores(metric) for run in self.complete]
        names = max((list(table) for table in tables), key=len, default=[])
        if not names:
            return []
        return [[table[name] for name in names] for table in tables if set(table) == set(names)]


@dataclass(frozen=True, eq=False)
class Study:
    """Methods that answer the same question."""

    protocol: Protocol
    methods: tuple[Method, ...]
    notes: tuple[str, ...]

    @property
    def entries(self) -> list[str]:
        """Names of the entries of the sequence."""
        return entry_names(self.protocol.tasks)

    @property
    def main(self) -> tuple[Method, ...]:
        """The agents as they are, without variations of their settings; all if there are none."""
        return tuple(method for method in self.methods if not method.varied) or self.methods

    @property
    def styles(self) -> dict[str, LineStyle]:
        """How each method is drawn, by its label."""
        main = [method.label for method in self.main]
        others = [method.label for method in self.methods if method.label not in main]
        return {label: line_style(place) for place, label in enumerate([*main, *others])}


def studies_of(records: Iterable[RunRecord]) -> list[Study]:
    """Sort runs into studies, the largest first, and each into methods."""
    by_protocol: dict[Protocol, list[RunRecord]] = {}
    for record in records:
        by_protocol.setdefault(_protocol(record), []).append(record)
    studies = [_study(protocol, runs) for protocol, runs in by_protocol.items()]
    return sorted(studies, key=lambda study: -sum(len(method.runs) for method in study.methods))


def slug(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-.") or "unnamed"


def plain(value: Any) -> str:
    """Return the value of a setting as people write it."""
    return value if isinstance(value, str) else json.dumps(value)


def _protocol(record: RunRecord) -> Protocol:
    config = record.config
    return Protocol(config.tasks, config.episodes_per_task, config.max_steps, config.reset_noise)


@dataclass(frozen=True)
class _Kind:
    """What the runs of a method share.

    Attributes
    ----------
    origin
        Set of runs that they come from, where sets are compared.
    agent
        Registered name.
    older
        Whether they do not store all settings; what the defaults were is then not known.
    settings
        As JSON, to compare.
    """

    origin: str
    agent: str
    older: bool
    settings: str

    def sibling(self, other: _Kind) -> bool:
        """Whether the other one is the same agent with other settings."""
        return (self.origin, self.agent, self.older) == (other.origin, other.agent, other.older)


def _study(protocol: Protocol, records: list[RunRecord]) -> Study:
    groups: dict[_Kind, list[RunRecord]] = {}
    for record in records:
        config = record.config
        settings = json.dumps(config.agent_options, sort_keys=True)
        kind = _Kind(record.origin, config.agent, config.resolved is None, settings)
        groups.setdefault(kind, []).append(record)
    notes: list[str] = []
    methods = []
    for kind, runs in groups.items():
        siblings = [others for other, others in groups.items() if kind.sibling(other)]
        varied = _varied(runs, siblings)
        # Older runs are a method of their own where there are others: nobody knows if they fit.
        unsure = kind.older and any(
            (other.agent, other.older) == (kind.agent, False) for other in groups
        )
        label = _label(kind, varied, unsure)
        if kind.older:
            notes.append(
                f"{label}: its runs store the options given but not the defaults of their time, "
                "which may differ from run to run"
            )
        kept = _one_a_seed(label, runs, notes)
        methods.append(Method(label, kind.agent, runs[0].config.agent_options, varied, kept))
    order = {name: place for place, name in enumerate(AGENTS)}
    methods.sort(key=lambda method: (order[method.agent], _sortable(method.varied), method.label))
    return Study(protocol, tuple(_unique(methods)), tuple(notes))


def _plainest(runs: list[RunRecord]) -> bool:
    """Whether one of the runs was started with no options: the agent as it is."""
    return any(not run.config.options for run in runs)


def _varied(runs: list[RunRecord], siblings: list[list[RunRecord]]) -> dict[str, Any]:
    """Return the settings that tell a method from its siblings.

    Those are compared with the agent as it is, which has no such settings itself, or with each
    other where nobody ran that. What lets networks know the task is always named.
    """
    settings = runs[0].config.agent_options
    if _plainest(runs):
        return {}
    main = [others for others in siblings if _plainest(others)]
    tables = [others[0].config.agent_options for others in main or siblings]
    names = dict.fromkeys(name for table in [settings, *tables] for name in table)
    return {
        name: settings.get(name)
        for name in names
        if (name in TELLING_OPTIONS and settings.get(name))
        or any(json.dumps(table.get(name)) != json.dumps(settings.get(name)) for table in tables)
    }


def _label(kind: _Kind, varied: Mapping[str, Any], unsure: bool) -> str:
    words = [kind.agent, *(f"{name}={plain(value)}" for name, value in varied.items())]
    text = " ".join(words)
    if len(text) > LONGEST_LABEL:
        text = f"{text[: LONGEST_LABEL - 1]}…"
    if kind.origin:
        text = f"{kind.origin}: {text}"
    return f"{text} (settings not stored)" if unsure else text


def _one_a_seed(label: str, runs: list[RunRecord], notes: list[str]) -> tuple[RunRecord, ...]:
    """Keep one run a seed: the same run twice would make a method look surer than it is."""
    best: dict[int, RunRecord] = {}
    for run in sorted(runs, key=lambda run: (-run.episodes, str(run.folder))):
        kept = best.setdefault(run.config.seed, run)
        if kept is not run:
            notes.append(
                f"{label}, seed {run.config.seed}: {run.folder} has the settings and the seed of "
                f"{kept.folder} and is left out"
            )
    return tuple(best[seed] for seed in sorted(best))


def _sortable(varied: Mapping[str, Any]) -> list[tuple[bool, float, str]]:
    return [
        (False, float(value), "")
        if isinstance(value, (int, float)) and not isinstance(value, bool)
        else (True, 0.0, plain(value))
        for value in varied.values()
    ]


def _unique(methods: list[Method]) -> list[Method]:
    """Give a number to labels that are the same once they are cut."""
    seen: dict[str, int] = {}
    found = []
    for method in methods:
        count = seen[method.label] = seen.get(method.label, 0) + 1
        label = method.label if count == 1 else f"{method.label} #{count}"
        found.append(Method(label, method.agent, method.settings, method.varied, method.runs))
    return found
