"""The tables of docs that were written by hand, once more from the runs of version 0.1.

Like `test_pages_again`, without anything of the package.
"""

from __future__ import annotations

import re
import statistics
from pathlib import Path

import pytest
from scipy import stats

from tests.report.plain import lines_of, plain_numbers, tables_of

ROOT = Path(__file__).parents[2]
DOCS, PAPER, QUICK = ROOT / "docs", ROOT / "results/archive/paper", ROOT / "results/quick"
TASKS = ("pick-place", "button-press", "door-open", "peg-unplug", "window-close", "faucet-close")
ROUNDED = 0.0501


def table(page: str, *headings: str, first: str = "") -> list[list[str]]:
    """Return the one table of a page that begins with these headings, and its rows with `first`."""
    found = [
        rows
        for rows in tables_of(DOCS / page)
        if tuple(rows[0][: len(headings)]) == headings and rows[1][0].startswith(first)
    ]
    assert len(found) == 1, headings
    return found[0]


def solved(run: Path, task: str, most: int = 100) -> int:
    """Training episodes of a task that were solved, among the first so many."""
    lines = [line for line in lines_of(run) if line["kind"] == "episode" and line["task"] == task]
    return sum(line["success"] for line in lines[:most])


def evaluated(run: Path, task: str, episode: int) -> int:
    """Episodes of 20 that an evaluation of a task solved."""
    (rate,) = (
        line["success_rate"]
        for line in lines_of(run)
        if (line["kind"], line["task"], line["episode"]) == ("eval", task, episode)
    )
    return round(20 * rate)


def test_the_online_agent_by_seed():
    head, *rows = table("results.md", "", "seed 100")
    numbers = [plain_numbers(PAPER / f"oa-{cell.split()[1]}") for cell in head[1:-1]]
    names = {
        "AP": "average_performance",
        "regret online": "regret_online",
        "regret over episodes": "regret_eval",
        "forgetting": "forgetting",
    }
    assert [row[0] for row in rows] == list(names)
    for name, *cells in rows:
        values = [100 * one[names[name]] for one in numbers]
        wanted = [*values, statistics.fmean(values)]
        assert [float(cell) for cell in cells] == pytest.approx(wanted, abs=ROUNDED), name


def test_the_online_agent_by_seed_and_task():
    _, *rows = table("results.md", "", *TASKS, first="seed")
    assert len(rows) == 4
    for seed, *cells in rows:
        run = PAPER / f"oa-{seed.split()[1]}"
        wanted = [f"{solved(run, task)} ({evaluated(run, task, 600)})" for task in TASKS]
        assert cells == wanted, seed


def test_the_agent_with_the_papers_settings():
    run = PAPER / "oa-paper-100"
    _, trained, final = table("results.md", "", *TASKS, first="training")
    assert trained[1:] == [str(solved(run, task)) for task in TASKS]
    assert final[1:] == [str(evaluated(run, task, 600)) for task in TASKS]


def test_the_reverse_order():
    run, order = ROOT / "results/reverse/oa-100", TASKS[::-1]
    _, trained, own, final = table("results.md", "", *order)
    assert trained[1:] == [str(solved(run, task)) for task in order]
    ends = [100 * (place + 1) for place in range(6)]
    assert own[1:] == [
        str(evaluated(run, task, end)) for task, end in zip(order, ends, strict=True)
    ]
    assert final[1:] == [str(evaluated(run, task, 600)) for task in order]


def test_transfer():
    _, after, alone = table("results.md", "", *TASKS[1:])
    runs = [PAPER / f"oa-{seed}" for seed in (100, 101, 102)]
    for cells, places in (
        (after, dict.fromkeys(TASKS, runs)),
        (alone, {task: [run / "single" / task for run in runs] for task in TASKS}),
    ):
        counts = [sum(solved(run, task, 10) for run in places[task]) for task in TASKS[1:]]
        assert [int(cell.split()[0]) for cell in cells[1:]] == counts


def test_soft_actor_critic_with_the_settings_before():
    _, *rows = table("sac.md", "agent", "AP (paper)")
    assert len(rows) == 5
    for agent, performance, regret, online, trained, final, _ in rows:
        run = PAPER / f"{agent.strip('`')}-100"
        numbers = plain_numbers(run)
        shown = [float(cell.split()[0]) for cell in (performance, regret, online)]
        names = ("average_performance", "regret_eval", "regret_online")
        assert shown == pytest.approx([100 * numbers[name] for name in names], abs=ROUNDED)
        assert [int(count) for count in trained.split(", ")] == [
            solved(run, task) for task in TASKS
        ]
        won = [task for task in TASKS if evaluated(run, task, 600) == 20]
        assert final == (", ".join(won) or "none")


def test_networks_with_ten_episodes_a_task():
    _, *rows = table("deep-models.md", "", "told of tasks", "seeds", "AP")
    assert len(rows) == 7
    for agent, _, seeds, *cells in rows:
        name = agent.strip("`")
        runs = [run for run in QUICK.iterdir() if re.fullmatch(rf"{name}-\d+", run.name)]
        assert int(seeds) == len(runs)
        numbers = [plain_numbers(run) for run in runs]
        metrics = ("average_performance", "regret_online", "regret_eval", "forgetting")
        for metric, cell in zip(metrics, cells, strict=False):
            values = [100 * one[metric] for one in numbers]
            mean, error = (float(part) for part in cell.split(" ± "))
            assert mean == pytest.approx(statistics.fmean(values), abs=ROUNDED), (name, metric)
            assert error == pytest.approx(stats.sem(values), abs=ROUNDED), (name, metric)
