"""Put tables and figures of the reported runs into README and docs.

``python tools/show_results.py``. They come from `everlearn report` on the folders below; a test
says when a page is behind.
"""

import csv
import json
import re
import shutil
import sys
import tempfile
import textwrap
from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path
from statistics import mean
from typing import Any

from everlearn.report import Report, read_report, write_report
from everlearn.report.tables import MethodScores, Table, mean_cell, to_markdown
from everlearn.results.summary import SUCCESS_METRICS

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script it finds its own folder alone

from tools.shown_tables import settings, speed

ROOT = Path(__file__).parents[1]
PAPER, QUICK = "results/paper", "results/quick"
"""Where the reported runs are; those of the lab notebook are in results/tuning."""

FIRST_REPORTED = 100
"""Seeds below are there to tune on."""

FIGURES = {
    (PAPER, "success"): "docs/images/results.png",
    (QUICK, "budget"): "docs/images/budget.png",
    (QUICK, "bins"): "docs/images/bins.png",
}
"""Figures of reports that pages show, and where they are kept."""

PARTS = {
    "memory": "no memory of commands and motion",
    "horizon": "plans as short as the paper's",
    "rest": "things at rest may creep in plans",
    "final_weight": "a plan's end counts like every step",
    "patience": "no way out of circles",
    "ridge": "as good as none",
}
"""What it means to set these options of `oa`, by the last part of their names."""

METRICS = [metric for metric in SUCCESS_METRICS if metric.name != "forward_transfer"]


@lru_cache
def read(folder: str) -> Report:
    """Read the runs below a folder."""
    return read_report([ROOT / folder])


def methods(folder: str) -> str:
    """Return the table of a folder's largest study, with a sentence on where it comes from."""
    part = read(folder).studies[0]
    words = f"`everlearn report {folder}`: {part.study.protocol}."
    tuned = [
        method.label
        for method in part.study.main
        if any(run.config.seed < FIRST_REPORTED for run in method.runs)
    ]
    if tuned:
        words += f" Of {', '.join(tuned)} these are runs to tune on, not results."
    return textwrap.fill(words, 100) + "\n\n" + to_markdown(part.tables["brief"]).strip()


def variations(folder: str, agent: str, options: Mapping[str, str]) -> str:
    """Return a table of an agent and of those that differ from it by one of some options.

    Parameters
    ----------
    folder
        Where the runs are.
    agent
        Name of the agent.
    options
        Last parts of their names, and what to say of each. Of a single one, the agent as it is
        has a value too.
    """
    scores = [score for score in read(folder).studies[0].scores if score.method.agent == agent]
    order = list(options)
    rows: list[tuple[float, MethodScores, str]] = []
    for score in scores:
        varied = {name.rpartition(".")[2]: value for name, value in score.method.varied.items()}
        if len(options) == 1:
            (name,) = order
            path = score.method.path_of(name)
            if varied.keys() <= {name} and path is not None:
                value = score.method.settings[path]
                title = f"`{name}={value:g}`{'' if varied else options[name]}"
                rows.append((value, score, title))
        elif not varied:
            rows.append((-1, score, f"`{agent}`"))
        elif len(varied) == 1 and (name := next(iter(varied))) in options:
            value = varied[name]
            shown = value if isinstance(value, str) else f"{value:g}"
            rows.append((order.index(name), score, f"`{name}={shown}`: {options[name]}"))
    rows.sort(key=lambda row: row[0])
    cells = tuple(
        (title, str(len(score.method.runs)), *(mean_cell(score, metric) for metric in METRICS))
        for _, score, title in rows
    )
    headings = ("", "seeds", *(metric.titled for metric in METRICS))
    note = f"In percent, mean ± standard error over seeds (`everlearn report {folder}`)."
    return to_markdown(Table("variations", "", headings, cells, note)).strip()


