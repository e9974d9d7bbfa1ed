"""From run folders to a folder with everything: figures, tables, numbers and the page."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from everlearn.report.content import Report, StudyReport
from everlearn.report.page import PAGE, page
from everlearn.report.tables import score_rows, to_csv, to_latex, to_markdown
from everlearn.report.videos import FOLDER, find_videos, make_videos
from everlearn.results.statistics import Resampling
from everlearn.runs.metrics_file import Notify, storing
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import is_folder, write_text
from everlearn.support.plotting import save_figure

if TYPE_CHECKING:
    from everlearn.report.figures import Drawing

SUMMARY = "summary.json"


def write_report(
    report: Report,
    out: str | Path,
    *,
    videos: Path | None = None,
    film: bool = False,
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
        Folder to look for videos in, beside those of the runs.
    film
        Whether to film tasks before and after learning, where runs have snapshots.
    notify
        Who is told what happens.
    """
    folder = Path(out)
    if folder.exists() and not folder.is_dir():
        raise InvalidInputError(f"{folder} is a file; give a folder for the report")
    if videos is not None and not videos.is_dir():
        raise InvalidInputError(f"there is no folder {videos}; give one with videos")
    with storing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / SUMMARY, json.dumps(report.to_json(), indent=2) + "\n")
        drawings = [
            _write_study(part, study_folder(folder, number), report.resampling)
            for number, part in enumerate(report.studies)
        ]
        films = []
        for part in report.studies:
            beside = [run.folder / FOLDER for method in part.study.methods for run in method.runs]
            searched = [folder for folder in beside if is_folder(folder)]
            searched += [videos] if videos is not None else []
            searched += make_videos(part.study, folder, notify) if film else []
            films.append(find_videos(searched, part.study.protocol.names))
        write_text(folder / PAGE, page(report, drawings, films))
    return folder / PAGE


def study_folder(out: Path, number: int) -> Path:
    """Folder of a study: the first and largest is at the top."""
    return out if number == 0 else out / f"study-{number + 1}"


def _write_study(part: StudyReport, folder: Path, resampling: Resampling) -> list[Drawing]:
    from everlearn.report.figures import draw_study  # loads matplotlib

    for name in ("figures", "tables", "data"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    drawings = draw_study(part.study, part.curves, resampling)
    for drawing in drawings:
        for ending in ("png", "pdf"):
            save_figure(drawing.figure, folder / "figures" / f"{drawing.name}.{ending}")
        write_text(folder / "data" / f"{drawing.name}.csv", to_csv(drawing.rows))
    for table in part.tables.values():
        write_text(folder / "tables" / f"{table.name}.md", to_markdown(table))
        write_text(folder / "tables" / f"{table.name}.tex", to_latex(table))
        rows = [dict(zip(table.headings, row, strict=True)) for row in table.rows]
        write_text(folder / "tables" / f"{table.name}.csv", to_csv(rows))
    write_text(folder / "data" / "scores.csv", to_csv(score_rows(part.scores)))
    return drawings
