"""Worlds that measure returns: tables, figures and the page without success, percent and regret."""

from __future__ import annotations

import csv
import json
import statistics
from pathlib import Path

import pytest

from everlearn.report import (
    Report,
    read_comparison,
    read_report,
    summary_lines,
    write_report,
)
from everlearn.report.curves import GRID
from everlearn.results.summary import result_lines, summarize
from everlearn.runs.config import RunConfig
from tests.report.browser import chromium
from tests.report.synthetic import config_of, write_run

pytestmark = pytest.mark.xdist_group("report")


def returning(agent: str, seed: int, **fields: object) -> RunConfig:
    """A config of a run in a world that measures returns."""
    fields = {"world": "gym:Reacher-v5", "tasks": ("near", "far"), "measure": "return"} | fields
    return config_of(agent, seed, **fields)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("returns")
    for agent in ("oa", "random"):
        for seed in range(3):
            write_run(root / f"{agent}-{seed}", returning(agent, seed), alone=agent == "oa")
    return root


@pytest.fixture(scope="module")
def report(runs: Path) -> Report:
    return read_report([runs])


@pytest.fixture(scope="module")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(report, tmp_path_factory.mktemp("out")).parent


def lines_of(run: Path, kind: str) -> list[dict]:
    lines = map(json.loads, (run / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if line["kind"] == kind]


def test_numbers_of_a_run_again(runs: Path):
    run = runs / "oa-0"
    returns = {(e["task"], e["episode"]): e["mean_return"] for e in lines_of(run, "eval")}
    training = [e["return"] for e in lines_of(run, "episode")]
    summary = summarize(run)
    assert summary.average_return == pytest.approx((returns["near", 20] + returns["far", 20]) / 2)
    assert summary.training_return == pytest.approx(statistics.fmean(training))
    lost = returns["near", 10] - returns["near", 20]
    assert summary.forgetting == pytest.approx(lost / 2)
    alone = lines_of(run / "single" / "far", "episode")[0]["return"]
    assert summary.forward_transfer == pytest.approx(training[10] - alone)
    said = "\n".join(result_lines(summary))
    assert "average return" in said
    assert "regret" not in said
    assert "performance" not in said


def test_tables_show_returns_and_no_percent(report: Report, runs: Path):
    (part,) = report.studies
    finals = [summarize(runs / f"oa-{seed}").average_return for seed in range(3)]
    for name in ("methods", "brief"):
        table = part.tables[name]
        row = dict(zip(table.headings, table.rows[0], strict=True))
        assert row["method"] == "oa"
        mean = float(row["return ↑"].split(" ± ")[0])
        assert mean == pytest.approx(statistics.fmean(finals), abs=0.06)
        text = " ".join([*table.headings, table.note]).replace("95 %", "")
        assert not any(word in text for word in ("percent", "%", "regret", "Regret", "AP"))
    assert part.tables["tasks"].title == "Return at the end"
    assert "percent" not in part.tables["tasks"].note
    said = "\n".join(summary_lines(report))
    assert "gym:Reacher-v5: 2 tasks, 10 episodes each of up to 500 steps, returns:" in said
    assert "percent" not in said


def test_figures_show_returns_over_steps(written: Path, runs: Path):
    names = {path.stem for path in (written / "figures").glob("*.png")}
    assert {"training-return", "return", "average-return", "speed"} <= names
    assert not names & {"success", "average-performance", "regret", "regret-area"}
    rows = list(csv.DictReader((written / "data" / "training-return.csv").open()))
    ours = [row for row in rows if (row["method"], row["task"]) == ("oa", "near")]
    steps = [int(row["step"]) for row in ours]
    assert steps == sorted(steps)
    # Episodes of the seeds differ in length, so that the curve has points of its own.
    assert len(ours) == GRID + 1
    first = min(e["step"] for seed in range(3) for e in lines_of(runs / f"oa-{seed}", "episode"))
    assert steps[0] == first
    assert max(float(row["runs"]) for row in ours) == 3


def test_episodes_of_equal_length_are_points_of_the_curve(tmp_path: Path):
    for seed in (0, 1):
        write_run(tmp_path / str(seed), returning("oa", seed), skill=0.0)
    report = read_report([tmp_path])
    figure = next(one for one in report.studies[0].curves if one.name == "training-return")
    (near, _) = figure.curves
    assert list(near.times) == [500 * episode for episode in range(1, 11)]
    assert set(near.values["runs"]) == {2}


def test_measures_worlds_and_budgets_are_never_mixed(tmp_path: Path):
    configs = [
        returning("oa", 0),
        returning("oa", 1, measure="success"),
        returning("oa", 2, world="gym:Pendulum-v1"),
        returning("oa", 3, episodes_per_task=20),
        returning("oa", 4, max_steps=100),
        returning("oa", 5, reset_noise=0.1),
    ]
    for number, config in enumerate(configs):
        write_run(tmp_path / str(number), config)
    report = read_report([tmp_path])
    assert len(report.studies) == len(configs)
    assert all(len(part.scores) == 1 for part in report.studies)


def test_two_sets_of_returns_are_compared(tmp_path: Path):
    for name, skill in (("before", 0.2), ("after", 0.9)):
        for seed in range(4):
            write_run(tmp_path / name / str(seed), returning("oa", seed), skill=skill)
    report = read_comparison(tmp_path / "before", tmp_path / "after")
    table = report.studies[0].tables["comparison"]
    assert table.rows[0][1] == "return"
    assert table.rows[0][-1] == "better"
    assert "percent" not in table.note


def test_the_page_draws_returns(written: Path):
    with chromium() as browser:
        browser.resize(1280, 900)
        browser.open(written / "index.html")
        browser.resize(1280, 900)
        assert browser.messages() == []
        said = browser.run("return document.body.textContent")
        assert "environment steps" in said
        ticks = browser.run(
            "return [...document.querySelectorAll('#return .panel text')].map(t => t.textContent)"
        )
        assert ticks
        assert not any("%" in tick for tick in ticks)
        heights = browser.run(
            "return [...document.querySelectorAll('#training-return .panel path.line')]"
            ".map(p => p.getBBox()).filter(b => b.y < 0 || b.y + b.height > 210).length"
        )
        assert heights == 0, "curves stay inside their panels"
