"""Put tables and figures of the reported runs into README and docs.

``python tools/show_results.py``. They come from `everlearn report` on the folders below; a test
says when a page is behind. Tables have the runs that are there: none at first.
"""

import csv
import dataclasses
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
from everlearn.report.build import StudyReport
from everlearn.report.claims import claim_tables
from everlearn.report.tables import (
    PAPER_PROTOCOL,
    MethodScores,
    Table,
    brief_table,
    knowledge,
    mean_cell,
    to_markdown,
)
from everlearn.results.methods import Protocol
from everlearn.results.read import find_runs
from everlearn.results.summary import SUCCESS_METRICS

sys.path.insert(0, str(Path(__file__).parents[1]))  # as a script it finds its own folder alone

from tools.shown_tables import settings, speed

ROOT = Path(__file__).parents[1]
PAPER, QUICK, ARCHIVE = "results/paper", "results/quick", "results/archive/paper"
"""Where the reported runs are, and those of version 0.1: `QUICK` and `ARCHIVE`. Those of the lab
notebook are in results/tuning."""

FIRST_REPORTED = {PAPER: 300, QUICK: 100, ARCHIVE: 100}
"""Seeds below have been seen before settings were fixed."""

NOISE = dataclasses.replace(PAPER_PROTOCOL, reset_noise=0.03)
"""The preset ``paper-noise``."""

FIGURES = {
    (PAPER, "success"): "docs/images/results.png",
    (PAPER, "budget"): "docs/images/paper-budget.png",
    (PAPER, "bins"): "docs/images/paper-bins.png",
    (ARCHIVE, "success"): "docs/images/results-archive.png",
    (QUICK, "budget"): "docs/images/budget.png",
    (QUICK, "bins"): "docs/images/bins.png",
}
"""Figures of reports that pages show, and where they are kept; those without runs are not made."""

NOTHING_YET = "No run with the present settings has finished yet."

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
def read(folder: str) -> Report | None:
    """Read the runs below a folder; None if there are none."""
    return read_report([ROOT / folder]) if find_runs(ROOT / folder) else None


def part_of(folder: str, protocol: Protocol | None = None) -> StudyReport | None:
    """Return the study of a protocol, or the largest, in which a run has finished."""
    report = read(folder)
    for part in report.studies if report else ():
        if protocol in (None, part.study.protocol) and any(m.complete for m in part.study.methods):
            return part
    return None


def methods(folder: str, protocol: Protocol | None = None, papers: bool = True) -> str:
    """Return the main table of a study, with a sentence on where it comes from.

    `papers` shows the paper's numbers beside the methods that have its settings.
    """
    part = part_of(folder, protocol)
    if part is None:
        return NOTHING_YET
    words = f"`everlearn report {folder}`: {part.study.protocol}."
    tuned = [
        method.label
        for method in part.study.main
        if any(run.config.seed < FIRST_REPORTED[folder] for run in method.runs)
    ]
    if tuned:
        words += f" Of {', '.join(tuned)} these are runs to tune on, not results."
    table = part.tables["brief"]
    if not papers:
        table = brief_table(
            part.study, [dataclasses.replace(score, paper=None) for score in part.scores]
        )
    return textwrap.fill(words, 100) + "\n\n" + to_markdown(table).strip()


def paper_methods() -> str:
    """Return the curves and the main table of the runs with the paper's protocol."""
    table = methods(PAPER, PAPER_PROTOCOL)
    if part_of(PAPER, PAPER_PROTOCOL) is None:
        return table
    words = (
        f"Success rates along training in `{PAPER}`. Nothing is smoothed. Shaded: the episodes in "
        "which a task itself is trained. Bands: standard error."
    )
    picture = f"![Success of each task along training]({FIGURES[PAPER, 'success']})"
    return "\n\n".join([picture, textwrap.fill(words, 100), table])


def further(name: str) -> str:
    """Return another table of the runs with the paper's protocol, such as ``periods``."""
    part = part_of(PAPER, PAPER_PROTOCOL)
    if name in ("claims", "forgetting"):
        tables = {table.name: table for table in claim_tables(part.study.methods if part else ())}
        return to_markdown(tables[name]).strip()
    if part is None or name not in part.tables:
        return NOTHING_YET
    return to_markdown(part.tables[name]).strip()


def ablation(agent: str, name: str, figure: str, words: str) -> str:
    """Return the table and figure of the values of one option, by the paper's protocol."""
    table = variations(PAPER, agent, {name: words})
    if table.count("\n| `") < 2:
        return NOTHING_YET
    picture = f"![Final average performance by {name}](images/{Path(FIGURES[PAPER, figure]).name})"
    return f"{picture}\n\n{table}"


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
    part = part_of(folder, PAPER_PROTOCOL if folder == PAPER else None)
    scores = [score for score in (part.scores if part else ()) if score.method.agent == agent]
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
    if rows:
        note += f" {knowledge([rows[0][1].method])}"
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
SAC_WORLDS = "results/worlds/sac"
PUBLISHED = {"tdmpc2": "TD-MPC2", "dreamerv3": "DreamerV3", "sac": "SAC"}
"""Methods with published returns at 100,000 steps, and what the table calls them."""


