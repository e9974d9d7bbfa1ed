"""Sweeps on Ray, on this machine: the same runs, with the same bits."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from everlearn.runs.loop import execute
from everlearn.support.errors import InvalidInputError, MissingExtraError
from everlearn.sweeps import ray as cluster
from everlearn.sweeps.job import Job, Resources
from everlearn.sweeps.launch import run_sweep
from everlearn.sweeps.progress import Board
from tests.runs.worker import outcome, tiny


def quiet() -> Board:
    return Board(Console(file=io.StringIO()), quiet=True)


def test_runs_on_ray_equal_those_alone_and_failures_are_listed(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs the extra cluster")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    jobs = [
        Job("random-0", tiny(), str(tmp_path / "random-0")),
        Job("oa-1", tiny("oa", seed=1), f"file://{tmp_path}/stored/oa-1"),
        Job("oa-2", tiny("oa", options={"elites": 9, "candidates": 3}), str(tmp_path / "oa-2")),
    ]
    result = run_sweep(jobs, str(tmp_path), Resources(), quiet(), ray="local")
    assert sorted(result.finished) == ["oa-1", "random-0"]
    assert "more than the 3 candidates" in result.failed["oa-2"]
    for job in jobs[:2]:
        execute(job.config, tmp_path / "alone" / job.name)
    expected = outcome(tmp_path / "alone" / "random-0")
    assert outcome(Path(jobs[0].place)) == expected
    cluster.open_place(jobs[1].place).pull(tmp_path / "pulled", lambda text: None)
    found, expected = outcome(tmp_path / "pulled"), outcome(tmp_path / "alone" / "oa-1")
    assert found["lines"] == expected["lines"]
    name = "000006-2-evaluated/agent"
    assert found[name] == expected[name]


def test_without_ray_or_a_cluster_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"everlearn\[cluster\]"):
        run_sweep([], str(tmp_path), Resources(), quiet(), ray="local")
    monkeypatch.undo()
    pytest.importorskip("ray", reason="needs the extra cluster")
    with pytest.raises(InvalidInputError, match="ray start --head"):
        run_sweep([], str(tmp_path), Resources(), quiet(), ray="127.0.0.1:1")
