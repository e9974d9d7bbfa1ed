"""How methods differ between two sets of runs, for ``everlearn report --compare``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from everlearn.report.tables import MISSING, Table, shown
from everlearn.results.methods import Method, Study
from everlearn.results.statistics import Resampling, difference_interval
from everlearn.results.summary import Metric


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


def change_table(changes: Sequence[Change], first: str, second: str, success: bool) -> Table:
    """Return how methods differ between two sets as a table."""
    rows = [
        (
            change.method,
            change.metric.heading,
            f"{shown(change.before, success)} (n={change.runs[0]})",
            f"{shown(change.after, success)} (n={change.runs[1]})",
            _signed(change.difference, success),
            MISSING
            if math.isnan(change.low)
            else f"[{_signed(change.low, success)}, {_signed(change.high, success)}]",
            change.verdict,
        )
        for change in changes
    ]
    headings = ("method", "metric", first, second, "difference", "95 % interval", "verdict")
    note = (
        f"{'In percent, means' if success else 'Means'} over finished runs; the interval of the "
        "difference is a stratified bootstrap. Methods that only one set has are in the other "
        "tables."
    )
    return Table("comparison", f"{first} against {second}", headings, tuple(rows), note)


def _signed(value: float, as_percent: bool) -> str:
    text = shown(value, as_percent)
    return text if text.startswith("-") else f"+{text}"