def stored_worlds(folder: str) -> dict[str, list[dict[str, Any]]]:
    """Return what a folder has of each world, a run for each seed."""
    measured: dict[str, list[dict[str, Any]]] = {}
    for path in sorted((ROOT / folder).glob("*.json")):
        one = json.loads(path.read_text(encoding="utf-8"))
        measured.setdefault(one["world"], []).append(one)
    return measured


def learning_and_frozen(runs: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the returns of both, a number for each run; a dash each without runs."""
    # Training episodes that ended in the last fifth of the steps, or the last one.
    learning = [
        mean(
            [total for step, total in run["curve"] if step > 0.8 * run["steps"]]
            or [run["curve"][-1][1]]
        )
        for run in runs
    ]
    frozen = [mean(run["frozen"]) for run in runs]
    both = [" ".join(f"{value:.0f}" for value in values) or "-" for values in (learning, frozen)]
    return both[0], both[1]


def worlds() -> str:
    """Return the table of the agent in many worlds, beside published returns."""
    published: dict[str, dict[str, str]] = {}
    with (ROOT / PEERS).open(encoding="utf-8") as lines:
        for line in csv.DictReader(lines):
            task = line["task"].replace("cup-catch", "ball-in-cup-catch")
            published.setdefault(task, {})[line["method"]] = f"{float(line['mean']):.0f}"
    measured, peers = stored_worlds(WORLDS), stored_worlds(SAC_WORLDS)
    rows = []
    for world in sorted(measured, key=lambda name: (name.split(":")[0], name)):
        runs = measured[world]
        task = world.partition(":")[2].replace("_", "-")
        means = [[mean(run[part]) for run in runs] for part in ("zero", "random")]
        cells = [
            f"`{world}`",
            str(len(runs)),
            *(f"{mean(values):.0f}" for values in means),
            *learning_and_frozen(runs),
            *learning_and_frozen(peers.get(world, [])),
            *(published.get(task, {}).get(method, "-") for method in PUBLISHED),
            f"{max(run['milliseconds']['p99'] for run in runs):.0f}",
            f"{max(run['milliseconds']['most'] for run in runs):.0f}",
            " ".join(sorted({run["commit"][:7] for run in runs})),
        ]
        rows.append("| " + " | ".join(cells) + " |")
    headings = (
        *("world", "seeds", "no action", "random", "`oa`, learning", "`oa`, frozen"),
        *("SAC here, learning", "SAC here, frozen"),
        *(f"{name}, 100,000 steps" for name in PUBLISHED.values()),
        *("p99 ms", "longest ms", "commit"),
    )
    head = ["| " + " | ".join(headings) + " |", "|" + "---|" * len(headings)]
    every = [run for runs in measured.values() for run in runs]
    steps = ", ".join(f"{count:,}" for count in sorted({run["steps"] for run in every}))
    words = (
        f"`python -m benchmarks.worlds`, {steps} steps of the environment each, one thread beside "
        "other jobs, at the commit in the last column. Returns, a number for each seed: `learning` "
        "is the mean of training episodes in the last fifth of the steps, `frozen` of five "
        "episodes afterwards. SAC here is that of stable-baselines3 with its defaults, at as many "
        "steps (`python -m benchmarks.worlds_sac`); a dash stands for what was not run. Published "
        "returns are means over three seeds, as the authors of TD-MPC2 give them. p99 and longest: "
        "milliseconds that the agent took for a step, the worst seed."
    )
    return "\n".join([textwrap.fill(words, 100), "", *head, *rows])


BLOCKS: dict[tuple[str, str], Callable[[], str]] = {
    ("docs/reliability.md", "torture"): torture,
    ("docs/worlds.md", "worlds"): worlds,
    ("docs/agent.md", "settings"): settings,
    ("docs/speed.md", "speed"): speed,
    ("docs/results.md", "paper"): partial(methods, PAPER, PAPER_PROTOCOL),
    ("README.md", "paper"): paper_methods,
    **{
        ("docs/results.md", name): partial(further, name)
        for name in ("periods", "variants", "claims", "forgetting")
    },
    ("docs/results.md", "noise"): partial(methods, PAPER, NOISE),
    ("docs/results.md", "paper-budget"): partial(
        *(ablation, "mlp-paper-coreset", "capacity", "budget"), ", as `mlp-paper-coreset` has it"
    ),
    ("docs/results.md", "paper-bins"): partial(
        *(ablation, "oa-paper", "bins", "bins"), ", as `oa-paper` has it"
    ),
    ("docs/results.md", "archive"): partial(methods, ARCHIVE, papers=False),
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
        part, report = part_of(source), read(source)
        if part is None or report is None:
            continue
        with tempfile.TemporaryDirectory() as out:
            wanted = PAPER_PROTOCOL if source == PAPER else part.study.protocol
            chosen = [one for one in report.studies if one.study.protocol == wanted]
            if not chosen:
                continue
            write_report(dataclasses.replace(report, studies=chosen), out)
            for (folder, name), kept in FIGURES.items():
                made = Path(out) / "figures" / f"{name}.png"
                if folder == source and made.exists():
                    shutil.copyfile(made, ROOT / kept)


if __name__ == "__main__":
    main()
