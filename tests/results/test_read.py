"""Reading runs back: lines as columns, evaluations as tables, states, and the numbers of a run."""

import io
import json
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest

from everlearn.results import metrics, read
from everlearn.results.read import (
    evaluation_table,
    find_runs,
    read_columns,
    read_run,
    read_runs,
    run_state,
)
from everlearn.results.summary import (
    periods,
    result_lines,
    single_task_configs,
    single_task_folder,
    summarize,
)
from everlearn.runs.config import RunConfig
from everlearn.runs.metrics_file import MAX_LINE, iter_lines
from everlearn.support.errors import DamagedFileError, InvalidInputError
from tests.report.synthetic import config_of, write_run

ROOT = Path(__file__).parents[2]


def write_constant_run(folder: Path, success: bool) -> Path:
    """Write a run in which every episode succeeds, or none."""
    write_run(folder, config_of("oa", 0, "smoke"))
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    values = {"episode": {"success": success}, "eval": {"success_rate": float(success)}}
    (folder / "metrics.jsonl").write_text(
        "".join(json.dumps(line | values.get(line["kind"], {})) + "\n" for line in lines)
    )
    return folder


def test_runs_are_found_and_read_in_order(tmp_path: Path):
    for agent in ("scripted", "oa"):
        write_run(tmp_path / agent, config_of(agent, 0, "smoke"))
    assert [run.name for run in find_runs(tmp_path)] == ["oa", "scripted"]
    runs, left_out = read_runs([tmp_path])
    assert [run.config.agent for run in runs] == ["oa", "scripted"]
    assert left_out == []
    episodes = runs[0].columns["episode"]
    assert episodes["success"].dtype == bool
    assert list(episodes["episode"]) == [1, 2, 3, 4]
    assert episodes["task"][0] == "window-close"
    assert runs[0].columns["model"]
    assert not runs[1].columns["model"]


def test_a_line_that_is_being_written_is_left_out(tmp_path: Path):
    line = {"kind": "episode", "episode": 1, "step": 5, "task": "door-open", "return": 1.5}
    line |= {"success": False, "length": 5}
    later = json.dumps({**line, "episode": 2, "return": None})
    file = tmp_path / "metrics.jsonl"
    file.write_text(json.dumps(line) + "\n" + later + "\n" + '{"kind": "ep')
    columns = read_columns(tmp_path)["episode"]
    np.testing.assert_array_equal(columns["episode"], [1, 2])
    assert math.isnan(columns["return"][1])
    assert [item.name for item in tmp_path.iterdir()] == ["metrics.jsonl"], "it only reads"
    with pytest.raises(InvalidInputError, match="holds no run"):
        read_columns(tmp_path / "nowhere")


def test_many_runs_are_read_fast(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("oa", 0, "paper"))
    began = time.process_time()
    for _ in range(20):
        read_run(run)
    # Two hundred take ten times as long.
    assert time.process_time() - began < 2.0


def test_states(tmp_path: Path):
    config = config_of("oa", 0, "smoke")
    assert run_state(tmp_path, config) == "stopped after episode 0 of 4"
    (tmp_path / "checkpoints" / "000002-1-trained").mkdir(parents=True)
    assert run_state(tmp_path, config) == "stopped after episode 2 of 4"
    (tmp_path / "checkpoints" / "000004-2-evaluated").mkdir()
    assert run_state(tmp_path, config) == "finished"


def test_names_of_snapshots_are_those_that_runs_write():
    from everlearn.runs.metrics_file import snapshot_name
    from everlearn.runs.snapshots import RunState

    for evaluated in (True, False):
        assert snapshot_name(7, evaluated) == RunState(7, evaluated=evaluated).name


def test_summary_of_a_run_that_always_succeeds(tmp_path: Path):
    summary = summarize(write_constant_run(tmp_path, True))
    assert summary.average_performance == 1
    assert summary.regret_online == summary.regret_online_steps == 0
    assert summary.regret_eval == summary.regret_eval_steps == 0
    assert summary.forgetting == 0
    assert math.isnan(summary.forward_transfer), "there are no runs of the tasks alone"
    assert math.isnan(summary.average_return), "it measures success"
    assert "regret, evaluated, over steps: 0.000" in result_lines(summary)


