"""Tables of a study, with the paper's numbers where they compare; as Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from everlearn.results.methods import Method, Protocol, Study
from everlearn.results.statistics import Estimate, Resampling, estimate
from everlearn.results.summary import Metric, entry_names, period_scores, summarize
from everlearn.runs.config import PAPER_TASKS
from everlearn.support.terminal import printable

PAPERS = {"average_performance": "average_performance", "regret_eval": "regret"}
"""Metrics that the paper's table has, and what `PaperScore` calls them."""

REGRETS = (
    "Regret online: share of training episodes that were not solved. Over episodes, over steps: "
    "mean of 1 - success in evaluation of the task at hand, in either unit of time."
)
TOLD = "Told of tasks: when they change (boundaries), and which one it is (name)."
GIVEN = (
    "Given, beside observations and rewards: the reward as a function of predicted observations "
    "(reward function), whether one is a success (success test), what its entries are (scene), and "
    "how commands move the hand (command law)."
)
PERIOD_COLUMNS = {
    "training": "in training",
    "before": "before training",
    "after": "after its period",
    "end": "at the end",
    "bursts": "bursts",
    "steps": "steps",
    "seconds": "minutes",
    "processor": "processor minutes",
}
"""Of `summary.period_scores`, and what stands above them."""

PLAIN_MEANS = {"bursts": 1, "steps": 1, "seconds": 1 / 60, "processor": 1 / 60}
"""Those that are neither shares nor returns, and the unit in which they are shown."""

UNFINISHED = "so far"
MISSING = "-"


class PaperScore(NamedTuple):
    """A row of the paper's table, in percent: seven seeds, six tasks, 100 episodes each."""

    average_performance: float
    regret: float


PAPER_SEEDS = 7
PAPER_PROTOCOL = Protocol(
    world="continual-bench",
    measure="success",
    tasks=PAPER_TASKS,
    episodes_per_task=100,
    max_steps=500,
    reset_noise=0.0,
)

PAPER_SCORES = {
    "oa-paper": PaperScore(72.93, 27.62),
    "mlp-paper-finetune": PaperScore(24.86, 37.74),
    "mlp-paper-si": PaperScore(39.96, 33.57),
    "mlp-paper-coreset": PaperScore(61.83, 30.83),
    "mlp-paper-perfect-memory": PaperScore(73.09, 30.95),
    "sac-finetune": PaperScore(0.69, 67.68),
    "sac-ewc": PaperScore(31.45, 77.38),
    "sac-packnet": PaperScore(41.72, 78.50),
    "sac-coreset": PaperScore(37.31, 77.97),
    "sac-perfect-memory": PaperScore(41.51, 77.58),
}
"""By the agent of ours that has the paper's settings; `oa` and `mlp-*` have others."""


def paper_score(method: Method, protocol: Protocol) -> PaperScore | None:
    """Return the paper's row for a method, None if the paper did not run this."""
    if protocol != PAPER_PROTOCOL or method.varied:
        return None
    return PAPER_SCORES.get(method.agent)


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
    paper
        The paper's numbers, where it ran the same agent with the same budget.
    percent
        Whether the numbers are shares, which tables show in percent.
    """

    method: Method
    estimates: dict[str, Estimate]
    so_far: dict[str, float]
    paper: PaperScore | None
    percent: bool


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
    protocol = study.protocol
    scores = []
    for method in study.methods:
        estimates = {
            metric.name: method.estimate(metric, resampling) for metric in protocol.metrics
        }
        so_far = {} if method.complete else _so_far(method, protocol.metrics)
        papers = paper_score(method, protocol)
        percent = protocol.measure == "success"
        scores.append(MethodScores(method, estimates, so_far, papers, percent))
    return scores


def _so_far(method: Method, wanted: Sequence[Metric]) -> dict[str, float]:
    summaries = [summarize(run) for run in method.runs]
    means = {}
    for metric in wanted:
        values = [getattr(summary, metric.name) for summary in summaries]
        known = [value for value in values if not math.isnan(value)]
        means[metric.name] = sum(known) / len(known) if known else math.nan
    return means


def method_table(study: Study, scores: Sequence[MethodScores]) -> Table:
    """Methods against metrics, with the paper's numbers beside those that it has."""
    papers = _papers(scores)
    headings = ["method", "seeds", "told of tasks", "given"]
    for metric in study.protocol.metrics:
        headings += [metric.titled, f"{metric.heading} IQM [95 %]"]
        if metric.name in papers:
            headings.append(f"{metric.heading}, paper")
    rows = []
    for score in scores:
        row = _method_cells(score.method)
        for metric in study.protocol.metrics:
            row += [mean_cell(score, metric), middle_cell(score, metric)]
            if metric.name in papers:
                row.append(paper_cell(score, metric))
        rows.append(tuple(row))
    note = (
        "Mean ± standard error over finished runs; IQM: interquartile mean over seeds and tasks "
        "with its 95 % stratified bootstrap interval. Transfer is from training episodes. "
    )
    return Table("methods", "Methods", tuple(headings), tuple(rows), note + _remarks(study, scores))


