"""What is drawn across methods: ablations of a setting, speed, and what regret is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from everlearn.report.curves import joined
from everlearn.results import metrics
from everlearn.results.methods import Method, Study
from everlearn.results.records import RunRecord
from everlearn.results.statistics import Estimate, Floats, Resampling, estimate
from everlearn.results.summary import periods

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
    families: dict[tuple[str, str], list[Method]] = {}
    for method in study.methods:
        value = method.settings.get(setting)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            rest = {name: held for name, held in method.settings.items() if name != setting}
            families.setdefault((method.agent, repr(sorted(rest.items()))), []).append(method)
    found = []
    for (agent, _), methods in families.items():
        if len(methods) < 2:
            continue
        methods.sort(key=lambda method: float(method.settings[setting]))
        found.append(
            Ablation(
                setting,
                agent,
                tuple(methods),
                tuple(float(method.settings[setting]) for method in methods),
                tuple(m.estimate("average_performance", resampling) for m in methods),
                tuple(estimate(_last_utilization(m), resampling) for m in methods),
            )
        )
    return found


def references(study: Study, setting: str, resampling: Resampling) -> dict[str, Estimate]:
    """Return the final performance of the methods without the setting, by label."""
    return {
        method.label: found
        for method in study.methods
        if setting not in method.settings
        and (found := method.estimate("average_performance", resampling)).runs
    }


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
    found = {}
    for method in study.methods:
        timed = [run for run in method.runs if run.training_seconds > 0]
        whole = [run for run in timed if run.finished]
        evaluated = [run for run in whole if not math.isnan(run.evaluation_seconds)]
        threads = sorted({run.config.threads or 0 for run in method.runs})
        found[method.label] = Speed(
            _over([run.steps / run.training_seconds for run in timed], resampling),
            _over([run.training_seconds / 3600 for run in whole], resampling),
            _over([run.evaluation_seconds / 3600 for run in evaluated], resampling),
            ", ".join(str(number) if number else "?" for number in threads),
        )
    return found


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
    found = []
    for method in study.methods:
        lines = [_online_performance(run) for run in method.complete]
        whole = [line for line in lines if line is not None]
        if not whole:
            continue
        # Switches have two values at one time, so runs are put together period by period.
        parts = list(zip(*whole, strict=True))
        merged = [joined_period(list(part)) for part in parts]
        episodes = np.concatenate([when for when, _ in merged])
        performance = np.concatenate([values for _, values in merged])
        area = sum(float(np.trapezoid(1 - values, when)) for when, values in merged)
        regret = area / study.protocol.episodes
        found.append(RegretArea(method.label, episodes, performance, regret, len(whole)))
    return found


def joined_period(lines: list[tuple[Floats, Floats]]) -> tuple[Floats, Floats]:
    """Mean of piecewise linear functions over one period, at all their corners."""
    when, _ = joined([(times.astype(np.int64), values) for times, values in lines])
    mean = np.mean([np.interp(when, times, values) for times, values in lines], axis=0)
    return when.astype(np.float64), mean


def _online_performance(run: RunRecord) -> list[tuple[Floats, Floats]] | None:
    """Success rate of the task at hand, period by period; None if one was never evaluated."""
    table = run.evaluations
    steps = run.columns["episode"]["step"]
    found = []
    for part in periods(run.config, steps, by_steps=False):
        line = metrics.performance_in(table.episodes, table.p, part)
        if line is None:
            return None
        found.append(line)
    return found
