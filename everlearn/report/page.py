"""The page: one HTML file that works without a network, with curves to play with.

What comes from run folders is never trusted: text is escaped, data stands in a script tag that
is not run, and the page's policy lets nothing run or load but what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import shlex
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from importlib import resources
from typing import TYPE_CHECKING, Any

import everlearn
from everlearn.report.curves import CurveFigure
from everlearn.report.findings import GLOSSARY, findings
from everlearn.report.pictures import Strip, strips_section
from everlearn.report.tables import (
    MISSING,
    PAPERS,
    MethodScores,
    Table,
    mean_cell,
    middle_cell,
    paper_cell,
    words_cell,
)
from everlearn.results.methods import Method, Study, plain
from everlearn.results.read import RunRecord
from everlearn.results.statistics import Floats, Resampling
from everlearn.runs.metrics_file import CONFIG
from everlearn.support.files import read_file
from everlearn.support.plotting import LineStyle, marker_outline, settle_layout

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from everlearn.report.build import Report, StudyReport, Video
    from everlearn.report.figures import Drawing

PICTURE_DOTS = 130
LARGEST_VIDEO = 4_000_000
"""Bytes of a video that is put into the page; of a larger one the page says where it is."""

DIGITS = 5
"""Significant digits of a plotted number: more than a screen can show."""


def page(
    report: Report,
    drawings: Sequence[Sequence[Drawing]],
    videos: Sequence[Sequence[Video]],
    strips: Sequence[Sequence[Strip]] | None = None,
) -> str:
    """Return the page of a report as HTML, with the drawings, videos and strips of each study."""
    style, script = _asset("page.css"), _asset("page.js")
    strips = [[] for _ in report.studies] if strips is None else strips
    parts = zip(report.studies, drawings, videos, strips, strict=True)
    studies = [
        _study(number, part, drawn, films, pictures, report.resampling)
        for number, (part, drawn, films, pictures) in enumerate(parts)
    ]
    data = json.dumps(
        {"studies": [_study_data(part) for part in report.studies]},
        allow_nan=False,
        separators=(",", ":"),
    )
    runs = sum(len(method.runs) for part in report.studies for method in part.study.methods)
    methods = sum(len(part.study.methods) for part in report.studies)
    policy = (
        f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "img-src data:; media-src data:; base-uri 'none'; form-action 'none'"
    )
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            "<title>everlearn report</title>",
            f"<style>{style}</style>",
            "</head>",
            "<body>",
            '<header class="top">',
            "<h1>everlearn report</h1>",
            f"<p>{_count(runs, 'run')} of {_count(methods, 'method')}, from "
            + ", ".join(f"<code>{escape(source)}</code>" for source in report.sources)
            + ".</p>",
            _notes([f"Left out: {line}" for line in report.left_out]),
            "</header>",
            "<main>",
            *studies,
            _glossary(),
            "</main>",
            "<footer><p>Made by <code>everlearn report</code> "
            f"{escape(everlearn.__version__)}. Intervals: stratified bootstrap, "
            f"{report.resampling.count} samples, seed {report.resampling.seed}. Nothing is "
            "smoothed.</p></footer>",
            # A less-than sign could end the tag.
            f'<script type="application/json" id="data">{data.replace("<", chr(92) + "u003c")}'
            "</script>",
            f"<script>{script}</script>",
            "</body>",
            "</html>",
            "",
        ]
    )


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _notes(lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<ul class="notes">{items}</ul>' if items else ""


def _study(
    number: int,
    part: StudyReport,
    drawings: Sequence[Drawing],
    videos: Sequence[Video],
    strips: Sequence[Strip],
    resampling: Resampling,
) -> str:
    study = part.study
    root = "" if number == 0 else f"study-{number + 1}/"
    interactive = {figure.name for figure in part.curves}
    pictured = [drawing for drawing in drawings if drawing.name not in interactive]
    return "\n".join(
        [
            f'<section class="study" data-study="{number}">',
            f"<h2>{escape(str(study.protocol))}</h2>",
            _findings(findings(study, part.scores, resampling)),
            _notes(study.notes),
            _scrolled(_score_table(study, part.scores)),
            f'<p class="caption">{escape(part.tables["methods"].note)}</p>',
            *(
                _titled_table(part.tables[name])
                for name in ("comparison", "claims", "forgetting", "variants", "life", "goals")
                if name in part.tables
            ),
            # Together, so that what stays in view while one scrolls goes with the charts.
            '<div><div class="controls" role="group" aria-label="What is shown"></div>',
            '<div class="charts"></div></div>',
            *(_picture(drawing, root) for drawing in pictured),
            _titled_table(part.tables["tasks"]),
            _folded_table(part.tables["periods"]),
            *(_titled_table(part.tables[name]) for name in ("structure",) if name in part.tables),
            strips_section(strips),
            _videos(videos),
            _runs(study),
            "</section>",
        ]
    )


def _findings(sentences: Sequence[str]) -> str:
    words = escape(" ".join(sentences))
    return f'<p class="findings">{words}</p>' if sentences else ""


def _scrolled(table: str) -> str:
    """Return a table in a frame that scrolls; the page's script says so where it does."""
    return (
        '<div class="framed"><p class="hint" hidden>The table is wider than the page: scroll '
        f'sideways to see all columns.</p><div class="scroll" tabindex="0">{table}</div></div>'
    )


