"""The one style of all figures: for print, without a display, for colour-blind readers.

Matplotlib is imported when something is drawn, so that styles cost nothing elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BLUE, VERMILLION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BROWN, GREY = "#E69F00", "#56B4E9", "#7A4E1D", "#6B6B6B"
PALETTE = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY, BROWN, GREY)
"""Okabe and Ito's colours, which differ for every kind of colour vision; brown for yellow."""

DASHES = ("-", "--", "-.", ":")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", "p", ">")
"""Eleven markers and eight colours: no pair of them comes again within 88 lines."""
MOST_MARKS, SPACED_MARKS = 40, 12
"""Points of a line that are each marked, and how many are where there are more than that."""

SHADE = "#ECEDEF"
"""Behind the part of an axis that is meant."""

DOTS_PER_INCH = 300


@dataclass(frozen=True)
class LineStyle:
    """How one of several lines is told from the others: never by colour alone.

    Attributes
    ----------
    color, dash, marker
        As matplotlib names them.
    number
        Of the line among the others.
    """

    color: str
    dash: str
    marker: str
    number: int

    def marked(self, points: int) -> tuple[int, int]:
        """Return the first of `points` to mark and the step to the next.

        All of a few; a dozen of many, each line at points of its own, so that lines which lie
        on each other can still be told apart.
        """
        if points <= MOST_MARKS:
            return 0, 1
        every = points // SPACED_MARKS
        return self.number % len(MARKERS) * every // len(MARKERS), every


def line_style(number: int) -> LineStyle:
    """Style of a line: colour and marker change with each, dashes after a round of colours."""
    return LineStyle(
        PALETTE[number % len(PALETTE)],
        DASHES[number // len(PALETTE) % len(DASHES)],
        MARKERS[number % len(MARKERS)],
        number,
    )


def marker_outline(marker: str) -> str:
    """Return a marker as the path of an SVG, about a unit high and around the origin."""
    from matplotlib.markers import MarkerStyle
    from matplotlib.path import Path as Outline

    letters = {
        Outline.MOVETO: "M",
        Outline.LINETO: "L",
        Outline.CURVE4: "C",
        Outline.CLOSEPOLY: "Z",
    }
    style = MarkerStyle(marker)
    outline = style.get_path().transformed(style.get_transform())
    words = []
    for points, code in outline.iter_segments():
        # From here on, y points down.
        signed = (value * sign for value, sign in zip(points, cycle((1, -1)), strict=False))
        numbers = " ".join(f"{round(value, 3) + 0.0:g}" for value in signed)
        words.append(letters[code] + ("" if code == Outline.CLOSEPOLY else numbers))
    return "".join(words)


def new_figure(
    rows: int, columns: int, width: float = 4.6, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """Return a figure and its axes row by row, each of `width` x `height` inches."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    return figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def label_axes(axes: Axes, x: str, y: str, title: str, legend: bool = True) -> None:
    """Name both axes and the panel, and take away what carries no information."""
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(title, fontsize=10)
    axes.spines[["top", "right"]].set_visible(False)
    if legend:
        axes.legend(fontsize=8, frameon=False)


def show_names_as_they_are(figure: Figure) -> None:
    """Let no text of a complete figure be a formula: the name of a run may have dollar signs."""
    from matplotlib.text import Text

    powers = {
        label
        for axes in figure.axes
        for axis in (axes.xaxis, axes.yaxis)
        if axis.get_scale() == "log"
        for tick in (*axis.get_major_ticks(), *axis.get_minor_ticks())
        for label in (tick.label1, tick.label2)
    }
    for text in figure.findobj(Text):
        if text not in powers:
            text.set_parse_math(False)


def save_figure(figure: Figure, path: Path, dots_per_inch: int = DOTS_PER_INCH) -> None:
    """Write a figure; the name's ending decides the format.

    No date and no version inside: equal figures give equal files.
    """
    import matplotlib

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
