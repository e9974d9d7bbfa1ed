"""The numbers of a page as its script reads them."""

from __future__ import annotations

import math
from typing import Any

from everlearn.report.content import StudyReport
from everlearn.report.curves import CurveFigure
from everlearn.results.methods import Study
from everlearn.results.statistics import Floats
from everlearn.support.plotting import LineStyle, marker_outline

DIGITS = 5
"""Significant digits of a plotted number: more than a screen can show."""


def study_data(part: StudyReport) -> dict[str, Any]:
    """Return a study's methods, tasks and curves."""
    study, protocol = part.study, part.study.protocol
    labels = {method.label: place for place, method in enumerate(study.methods)}
    return {
        "episodes": protocol.episodes,
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
        "byTask": figure.panels != ("",),
        "curves": [
            {
                "method": labels[curve.method],
                "task": tasks.index(curve.panel) if curve.panel else None,
                "seeds": curve.runs,
                "marked": styles[curve.method].marked(len(curve.episodes)),
                "x": curve.episodes.tolist(),
                **{name: _numbers(values) for name, values in curve.values.items()},
            }
            for curve in figure.curves
        ],
    }


def _numbers(values: Floats) -> list[float | None]:
    """Return numbers as JSON has them; null for what is not known or beyond all numbers."""
    return [None if not math.isfinite(value) else float(f"{value:.{DIGITS}g}") for value in values]