def brief_table(study: Study, scores: Sequence[MethodScores]) -> Table:
    """Return the main numbers of the agents as they are, for a page that has little room."""
    main = {method.label for method in study.main}
    chosen = [score for score in scores if score.method.label in main]
    papers = _papers(chosen)
    performance, *others = [
        metric for metric in study.protocol.metrics if metric.name != "forward_transfer"
    ]
    headings = ["method", "seeds", "told of tasks", "given", performance.titled]
    headings.append(f"{performance.heading} IQM [95 %]")
    headings += [f"{performance.heading}, paper"] if performance.name in papers else []
    for metric in others:
        headings.append(metric.titled)
        headings += [f"{metric.heading}, paper"] if metric.name in papers else []
    rows = []
    for score in chosen:
        row = _method_cells(score.method)
        row += [mean_cell(score, performance), middle_cell(score, performance)]
        row += [paper_cell(score, performance)] if performance.name in papers else []
        for metric in others:
            row.append(mean_cell(score, metric))
            row += [paper_cell(score, metric)] if metric.name in papers else []
        rows.append(tuple(row))
    note = (
        "Over seeds: mean ± standard error, and the interquartile mean with its 95 % stratified "
        "bootstrap interval. "
    )
    return Table("brief", "In short", tuple(headings), tuple(rows), note + _remarks(study, chosen))


def _papers(scores: Sequence[MethodScores]) -> tuple[str, ...]:
    """Names of the metrics that get a column with the paper's numbers."""
    return tuple(PAPERS) if any(score.paper for score in scores) else ()


def _method_cells(method: Method) -> list[str]:
    done, there = len(method.complete), len(method.runs)
    seeds = str(there) if done == there else f"{done} of {there} finished"
    return [method.label, seeds, words_cell(method.told), words_cell(method.given)]


def words_cell(words: tuple[str, ...] | None) -> str:
    """Say what a method is told or given; a dash where its runs do not say."""
    return MISSING if words is None else ", ".join(words) or "nothing"


def _remarks(study: Study, scores: Sequence[MethodScores]) -> str:
    """Say what the columns are, and what a reader must not overlook."""
    if study.protocol.measure == "success":
        text = f"In percent. AP and forgetting are from evaluation with learning off. {REGRETS}"
    else:
        text = (
            "Returns: mean over tasks in the last evaluation, with learning off, and over training "
            "episodes. Forgetting and transfer are differences of returns."
        )
    if any(score.so_far for score in scores):
        text += f" ({UNFINISHED}): no run is finished; at their last episode, not comparable."
    unmeasured = [score.method.label for score in scores if _starts_unmeasured(score.method)]
    if unmeasured and study.protocol.measure == "success":
        who = "all methods" if len(unmeasured) == len(scores) else ", ".join(unmeasured)
        text += (
            f" Runs without an evaluation before a task's first training episode: {who}; their "
            "regret over episodes and steps counts the first evaluation back to that episode."
        )
    if any(score.method.told for score in scores):
        text += f" {TOLD}"
    if any(score.method.given for score in scores):
        text += f" {GIVEN}"
    if any(None in (score.method.told, score.method.given) for score in scores):
        text += " A dash under told or given: the runs do not say."
    if any(score.paper for score in scores):
        text += f" Paper: {PAPER_SEEDS} seeds, the same tasks and budget."
    return text


def knowledge(methods: Iterable[Method]) -> str:
    """Say below a table without such columns what its methods are told and given."""
    groups: dict[tuple[str, str], list[str]] = {}
    for method in methods:
        known = words_cell(method.told), words_cell(method.given)
        groups.setdefault(known, []).append(method.label)
    words = [
        f"{', '.join(labels)}: told {told}, given {given}"
        for (told, given), labels in groups.items()
    ]
    return f"What methods know: {'; '.join(words)}."


def _starts_unmeasured(method: Method) -> bool:
    """Whether regret of some run starts with a value that was measured later."""
    return any(len(run.evaluations.episodes) and not run.evaluated_at_start for run in method.runs)


