"""What a report says, before anything is drawn: studies, their numbers and their tables."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from everlearn.report.compare import Change, change_table, changes
from everlearn.report.curves import CurveFigure, curve_figures
from everlearn.report.tables import (
    HEADINGS,
    MethodScores,
    Table,
    brief_table,
    mean_cell,
    method_table,
    score_methods,
    score_rows,
    task_table,
)
from everlearn.results.methods import Study, studies_of
from everlearn.results.records import RunRecord, read_records
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
        By name: ``methods``, ``brief``, ``tasks``, and ``comparison`` of two sets.
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
    places
        Where the runs were looked for.
    studies
        One for each protocol, the largest first.
    left_out
        A line about each run that could not be read.
    resampling
        How intervals were drawn.
    """

    places: tuple[str, ...]
    studies: list[StudyReport]
    left_out: list[str]
    resampling: Resampling

    def to_json(self) -> dict[str, Any]:
        """Return the numbers for scripts; what a run does not say is null."""
        return {
            "places": list(self.places),
            "left_out": self.left_out,
            "bootstrap": {"resamples": self.resampling.count, "seed": self.resampling.seed},
            "studies": [_study_json(part) for part in self.studies],
        }


def read_report(places: Sequence[str | Path], resampling: Resampling | None = None) -> Report:
    """Read runs and compute their numbers; nothing is drawn and nothing written."""
    records, left_out = read_records(places)
    return _report(tuple(map(str, places)), records, left_out, resampling)


def read_comparison(
    first: str | Path, second: str | Path, resampling: Resampling | None = None
) -> Report:
    """Read two sets of runs and compute their numbers and how they differ."""
    places = (Path(first), Path(second))
    short = tuple(place.resolve().name for place in places)
    names = short if short[0] != short[1] else tuple(map(str, places))
    if names[0] == names[1]:
        raise InvalidInputError(f"{first} was given twice; give two sets of runs to compare")
    records: list[RunRecord] = []
    left_out: list[str] = []
    for place, name in zip(places, names, strict=True):
        found, unreadable = read_records([place], name)
        records += found
        left_out += unreadable
    return _report(tuple(map(str, places)), records, left_out, resampling, names)


def _report(
    places: tuple[str, ...],
    records: list[RunRecord],
    left_out: list[str],
    resampling: Resampling | None,
    sets: tuple[str, ...] = (),
) -> Report:
    resampling = resampling or Resampling()
    parts = []
    for study in studies_of(records):
        scores = score_methods(study, resampling)
        tables = [
            method_table(study, scores),
            brief_table(study, scores),
            task_table(study, resampling),
        ]
        found: list[Change] = []
        if sets:
            first, second = sets
            found = changes(study, first, second, resampling)
            tables.append(change_table(found, first, second))
        curves = curve_figures(study, resampling)
        named = {table.name: table for table in tables}
        parts.append(StudyReport(study, scores, named, curves, found))
    return Report(places, parts, left_out, resampling)


def summary_lines(report: Report) -> list[str]:
    """Return the main numbers for a terminal."""
    lines = []
    for part in report.studies:
        lines += [f"{part.study.protocol}, in percent:", ""]
        lines += [f"  note: {note}" for note in part.study.notes]
        rows = [("method", "seeds", *(short for short, _ in HEADINGS.values()))]
        rows += [
            (score.method.label, score.method.seeds, *(mean_cell(score, name) for name in HEADINGS))
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
        "tasks": list(protocol.tasks),
        "episodes_per_task": protocol.episodes_per_task,
        "max_steps": protocol.max_steps,
        "notes": list(part.study.notes),
        "methods": [
            {
                "label": score.method.label,
                "agent": score.method.agent,
                "varied": dict(score.method.varied),
                "runs": [
                    {"folder": str(run.folder), "seed": run.config.seed, "state": run.state}
                    for run in score.method.runs
                ],
                "metrics": {
                    row["metric"]: {
                        name: None if isinstance(value, float) and math.isnan(value) else value
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
            {"difference": change.difference, "verdict": change.verdict}
            | {
                name: None if isinstance(value, float) and math.isnan(value) else value
                for name, value in dataclasses.asdict(change).items()
            }
            for change in part.changes
        ],
    }
