"""Sweeps on Ray, on this machine: the same runs, with the same bits."""

from pathlib import Path

import pytest

from everlearn.runs.loop import execute
from everlearn.support.errors import InvalidInputError, MissingExtraError
from everlearn.sweeps import ray as cluster
from everlearn.sweeps.job import Job, Resources
from everlearn.sweeps.launch import run_sweep
from everlearn.sweeps.storage import URLStorage
from tests.runs.worker import outcome, tiny
from tests.sweeps.helpers import USER_AGENTS, job_in, silent


def test_runs_on_ray_equal_those_alone_and_errors_are_never_retried(tmp_path, monkeypatch):
    pytest.importorskip("ray", reason="needs the extra cluster")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    elsewhere = tmp_path / "elsewhere"  # a folder of sys.path only, as that of a script
    elsewhere.mkdir()
    monkeypatch.syspath_prepend(elsewhere)
    (elsewhere / "user_agents.py").write_text(USER_AGENTS)
    user = ("user_agents",)
    jobs = [
        job_in(tmp_path, "random"),
        Job("oa-1", tiny("oa", seed=1), f"file://{tmp_path}/stored/oa-1"),
        job_in(tmp_path, "mine", imports=user),
        job_in(tmp_path, "dividing", imports=user),
        job_in(tmp_path, "leaving", imports=user),
        job_in(tmp_path, "mine", 1),
    ]
    result = run_sweep(jobs, str(tmp_path), Resources(), silent(), ray="local")
    assert sorted(result.finished) == ["mine-0", "oa-1", "random-0"]
    assert result.restarts == 0
    log = tmp_path / "logs" / "dividing-0.log"
    assert "division by zero (user_agents.py, line" in result.failed["dividing-0"]
    assert result.failed["dividing-0"].endswith(f"; traceback in {log}")
    assert "in divide" in log.read_text()
    assert "SystemExit: had enough" in result.failed["leaving-0"]
    assert "unknown agent 'mine'" in result.failed["mine-1"], "its module was not asked for"
    for job in jobs[:2]:
        execute(job.config, tmp_path / "alone" / job.name)
    expected = outcome(tmp_path / "alone" / "random-0")
    assert outcome(Path(jobs[0].location)) == expected
    URLStorage(jobs[1].location).download(tmp_path / "downloaded", lambda text: None)
    stored, expected = outcome(tmp_path / "downloaded"), outcome(tmp_path / "alone" / "oa-1")
    assert stored["lines"] == expected["lines"]
    name = "000006-2-evaluated/agent"
    assert stored[name] == expected[name]


def test_without_ray_or_a_cluster_it_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"everlearn\[cluster\]"):
        run_sweep([], str(tmp_path), Resources(), silent(), ray="local")
    monkeypatch.undo()
    pytest.importorskip("ray", reason="needs the extra cluster")
    with pytest.raises(InvalidInputError, match="ray start --head"):
        run_sweep([], str(tmp_path), Resources(), silent(), ray="127.0.0.1:1")