def task_table(study: Study, resampling: Resampling) -> Table:
    """Return the final success rate or return of every task by method."""
    success = study.protocol.measure == "success"
    performance = study.protocol.performance
    tasks = study.protocol.names
    rows = []
    for method in study.methods:
        finals = [performance.scores(run) for run in method.complete]
        cells = []
        for task in tasks:
            known = [final[task] for final in finals if task in final]
            values = [[value] for value in known if not math.isnan(value)]
            cells.append(mean_of(estimate(values, resampling), success) if values else MISSING)
        rows.append((method.label, str(len(finals)), *cells))
    measured = "Success rate in the last evaluation, in percent" if success else "Mean return"
    measured += "" if success else " in the last evaluation"
    title = "Success at the end" if success else "Return at the end"
    note = f"{measured}: mean ± standard error over seeds. {knowledge(study.methods)}"
    return Table("tasks", title, ("method", "seeds", *tasks), tuple(rows), note)


def period_table(study: Study, resampling: Resampling) -> Table:
    """Return what each method made of every period of training."""
    success = study.protocol.measure == "success"
    rows = []
    for method in study.methods:
        runs = [period_scores(run) for run in method.complete]
        for name in entry_names(study.protocol.tasks) if runs else ():
            cells = []
            for word in PERIOD_COLUMNS:
                known = [run[name][word] for run in runs if not math.isnan(run[name][word])]
                if not known:
                    cells.append(MISSING)
                elif word in PLAIN_MEANS:
                    mean = sum(known) / len(known) * PLAIN_MEANS[word]
                    cells.append(f"{mean:.0f}" if mean >= 100 else f"{mean:.1f}")
                else:
                    cells.append(
                        mean_of(estimate([[value] for value in known], resampling), success)
                    )
            rows.append((method.label, str(len(runs)), name, *cells))
    training = "solved in training" if success else "return in training"
    headings = ("method", "seeds", "task", training, *list(PERIOD_COLUMNS.values())[1:])
    unit = "In percent" if success else "Returns"
    note = (
        f"{unit}: mean ± standard error over finished runs. Before training, after its period, at "
        "the end: evaluated with learning off. Bursts: escape bursts in an episode of the last "
        "evaluation. Steps, minutes (wall time) and processor minutes: training in the period. "
        f"These are means over runs. {knowledge(study.methods)}"
    )
    return Table("periods", "Periods of training", headings, tuple(rows), note)


def percent(share: float) -> str:
    """Return a share in percent as tables write it; nothing is less than nothing."""
    return f"{round(100 * share, 1) + 0.0:.1f}"


def shown(value: float, as_percent: bool, scale: float | None = None) -> str:
    """Return a number as tables write it: a share in percent, a return with about four digits.

    `scale` is the number whose digits count, where a standard error stands beside its mean.
    """
    if as_percent:
        return percent(value)
    size = abs(value if scale is None else scale)
    digits = 0 if size >= 1000 else 1 if size >= 100 else 2 if size >= 10 else 3
    return f"{round(value, digits) + 0.0:.{digits}f}"


def mean_cell(score: MethodScores, metric: Metric) -> str:
    """Mean ± standard error, or what there is."""
    if score.so_far:
        value = score.so_far[metric.name]
        if math.isnan(value):
            return MISSING
        return f"{shown(value, score.percent)} ({UNFINISHED})"
    return mean_of(score.estimates[metric.name], score.percent)


def middle_cell(score: MethodScores, metric: Metric) -> str:
    """Interquartile mean and its interval, or what there is."""
    values = score.estimates[metric.name]
    if not values.runs:
        return MISSING
    middle = shown(values.middle, score.percent)
    if math.isnan(values.low):
        return f"{middle} [1 seed]"
    return f"{middle} [{shown(values.low, score.percent)}, {shown(values.high, score.percent)}]"


def paper_cell(score: MethodScores, metric: Metric) -> str:
    """Return the paper's number for a metric of `PAPERS`, or that there is none."""
    return MISSING if score.paper is None else f"{getattr(score.paper, PAPERS[metric.name]):.2f}"


def mean_of(values: Estimate, as_percent: bool) -> str:
    """Mean ± standard error."""
    if not values.runs:
        return MISSING
    mean = shown(values.mean, as_percent)
    if math.isnan(values.standard_error):
        return mean
    return f"{mean} ± {shown(values.standard_error, as_percent, values.mean)}"


def to_markdown(table: Table) -> str:
    """Return a table as Markdown."""
    lines = [_pipes(table.headings), "|" + "---|" * len(table.headings)]
    lines += [_pipes(row) for row in table.rows]
    return "\n".join([*lines, "", markdown_text(table.note), ""])


def _pipes(cells: Iterable[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |"


_MARKDOWN = {
    "\\": "\\\\",
    "|": "\\|",
    "&": "&amp;",
    "<": "&lt;",
    "](": "]\\(",
    "://": "&#58;//",
    "www.": "www&#46;",
}


def markdown_text(text: str) -> str:
    """Return a text as Markdown in which no tag, link or picture of a run's folder comes alive."""
    text = printable(" ".join(text.split()))
    return re.sub("|".join(map(re.escape, _MARKDOWN)), lambda sign: _MARKDOWN[sign[0]], text)


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