def _glossary() -> str:
    words = "".join(
        f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in GLOSSARY.items()
    )
    return f'<section class="glossary"><h2>Glossary</h2><dl>{words}</dl></section>'


def _score_table(study: Study, scores: Sequence[MethodScores]) -> str:
    """Methods against metrics: ours in large, the rest below it."""
    wanted = study.protocol.metrics
    head = "".join(f"<th>{escape(metric.titled)}</th>" for metric in wanted)
    rows = []
    for score in scores:
        cells = []
        for metric in wanted:
            lines = [f"<b>{escape(mean_cell(score, metric))}</b>"]
            middle = middle_cell(score, metric)
            if middle != MISSING:
                lines.append(f"<small>IQM {escape(middle)}</small>")
            if metric.name in PAPERS and score.paper is not None:
                lines.append(f'<small class="paper">paper {paper_cell(score, metric)}</small>')
            cells.append(f"<td>{'<br>'.join(lines)}</td>")
        known = "".join(
            f'<td class="words">{escape(words_cell(words))}</td>'
            for words in (score.method.told, score.method.given)
        )
        name = _method_cell(study, score.method)
        rows.append(f"<tr><th>{name}</th>{known}{''.join(cells)}</tr>")
    return (
        '<table class="scores"><thead><tr><th>method</th><th class="words">told of tasks</th>'
        f'<th class="words">given</th>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table>'
    )


def _method_cell(study: Study, method: Method) -> str:
    """Name a method, with its marker and its seeds."""
    style = study.styles[method.label]
    return (
        '<svg class="dot" width="12" height="12" viewBox="-0.6 -0.6 1.2 1.2" aria-hidden="true">'
        f'<path d="{marker_outline(style.marker)}" fill="{style.color}"/></svg>'
        f"{_breakable(method.label)}<br><small>{escape(method.seeds)}</small>"
    )


def _breakable(label: str) -> str:
    """Return a label that a narrow column breaks between a setting and its value."""
    return escape(label).replace("=", "=<wbr>")


def _titled_table(table: Table) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in table.headings)
    rows = "".join(
        f"<tr><th>{_breakable(row[0])}</th>{''.join(f'<td>{escape(c)}</td>' for c in row[1:])}</tr>"
        for row in table.rows
    )
    cells = f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    return (
        f"<h3>{escape(table.title)}</h3>{_scrolled(cells)}"
        f'<p class="caption">{escape(table.note)}</p>'
    )


def _folded_table(table: Table) -> str:
    return f"<details><summary>{escape(table.title)}</summary>{_titled_table(table)}</details>"


def _picture(drawing: Drawing, root: str) -> str:
    title, words = escape(drawing.title), escape(drawing.caption)
    return (
        f'<figure><h3>{title}</h3><div class="picture"><img alt="{title}" '
        f'src="{_png(drawing.figure)}"></div><figcaption>{words} {_files(drawing.name, root)}'
        "</figcaption></figure>"
    )


def _files(name: str, root: str) -> str:
    links = [
        f'<a href="{root}{folder}/{name}.{ending}">{ending.upper()}</a>'
        for folder, ending in (("figures", "png"), ("figures", "pdf"), ("data", "csv"))
    ]
    return f'<span class="files">{" ".join(links)}</span>'


def _png(figure: Figure) -> str:
    settle_layout(figure)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=PICTURE_DOTS, metadata={"Software": None})
    return "data:image/png;base64," + base64.b64encode(content.getvalue()).decode()


def _videos(videos: Sequence[Video]) -> str:
    if not videos:
        return (
            "<h3>Videos</h3><p>There are none: no run folder has a folder <code>videos</code> with "
            "files like <code>door-open-after.mp4</code>. Name a folder with <code>--videos</code>,"
            " or film runs that have snapshots with <code>--make-videos</code>, which also makes "
            "strips of pictures; <code>--pictures</code> makes only these.</p>"
        )
    cards = []
    for video in videos:
        when = f", {video.when} learning" if video.when else ""
        words = f"{escape(video.task)}{when} <small>{escape(video.source)}</small>"
        try:
            content = base64.b64encode(read_file(video.path, LARGEST_VIDEO)).decode()
            shown = (
                '<video controls loop muted playsinline preload="metadata" '
                f'src="data:video/mp4;base64,{content}"></video>'
            )
        except OSError:  # too large, or not readable
            size = f"{video.path.lstat().st_size / 1e6:.0f} MB"
            shown = f"<p>{size}, not in this page: <code>{escape(str(video.path))}</code></p>"
        cards.append(f"<figure>{shown}<figcaption>{words}</figcaption></figure>")
    return f'<h3>Videos</h3><div class="videos">{"".join(cards)}</div>'


