"""A task that a module registers works wherever a built-in one does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from everlearn import cli
from everlearn.runs.metrics_file import read_lines
from tests.plugins.conftest import everlearn_in

SOURCE = """
from everlearn import register_task

register_task(
    "raise-hand",
    reward=lambda obs, action, next_obs: next_obs[:, 2],
    success=lambda obs, action, next_obs: next_obs[:, 2] > 0.25,
    like="button-press",
)
"""


def test_it_runs_evaluates_and_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "my_tasks.py").write_text(SOURCE)
    everlearn = everlearn_in(tmp_path)
    words = ["run", "--import", "my_tasks", "--tasks", "raise-hand,button-press", "--agent", "oa"]
    words += ["--episodes-per-task", 2, "--max-steps", 40, "--evaluation.every", 0, "--threads", 2]
    words += ["--evaluation.boundary-episodes", 2, "--evaluators", 2, "--evaluation.heldout", 30]
    words += ["--option", "model.features=10", "--option", "planner.candidates=30"]
    said = everlearn(*words, "--option", "planner.iterations=1", "--out", "run")
    assert "average performance" in said.stdout
    lines, _ = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert [line["task"] for line in lines if line["kind"] == "episode"] == [
        "raise-hand", "raise-hand", "button-press", "button-press",
    ]  # fmt: skip
    # There is no script to measure a model along, so that it has no such line.
    assert {line["task"] for line in lines if line["kind"] == "model"} == {"button-press"}
    rates = {
        line["task"]: line["success_rate"]
        for line in lines
        if line["kind"] == "eval" and line["episode"] == 4
    }
    words = ["eval", "run", "--episodes", 2, "--import", "my_tasks"]
    said = json.loads(everlearn(*words, "--json").stdout)
    assert {task: result["success_rate"] for task, result in said["results"].items()} == rates
    assert "raise-hand" in everlearn("list", "--import", "my_tasks").stdout
    words = [
        "sweep",
        "--import",
        "my_tasks",
        "--agents",
        "random",
        "--seeds",
        "0",
        "--out",
        "sweep",
    ]
    everlearn(*words, "--preset", "smoke", "--tasks", "raise-hand")
    # Here the task is unknown, and the runs are read and drawn.
    cli.main(["report", str(tmp_path), "--json"])
    read = capsys.readouterr()
    assert "left out" not in read.err
    assert len(json.loads(read.out)["studies"]) == 2
    cli.main(["report", str(tmp_path / "run"), "--out", str(tmp_path / "report")])
    assert "left out" not in capsys.readouterr().err
    assert "raise-hand" in (tmp_path / "report" / "index.html").read_text()
