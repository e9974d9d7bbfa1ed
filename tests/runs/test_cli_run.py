"""`everlearn run`, `eval` and `list` as a user gives them."""

import json
import os
import signal

import pytest

from everlearn.cli import main
from everlearn.runs import loop as run_module
from everlearn.runs.loop import RunResult
from everlearn.runs.snapshots import RunState
from tests.runs.worker import tiny

SMALL = ["--agent", "scripted", "--tasks", "window-close,button-press", "--episodes-per-task", "2"]
SMALL += ["--max-steps", "100", "--evaluation.every", "0"]
SMALL += ["--evaluation.boundary-episodes", "1"]
SMALL += ["--threads", "1", "--quiet"]


def refused(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2
    said = capsys.readouterr().err.strip()
    assert "\n" not in said
    return said


def test_run_resume_eval_list(tmp_path, capsys):
    out = tmp_path / "runs" / "demo"
    command = ["run", *SMALL, "--out", str(out), "--seed", "3", "--option", "noise=0.01"]
    main(command)
    assert "average performance: 1.000" in capsys.readouterr().out
    before = (out / "metrics.jsonl").read_bytes()
    main(command)
    assert (out / "metrics.jsonl").read_bytes() == before
    config = json.loads((out / "config.json").read_text())
    assert (config["seed"], config["options"]) == (3, {"noise": 0.01})
    capsys.readouterr()

    main(["eval", str(out), "--episodes", "1", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["episode"] == 4
    assert said["results"] == {
        task: {"success_rate": 1.0, "episodes": 1} for task in ("window-close", "button-press")
    }
    main(["eval", str(out), "--episodes", "1", "--tasks", "door-open"])
    assert "door-open" in capsys.readouterr().out

    main(["list", "--runs", str(tmp_path)])
    text = capsys.readouterr().out
    for word in ("oa-paper", "scripted", "smoke", "faucet-close", "demo: scripted, seed 3, fin"):
        assert word in text

    said = refused(capsys, *command, "--max-steps", "50")
    assert "max_steps: 100 and now 50" in said
    assert "--fresh" in said
    main([*command, "--max-steps", "50", "--fresh"])
    assert json.loads((out / "config.json").read_text())["max_steps"] == 50


def test_a_run_from_saved_json_with_single_tasks(tmp_path, capsys):
    main(["run", *SMALL, "--out", str(tmp_path / "one")])
    saved = str(tmp_path / "one" / "config.json")
    two = str(tmp_path / "two")
    main(["run", "--config", saved, "--out", two, "--single-tasks", "--quiet"])
    assert "forward transfer: 0.000" in capsys.readouterr().out
    assert (tmp_path / "two" / "single" / "button-press" / "metrics.jsonl").exists()


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--agent", "ao"], "Did you mean 'oa'?"),
        (["--tasks", "door"], "door-open"),
        (["--preset", "quik"], "quick"),
        (["--option", "model.rigde=1"], "Did you mean 'model.ridge'?"),
        (["--option", "planer.horizon=3"], "Did you mean 'planner.horizon'?"),
        (["--option", "horizon=3"], "Did you mean 'planner.horizon'?"),
        (["--option", "model.ridge"], "name=value"),
        (["--episodes-per-task", "0"], "from 1 to 100000"),
        (["--episodes-per-task", "ten"], "--episodes-per-task: expected a whole number, got 'ten'"),
        (["--seed", "abc"], "--seed: expected a whole number, got 'abc'"),
        (["--world", "continual-benhc"], "Did you mean 'continual-bench'?"),
        (["--world", "gym"], "gym:NAME"),
        (["--config", "none.json"], "none.json"),
        (["--agnet", "oa"], "--agent"),
    ],
)
def test_wrong_words_get_one_line_and_create_nothing(words, right, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert right in refused(capsys, "run", *words)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("agent", "option", "right"),
    [
        ("oa", "model.features=1000000000000000", "from 1 to 1000000000"),
        ("oa", "model.bins=1000000", "number of cells (features * bins ** grid_dim)"),
        ("oa", "model.grid_dim=60", "from 1 to 10"),
        ("oa", "planner.candidates=1000000000", "more memory than there is (Unable to allocate"),
        ("sac-finetune", "hidden=10000000", "more memory than there is"),
    ],
)
def test_sizes_that_no_machine_has_are_refused_in_a_line(agent, option, right, tmp_path, capsys):
    if agent.startswith("sac"):
        pytest.importorskip("torch", reason="needs the extra deep")
    config = tmp_path / "config.json"
    config.write_text(tiny(agent).to_json())
    words = ["--config", str(config), "--option", option, "--out", str(tmp_path / "run")]
    assert right in refused(capsys, "run", *words, "--quiet").splitlines()[-1]


def test_eval_and_list_of_nothing(tmp_path, capsys):
    assert "no config" in refused(capsys, "eval", str(tmp_path))
    main(["list", "--runs", str(tmp_path)])
    assert "none" in capsys.readouterr().out


def test_a_run_this_version_cannot_read_does_not_hide_the_others(tmp_path, capsys):
    for name in ("good", "newer"):
        main(["run", *SMALL, "--agent", "random", "--out", str(tmp_path / name)])
    path = tmp_path / "newer" / "config.json"
    path.write_text(path.read_text().replace('"version": 2', '"version": 3'))
    main(["list", "--runs", str(tmp_path)])
    text = capsys.readouterr().out
    assert "good: random" in text
    assert "version 3" in text


def test_a_stopped_run_says_so_and_exits_as_signals_do(tmp_path, capsys, monkeypatch):
    stopped = RunResult(RunState(3, 30, 0), False, signal.SIGTERM)
    monkeypatch.setattr(run_module, "execute", lambda *args, **options: stopped)
    with pytest.raises(SystemExit) as end:
        main(["run", *SMALL, "--out", os.fspath(tmp_path / "run")])
    assert end.value.code == 128 + signal.SIGTERM
    assert "stopped after episode 3; the same command resumes" in capsys.readouterr().out


@pytest.mark.parametrize("command", ["run", "eval", "list"])
def test_help_has_an_example(command, capsys):
    with pytest.raises(SystemExit) as end:
        main([command, "--help"])
    assert end.value.code == 0
    assert f"Example: everlearn {command}" in " ".join(capsys.readouterr().out.split())