TORTURE = "results/torture.json"
SURVIVED = {
    "kills of a run survived": (
        "kill -9 of a run, at a random moment or at a change of the disk",
        "resumed, it ends with the bits of a run that was never stopped",
    ),
    "kills of a worker of a sweep survived": (
        "kill -9 of a worker of a sweep",
        "all runs finish, each as if alone",
    ),
    "kills of the driver of a sweep survived": (
        "kill -9 of the driver of a sweep",
        "the same",
    ),
    "nodes of a cluster lost": (
        "a node of a cluster of three killed",
        "all runs finish, each equal to the bit to the same run alone",
    ),
    "truncations noticed": (
        "a snapshot, metrics or transitions truncated",
        "detected every time",
    ),
    "flipped bytes noticed": ("a byte of them flipped", "detected every time"),
    "damaged snapshots replaced by the one before": (
        "the newest snapshot damaged",
        "the one before is used, and the run ends with the same bits",
    ),
    "altered metrics refused": ("metrics altered after the fact", "refused"),
    "full disks survived": (
        "the disk full, at a change of it or by a limit of the system",
        "a clear error; with space again, the run resumes to the same bits",
    ),
    "runs under a jumping clock": ("a run under a clock that jumps back and forth", "same bits"),
    "second processes refused": ("a second process on a run's folder", "refused"),
    "forged files refused": (
        "files of agents and of states of runs forged",
        "refused with nothing changed",
    ),
    "forged files taken without harm": (
        "forged files whose content passes all checks",
        "accepted without harm",
    ),
    "hostile run folders": (
        "run folders with one file that hypothesis has altered",
        "a one-line error, nothing written elsewhere",
    ),
    "commands on hostile folders": (
        "`report`, `list`, `eval`, `run` on folders that were made to do harm, each in a process",
        "no traceback, below 1 GB, nothing read or written outside",
    ),
    "bad inputs refused, in all": (
        "bad inputs to the public interface, generated by hypothesis",
        "documented errors only, state unchanged",
    ),
    "updates of one model": (
        "updates of one small model",
        "constant memory, residual within 1e-12, predictions that do not drift",
    ),
}
"""What the counts of the torture suite are about, and what must hold each time."""


def torture() -> str:
    """Return the table of what the torture suite did when it was last run."""
    stored = json.loads((ROOT / TORTURE).read_text(encoding="utf-8"))
    tests, counts = stored["tests"], stored["counts"]
    broken = tests["failed"] + tests["error"]
    words = (
        f"`make torture LENGTH={stored['length']:g}` at commit {stored['commit']} "
        f"(`pytest {stored['selected']}`), {stored['minutes']:g} minutes: {tests['passed']} tests "
        f"passed, {broken} failed, {tests['skipped']} skipped. The counts are in `{TORTURE}`; a "
        "dash stands for what was not part of it."
    )
    rows = [
        f"| {what} | {f'{counts[name]:,}' if name in counts else '-'} | {holds} |"
        for name, (what, holds) in SURVIVED.items()
    ]
    head = ["| what is done | how often | what must hold |", "|---|---|---|"]
    return "\n".join([textwrap.fill(words, 100), "", *head, *rows])


WORLDS, PEERS = "results/worlds", "results/peers/dm_control-100000.csv"
PUBLISHED = {"tdmpc2": "TD-MPC2", "dreamerv3": "DreamerV3", "sac": "SAC"}
"""Methods with published returns at 100,000 steps, and what the table calls them."""


