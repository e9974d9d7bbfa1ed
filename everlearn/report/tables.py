"""Tables of a study: the same rows as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from everlearn.results import paper
from everlearn.results.methods import Method, Study, told_of_tasks
from everlearn.results.records import METRIC_NAMES
from everlearn.results.statistics import Estimate, Resampling, estimate

HEADINGS = {
    "average_performance": ("AP", "up"),
    "regret_eval": ("regret", "down"),
    "regret_online": ("regret online", "down"),
    "forgetting": ("forgetting", "down"),
    "forward_transfer": ("transfer", "up"),
}
"""Short names of the metrics, and which direction is better."""

ARROWS = {"up": "↑", "down": "↓"}
PAPERS = {"average_performance": "average_performance", "regret_eval": "regret"}
"""Metrics that the paper's table has, and what `paper.PaperScore` calls them."""

UNFINISHED = "so far"
MISSING = "-"


@dataclass(frozen=True, eq=False)
class MethodScores:
    """A method's numbers.

    Attributes
    ----------
    method
        Whose.
    estimates
        By metric, from finished runs.
    so_far
        Where no run is finished, the mean of what the runs say at their last episode.
    """

    method: Method
    estimates: dict[str, Estimate]
    so_far: dict[str, float]

    @property
    def paper(self) -> paper.PaperScore | None:
        """The paper's numbers for this agent; none for a variation that the paper lacks."""
        return None if self.method.varied else paper.SCORES.get(self.method.agent)


@dataclass(frozen=True)
class Table:
    """A table of words.

    Attributes
    ----------
    name, title
        Name of its files, and what stands above it.
    headings, rows
        Its cells.
    note
        What stands below it.
    """

    name: str
    title: str
    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str


def score_methods(study: Study, resampling: Resampling) -> list[MethodScores]:
    """Return the numbers of all methods of a study."""
    found = []
    for method in study.methods:
        estimates = {name: method.estimate(name, resampling) for name in METRIC_NAMES}
        so_far = {} if method.complete else {name: _so_far(method, name) for name in METRIC_NAMES}
        found.append(MethodScores(method, estimates, so_far))
    return found


def _so_far(method: Method, metric: str) -> float:
    values = [getattr(run.summary, metric) for run in method.runs]
    known = [value for value in values if not math.isnan(value)]
    return sum(known) / len(known) if known else math.nan


def method_table(study: Study, scores: Sequence[MethodScores]) -> Table:
    """Methods against metrics, in percent, with the paper's numbers beside ours."""
    headings = ["method", "seeds", "told of tasks"]
    for name, (short, better) in HEADINGS.items():
        headings += [f"{short} {ARROWS[better]}", f"{short} IQM [95 %]"]
        if name in PAPERS:
            headings.append(f"{short}, paper")
    rows = []
    for score in scores:
        row = [score.method.label, _seeds_cell(score.method), _told_cell(score.method)]
        for name in HEADINGS:
            row += [mean_cell(score, name), middle_cell(score.estimates[name])]
            if name in PAPERS:
                row.append(paper_cell(score, name))
        rows.append(tuple(row))
    note = (
        "In percent. Mean ± standard error over finished runs; IQM: interquartile mean over seeds "
        "and tasks with its 95 % stratified bootstrap interval. AP, forgetting and regret are from "
        "evaluation with learning off, regret online and transfer from training episodes."
    )
    return Table("methods", "Methods", tuple(headings), tuple(rows), note + _remarks(study, scores))


def brief_table(study: Study, scores: Sequence[MethodScores]) -> Table:
    """Return the main numbers of the agents as they are, for a page that has little room."""
    main = {method.label for method in study.main}
    chosen = [score for score in scores if score.method.label in main]
    headings = ["method", "seeds", "told of tasks", "AP ↑", "AP IQM [95 %]", "AP, paper"]
    headings += ["regret ↓", "regret, paper", "forgetting ↓"]
    rows = [
        (
            score.method.label,
            _seeds_cell(score.method),
            _told_cell(score.method),
            mean_cell(score, "average_performance"),
            middle_cell(score.estimates["average_performance"]),
            paper_cell(score, "average_performance"),
            mean_cell(score, "regret_eval"),
            paper_cell(score, "regret_eval"),
            mean_cell(score, "forgetting"),
        )
        for score in chosen
    ]
    note = (
        "In percent, over seeds: mean ± standard error, and the interquartile mean with its 95 % "
        "stratified bootstrap interval."
    )
    return Table("brief", "In short", tuple(headings), tuple(rows), note + _remarks(study, chosen))


def _seeds_cell(method: Method) -> str:
    done, there = len(method.complete), len(method.runs)
    return str(there) if done == there else f"{done} of {there} finished"


def _told_cell(method: Method) -> str:
    return ", ".join(told_of_tasks(method.agent, method.settings)) or "no"