def test_summary_of_a_run_that_never_does(tmp_path: Path):
    summary = summarize(write_constant_run(tmp_path, False))
    assert (summary.average_performance, summary.regret_online) == (0, 1)
    assert summary.regret_eval == summary.regret_eval_steps == 1


def test_forward_transfer_with_the_runs_it_needs(tmp_path: Path):
    config = config_of("oa", 0, "smoke")
    run = write_constant_run(tmp_path / "run", True)
    needed = single_task_configs(config)
    assert list(needed) == ["button-press"]
    assert needed["button-press"].episodes == 1
    alone = single_task_folder(run, "button-press")
    write_run(alone, needed["button-press"], skill=0.0)
    assert summarize(run).transfer_by_task == {"button-press": 1.0}
    other = config_of("oa", 1, "smoke")
    write_run(alone, single_task_configs(other)["button-press"])
    assert summarize(run).transfer_by_task == {}, "of another seed"
    assert single_task_configs(RunConfig(tasks=("door-open",))) == {}


def test_lines_become_the_arrays_of_the_metrics():
    config = RunConfig(tasks=("door-open", "window-close", "door-open"), episodes_per_task=2)
    columns = {
        "episode": np.array([2, 4, 4]),
        "step": np.array([20, 33, 33]),
        "task": np.array(["door-open", "window-close", "door-open"]),
        "success_rate": np.array([0.5, 1.0, 0.25]),
    }
    table = evaluation_table(config, columns)
    assert table.tasks == ("door-open", "window-close")
    np.testing.assert_array_equal(table.values, [[0.5, np.nan], [0.25, 1.0]])
    np.testing.assert_array_equal(table.steps, [20, 33])
    steps = np.array([10, 20, 25, 33, 40])
    assert periods(config, steps, by_steps=False) == [(0, 0, 2), (1, 2, 4), (0, 4, 5)]
    assert periods(config, steps, by_steps=True) == [(0, 0, 20), (1, 20, 33), (0, 33, 40)]


def test_a_task_that_was_only_evaluated_is_not_seen():
    config = RunConfig(tasks=("window-close", "button-press"), episodes_per_task=2)
    columns = {
        "episode": np.array([0, 2, 2, 4, 4]),
        "step": np.array([0, 20, 20, 40, 40]),
        "task": np.array(["window-close", *("window-close", "button-press") * 2]),
        "success_rate": np.array([0.25, 0.5, 0.75, 1.0, 0.25]),
    }
    table = evaluation_table(config, columns)
    np.testing.assert_array_equal(table.values, [[0.25, np.nan], [0.5, 0.75], [1.0, 0.25]])
    np.testing.assert_array_equal(table.seen, [[False, False], [True, False], [True, True]])
    np.testing.assert_array_equal(
        metrics.average_performance(table.values_of_seen), [np.nan, 0.5, 0.625]
    )
    # 0.25 to 0.5, then 0.75 to 0.25: both periods start with what was measured there.
    both = periods(config, np.array([10, 20, 30, 40]), by_steps=False)
    assert metrics.regret_eval(table.episodes, table.values, both) == (0.625 + 0.5) / 2
    # The same run without these two lines: constant before the first evaluation, as ever.
    older = evaluation_table(config, {name: column[[1, 3, 4]] for name, column in columns.items()})
    assert metrics.regret_eval(older.episodes, older.values, both) == (0.5 + 0.75) / 2
    np.testing.assert_array_equal(older.values_of_seen, older.values)


def test_evaluations_that_do_not_fit_the_config_are_refused(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("oa", 0, "smoke"))
    (run / "config.json").write_text(config_of("oa", 0, "smoke", measure="return").to_json())
    with pytest.raises(DamagedFileError, match="no mean_return"):
        read_run(run)
    config = config_of("oa", 0, "smoke", tasks=("door-open", "button-press"))
    (run / "config.json").write_text(config.to_json())
    with pytest.raises(DamagedFileError, match="no task of the run"):
        read_run(run)


