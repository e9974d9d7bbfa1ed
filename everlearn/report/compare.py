"""Two sets of runs against each other: what changed, and how sure that is."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from everlearn.report.tables import HEADINGS, MISSING, Table, percent
from everlearn.results.methods import Method, Study
from everlearn.results.records import METRIC_NAMES
from everlearn.results.statistics import Resampling, difference_interval


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
    metric: str
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
        better = (self.difference > 0) == (HEADINGS[self.metric][1] == "up")
        return "better" if better else "worse"


def changes(study: Study, first: str, second: str, resampling: Resampling) -> list[Change]:
    """Compare the methods that both sets have; `first` and `second` are their names."""
    sides: dict[str, dict[str, Method]] = {first: {}, second: {}}
    for method in study.methods:
        origin = method.runs[0].origin
        if origin in sides:
            sides[origin][method.label.removeprefix(f"{origin}: ")] = method
    found = []
    for label, before in sides[first].items():
        after = sides[second].get(label)
        if after is None:
            continue
        for metric in METRIC_NAMES:
            tables = [_scores(method, metric) for method in (before, after)]
            if any(table is None for table in tables):
                continue
            one, two = (np.asarray(table) for table in tables)
            if one.shape[1] != two.shape[1]:
                continue  # other tasks, such as transfer where runs alone are missing
            low, high = difference_interval(one, two, resampling)
            means = float(one.mean()), float(two.mean())
            found.append(Change(label, metric, *means, low, high, (len(one), len(two))))
    return found


def change_table(found: list[Change], first: str, second: str) -> Table:
    """Return the changes as a table, in percent."""
    rows = [
        (
            change.method,
            HEADINGS[change.metric][0],
            f"{percent(change.before)} (n={change.runs[0]})",
            f"{percent(change.after)} (n={change.runs[1]})",
            f"{100 * change.difference:+.1f}",
            MISSING
            if math.isnan(change.low)
            else f"[{100 * change.low:+.1f}, {100 * change.high:+.1f}]",
            change.verdict,
        )
        for change in found
    ]
    headings = ("method", "metric", first, second, "difference", "95 % interval", "verdict")
    note = (
        "In percent, means over finished runs; the interval of the difference is a stratified "
        "bootstrap. Methods that only one set has are in the other tables."
    )
    return Table("comparison", f"{first} against {second}", headings, tuple(rows), note)


def _scores(method: Method, metric: str) -> np.ndarray | None:
    rows = method.score_rows(metric)
    return np.array(rows) if rows else None