def _remarks(study: Study, scores: Sequence[MethodScores]) -> str:
    """Say what a reader of the table must not overlook."""
    text = ""
    if any(score.so_far for score in scores):
        text += f" ({UNFINISHED}): no run is finished; at their last episode, not comparable."
    if any(told_of_tasks(score.method.agent, score.method.settings) for score in scores):
        text += " Told of tasks: when they change (boundaries), and which one it is (name)."
    if any(score.paper for score in scores):
        text += f" Paper: {paper.SEEDS} seeds, {paper.EPISODES_PER_TASK} episodes a task"
        here = study.protocol.episodes_per_task
        same = here == paper.EPISODES_PER_TASK
        text += "." if same else f"; here {here}, so not comparable."
    return text


def task_table(study: Study, resampling: Resampling) -> Table:
    """Return the final success rate of every task by method, in percent."""
    tasks = study.protocol.names
    rows = []
    for method in study.methods:
        finals = [run.scores("average_performance") for run in method.complete]
        cells = []
        for task in tasks:
            values = [[final[task]] for final in finals if task in final]
            cells.append(_mean(estimate(values, resampling)) if values else MISSING)
        rows.append((method.label, str(len(finals)), *cells))
    note = "Success rate in the last evaluation, in percent: mean ± standard error over seeds."
    return Table("tasks", "Success at the end", ("method", "seeds", *tasks), tuple(rows), note)


def percent(share: float) -> str:
    """Return a share in percent as tables write it; nothing is less than nothing."""
    return f"{round(100 * share, 1) + 0.0:.1f}"


def mean_cell(score: MethodScores, metric: str) -> str:
    """Mean ± standard error in percent, or what there is."""
    if score.so_far:
        value = score.so_far[metric]
        return MISSING if math.isnan(value) else f"{percent(value)} ({UNFINISHED})"
    return _mean(score.estimates[metric])


def middle_cell(found: Estimate) -> str:
    """Interquartile mean and its interval in percent, or what there is."""
    if not found.runs:
        return MISSING
    middle = percent(found.middle)
    if math.isnan(found.low):
        return f"{middle} [1 seed]"
    return f"{middle} [{percent(found.low)}, {percent(found.high)}]"


def paper_cell(score: MethodScores, metric: str) -> str:
    """Return the paper's number for a metric of `PAPERS`, or that there is none."""
    return MISSING if score.paper is None else f"{getattr(score.paper, PAPERS[metric]):.2f}"


def _mean(found: Estimate) -> str:
    if not found.runs:
        return MISSING
    mean = percent(found.mean)
    if math.isnan(found.standard_error):
        return mean
    return f"{mean} ± {percent(found.standard_error)}"


def to_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [_pipes(table.headings), "|" + "---|" * len(table.headings)]
    lines += [_pipes(row) for row in table.rows]
    return "\n".join([*lines, "", table.note, ""])


def _pipes(cells: Iterable[str]) -> str:
    escaped = (" ".join(cell.split()).replace("\\", "\\\\").replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


_LATEX = {
    "\\": r"\textbackslash{}",
    "±": r"$\pm$",
    "↑": r"$\uparrow$",
    "↓": r"$\downarrow$",
    "…": r"\dots{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
}


def latex_text(text: str) -> str:
    """Return a text as LaTeX, whatever is in it."""
    return "".join(_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def to_latex(table: Table) -> str:
    """Return a table as LaTeX, for the package booktabs."""
    columns = "l" + "r" * (len(table.headings) - 1)
    lines = [r"\begin{table}", r"  \centering", rf"  \caption{{{latex_text(table.title)}. "]
    lines[-1] += latex_text(table.note) + "}"
    lines += [rf"  \begin{{tabular}}{{{columns}}}", r"    \toprule"]
    lines.append("    " + " & ".join(map(latex_text, table.headings)) + r" \\")
    lines.append(r"    \midrule")
    lines += ["    " + " & ".join(map(latex_text, row)) + r" \\" for row in table.rows]
    lines += [r"    \bottomrule", r"  \end{tabular}", r"\end{table}", ""]
    return "\n".join(lines)


def to_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows as CSV; NaN is an empty cell."""
    text = io.StringIO()
    names = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(text, names, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: _cell(value) for name, value in row.items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, float):
        return "" if math.isnan(value) else repr(value)
    # A spreadsheet must not take a name from a run's folder for a formula.
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "@") else value


def score_rows(scores: Sequence[MethodScores]) -> list[dict[str, Any]]:
    """Every number of the table of methods, as rows for CSV and scripts; not in percent."""
    rows = []
    for score in scores:
        for metric, found in score.estimates.items():
            rows.append(
                {
                    "method": score.method.label,
                    "agent": score.method.agent,
                    "metric": metric,
                    "seeds": found.runs,
                    "mean": found.mean,
                    "standard_error": found.standard_error,
                    "interquartile_mean": found.middle,
                    "low": found.low,
                    "high": found.high,
                    "so_far": score.so_far.get(metric, math.nan),
                }
            )
    return rows
