"""A report: what runs say, and a folder with everything: figures, tables, numbers and the page."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlearn.report.curves import CurveFigure, curve_figures
from everlearn.report.life import life_curves, life_tables
from everlearn.report.pictures import find_strips
from everlearn.report.tables import (
    PAPER_PROTOCOL,
    PAPER_SCORES,
    UNFINISHED,
    MethodScores,
    Table,
    brief_table,
    mean_cell,
    method_table,
    period_table,
    score_methods,
    task_table,
    to_latex,
    to_markdown,
)
from everlearn.results.methods import Study, studies_of
from everlearn.results.read import RunRecord, read_runs
from everlearn.results.statistics import Resampling
from everlearn.runs.metrics_file import Notify, storing
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import check_file, check_folder, is_file, is_folder, write_text
from everlearn.support.terminal import printable

if TYPE_CHECKING:
    from everlearn.report.comparison import Change
    from everlearn.report.figures import Drawing

SUMMARY, PAGE = "summary.json", "index.html"
VIDEOS = "videos"
"""Folder of a run or report, for its videos and strips of pictures."""

_VIDEO = re.compile(r"(?P<task>.+?)(?:-(?P<when>before|after))?\.mp4")


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
        By name: ``methods``, ``brief``, ``tasks``, ``periods``, ``comparison`` of two sets,
        ``variants`` and ``structure`` where runs know of any, and ``claims`` and ``forgetting`` of
        the paper's study.
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
            *_further_tables(study, resampling),
        ]
        differences: list[Change] = []
        if sets:
            from everlearn.report.comparison import change_table, changes

            first, second = sets
            differences = changes(study, first, second, resampling)
            success = study.protocol.measure == "success"
            tables.append(change_table(differences, first, second, success))
        tables += life_tables(study)
        curves = curve_figures(study, resampling) + life_curves(study, resampling)
        named = {table.name: table for table in tables}
        parts.append(StudyReport(study, scores, named, curves, differences))
    return Report(sources, parts, left_out, resampling)


def _further_tables(study: Study, resampling: Resampling) -> list[Table]:
    """Return tables that only some studies have; others do not load what makes them."""
    tables = []
    runs = [run for method in study.methods for run in method.runs]
    if any(run.variants or "bursts" in run.columns["eval"] for run in runs):
        from everlearn.report.variants import variant_table

        tables += [table] if (table := variant_table(study, resampling)) else []
    if any(run.structure is not None for run in runs):
        from everlearn.report.structure import structure_table

        tables += [table] if (table := structure_table(study)) else []
    if study.protocol == PAPER_PROTOCOL and {m.agent for m in study.main} & PAPER_SCORES.keys():
        from everlearn.report.claims import claim_tables

        tables += claim_tables(study.methods)
    return tables


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


def write_report(
    report: Report,
    out: str | Path,
    *,
    videos: Path | None = None,
    film: bool = False,
    pictures: bool = False,
    notify: Notify = lambda text: None,
) -> Path:
    """Write everything into `out` and return the page's path.

    Parameters
    ----------
    report
        From `read_report`.
    out
        Folder; files of an earlier report are replaced.
    videos
        Folder to look for videos and strips of pictures in, beside those of the runs.
    film
        Whether to film tasks before and after learning, where runs have snapshots, and to make
        strips of pictures of them.
    pictures
        Whether to make the strips alone, which is faster.
    notify
        Who is told what happens.
    """
    from everlearn.report.page import page

    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; give a folder for the report")
    if videos is not None and not videos.is_dir():
        raise InvalidInputError(f"there is no folder {videos}; give one with videos")
    with storing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / SUMMARY, json.dumps(report.to_json(), indent=2) + "\n")
        drawings = []
        for number, part in enumerate(report.studies):
            below = study_folder(folder, number)
            if below != folder:
                check_folder(below)
            drawings.append(_write_study(part, below, report.resampling))
        films, strips = [], []
        for part in report.studies:
            beside = [run.folder / VIDEOS for method in part.study.methods for run in method.runs]
            searched = [folder for folder in beside if is_folder(folder)]
            searched += [videos] if videos is not None else []
            if film or pictures:
                from everlearn.report.videos import make_videos  # loads the simulator

                searched += make_videos(part.study, folder, notify, films=film)
            films.append(find_videos(searched, part.study.protocol.names))
            strips.append(find_strips(searched, part.study.protocol.names))
        write_text(folder / PAGE, page(report, drawings, films, strips))
    return folder / PAGE


def study_folder(out: Path, number: int) -> Path:
    """Folder of a study: the first and largest is at the top."""
    return out if number == 0 else out / f"study-{number + 1}"


def _write_study(part: StudyReport, folder: Path, resampling: Resampling) -> list[Drawing]:
    # Both load matplotlib, which numbers alone do not need.
    from everlearn.report.figures import draw_study
    from everlearn.report.profiles import draw_profiles
    from everlearn.support.plotting import save_figure

    for name in ("figures", "tables", "data"):
        check_folder(folder / name)  # in a run's folder, a link may lead anywhere
        (folder / name).mkdir(parents=True, exist_ok=True)
    drawings = draw_study(part.study, part.curves, resampling)
    drawings += draw_profiles(part.study, resampling)
    for drawing in drawings:
        for ending in ("png", "pdf"):
            path = folder / "figures" / f"{drawing.name}.{ending}"
            check_file(path)
            save_figure(drawing.figure, path)
        write_text(folder / "data" / f"{drawing.name}.csv", to_csv(drawing.rows))
    for table in part.tables.values():
        write_text(folder / "tables" / f"{table.name}.md", to_markdown(table))
        write_text(folder / "tables" / f"{table.name}.tex", to_latex(table))
        rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
        write_text(folder / "tables" / f"{table.name}.csv", to_csv(rows))
    write_text(folder / "data" / "scores.csv", to_csv(score_rows(part.scores)))
    return drawings


@dataclass(frozen=True)
class Video:
    """A video of a task.

    Attributes
    ----------
    path
        Its file.
    task, when
        Which, and whether before or after learning; empty where the name does not say.
    source
        Whose it is: the folder that it was found in.
    """

    path: Path
    task: str
    when: str
    source: str


def find_videos(folders: Iterable[Path], tasks: Iterable[str]) -> list[Video]:
    """Return videos at or below folders whose names begin with a task's.

    Names are like ``door-open-before.mp4``, ``door-open-after.mp4`` or ``door-open.mp4``.
    """
    known = list(tasks)
    videos: dict[Path, Video] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.mp4")):
            match = _VIDEO.fullmatch(path.name)
            if match and match["task"] in known and is_file(path):
                source = path.parent.name if path.parent.name != VIDEOS else path.parents[1].name
                videos[path.resolve()] = Video(path, match["task"], match["when"] or "", source)
    order = {task: number for number, task in enumerate(known)}
    return sorted(
        videos.values(), key=lambda video: (order[video.task], video.source, video.when != "before")
    )


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


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV; NaN is an empty cell."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(map(_cell, names))
    for row in rows:
        writer.writerow([_cell(row.get(name, "")) for name in names])
    return text.getvalue()


_FORMULA = ("=", "+", "-", "@", "\n")
_SIGNED = re.compile(rf"-|[+-][\d. ±\[\],+-]*(?:\({UNFINISHED}\)|\(n=\d+\)|seed\])?")
"""Numbers as tables write them, which may have a sign."""


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    # A spreadsheet must not take a name from a run's folder for a formula.
    return f"'{text}" if text[:1] in _FORMULA and not _SIGNED.fullmatch(text) else text


def score_rows(scores: Sequence[MethodScores]) -> list[dict[str, Any]]:
    """Every number of the table of methods, as rows for CSV and scripts; not in percent."""
    rows = []
    for score in scores:
        for metric, values in score.estimates.items():
            rows.append(
                {
                    "method": score.method.label,
                    "agent": score.method.agent,
                    "metric": metric,
                    "seeds": values.runs,
                    "mean": values.mean,
                    "standard_error": values.standard_error,
                    "interquartile_mean": values.middle,
                    "low": values.low,
                    "high": values.high,
                    "so_far": score.so_far.get(metric, math.nan),
                }
            )
    return rows
