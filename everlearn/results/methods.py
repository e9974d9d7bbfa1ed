"""Runs in groups: what was asked (a study), and who answered (its methods).

Runs of one protocol form a study. In it, runs of one agent with the same settings form a method
and differ by their seed alone. Which settings count is not decided here: those in which the
methods of an agent differ tell them apart, and the agent without any option has none. Agents are
names: what they are told and given stands in the configs of their runs.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from everlearn.results.read import RunRecord
from everlearn.results.statistics import NOTHING, Estimate, Resampling, estimate
from everlearn.results.summary import RETURN_METRICS, SUCCESS_METRICS, Metric, scores_of
from everlearn.support.plotting import LineStyle, line_style
from everlearn.support.terminal import printable

LONGEST_LABEL = 60
"""Characters; what goes beyond is in the list of runs."""

FAMILIES = ("oa", "mlp-paper", "mlp", "sac")
STRATEGIES = ("finetune", "ewc", "si", "packnet", "coreset", "perfect-memory")
"""Order of agents in tables; agents of other names follow, then those that do not learn."""

NOT_LEARNING = ("random", "scripted")


@dataclass(frozen=True)
class Protocol:
    """What all runs of a study share: world, measure, sequence of tasks and budget."""

    world: str
    measure: Literal["success", "return"]
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

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Metrics of the tables, by what the world measures: success or returns."""
        return SUCCESS_METRICS if self.measure == "success" else RETURN_METRICS

    @property
    def performance(self) -> Metric:
        """The metric that says how good a method is in the end."""
        return self.metrics[0]

    def periods(self, task: str) -> list[tuple[int, int]]:
        """First and last episode of every period in which a task is learned."""
        length = self.episodes_per_task
        return [
            (entry * length, (entry + 1) * length)
            for entry, name in enumerate(self.tasks)
            if name == task
        ]

    def __str__(self) -> str:
        one = len(self.tasks) == 1
        words = "1 task, " if one else f"{len(self.tasks)} tasks, "
        words += f"{self.episodes_per_task} episodes{'' if one else ' each'}"
        words += f" of up to {self.max_steps} steps"
        if self.reset_noise:
            words += f", resets spread by {self.reset_noise:g}"
        return words if self.world == "continual-bench" else f"{self.world}: {words}"


@dataclass(frozen=True, eq=False)
class Method:
    """An agent with its settings, and its runs.

    Attributes
    ----------
    label
        What figures and tables call it; unique in its study.
    agent
        Name of the agent.
    settings
        All its settings where the runs say them, those given otherwise, by dotted path.
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

    @property
    def told(self) -> tuple[str, ...] | None:
        """What its runs say that the agent is told of tasks; None if none of them says it."""
        return self._said("told")

    @property
    def given(self) -> tuple[str, ...] | None:
        """What its runs say that the agent is given beside observations and rewards."""
        return self._said("given")

    def _said(self, field: str) -> tuple[str, ...] | None:
        said = [getattr(run.config, field) for run in self.runs]
        known = [words for words in said if words is not None]
        return tuple(dict.fromkeys(word for words in known for word in words)) if known else None

    def path_of(self, setting: str) -> str | None:
        """Dotted path of the one setting whose last part is `setting`; None if there is no one."""
        paths = [path for path in self.settings if path.rpartition(".")[2] == setting]
        return paths[0] if len(paths) == 1 else None

    def estimate(self, metric: Metric, resampling: Resampling | None = None) -> Estimate:
        """Estimate a metric from the finished runs that say it."""
        rows = self.score_rows(metric)
        return estimate(np.array(rows), resampling) if rows else NOTHING

    def score_rows(self, metric: Metric) -> list[list[float]]:
        """Scores of the finished runs that say a metric, ``[runs][tasks]``."""
        tables = [scores_of(run, metric) for run in self.complete]
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
    def main(self) -> tuple[Method, ...]:
        """The agents as they are, without variations of their settings; all if there are none."""
        return tuple(method for method in self.methods if not method.varied) or self.methods

    @property
    def styles(self) -> dict[str, LineStyle]:
        """How each method is drawn, by its label."""
        main = [method.label for method in self.main]
        others = [method.label for method in self.methods if method.label not in main]
        return {label: line_style(number) for number, label in enumerate([*main, *others])}


def studies_of(runs: Iterable[RunRecord]) -> list[Study]:
    """Sort runs into studies, the largest first, and each into methods."""
    by_protocol: dict[Protocol, list[RunRecord]] = {}
    for run in runs:
        by_protocol.setdefault(_protocol(run), []).append(run)
    studies = [_study(protocol, members) for protocol, members in by_protocol.items()]
    return sorted(studies, key=lambda study: -sum(len(method.runs) for method in study.methods))


def slug(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9.=_-]+", "-", text).strip("-.") or "unnamed"


def plain(value: Any) -> str:
    """Return the value of a setting as people write it."""
    return value if isinstance(value, str) else json.dumps(value)


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Return the shortest endings of dotted paths that no other of them has."""
    known = list(dict.fromkeys(paths))
    short = {}
    for path in known:
        parts = path.split(".")
        endings = [".".join(parts[-count:]) for count in range(1, len(parts) + 1)]
        short[path] = next(
            (
                ending
                for ending in endings
                if sum(f".{other}".endswith(f".{ending}") for other in known) == 1
            ),
            path,
        )
    return short


