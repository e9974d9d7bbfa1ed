"""What is said across methods: two sets of runs, ablations of a setting, speed, what regret is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from everlearn.report.curves import joined
from everlearn.results import metrics
from everlearn.results.methods import Method, Study
from everlearn.results.read import RunRecord
from everlearn.results.statistics import (
    Estimate,
    Floats,
    Resampling,
    difference_interval,
    estimate,
)
from everlearn.results.summary import Metric, periods

BUDGET, BINS = "capacity", "bins"
ABLATIONS = {
    BUDGET: (
        "Performance against buffer budget",
        "transitions kept",
        "Final average performance by the number of transitions that a replaying agent may keep. "
        "Lines across: methods without such a limit.",
    ),
    BINS: (
        "Number of bins",
        "bins of each grid",
        "Final average performance by the bins of each grid, and the share of the model's cells "
        "that were ever active: more bins make a wider, sparser model.",
    ),
}
"""Settings whose ablation the paper shows: title, axis and caption."""


@dataclass(frozen=True)
class Change:
    """How a metric of a method differs between two sets.

    Attributes
    ----------
    method, metric
        Which.
    before, after
        Means over the finished runs of the first and of the second set.
    low, high
        95 % interval of the difference of the means, stratified by task.
    runs
        Finished runs in the first and in the second set.
    """

    method: str
    metric: Metric
    before: float
    after: float
    low: float
    high: float
    runs: tuple[int, int]

    @property
    def difference(self) -> float:
        """Second minus first."""
        return self.after - self.before

    @property
    def verdict(self) -> str:
        """Say in words whether the difference is one."""
        if math.isnan(self.low):
            return "too few seeds"
        if self.low <= 0 <= self.high:
            return "no clear difference"
        return "better" if (self.difference > 0) == (self.metric.better == "up") else "worse"


def changes(study: Study, first: str, second: str, resampling: Resampling) -> list[Change]:
    """Compare the methods that both sets have; `first` and `second` are their names."""
    sides: dict[str, dict[str, Method]] = {first: {}, second: {}}
    for method in study.methods:
        origin = method.runs[0].origin
        if origin in sides:
            sides[origin][method.label.removeprefix(f"{origin}: ")] = method
    compared = []
    for label, before in sides[first].items():
        after = sides[second].get(label)
        if after is None:
            continue
        for metric in study.protocol.metrics:
            one, two = (np.array(method.score_rows(metric)) for method in (before, after))
            if not one.size or not two.size or one.shape[1] != two.shape[1]:
                continue  # not said, or of other tasks, as transfer where runs alone are missing
            low, high = difference_interval(one, two, resampling)
            means = float(one.mean()), float(two.mean())
            compared.append(Change(label, metric, *means, low, high, (len(one), len(two))))
    return compared


@dataclass(frozen=True, eq=False)
class Ablation:
    """One agent with several values of one setting, all else equal.

    Attributes
    ----------
    setting, agent
        Which, of whom.
    methods
        By their value, from the smallest on.
    values
        Of the setting.
    performance, utilization
        At the end of the run, for each value.
    """

    setting: str
    agent: str
    methods: tuple[Method, ...]
    values: tuple[float, ...]
    performance: tuple[Estimate, ...]
    utilization: tuple[Estimate, ...]


def ablations(study: Study, setting: str, resampling: Resampling) -> list[Ablation]:
    """Return every agent of which at least two methods differ by this one setting."""
    families: dict[tuple[str, str], dict[float, Method]] = {}
    for method in study.methods:
        path = method.path_of(setting)
        value = None if path is None else method.settings[path]
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = {name: held for name, held in method.settings.items() if name != path}
            origin = method.runs[0].origin
            agent = f"{origin}: {method.agent}" if origin else method.agent
            family = families.setdefault((agent, repr(sorted(rest.items()))), {})
            family[float(value)] = method
    performance = study.protocol.performance
    drawn = []
    for (agent, _), by_value in families.items():
        if len(by_value) < 2:
            continue
        values = tuple(sorted(by_value))
        methods = tuple(by_value[value] for value in values)
        drawn.append(
            Ablation(
                setting,
                agent,
                methods,
                values,
                tuple(method.estimate(performance, resampling) for method in methods),
                tuple(estimate(_last_utilization(method), resampling) for method in methods),
            )
        )
    return drawn


def references(study: Study, setting: str, resampling: Resampling) -> dict[str, Estimate]:
    """Return the final performance of the methods without the setting, by label."""
    known = {
        method.label: method.estimate(study.protocol.performance, resampling)
        for method in study.methods
        if method.path_of(setting) is None
    }
    return {label: value for label, value in known.items() if value.runs}


def _last_utilization(method: Method) -> Floats:
    last = [
        float(run.columns["model"]["utilization"][-1])
        for run in method.complete
        if "utilization" in run.columns["model"]
    ]
    return np.array([value for value in last if not math.isnan(value)]).reshape(-1, 1)


@dataclass(frozen=True)
class Speed:
    """How long runs took.

    Attributes
    ----------
    steps_per_second, hours, evaluation_hours
        Over the runs: steps of training a second, and hours of training and of evaluation a run.
    threads
        With how many threads, by run.
    """

    steps_per_second: Estimate
    hours: Estimate
    evaluation_hours: Estimate
    threads: str


def speeds(study: Study, resampling: Resampling) -> Mapping[str, Speed]:
    """Speed of every method, by its label."""
    by_label = {}
    for method in study.methods:
        timed = [run for run in method.runs if run.training_seconds > 0]
        finished = [run for run in timed if run.finished]
        evaluated = [run for run in finished if not math.isnan(run.evaluation_seconds)]
        threads = sorted({run.config.threads or 0 for run in method.runs})
        by_label[method.label] = Speed(
            _over([run.steps / run.training_seconds for run in timed], resampling),
            _over([run.training_seconds / 3600 for run in finished], resampling),
            _over([run.evaluation_seconds / 3600 for run in evaluated], resampling),
            ", ".join(str(number) if number else "?" for number in threads),
        )
    return by_label


def _over(values: list[float], resampling: Resampling) -> Estimate:
    return estimate(np.array(values).reshape(-1, 1), resampling)


@dataclass(frozen=True, eq=False)
class RegretArea:
    """What regret is, for one method: the area between an oracle and it.

    Attributes
    ----------
    method
        Its label.
    episodes, performance
        Corners of the success rate of the task at hand, mean over the runs.
    regret
        The area's share of the whole.
    runs
        How many runs are in it.
    """

    method: str
    episodes: Floats
    performance: Floats
    regret: float
    runs: int


def regret_areas(study: Study) -> list[RegretArea]:
    """Return the area of every method with finished runs whose evaluations are all there."""
    if study.protocol.measure != "success":
        return []  # there is no best return to compare with
    areas = []
    for method in study.methods:
        lines = [_online_performance(run) for run in method.complete]
        complete = [line for line in lines if line is not None]
        if not complete:
            continue
        # Switches have two values at one time, so runs are put together period by period.
        merged = [joined_period(list(part)) for part in zip(*complete, strict=True)]
        episodes = np.concatenate([when for when, _ in merged])
        performance = np.concatenate([values for _, values in merged])
        area = sum(float(np.trapezoid(1 - values, when)) for when, values in merged)
        regret = area / study.protocol.episodes
        areas.append(RegretArea(method.label, episodes, performance, regret, len(complete)))
    return areas


def joined_period(lines: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean of piecewise linear functions over one period, at all their corners."""
    when, _ = joined([(times.astype(np.int64), values) for times, values in lines])
    mean = np.mean([np.interp(when, times, values) for times, values in lines], axis=0)
    return when.astype(np.float64), mean


def _online_performance(run: RunRecord) -> list[tuple[Floats, Floats]] | None:
    """Success rate of the task at hand, period by period; None if one was never evaluated."""
    table = run.evaluations
    lines = []
    for span in periods(run.config, run.episode_column("step"), by_steps=False):
        line = metrics.performance_in(table.episodes, table.values, span)
        if line is None:
            return None
        lines.append(line)
    return lines