def worlds() -> str:
    """Return the table of the agent in many worlds, beside published returns."""
    published: dict[str, dict[str, str]] = {}
    with (ROOT / PEERS).open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            task = line["task"].replace("cup-catch", "ball-in-cup-catch")
            published.setdefault(task, {})[line["method"]] = f"{float(line['mean']):.0f}"
    measured: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((ROOT / WORLDS).glob("*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        measured.setdefault(one["world"], []).append(one)
    rows = []
    for world in sorted(measured, key=lambda name: (name.split(":")[0], name)):
        runs = measured[world]
        task = world.partition(":")[2].replace("_", "-")
        means = [[mean(run[part]) for run in runs] for part in ("zero", "random", "frozen")]
        # Training episodes that ended in the last fifth of the steps, or the last one.
        online = [
            mean(
                [total for step, total in run["curve"] if step > 0.8 * run["steps"]]
                or [run["curve"][-1][1]]
            )
            for run in runs
        ]
        cells = [
            f"`{world}`",
            str(len(runs)),
            *(f"{mean(values):.0f}" for values in means[:2]),
            " ".join(f"{value:.0f}" for value in online),
            " ".join(f"{value:.0f}" for value in means[2]),
            *(published.get(task, {}).get(method, "-") for method in PUBLISHED),
            f"{max(run['milliseconds']['p99'] for run in runs):.0f}",
            f"{max(run['milliseconds']['most'] for run in runs):.0f}",
        ]
        rows.append("| " + " | ".join(cells) + " |")
    headings = (
        *("world", "seeds", "no action", "random", "`oa`, learning", "`oa`, frozen"),
        *(f"{name}, 100,000 steps" for name in PUBLISHED.values()),
        *("p99 ms", "longest ms"),
    )
    head = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    every = [run for runs in measured.values() for run in runs]
    steps = ", ".join(f"{count:,}" for count in sorted({run["steps"] for run in every}))
    commits = ", ".join(sorted({run["commit"] for run in every}))
    words = (
        f"`python -m benchmarks.worlds` at commit {commits}, {steps} steps of the environment "
        "each, one thread beside other jobs. Returns, a number for each seed: `learning` is the "
        "mean of training episodes in the last fifth of the steps, `frozen` of five episodes "
        "afterwards. Published returns are means over three seeds, as the authors of TD-MPC2 give "
        "them. p99 and longest: milliseconds that the agent took for a step, the worst seed."
    )
    return "\n".join([textwrap.fill(words, 100), "", *head, *rows])


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/reliability.md", "torture"): torture,
    ("docs/worlds.md", "worlds"): worlds,
    ("README.md", "paper"): partial(methods, PAPER),
    ("docs/agent.md", "settings"): settings,
    ("docs/speed.md", "speed"): speed,
    ("docs/results.md", "paper"): partial(methods, PAPER),
    ("docs/results.md", "quick"): partial(methods, QUICK),
    ("docs/results.md", "parts"): partial(variations, QUICK, "oa", PARTS),
    ("docs/results.md", "bins"): partial(variations, QUICK, "oa", {"bins": ", as `oa` has it"}),
    ("docs/results.md", "budget"): partial(
        variations, QUICK, "mlp-coreset", {"capacity": ", as `mlp-coreset` has it"}
    ),
}
"""What is made, by the page and by the name in its marks."""


def pages() -> Iterator[tuple[Path, str]]:
    """Return every page with its text as it has to be."""
    for page in dict.fromkeys(page for page, _ in BLOCKS):
        text = (ROOT / page).read_text(encoding="utf-8")
        for (there, name), make in BLOCKS.items():
            if there == page:
                text = filled(text, name, make())
        yield ROOT / page, text


def filled(text: str, name: str, content: str) -> str:
    """Return a page with other content between the marks of a name."""
    begin, end = f"<!-- {name}: made by tools/show_results.py -->", "<!-- end -->"
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    block = f"{begin}\n\n{content}\n\n{end}"
    text, count = pattern.subn(lambda match: block, text)
    if count != 1:
        raise SystemExit(f"expected one place marked {begin!r}, found {count}")
    return text


def main() -> None:
    """Write pages and figures."""
    for page, text in pages():
        page.write_text(text, encoding="utf-8")
    for source in dict.fromkeys(source for source, _ in FIGURES):
        with tempfile.TemporaryDirectory() as out:
            write_report(read(source), out)
            for (folder, name), kept in FIGURES.items():
                if folder == source:
                    shutil.copyfile(Path(out) / "figures" / f"{name}.png", ROOT / kept)


if __name__ == "__main__":
    main()
