"""The style of figures: lines that are never told by their colour alone."""

from __future__ import annotations

import itertools

import pytest

from everlearn.support.plotting import MARKERS, PALETTE, line_style, marker_outline


def test_lines_differ_by_more_than_their_colour():
    looks = [(style.marker, style.dash) for style in map(line_style, range(4 * len(PALETTE)))]
    assert len(set(looks)) == len(looks)


@pytest.mark.parametrize("points", [1, 40, 41, 60, 600, 5000])
def test_lines_of_any_length_are_marked(points: int):
    marked = []
    for place in range(len(MARKERS)):
        first, every = line_style(place).marked(points)
        marked.append(range(first, points, every))
    if points <= 40:
        assert all(len(places) == points for places in marked)
        return
    assert all(8 <= len(places) <= 24 for places in marked)
    if points >= 600:  # room for each to have points of its own
        assert not any(set(one) & set(other) for one, other in itertools.combinations(marked, 2))


def test_markers_have_the_outline_that_print_gives_them():
    assert marker_outline("s") == "M-0.5 0.5L0.5 0.5L0.5 -0.5L-0.5 -0.5Z"
    assert marker_outline("^") == "M0 -0.5L-0.5 0.5L0.5 0.5Z", "its tip is up, where y is less"
    outlines = {marker_outline(marker) for marker in MARKERS}
    assert len(outlines) == len(MARKERS)
    assert all(set(outline) <= set("MLCZ -.0123456789") for outline in outlines)
