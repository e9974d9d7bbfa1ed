"""Every number in the tables of README and docs, once more from the stored runs.

Nothing of the package is imported: runs are read, grouped and counted here by other means.
"""

from __future__ import annotations

import json
import math
import re
import statistics
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from tests.report.plain import lines_of, plain_numbers

pytestmark = pytest.mark.xdist_group("report")
ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "results"
TASKS = ["pick-place", "button-press", "door-open", "peg-unplug", "window-close", "faucet-close"]

METRICS = {
    "AP ↑": "average_performance",
    "regret online ↓": "regret_online",
    "regret over episodes ↓": "regret_eval",
    "regret over steps ↓": "regret_eval_steps",
    "forgetting ↓": "forgetting",
}
PAPER = {
    "oa-paper": ("72.93", "27.62"),
    "mlp-paper-finetune": ("24.86", "37.74"),
    "mlp-paper-si": ("39.96", "33.57"),
    "mlp-paper-coreset": ("61.83", "30.83"),
    "mlp-paper-perfect-memory": ("73.09", "30.95"),
    "sac-finetune": ("0.69", "67.68"),
    "sac-ewc": ("31.45", "77.38"),
    "sac-packnet": ("41.72", "78.50"),
    "sac-coreset": ("37.31", "77.97"),
    "sac-perfect-memory": ("41.51", "77.58"),
}
"""The paper's table, as printed."""

ROUNDED = 0.0501
Row = dict[str, str]


