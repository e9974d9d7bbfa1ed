"""What a report says, before anything is drawn: studies, their numbers and their tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everlearn.report.comparisons import Change, changes
from everlearn.report.curves import CurveFigure, curve_figures
from everlearn.report.tables import (
    MethodScores,
    Table,
    brief_table,
    change_table,
    mean_cell,
    method_table,
    period_table,
    score_methods,
    score_rows,
    task_table,
)
from everlearn.results.methods import Study, studies_of
from everlearn.results.read import RunRecord, read_runs
from everlearn.results.statistics import Resampling
from everlearn.support.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class StudyReport:
    """A study with everything that is computed from it.

    Attributes
    ----------
    study
        Its methods and runs.
    scores
        Numbers of each method.
    tables
        By name: ``methods``, ``brief``, ``tasks``, ``periods``, and ``comparison`` of two sets.
    curves
        What is drawn over time.
    changes
        How methods differ between two sets, where sets are compared.
    """

    study: Study
    scores: list[MethodScores]
    tables: dict[str, Table]
    curves: list[CurveFigure]
    changes: list[Change]


@dataclass(frozen=True, eq=False)
class Report:
    """What runs say.

    Attributes
    ----------
    sources
        Folders in which the runs were looked for.
    studies
        One for each protocol, the largest first.
    left_out
        A line about each run that could not be read.
    resampling
        How intervals were drawn.
    """

    sources: tuple[str, ...]
    studies: list[StudyReport]
    left_out: list[str]
    resampling: Resampling

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for scripts; what a run does not say is null."""
        return {
            "sources": list(self.sources),
            "left_out": self.left_out,
            "bootstrap": {"resamples": self.resampling.count, "seed": self.resampling.seed},
            "studies": [_study_json(part) for part in self.studies],
        }


def read_report(folders: Sequence[str | Path], resampling: Resampling | None = None) -> Report:
    """Read runs and compute their numbers; nothing is drawn and nothing written."""
    runs, left_out = read_runs(folders)
    return _report(tuple(map(str, folders)), runs, left_out, resampling)


def read_comparison(
    first: str | Path, second: str | Path, resampling: Resampling | None = None
) -> Report:
    """Read two sets of runs and compute their numbers and how they differ."""
    folders = (Path(first), Path(second))
    short = tuple(folder.resolve().name for folder in folders)
    names = short if short[0] != short[1] else tuple(map(str, folders))
    if names[0] == names[1]:
        raise InvalidInputError(f"{first} was given twice; give two sets of runs to compare")
    runs: list[RunRecord] = []
    left_out: list[str] = []
    for folder, name in zip(folders, names, strict=True):
        readable, unreadable = read_runs([folder], name)
        runs += readable
        left_out += unreadable
    return _report(tuple(map(str, folders)), runs, left_out, resampling, names)


def _report(
    sources: tuple[str, ...],
    runs: list[RunRecord],
    left_out: list[str],
    resampling: Resampling | None,
    sets: tuple[str, ...] = (),
) -> Report:
    resampling = resampling or Resampling()
    parts = []
    for study in studies_of(runs):
        scores = score_methods(study, resampling)
        tables = [
            method_table(study, scores),
            brief_table(study, scores),
            task_table(study, resampling),
            period_table(study, resampling),
        ]
        differences: list[Change] = []
        if sets:
            first, second = sets
            differences = changes(study, first, second, resampling)
            success = study.protocol.measure == "success"
            tables.append(change_table(differences, first, second, success))
        curves = curve_figures(study, resampling)
        named = {table.name: table for table in tables}
        parts.append(StudyReport(study, scores, named, curves, differences))
    return Report(sources, parts, left_out, resampling)


def summary_lines(report: Report) -> list[str]:
    """Return the main numbers for a terminal."""
    lines = []
    for part in report.studies:
        protocol = part.study.protocol
        unit = "in percent" if protocol.measure == "success" else "returns"
        lines += [f"{protocol}, {unit}:", ""]
        lines += [f"  note: {note}" for note in part.study.notes]
        rows = [("method", "seeds", *(metric.heading for metric in protocol.metrics))]
        rows += [
            (
                score.method.label,
                score.method.seeds,
                *(mean_cell(score, metric) for metric in protocol.metrics),
            )
            for score in part.scores
        ]
        lines += _aligned(rows)
        if "comparison" in part.tables:
            table = part.tables["comparison"]
            lines += ["", f"{table.title}:", *_aligned([table.headings, *table.rows])]
        lines.append("")
    return lines


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  "
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _study_json(part: StudyReport) -> dict[str, Any]:
    protocol = part.study.protocol
    return {
        "world": protocol.world,
        "measure": protocol.measure,
        "tasks": list(protocol.tasks),
        "episodes_per_task": protocol.episodes_per_task,
        "max_steps": protocol.max_steps,
        "reset_noise": protocol.reset_noise,
        "notes": list(part.study.notes),
        "methods": [
            {
                "label": score.method.label,
                "agent": score.method.agent,
                "varied": dict(score.method.varied),
                "told": _list(score.method.told),
                "given": _list(score.method.given),
                "runs": [
                    {"folder": str(run.folder), "seed": run.config.seed, "state": run.state}
                    for run in score.method.runs
                ],
                "metrics": {
                    row["metric"]: {
                        name: _plain(value)
                        for name, value in row.items()
                        if name not in ("method", "agent", "metric")
                    }
                    for row in score_rows([score])
                },
                "paper": None if score.paper is None else score.paper._asdict(),
            }
            for score in part.scores
        ],
        "changes": [
            {
                "method": change.method,
                "metric": change.metric.name,
                "before": change.before,
                "after": change.after,
                "difference": change.difference,
                "low": _plain(change.low),
                "high": _plain(change.high),
                "runs": list(change.runs),
                "verdict": change.verdict,
            }
            for change in part.changes
        ],
    }


def _plain(value: Any) -> Any:
    """Return a value as JSON has it: NaN and infinities are null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _list(words: tuple[str, ...] | None) -> list[str] | None:
    return None if words is None else list(words)
