"""Numbers of lives, against a table worked out by hand."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np

from everlearn.report.build import read_report, write_report
from everlearn.results.life import by_goal, by_number, life_scores, recent_success, visits_of
from everlearn.results.read import read_run
from everlearn.runs.presets import preset_config

# goal, solved, steps, put back by then
VISITS = (
    ("door-open", False, 500, 0),
    ("button-press", True, 100, 0),
    ("door-open", True, 300, 1),
    ("button-press", True, 60, 1),
    ("door-close", True, 80, 1),
    ("door-open", False, 500, 3),
)


def run_of(folder: Path) -> Path:
    config = preset_config("life", "oa", episodes_per_task=len(VISITS))
    folder.mkdir()
    (folder / "config.json").write_text(config.to_json())
    step, lines = 0, []
    for number, (goal, success, length, put_backs) in enumerate(VISITS, 1):
        step += length
        line = {"kind": "episode", "episode": number, "step": step, "task": "life"}
        line |= {"success": success, "length": length, "return": 1.0, "seconds": 1.0}
        line |= {"goal": goal, "put_backs": put_backs, "visit": number - 1}
        lines.append(json.dumps(line) + "\n")
    (folder / "metrics.jsonl").write_text("".join(lines))
    return folder


def test_numbers_of_a_life(tmp_path: Path):
    visits = visits_of(read_run(run_of(tmp_path / "run")))
    assert visits is not None
    assert visits.number.tolist() == [1, 1, 2, 2, 1, 3]
    scores = life_scores(visits)
    assert scores == {
        "recent": 4 / 6,
        "first": 2 / 3,
        "later": 2 / 3,
        "steps": 90.0,
        "put_backs": 3.0,
        "regret_steps": 1000 / 1540,
    }
    np.testing.assert_allclose(by_number(visits, visits.success, 2), [2 / 3, 1.0, 0.0])
    assert np.isnan(by_number(visits, visits.success, 3)[3])
    assert by_goal(visits)["door-open"] == (3, 1 / 3, 300.0)
    assert by_goal(visits)["button-press"] == (2, 1.0, 80.0)


def test_recent_success_needs_a_whole_window():
    found = recent_success([1, 0, 1, 1], window=2)
    assert math.isnan(found[0])
    assert found[1:].tolist() == [0.5, 0.5, 1.0]
    assert np.isnan(recent_success([1, 0], window=3)).all()


def test_a_report_has_the_lives(tmp_path: Path):
    report = read_report([run_of(tmp_path / "run")])
    write_report(report, tmp_path / "out")
    table = (tmp_path / "out" / "tables" / "life.csv").read_text().splitlines()
    assert table[1] == "oa,1 seed,66.7,66.7,66.7,90.0,3.0,64.9"
    goals = (tmp_path / "out" / "tables" / "goals.csv").read_text()
    assert "oa,door-open,3,33.3,300.0" in goals
    rows = (tmp_path / "out" / "data" / "life-visits.csv").read_text().splitlines()
    assert rows[1].startswith("oa,1,success,0.6666")
    assert "Lives" in (tmp_path / "out" / "index.html").read_text()


def test_other_runs_have_no_life(tmp_path: Path):
    run = run_of(tmp_path / "run")
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    for line in lines:
        del line["goal"]
    (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert visits_of(read_run(run)) is None
    assert "life" not in read_report([run]).studies[0].tables