@cache
def block(page: str, name: str) -> tuple[Row, ...]:
    """Rows of the table between the marks of a name; none where no run has finished."""
    text = (ROOT / page).read_text(encoding="utf-8")
    found = re.search(rf"<!-- {name}: made by.*?-->(.*?)<!-- end -->", text, flags=re.S)
    assert found, name
    lines = [line for line in found[1].splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return tuple(dict(zip(cells[0], row, strict=True)) for row in cells[1:])


class Run:
    """A run as its files have it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.config = json.loads((folder / "config.json").read_text())
        self.lines = lines_of(folder)
        self.agent = self.config["agent"]
        self.seed = self.config["seed"]
        self.length = self.config["episodes_per_task"]
        self.end = len(self.config["tasks"]) * self.length
        # Options had no paths in version 0.1.
        self.options = {k.rpartition(".")[2]: v for k, v in self.config["options"].items()}

    @property
    def finished(self) -> bool:
        done = {line["episode"] for line in self.lines if line["kind"] == "episode"}
        last = [line for line in self.lines if line["kind"] == "eval"]
        return self.end in done and any(line["episode"] == self.end for line in last)

    def rate(self, task: str, episode: int) -> float | None:
        for line in self.lines:
            if (line["kind"], line["episode"], line["task"]) == ("eval", episode, task):
                return float(line["success_rate"])
        return None

    def at_end(self, name: str) -> list[float]:
        last = [e for e in self.lines if e["kind"] == "eval" and e["episode"] == self.end]
        return [e[name] for e in last if name in e]


@cache
def numbers(folder: Path) -> dict[str, float]:
    return plain_numbers(folder)


@cache
def runs(folder: str, episodes: int, noise: float = 0.0) -> tuple[Run, ...]:
    """Finished runs of the six tasks below a folder of results."""
    places = sorted(path.parent for path in (RESULTS / folder).rglob("metrics.jsonl"))
    known = [Run(place) for place in places if place.parent.name != "single"]
    return tuple(
        run
        for run in known
        if run.config["tasks"] == TASKS
        and run.length == episodes
        and run.config["max_steps"] == 500
        and run.config.get("reset_noise", 0.0) == noise
        and run.finished
    )


def by_agent(found: tuple[Run, ...]) -> dict[str, list[Run]]:
    """Runs of the agents as they are."""
    groups: dict[str, list[Run]] = {}
    for run in found:
        if not run.options:
            groups.setdefault(run.agent, []).append(run)
    return groups


def check(cell: str, values: list[float], scale: float = 100.0) -> None:
    """Compare a cell with mean and standard error."""
    mean, _, error = cell.partition(" ± ")
    assert float(mean) == pytest.approx(scale * statistics.fmean(values), abs=ROUNDED)
    if len(values) > 1:
        assert float(error) == pytest.approx(scale * stats.sem(values), abs=ROUNDED)
    else:
        assert not error


def check_numbers(row: Row, members: list[Run]) -> None:
    """Compare AP, three regrets and forgetting."""
    assert row["seeds"].split()[0] == str(len(members))
    for heading, metric in METRICS.items():
        check(row[heading], [numbers(run.folder)[metric] for run in members])


def bootstrapped(table: np.ndarray) -> np.ndarray:
    """Interquartile means, in percent, of runs that are drawn anew for every task."""
    generator = np.random.default_rng(1)
    count, tasks = table.shape
    drawn = table[generator.integers(0, count, (10_000, count, tasks)), np.arange(tasks)]
    middles: np.ndarray = 100 * stats.trim_mean(drawn.reshape(len(drawn), -1), 0.25, axis=1)
    return middles


def check_middle(cell: str, members: list[Run]) -> None:
    """Compare the interquartile mean over seeds and tasks, and its interval."""
    table = np.array([[run.rate(task, run.end) for task in TASKS] for run in members], float)
    middle, ends = cell.rstrip("]").split(" [")
    assert float(middle) == pytest.approx(
        100 * stats.trim_mean(table, 0.25, axis=None), abs=ROUNDED
    )
    if len(members) == 1:
        assert ends == "1 seed"
        return
    # 2.5 % lie beyond either end, up to what is drawn; few seeds have few different means.
    low, high = (float(end) for end in ends.split(", "))
    middles = bootstrapped(table)
    for beyond in (middles - low, high - middles):
        assert (beyond < -0.1).mean() < 0.04
        assert (beyond < 0.1).mean() > 0.013


MAIN = [
    ("README.md", "paper", runs("paper", 100), True),
    ("docs/results.md", "noise", runs("paper", 100, 0.03), False),
    ("docs/results.md", "archive", runs("archive/paper", 100), False),
    ("docs/results.md", "quick", runs("quick", 10), False),
]


@pytest.mark.parametrize(("page", "name", "stored", "papers"), MAIN, ids=lambda v: str(v)[:20])
def test_every_number_of_the_main_tables(
    page: str, name: str, stored: tuple[Run, ...], papers: bool
):
    groups, rows = by_agent(stored), {row["method"]: row for row in block(page, name)}
    shown = {method for method, row in rows.items() if "so far" not in row["AP ↑"]}
    assert shown == groups.keys()
    for agent in shown:
        row, members = rows[agent], groups[agent]
        check_numbers(row, members)
        check_middle(row["AP IQM [95 %]"], members)
        for column, heading in (("told", "told of tasks"), ("given", "given")):
            said = members[0].config.get(column)
            if said is not None:  # runs of version 0.1 do not say
                assert row[heading] == (", ".join(said) or "nothing")
            assert row[heading] != "-"
        if papers and any(method in PAPER for method in rows):
            wanted = PAPER.get(agent, ("-", "-"))
            assert (row["AP, paper"], row["regret over episodes, paper"]) == wanted
        else:
            assert not any("paper" in heading for heading in row)


def test_reported_seeds_have_not_been_seen_before():
    for run in (*runs("paper", 100), *runs("paper", 100, 0.03)):
        assert run.seed >= 300, run.folder
    assert all(run.seed < 300 for run in runs("archive/paper", 100))


@pytest.mark.parametrize(
    ("name", "folder", "episodes", "agent"),
    [
        ("parts", "quick", 10, "oa"),
        ("bins", "quick", 10, "oa"),
        ("budget", "quick", 10, "mlp-coreset"),
        ("paper-bins", "paper", 100, "oa-paper"),
        ("paper-budget", "paper", 100, "mlp-paper-coreset"),
    ],
)
def test_every_number_of_the_ablations(name: str, folder: str, episodes: int, agent: str):
    rows = block("docs/results.md", name)
    assert rows or folder == "paper"
    members = [run for run in runs(folder, episodes) if run.agent == agent]
    for row in rows:
        said = re.search(r"`([^`]+)`", row[""])
        assert said
        option, _, value = said[1].partition("=")
        if not value or "as `" in row[""]:
            chosen = [run for run in members if not run.options]
        else:
            chosen = [
                run
                for run in members
                if list(run.options) == [option] and same(run.options[option], value)
            ]
        assert chosen, row[""]
        check_numbers(row, chosen)


def same(stored: Any, written: str) -> bool:
    """Whether a setting has the value that a table writes."""
    return str(stored) == written or (
        not isinstance(stored, str) and math.isclose(float(stored), float(written))
    )


def test_every_number_by_method_and_task():
    rows = block("docs/results.md", "periods")
    groups = by_agent(runs("paper", 100))
    # Variations of an agent have rows of their own; those are checked as ablations.
    shown = {row["method"] for row in rows if " " not in row["method"]}
    assert shown == groups.keys()
    for row in rows:
        if row["method"] not in groups:
            continue
        members, task = groups[row["method"]], row["task"]
        first = TASKS.index(task) * 100
        trained = [
            [e for e in run.lines if e["kind"] == "episode" and e["task"] == task]
            for run in members
        ]
        check(row["solved in training"], [sum(e["success"] for e in t) / 100 for t in trained])
        for heading, when in (
            ("before training", first),
            ("after its period", first + 100),
            ("at the end", 600),
        ):
            rates = [run.rate(task, when) for run in members]
            check(row[heading], [rate for rate in rates if rate is not None])
        for heading, name, unit in (
            ("steps", "length", 1),
            ("minutes", "seconds", 60),
            ("processor minutes", "processor_seconds", 60),
        ):
            known = [sum(e[name] for e in t) for t in trained if all(name in e for e in t)]
            if not known:
                assert row[heading] == "-"
                continue
            wanted = statistics.fmean(known) / unit
            near = 0.501 if wanted >= 100 else ROUNDED
            assert float(row[heading]) == pytest.approx(wanted, abs=near)


def test_every_number_of_evaluation_in_other_ways():
    rows = block("docs/results.md", "variants")
    groups = by_agent(runs("paper", 100))
    for row in rows:
        if row["method"] not in groups:
            continue
        members = groups[row["method"]]
        check(row["AP ↑"], [numbers(run.folder)["average_performance"] for run in members])
        bursts = [count for run in members for count in run.at_end("bursts")]
        if bursts:
            assert float(row["bursts"]) == pytest.approx(statistics.fmean(bursts), abs=ROUNDED)
        else:
            assert row["bursts"] == "-"
        way, files = row["another way"], [run.folder / "variants.json" for run in members]
        stored = [json.loads(file.read_text())["variants"] for file in files if file.exists()]
        found = [by_way[way] for by_way in stored if way in by_way]
        if way == "-":
            assert not stored
            continue
        assert row["its seeds"] == str(len(found))
        check(
            row["AP then"],
            [statistics.fmean(one["success_rate"] for one in each.values()) for each in found],
        )


def interval(first: list[float], second: list[float] | None = None) -> tuple[float, float, float]:
    """Mean, or difference of means, with its 95 % interval by Student's t."""
    mean = statistics.fmean(first) - (0.0 if second is None else statistics.fmean(second))
    if second is None:
        error, freedom = stats.sem(first), len(first) - 1
    else:
        error = math.hypot(stats.sem(first), stats.sem(second))
        with np.errstate(invalid="ignore", divide="ignore"):
            freedom = stats.ttest_ind(first, second, equal_var=False).df
    half = 0.0 if error == 0 else stats.t.ppf(0.975, min(20, int(freedom + 1e-9))) * error
    return 100 * mean, 100 * (mean - half), 100 * (mean + half)


def written(cell: str) -> tuple[float, ...]:
    """Numbers of a cell like ``1.0 [-2.0, 4.0]``."""
    found = re.search(r"(-?[\d.]+) \[(-?[\d.]+), (-?[\d.]+)\]", cell)
    assert found, cell
    return tuple(map(float, found.groups()))


CLAIMS = {
    "Fine-tuning forgets": ("forgetting", "mlp-paper-finetune", None, "53.30"),
    "SI helps a little": ("average_performance", "mlp-paper-si", "mlp-paper-finetune", "15.10"),
    "A coreset helps more than SI": (
        *("average_performance", "mlp-paper-coreset", "mlp-paper-si", "21.87"),
    ),
    "OA matches perfect memory": (
        *("average_performance", "oa-paper", "mlp-paper-perfect-memory", "-0.16"),
    ),
    "OA has the least regret": ("regret_eval", "", "", "mlp-paper-coreset - oa-paper: 3.21"),
    "Model-free agents have high regret": (
        *("regret_eval", "", "", "sac-finetune - mlp-paper-finetune: 29.94"),
    ),
    "Strategies raise the AP of SAC": (
        *("average_performance", "", "", "sac-ewc - sac-finetune: 30.76"),
    ),
    "OA hardly forgets": ("forgetting", "oa-paper", None, "2.33"),
}


def test_every_number_of_the_claims():
    groups = by_agent(runs("paper", 100))
    rows = {row["the paper says"]: row for row in block("docs/results.md", "claims")}
    assert rows.keys() == CLAIMS.keys()
    for text, (metric, first, second, paper) in CLAIMS.items():
        row = rows[text]
        assert row["paper"] == paper
        pair = re.match(r"([a-z-]+) - ([a-z-]+): ", row["measured"])
        agents = pair.groups() if pair else (first, second)
        values = [
            [numbers(run.folder)[metric] for run in groups.get(agent, [])]
            for agent in agents
            if agent
        ]
        if not values or min(map(len, values)) < 2:
            assert row["here"] == "not measured", text
            continue
        mean, low, high = interval(*values)
        assert written(row["measured"]) == pytest.approx((mean, low, high), abs=2 * ROUNDED), text
        if not pair:
            bound = 10.0 if metric == "forgetting" else 0.0
            verdict = "yes" if low > bound else "no" if high < bound else "open"
            if text == "OA hardly forgets":
                verdict = {"yes": "no", "no": "yes"}.get(verdict, verdict)
            if text == "OA matches perfect memory":
                outside = low > 10 or high < -10
                verdict = "yes" if low > -10 and high < 10 else "no" if outside else "open"
            assert row["here"] == verdict, text
        elif row["here"] == "yes":
            assert low > 0
        elif row["here"] == "open":
            assert low <= 0


def test_every_number_of_forgetting_beside_the_papers():
    groups = by_agent(runs("paper", 100))
    wanted = {
        "mlp-paper-finetune": "53.30",
        "mlp-paper-si": "35.14",
        "mlp-paper-coreset": "21.58",
        "mlp-paper-perfect-memory": "4.72",
        "oa-paper": "2.33",
    }
    rows = {row["method"]: row for row in block("docs/results.md", "forgetting")}
    assert {agent: row["paper"] for agent, row in rows.items()} == wanted
    for agent, row in rows.items():
        values = [numbers(run.folder)["forgetting"] for run in groups.get(agent, [])]
        assert row["seeds"] == str(len(values))
        if len(values) > 1:
            found = written(row["forgetting ↓"])
            assert found == pytest.approx(interval(values), abs=2 * ROUNDED)
        elif values:
            assert float(row["forgetting ↓"].split(" [")[0]) == pytest.approx(
                100 * values[0], abs=ROUNDED
            )