def test_stored_runs_of_earlier_versions_are_read():
    runs, left_out = read_runs([ROOT / "results"])
    assert left_out == []
    # Runs of version 0.1 do not say what their world is.
    runs = [run for run in runs if '"world"' not in (run.folder / "config.json").read_text()]
    assert len(runs) > 60
    assert {run.config.world for run in runs} == {"continual-bench"}
    told = {run.config.agent: run.config.told for run in runs}
    assert told["oa"] == ()
    assert told["mlp-packnet"] == ("boundaries", "name")


# Metrics that were made to do harm -------------------------------------------------------------

MODEL = '{"kind":"model","episode":1,"step":1,"task":"a"'


@pytest.mark.parametrize(
    "line",
    [
        MODEL + ',"x":1e400}',
        MODEL + ',"x":1e101}',
        MODEL + ',"x":NaN}',
        MODEL + f',"x":{2**53 + 1}}}',
        MODEL + f',"x":{-(10**19)}}}',
        MODEL + ',"x":"text"}',
        MODEL + ',"x":[1]}',
        MODEL + ',"x":true}',
        MODEL + ',"task":"\\ud800"}',
        MODEL + ',"task":"\\u001b[2J"}',
        MODEL + f',"task":"{"x" * 1001}"}}',
        MODEL + ',"episode":-1}',
        MODEL + ',"step":1.5}',
        MODEL + ',"x":1' + " " * MAX_LINE + "}",
        MODEL + ',"kind":"confession"}',
        "[" * 50_000,
        "null",
    ],
    ids=lambda line: line[:70],
)
def test_lines_that_no_run_writes_are_refused(line: str, tmp_path: Path):
    (tmp_path / "metrics.jsonl").write_text(MODEL + "}\n" + line + "\n")
    with pytest.raises(DamagedFileError, match=r"line 2 of .* is damaged"):
        read_columns(tmp_path)


def test_metrics_of_any_size_are_not_read(tmp_path: Path):
    file = tmp_path / "metrics.jsonl"
    file.touch()
    os.truncate(file, 90 << 30)
    with pytest.raises(DamagedFileError, match="larger than the"):
        read_columns(tmp_path)
    # As if it grew while it is read.
    with pytest.raises(DamagedFileError, match="larger than the"):
        for _ in iter_lines(Endless(), "it"):
            pass


class Endless(io.BytesIO):
    """One line for ever."""

    def readline(self, size: int | None = -1) -> bytes:
        return (MODEL + "," + " " * 60_000 + '"x":1}\n').encode()


def test_columns_do_not_outgrow_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A value of one line takes room in all of them, and the longest name too."""
    file = tmp_path / "metrics.jsonl"
    values = "".join(f',"x{number}":1' for number in range(50))
    file.write_text(f"{MODEL}{values}}}\n" + f"{MODEL}}}\n" * 99)
    assert np.isnan(read_columns(tmp_path)["model"]["x7"]).sum() == 99
    monkeypatch.setattr(read, "MAX_CELLS", 5_000)
    with pytest.raises(DamagedFileError, match="93 lines with 54 sorts of values"):
        read_columns(tmp_path)
    monkeypatch.setattr(read, "MAX_COLUMNS", 50)
    with pytest.raises(DamagedFileError, match="1 lines with 54 sorts of values"):
        read_columns(tmp_path)
    file.write_text(f"{MODEL}}}\n" * 99 + MODEL.replace('"a"', f'"{"a" * 500}"') + "}\n")
    assert len(read_columns(tmp_path)["model"]["task"]) == 100
    monkeypatch.setattr(read, "MAX_TEXT", 49_000)
    with pytest.raises(DamagedFileError, match="a name of 500 characters in 100 lines"):
        read_columns(tmp_path)


def test_tables_of_evaluations_do_not_outgrow_memory(monkeypatch: pytest.MonkeyPatch):
    config = config_of("oa", 0)
    columns = {
        "episode": np.arange(10),
        "step": np.arange(10),
        "task": np.array([config.tasks[0]] * 10),
        "success_rate": np.ones(10),
    }
    assert evaluation_table(config, columns).values.shape == (10, 6)
    monkeypatch.setattr(read, "MAX_CELLS", 59)
    with pytest.raises(DamagedFileError, match="10 evaluations of 6 tasks"):
        evaluation_table(config, columns)