def _protocol(run: RunRecord) -> Protocol:
    config = run.config
    return Protocol(
        config.world,
        "success" if config.measures_success else "return",
        config.tasks,
        config.episodes_per_task,
        config.max_steps,
        config.reset_noise,
    )


@dataclass(frozen=True)
class _Group:
    """What the runs of a method share.

    Attributes
    ----------
    origin
        Set of runs that they come from, where sets are compared.
    agent
        Name of the agent.
    older
        Whether they do not store all settings; what the defaults were is then not known.
    settings
        As JSON, to compare.
    """

    origin: str
    agent: str
    older: bool
    settings: str

    def sibling(self, other: _Group) -> bool:
        """Whether the other one is the same agent with other settings."""
        return (self.origin, self.agent, self.older) == (other.origin, other.agent, other.older)


def _study(protocol: Protocol, runs: list[RunRecord]) -> Study:
    groups: dict[_Group, list[RunRecord]] = {}
    for run in runs:
        config = run.config
        settings = json.dumps(config.agent_options, sort_keys=True)
        group = _Group(run.origin, config.agent, config.resolved is None, settings)
        groups.setdefault(group, []).append(run)
    notes: list[str] = []
    methods = []
    for group, members in groups.items():
        siblings = [others for other, others in groups.items() if group.sibling(other)]
        varied = _varied(members, siblings)
        # Older runs are a method of their own where there are others: nobody knows if they fit.
        unsure = group.older and any(
            (other.agent, other.older) == (group.agent, False) for other in groups
        )
        paths = [path for others in siblings for path in others[0].config.agent_options]
        label = _label(group, varied, short_names(paths), unsure)
        if group.older:
            notes.append(
                f"{label}: its runs store the options given but not the defaults of their time, "
                "which may differ from run to run"
            )
        kept = _one_a_seed(label, members, notes)
        methods.append(Method(label, group.agent, members[0].config.agent_options, varied, kept))
    methods.sort(key=lambda method: (_rank(method.agent), _sortable(method.varied), method.label))
    return Study(protocol, tuple(_unique(methods, notes)), tuple(notes))


def _rank(agent: str) -> tuple[int, int, str]:
    """Where an agent stands in tables."""
    if agent in NOT_LEARNING:
        return len(FAMILIES) + 1, NOT_LEARNING.index(agent), agent
    for number, family in enumerate(FAMILIES):
        strategy = agent.removeprefix(f"{family}-")
        if agent == family or (family == "oa" and agent.startswith("oa-")):
            return number, 0, agent
        if strategy in STRATEGIES:
            return number, STRATEGIES.index(strategy), agent
    return len(FAMILIES), 0, agent


def _plainest(runs: list[RunRecord]) -> bool:
    """Whether one of the runs was started with no options: the agent as it is."""
    return any(not run.config.options for run in runs)


def _varied(runs: list[RunRecord], siblings: list[list[RunRecord]]) -> dict[str, Any]:
    """Return the settings that tell a method from its siblings.

    Those are compared with the agent as it is, which has no such settings itself, or with each
    other where nobody ran that. Settings that come with the choice of another part (those of
    another planner) are left out unless someone asked for them.
    """
    settings = runs[0].config.agent_options
    if _plainest(runs):
        return {}
    main = [others for others in siblings if _plainest(others)]
    tables = [others[0].config.agent_options for others in main or siblings]
    names = dict.fromkeys(name for table in [settings, *tables] for name in table)
    differing = {
        name: settings.get(name)
        for name in names
        if any(json.dumps(table.get(name)) != json.dumps(settings.get(name)) for table in tables)
    }
    asked = {name for run in runs for name in run.config.options}
    chosen = {
        name: value
        for name, value in differing.items()
        if name in asked
        or (name in settings and not any(name.startswith(f"{part}.") for part in differing))
    }
    return chosen or differing


def _label(group: _Group, varied: Mapping[str, Any], short: Mapping[str, str], unsure: bool) -> str:
    words = [group.agent, *(f"{short[name]}={plain(value)}" for name, value in varied.items())]
    text = " ".join(words)
    if len(text) > LONGEST_LABEL:
        text = f"{text[: LONGEST_LABEL - 1]}…"
    if group.origin:
        text = f"{group.origin}: {text}"
    return printable(f"{text} (settings not stored)" if unsure else text)


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


def _unique(methods: list[Method], notes: list[str]) -> list[Method]:
    """Tell methods of one label apart: some are cut, some had defaults of other versions."""
    named: dict[str, list[Method]] = {}
    numbered = []
    for method in methods:
        same = named.setdefault(method.label, [])
        same.append(method)
        if len(same) > 1:
            notes.append(_difference_note(f"{method.label} #{len(same)}", same[0], method))
            method = replace(method, label=f"{method.label} #{len(same)}")
        numbered.append(method)
    return numbered


def _difference_note(label: str, first: Method, other: Method) -> str:
    paths = dict.fromkeys([*first.settings, *other.settings])
    differing = [
        f"{path} {_shown(other.settings, path)} (there {_shown(first.settings, path)})"
        for path in paths
        if _shown(first.settings, path) != _shown(other.settings, path)
    ]
    more = f" and {len(differing) - 5} more" if len(differing) > 5 else ""
    return f"{label} differs from {first.label} in {', '.join(differing[:5])}{more}"


def _shown(settings: Mapping[str, Any], path: str) -> str:
    return plain(settings[path]) if path in settings else "not known"