def _runs(study: Study) -> str:
    """List every run below its method, folded away."""
    blocks = []
    for method in study.methods:
        runs = "".join(_run(run) for run in method.runs)
        blocks.append(
            f"<details><summary>{escape(method.label)} <small>{escape(method.seeds)}</small>"
            f"</summary>{runs}</details>"
        )
    intro = "<h3>Runs</h3><p>The command, the settings and the versions of each.</p>"
    return intro + "".join(blocks)


def _run(run: RunRecord) -> str:
    config = run.config
    known = config.resolved is not None
    words = ["everlearn", "run", "--config", str(run.folder / CONFIG), "--out", "runs/again"]
    words += [word for module in config.imports for word in ("--import", module)]
    rows = [
        ("folder", str(run.folder)),
        # Into another folder: nothing is added to a finished run in its own.
        ("again", shlex.join(words)),
        ("agent", _settings({config.agent: None, **config.options})),
        ("world", f"{config.world}: {', '.join(config.tasks)}"),
        (
            f"settings{'' if known else ' given (the others were not stored)'}",
            _settings(config.agent_options) or "none",
        ),
        ("machine", _machine(run.environment)),
        ("versions", _versions(run.environment)),
    ]
    resumed = run.environment.get("resumed_with")
    if isinstance(resumed, list):
        rows += [("resumed with", f"{_machine(one)}; {_versions(one)}") for one in resumed]
    listed = "".join(
        f"<dt>{escape(name)}</dt><dd><code>{escape(text)}</code></dd>" for name, text in rows
    )
    return f"<h4>seed {config.seed}: {escape(run.state)}</h4><dl>{listed}</dl>"


def _settings(settings: Mapping[str, Any]) -> str:
    return ", ".join(
        name if value is None else f"{name}={plain(value)}" for name, value in settings.items()
    )


def _machine(environment: Any) -> str:
    if not isinstance(environment, dict):
        return "not known"
    words = [str(environment[name]) for name in ("processor", "system") if environment.get(name)]
    if environment.get("threads"):
        words.append(f"threads {environment['threads']}")
    return ", ".join(words) or "not known"


def _versions(environment: Any) -> str:
    if not isinstance(environment, dict):
        return "not known"
    versions = environment.get("versions")
    words = [f"Python {environment['python']}"] if environment.get("python") else []
    if environment.get("commit"):
        words.append(f"commit {environment['commit']}")
    if isinstance(versions, dict):
        words += [f"{name} {version}" for name, version in versions.items()]
    return ", ".join(words) or "not known"


def _study_data(part: StudyReport) -> dict[str, Any]:
    """Return a study's methods, tasks and curves as the page's script reads them."""
    study, protocol = part.study, part.study.protocol
    labels = {method.label: number for number, method in enumerate(study.methods)}
    return {
        "switches": [n * protocol.episodes_per_task for n in range(1, len(protocol.tasks))],
        "tasks": [{"name": name, "periods": protocol.periods(name)} for name in protocol.names],
        "methods": [
            {
                "label": method.label,
                "seeds": method.seeds,
                "main": method in study.main,
                "style": _style_data(study.styles[method.label]),
            }
            for method in study.methods
        ],
        "figures": [_figure_data(figure, study, labels) for figure in part.curves],
    }


def _style_data(style: LineStyle) -> dict[str, str]:
    return {"color": style.color, "dash": style.dash, "outline": marker_outline(style.marker)}


def _figure_data(figure: CurveFigure, study: Study, labels: dict[str, int]) -> dict[str, Any]:
    tasks, styles = study.protocol.names, study.styles
    return {
        "name": figure.name,
        "title": figure.title,
        "y": figure.y,
        "caption": figure.caption,
        "percent": figure.percent,
        "logarithmic": figure.logarithmic,
        "x": figure.x,
        "unit": figure.unit,
        "end": max(int(curve.times[-1]) for curve in figure.curves)
        if figure.unit == "step"
        else study.protocol.episodes,
        "byTask": figure.panels != ("",),
        "curves": [
            {
                "method": labels[curve.method],
                "task": tasks.index(curve.panel) if curve.panel else None,
                "seeds": curve.runs,
                "marked": styles[curve.method].marked(len(curve.times)),
                "x": curve.times.tolist(),
                **{name: _numbers(values) for name, values in curve.values.items()},
            }
            for curve in figure.curves
        ],
    }


def _numbers(values: Floats) -> list[float | None]:
    """Return numbers as JSON has them; null for what is not known or beyond all numbers."""
    return [None if not math.isfinite(value) else float(f"{value:.{DIGITS}g}") for value in values]
