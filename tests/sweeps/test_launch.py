"""Sweeps: which attempts are repeated, what is refused, and that no run gets lost."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.support.errors import InvalidInputError
from everlearn.support.lock import FolderInUseError, is_locked, locked
from everlearn.sweeps import launch as launch_module
from everlearn.sweeps.job import Outcome, Resources, is_finished, run_job
from everlearn.sweeps.launch import SweepResult, launch, run_sweep
from everlearn.sweeps.storage import FolderStorage
from tests.runs.worker import outcome, tiny
from tests.sweeps.helpers import jobs_in, silent

# What follows from how an attempt ended


class Scripted:
    """A backend whose attempts end as a list says; ``None`` does the job."""

    def __init__(self, ends):
        self.ends, self.attempts, self.queue = ends, [], []

    def submit(self, job):
        self.queue.append(job)

    def wait(self, seconds):
        jobs, self.queue = self.queue, []
        return [(job, self.attempt(job)) for job in jobs]

    def attempt(self, job):
        self.attempts.append(job.name)
        end = self.ends.pop(0)
        return run_job(job) if end is None else Outcome(end, f"{end} for a reason")

    def is_running(self, job):
        return job in self.queue

    def stop(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch):
    monkeypatch.setattr(launch_module, "RETRY_SECONDS", 0.01)


def launched(ends, jobs, **options) -> tuple[SweepResult, Scripted]:
    backend = Scripted(ends)
    result = launch(
        jobs, [job for job in jobs if not is_finished(job)], backend, silent(), **options
    )
    assert backend.closed
    return result, backend


def test_crashed_and_busy_runs_are_tried_again(tmp_path):
    jobs = jobs_in(tmp_path, 1)
    result, backend = launched(["crashed", "busy", "busy", "crashed", None], jobs, retries=2)
    assert result.finished == ["random-0"]
    assert result.restarts == 2
    assert len(backend.attempts) == 5


def test_crashes_without_a_new_snapshot_are_counted(tmp_path, monkeypatch):
    jobs = jobs_in(tmp_path, 1)
    result, _ = launched(["crashed"] * 3, jobs, retries=2)
    assert "crashed 3 times without getting further" in result.failed["random-0"]
    snapshots = iter([["a"], ["b"], ["c"], ["c"], ["c"], ["c"]])
    monkeypatch.setattr(FolderStorage, "snapshots", lambda self: next(snapshots))
    backend = Scripted(["crashed"] * 5)
    result = launch(jobs, jobs, backend, silent(), retries=2)
    assert len(backend.attempts) == 5


def test_a_failure_is_final_and_does_not_hold_up_the_others(tmp_path):
    result, backend = launched(["failed", None], jobs_in(tmp_path, 2))
    assert result.failed == {"random-0": "failed for a reason"}
    assert result.finished == ["random-1"]
    again, backend = launched([None], jobs_in(tmp_path, 2))
    assert backend.attempts == ["random-0"], "what is finished is skipped, what failed is not"
    assert sorted(again.finished) == ["random-0", "random-1"]


def test_a_run_that_finished_elsewhere_is_no_success(tmp_path):
    result, _ = launched(["finished"], jobs_in(tmp_path, 1))
    assert "all machines share" in result.failed["random-0"]


def test_an_error_in_an_agent_is_one_line(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("everlearn.runs.loop.execute", broken)
    result = run_job(jobs_in(tmp_path, 1)[0])
    assert result.end == "failed"
    assert "ZeroDivisionError: by nought (test_launch.py, line" in result.text
    assert "in broken" in result.traceback


def test_other_settings_and_other_sweeps_are_refused_before_anything_is_done(tmp_path):
    jobs = jobs_in(tmp_path, 1)
    run_job(jobs[0])
    before = sorted(path.name for path in tmp_path.iterdir())
    others = jobs_in(tmp_path, 2, max_steps=5)
    with pytest.raises(InvalidInputError, match=r"random-0 holds .*max_steps: 10 and now 5"):
        run_sweep(others, str(tmp_path), Resources(), silent())
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    with locked(tmp_path), pytest.raises(FolderInUseError):
        run_sweep(jobs_in(tmp_path, 2), str(tmp_path), Resources(), silent())
    assert not (tmp_path / "random-1").exists()


def test_a_cluster_has_its_own_number_of_workers(tmp_path):
    with pytest.raises(InvalidInputError, match="leave that out"):
        run_sweep([], str(tmp_path), Resources(), silent(), ray="local", workers=2)


def test_a_sweep_as_a_command_lists_what_failed(tmp_path, capsys):
    out = tmp_path / "sweep"
    command = ["sweep", "--agents", "random", "--seeds", "0,1", "--out", str(out), "--quiet"]
    saved = tmp_path / "config.json"
    saved.write_text(tiny(episodes_per_task=1, tasks=("window-close",)).to_json())
    command += ["--config", str(saved)]
    with pytest.raises(SystemExit) as end:
        main([*command, "--option", "elites=9"])
    assert end.value.code == 2, "random has no such option"
    assert "elites" in capsys.readouterr().err
    assert not out.exists()
    (out / "random-1").mkdir(parents=True)
    (out / "random-1" / "diary.txt").write_text("Dear diary")
    with pytest.raises(SystemExit) as end:
        main(command)
    assert end.value.code == 1
    printed = capsys.readouterr().out
    assert "1 of 2 runs finished" in printed
    assert "failed: random-1: " in printed
    assert "is not empty and holds no run (diary.txt ...)" in printed
    assert f"traceback in {out / 'logs' / 'random-1.log'}" in printed


LONG = {"episodes_per_task": 6, "max_steps": 50}
"""Some episodes are left when a signal comes after the first snapshot."""


def sweep_process(out: Path) -> subprocess.Popen:
    saved = out.with_suffix(".json")
    saved.write_text(tiny(**LONG).to_json())
    words = ["sweep", "--agents", "random", "--seeds", "0", "--out", str(out)]
    words += ["--config", str(saved), "--workers", "1"]
    return subprocess.Popen(
        [sys.executable, "-m", "everlearn", *words], stdout=subprocess.PIPE, text=True
    )


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "took too long"
        time.sleep(0.01)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_or_stopped_driver_leaves_nothing_behind_that_cannot_go_on(number, tmp_path):
    out = tmp_path / "sweep"
    first = sweep_process(out)
    wait_for(lambda: list(out.glob("random-0/checkpoints/0*")))
    first.send_signal(number)
    said, _ = first.communicate(timeout=60)
    if number == signal.SIGTERM:
        assert first.returncode == 128 + number
        assert "the same command resumes" in said
        assert not is_locked(out / "random-0"), "whoever is asked to stop waits for its workers"
    wait_for(lambda: not is_locked(out / "random-0"))  # alone, the worker stops by itself
    second = sweep_process(out)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0
    assert "1 of 1 runs finished" in said
    for job in jobs_in(tmp_path / "alone", 1, **LONG):
        assert run_job(job) == Outcome("finished")
        assert outcome(Path(job.location)) == outcome(out / job.name)
