"""The table of other ways to evaluate: without escape bursts, with the mean of a policy."""

from __future__ import annotations

from everlearn.report.tables import MISSING, Table, knowledge, mean_of
from everlearn.results.methods import Method, Study
from everlearn.results.statistics import NOTHING, Resampling, estimate
from everlearn.results.summary import bursts_at_end


def variant_table(study: Study, resampling: Resampling) -> Table | None:
    """Return the table; None where no run knows of bursts or of another way."""
    success = study.protocol.measure == "success"
    performance = study.protocol.performance
    rows = []
    for method in study.methods:
        names = dict.fromkeys(name for run in method.complete for name in run.variants)
        bursts = bursts_at_end(method.complete)
        if bursts is None and not names:
            continue
        shown_bursts = MISSING if bursts is None else f"{bursts:.1f}"
        as_it_is = mean_of(method.estimate(performance, resampling), success)
        first = (method.label, str(len(method.complete)), as_it_is, shown_bursts)
        rows += [(*first, name, *_cells(method, name, success, resampling)) for name in names] or [
            (*first, MISSING, MISSING, MISSING)
        ]
    if not rows:
        return None
    headings = ("method", "seeds", performance.titled, "bursts", "another way", "its seeds")
    note = (
        "Evaluation at the end of the run, with learning off, as mean ± standard error over "
        f"finished runs{', in percent' if success else ''}. Bursts: escape bursts in an episode. "
        "Another way: the same agent and the same starts, with the mean of a policy in place of "
        f"samples, or without escape bursts. {knowledge(study.methods)}"
    )
    title = "The last evaluation in other ways"
    return Table("variants", title, (*headings, f"{performance.heading} then"), tuple(rows), note)


def _cells(method: Method, name: str, success: bool, resampling: Resampling) -> tuple[str, str]:
    scores = [[*run.variants[name].values()] for run in method.complete if name in run.variants]
    values = estimate(scores, resampling) if scores else NOTHING
    return str(len(scores)), mean_of(values, success)
