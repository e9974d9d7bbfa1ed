"""The one style of all figures: for print, without a display, for colour-blind readers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BROWN, GREY = "#E69F00", "#56B4E9", "#7A4E1D", "#6B6B6B"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BROWN, GREY)
"""Okabe and Ito's colours, which differ for every kind of colour vision; brown for yellow."""

DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SHADE = "#ECEDEF"
"""Behind the part of an axis that is meant."""

DOTS_PER_INCH = 300


@dataclass(frozen=True)
class LineStyle:
    """How one of several lines is told from the others: never by colour alone."""

    color: str
    dash: str
    marker: str


def line_style(place: int) -> LineStyle:
    """Style of the line at `place`: colour and marker change with each, dashes after a round."""
    return LineStyle(
        PALETTE[place % len(PALETTE)],
        DASHES[place // len(PALETTE) % len(DASHES)],
        MARKERS[place % len(MARKERS)],
    )


def new_figure(
    rows: int, columns: int, width: float = 4.6, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes row by row, each of `width` x `height` inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def label_axes(axes: Axes, x: str, y: str, title: str, legend: bool = True) -> None:
    """Name both axes and the panel, and take away what carries no information."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=8, frameon=False)


def save_figure(figure: Figure, path: Path, dots_per_inch: int = DOTS_PER_INCH) -> None:
    """Write a figure; the name's ending decides the format.

    No date and no version inside: equal figures give equal files.
    """
    settle_layout(figure)
    unstamped = {".png": {"Software": None}, ".pdf": {"CreationDate": None, "Producer": None}}
    with matplotlib.rc_context({"pdf.fonttype": 42}):  # text that journals accept and search finds
        figure.savefig(path, dpi=dots_per_inch, metadata=unstamped.get(path.suffix))


def settle_layout(figure: Figure) -> None:
    """Lay a complete figure out once, not again for every file that it becomes."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")
