"""The table of what agents found about their worlds: objects, and what touches them."""

from __future__ import annotations

from everlearn.report.tables import MISSING, Table
from everlearn.results.methods import Study
from everlearn.support.structure import Structure, Touch

MOST_OBJECTS, MOST_TOUCHES = 12, 8
"""Rows of a method: objects, and of each the touches that vary least."""


def structure_table(study: Study) -> Table | None:
    """Return the table, with one run of each method; None where no run says what was found."""
    rows = []
    for method in study.methods:
        # The run that counted most: a longer life knows more.
        runs = [run for run in method.runs if run.structure is not None]
        run = max(runs, key=lambda run: run.structure.steps, default=None)  # type: ignore[union-attr]
        if run is not None and run.structure is not None:
            name = f"{method.label}, seed {run.config.seed}"
            rows += [(name, *cells) for cells in _cells(run.structure)]
    if not rows:
        return None
    headings = ("method", "object", "began to move", "touched by", "where", "spread", "of usual")
    note = (
        "Counted by the agent from its own transitions; nothing is declared. An object: entries of "
        "the observation that lie still most of the time and move together. Began to move: after a "
        "rest. Touched by: an entry that moves freely and whose value, or distance from an entry "
        "of the object, is nearly the same whenever the object begins to move. Where: the median. "
        "Spread: half the width of the middle two thirds. Of usual: that as a share of the spread "
        f"over all steps. At most {MOST_OBJECTS} objects of a run, and {MOST_TOUCHES} touches of "
        "each."
    )
    return Table("structure", "What the agent found", headings, tuple(rows), note)


def _cells(structure: Structure) -> list[tuple[str, ...]]:
    rows = []
    by_moves = sorted(structure.objects, key=lambda thing: -thing.began)
    for thing in by_moves[:MOST_OBJECTS]:
        first = (", ".join(thing.names), str(thing.began))
        closest = sorted(thing.touches[:MOST_TOUCHES], key=lambda touch: touch.entry)
        for cells in map(_touch_cells, closest or (None,)):
            rows.append((*first, *cells))
            first = ("", "")
    count = len(structure.resting)
    return rows or [(f"none; {count} entries at rest", MISSING, *_touch_cells(None))]


def _touch_cells(touch: Touch | None) -> tuple[str, ...]:
    if touch is None:
        return (MISSING,) * 4
    name = touch.name if touch.beside is None else f"{touch.name} - {touch.beside_name}"
    share = f"{100 * touch.share:.0f} %"
    return name, f"{touch.offset:.3g}", f"± {touch.spread:.2g}", share
