"""Reading runs back: one table, a cache, summaries."""

import json
import math
import os
import time

import numpy as np
import pytest

from everlearn.results.read import CACHE, find_runs, read_run, read_runs, run_state
from everlearn.results.summary import (
    evaluations,
    periods,
    single_task_configs,
    single_task_folder,
    summarize,
)
from everlearn.runs.loop import execute
from everlearn.support.errors import InvalidInputError
from tests.runs.worker import tiny


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    execute(tiny("scripted", max_steps=100), root / "scripted")
    execute(tiny("oa"), root / "oa")
    return root


def test_many_runs_are_one_table(runs):
    table = read_runs(find_runs(runs))
    assert [run.name for run in table.runs] == ["oa", "scripted"]
    assert [config.agent for config in table.configs] == ["oa", "scripted"]
    episodes = table.columns["episode"]
    np.testing.assert_array_equal(episodes["run"], [0] * 6 + [1] * 6)
    assert episodes["success"].dtype == bool
    assert episodes["task"][0] == "window-close"
    assert set(table.columns["model"]["run"]) == {0}


def test_the_cache_gives_the_same_and_knows_when_it_is_old(runs, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    line = {"kind": "episode", "episode": 1, "step": 5, "task": "door-open", "return": 1.5}
    line |= {"success": False, "length": 5}
    (folder / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    first = read_run(folder)
    assert (folder / CACHE).exists()
    again = read_run(folder)
    for name, column in first["episode"].items():
        np.testing.assert_array_equal(column, again["episode"][name])
    with (folder / "metrics.jsonl").open("a") as file:
        file.write(json.dumps({**line, "episode": 2, "return": None}) + "\n" + '{"kind": "ep')
    newer = read_run(folder)["episode"]
    np.testing.assert_array_equal(newer["episode"], [1, 2])
    assert math.isnan(newer["return"][1])
    (folder / CACHE).write_bytes(b"rubbish")
    np.testing.assert_array_equal(read_run(folder)["episode"]["episode"], [1, 2])
    with pytest.raises(InvalidInputError, match="holds no run"):
        read_run(tmp_path)


def test_a_thousand_runs_are_read_fast(runs, tmp_path):
    content = (runs / "oa" / "metrics.jsonl").read_bytes() * 40
    config = (runs / "oa" / "config.json").read_bytes()
    folders = [tmp_path / str(place) for place in range(100)]
    for folder in folders:
        folder.mkdir()
        (folder / "metrics.jsonl").write_bytes(content)
        (folder / "config.json").write_bytes(config)
    read_runs(folders)
    began = time.perf_counter()
    table = read_runs(folders)
    seconds = time.perf_counter() - began
    assert len(table.columns["episode"]["run"]) == 100 * 240
    # Ten times as many take ten times as long: well below ten seconds even on a busy machine.
    assert seconds < 3.0


def test_states(runs, tmp_path):
    assert run_state(runs / "oa", tiny("oa")) == "finished"
    os.makedirs(tmp_path / "checkpoints" / "000002-1-trained")  # noqa: PTH103
    assert run_state(tmp_path, tiny()) == "stopped after episode 2 of 6"


def test_summary_of_a_run_that_always_succeeds(runs):
    summary = summarize(runs / "scripted")
    assert summary.average_performance == 1
    assert summary.regret_online == summary.regret_online_steps == 0
    assert summary.regret_eval == summary.regret_eval_steps == 0
    assert summary.forgetting == 0
    assert math.isnan(summary.forward_transfer), "there are no runs of the tasks alone"


def test_summary_of_a_run_that_never_does(runs):
    summary = summarize(runs / "oa")
    assert (summary.average_performance, summary.regret_online) == (0, 1)
    assert summary.regret_eval == summary.regret_eval_steps == 1


def test_forward_transfer_with_the_runs_it_needs(tmp_path):
    config = tiny("scripted", max_steps=100)
    execute(config, tmp_path / "run")
    needed = single_task_configs(config)
    assert list(needed) == ["button-press"]
    assert needed["button-press"].episodes == 1
    execute(needed["button-press"], single_task_folder(tmp_path / "run", "button-press"))
    assert summarize(tmp_path / "run").transfer_by_task == {"button-press": 0.0}
    assert single_task_configs(tiny(tasks=("door-open",))) == {}


def test_lines_become_the_arrays_of_the_metrics():
    config = tiny(tasks=("door-open", "window-close", "door-open"), episodes_per_task=2)
    columns = {
        "episode": np.array([2, 4, 4]),
        "step": np.array([20, 33, 33]),
        "task": np.array(["door-open", "window-close", "door-open"]),
        "success_rate": np.array([0.5, 1.0, 0.25]),
    }
    table = evaluations(config, columns)
    assert table.tasks == ("door-open", "window-close")
    np.testing.assert_array_equal(table.p, [[0.5, np.nan], [0.25, 1.0]])
    np.testing.assert_array_equal(table.steps, [20, 33])
    steps = np.array([10, 20, 25, 33, 40])
    assert periods(config, steps, by_steps=False) == [(0, 0, 2), (1, 2, 4), (0, 4, 5)]
    assert periods(config, steps, by_steps=True) == [(0, 0, 20), (1, 20, 33), (0, 33, 40)]
