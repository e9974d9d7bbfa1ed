"""Sweeps: which runs they have, how they run on this machine, and that none gets lost."""

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from everlearn.cli import main
from everlearn.runs.loop import execute
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.support.lock import FolderInUseError, is_locked, locked
from everlearn.support.threads import processors
from everlearn.sweeps import launch as launch_module
from everlearn.sweeps.grid import is_finished, parse_seeds, sweep_jobs
from everlearn.sweeps.job import Job, Outcome, Resources, run_job
from everlearn.sweeps.launch import SweepResult, launch, run_sweep
from everlearn.sweeps.local import Pool
from everlearn.sweeps.progress import Board
from everlearn.sweeps.storage import Folder
from tests.runs.worker import outcome, tiny

SMALL = ["--episodes-per-task", "2", "--tasks", "window-close,button-press"]


def jobs_in(folder: Path, count: int = 2, **settings) -> list[Job]:
    return [
        Job(f"random-{seed}", tiny(seed=seed, **settings), str(folder / f"random-{seed}"))
        for seed in range(count)
    ]


def quiet() -> Board:
    return Board(Console(file=io.StringIO()), quiet=True)


def alone(job: Job, folder: Path) -> dict:
    execute(job.config, folder / job.name)
    return outcome(folder / job.name)


# Which runs -------------------------------------------------------------------------------


def test_seeds_are_read_like_people_write_them():
    assert parse_seeds("0-6") == (0, 1, 2, 3, 4, 5, 6)
    assert parse_seeds("3, 10-12,3,11") == (3, 10, 11, 12)


@pytest.mark.parametrize("text", ["", "a", "1-", "-1", "3-1", "1,,2", "0-10000", "1.5", "٣-x"])
def test_seeds_that_are_none_are_refused(text):
    with pytest.raises(InvalidInputError, match="seeds"):
        parse_seeds(text)


def test_every_agent_runs_with_every_seed(tmp_path):
    jobs = sweep_jobs(["oa", "random"], (4, 5), str(tmp_path), preset="smoke", single_tasks=True)
    assert [job.name for job in jobs[:4]] == ["oa-4", "random-4", "oa-5", "random-5"]
    assert [(job.config.agent, job.config.seed) for job in jobs[:2]] == [("oa", 4), ("random", 4)]
    assert all(job.config.threads == 1 for job in jobs)
    alone = jobs[4]
    assert (alone.name, alone.config.tasks) == ("oa-4/button-press", ("button-press",))
    assert Path(alone.place) == tmp_path / "oa-4" / "single" / "button-press"
    assert Job.from_json(alone.to_json()) == alone
    with pytest.raises(UnknownNameError):
        sweep_jobs(["ao"], (0,), str(tmp_path))
    with pytest.raises(UnknownNameError, match="rigde"):
        sweep_jobs(["oa"], (0,), str(tmp_path), options=["rigde=1"])


def test_options_that_vary_are_runs_of_their_own(tmp_path):
    jobs = sweep_jobs(
        ["oa"], (0, 1), str(tmp_path), vary=["bins=5,7", "ridge=1"], options=["features=10"]
    )
    names = ["oa-bins=5-ridge=1-0", "oa-bins=7-ridge=1-0", "oa-bins=5-ridge=1-1"]
    assert [job.name for job in jobs[:3]] == names
    assert jobs[1].config.options == {"features": 10, "bins": 7, "ridge": 1.0}
    assert Path(jobs[1].place) == tmp_path / names[1]
    assert len(jobs) == 4
    for wrong in ("bins", "bins=", "=5"):
        with pytest.raises(InvalidInputError, match="bins=5,7,9,11"):
            sweep_jobs(["oa"], (0,), str(tmp_path), vary=[wrong])
    with pytest.raises(UnknownNameError, match="bons"):
        sweep_jobs(["oa"], (0,), str(tmp_path), vary=["bons=1"])


def test_a_run_may_start_after_those_of_its_tasks_alone(tmp_path):
    saved = tmp_path / "tiny.json"
    saved.write_text(tiny(episodes_per_task=1).to_json())
    jobs = sweep_jobs(["random"], (0,), str(tmp_path), single_tasks=True, config=saved)
    for job in reversed(jobs[:2]):
        assert run_job(job) == Outcome("finished")


# The rule: what follows from how an attempt ended -----------------------------------------


class Scripted:
    """A backend whose attempts end as a list says; ``None`` does the job."""

    def __init__(self, ends):
        self.ends, self.attempts, self.queue = ends, [], []

    def submit(self, job):
        self.queue.append(job)

    def wait(self, seconds):
        found, self.queue = self.queue, []
        return [(job, self.attempt(job)) for job in found]

    def attempt(self, job):
        self.attempts.append(job.name)
        end = self.ends.pop(0)
        return run_job(job) if end is None else Outcome(end, f"{end} for a reason")

    def running(self, job):
        return job in self.queue

    def stop(self):
        pass

    def close(self):
        self.closed = True


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    monkeypatch.setattr(launch_module, "DELAY", 0.01)


def launched(ends, jobs, **options) -> tuple[SweepResult, Scripted]:
    backend = Scripted(ends)
    result = launch(
        jobs, [job for job in jobs if not is_finished(job)], backend, quiet(), **options
    )
    assert backend.closed
    return result, backend


def test_crashed_and_busy_runs_are_tried_again(tmp_path):
    jobs = jobs_in(tmp_path, 1)
    result, backend = launched(["crashed", "busy", "busy", "crashed", None], jobs, retries=2)
    assert result.finished == ["random-0"]
    assert result.restarts == 2
    assert len(backend.attempts) == 5


def test_crashing_at_the_same_place_is_a_failure_and_getting_further_is_not(tmp_path, monkeypatch):
    jobs = jobs_in(tmp_path, 1)
    result, _ = launched(["crashed"] * 3, jobs, retries=2)
    assert "crashed 3 times without getting further" in result.failed["random-0"]
    found = iter([["a"], ["b"], ["c"], ["c"], ["c"], ["c"]])
    monkeypatch.setattr(Folder, "snapshots", lambda self: next(found))
    backend = Scripted(["crashed"] * 5)
    result = launch(jobs, jobs, backend, quiet(), retries=2)
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


def test_a_mistake_in_an_agent_is_one_line(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise ZeroDivisionError("by nought")

    monkeypatch.setattr("everlearn.sweeps.job.execute", broken)
    result = run_job(jobs_in(tmp_path, 1)[0])
    assert result.end == "failed"
    assert "ZeroDivisionError: by nought (test_sweep.py, line" in result.text


# On this machine --------------------------------------------------------------------------


class Meddling(Pool):
    """A pool that looks at its processes, and kills the first one that gets somewhere."""

    def __init__(self, *args, kill=False, **options):
        super().__init__(*args, **options)
        self.seen, self.kill = {}, kill

    def wait(self, seconds):
        for one in self._running:
            folder = Path(one.job.place)
            if one.job.name not in self.seen and is_locked(folder):
                self.seen[one.job.name] = self.facts(one.process.pid)
            if self.kill and list(folder.glob("checkpoints/0*")):
                self.kill = False
                one.process.kill()
        return super().wait(0.01)

    def facts(self, pid):
        threads = [
            sorted(os.sched_getaffinity(int(task.name)))
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return threads, {k: v for k, v in variables.items() if k.endswith("_NUM_THREADS")}


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_runs_are_pinned_survive_a_kill_and_equal_those_alone(tmp_path):
    jobs = jobs_in(tmp_path / "sweep")
    pool = Meddling(tmp_path / "logs", Resources(threads=1), kill=True)
    result = launch(jobs, jobs, pool, quiet())
    assert sorted(result.finished) == ["random-0", "random-1"]
    assert result.restarts == 1
    for job in jobs:
        assert outcome(Path(job.place)) == alone(job, tmp_path / "alone")
    pins = []
    for threads, variables in pool.seen.values():
        assert all(cores == threads[0] for cores in threads), "every thread of the process"
        assert len(threads[0]) == 1
        assert set(variables.values()) == {"1"}
        pins.append(threads[0][0])
    assert len(set(pins)) == min(2, len(processors()))
    assert (
        "going on after episode"
        in (tmp_path / "logs" / "random-0.log").read_text()
        + (tmp_path / "logs" / "random-1.log").read_text()
    )


def test_more_than_there_is_room_for_is_refused(tmp_path):
    for options in ({"workers": 10_000}, {"workers": 0}):
        with pytest.raises(InvalidInputError, match="room for"):
            Pool(tmp_path, Resources(), **options)
    with pytest.raises(InvalidInputError, match="GB of memory"):
        Pool(tmp_path, Resources(memory_gb=1e6))
    for resources in ({"threads": 0}, {"threads": 1.5}, {"memory_gb": 0.0}):
        with pytest.raises(InvalidInputError):
            Resources(**resources)
    with pytest.raises(InvalidInputError, match="leave that out"):
        run_sweep([], str(tmp_path), Resources(), quiet(), ray="local", workers=2)


def test_a_container_has_its_share_of_the_processors(tmp_path, monkeypatch):
    from everlearn.support import threads

    monkeypatch.setattr(threads, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 2, 3, 9}, raising=False)
    assert processors() == [2, 3, 5, 9]
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert processors() == [2, 3, 5, 9]
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert processors() == [2, 3]
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert processors() == [2]


def test_other_settings_and_other_sweeps_are_refused_before_anything_is_done(tmp_path):
    jobs = jobs_in(tmp_path, 1)
    run_job(jobs[0])
    before = sorted(path.name for path in tmp_path.iterdir())
    others = jobs_in(tmp_path, 2, max_steps=5)
    with pytest.raises(InvalidInputError, match=r"random-0 holds .*max_steps: 10 and now 5"):
        run_sweep(others, str(tmp_path), Resources(), quiet())
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    with locked(tmp_path), pytest.raises(FolderInUseError):
        run_sweep(jobs_in(tmp_path, 2), str(tmp_path), Resources(), quiet())
    assert not (tmp_path / "random-1").exists()


def test_a_sweep_as_a_command_lists_what_failed(tmp_path, capsys):
    out = str(tmp_path / "sweep")
    command = ["sweep", "--agents", "random,oa", "--seeds", "0", "--out", out, *SMALL, "--quiet"]
    broken = ["--option", "elites=9", "--option", "candidates=3"]
    with pytest.raises(SystemExit) as end:
        main([*command, *broken])
    assert end.value.code == 2, "random has no such option"
    assert "elites" in capsys.readouterr().err
    command[2] = "oa"
    with pytest.raises(SystemExit) as end:
        main([*command, *broken])
    assert end.value.code == 1
    said = capsys.readouterr().out
    assert "0 of 1 runs finished" in said
    assert "failed: oa-0: elites is 9, more than the 3 candidates" in said


def sweep_process(out: Path) -> subprocess.Popen:
    saved = out.with_suffix(".json")
    saved.write_text(tiny(episodes_per_task=15, max_steps=50).to_json())
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
        assert "the same command goes on" in said
        assert not is_locked(out / "random-0"), "whoever is asked to stop waits for its workers"
    wait_for(lambda: not is_locked(out / "random-0"))  # alone, the worker stops by itself
    second = sweep_process(out)
    said, _ = second.communicate(timeout=120)
    assert second.returncode == 0
    assert "1 of 1 runs finished" in said
    for job in jobs_in(tmp_path / "alone", 1, episodes_per_task=15, max_steps=50):
        assert run_job(job) == Outcome("finished")
        assert outcome(Path(job.place)) == outcome(out / job.name)


# What is seen of it -----------------------------------------------------------------------


def test_the_board_shows_every_run(tmp_path):
    jobs = jobs_in(tmp_path, 2)
    run_job(jobs[0])
    text = io.StringIO()
    board = Board(Console(file=text, force_terminal=True, width=120))
    with board.during(jobs):
        board.tell(jobs[0], "finished", "before")
        board.tell(jobs[1], "failed", "[bold]no[/bold]")
        board.refresh()
    shown = text.getvalue()
    for word in ("random-0", "6/6", "button-press", "random-1", "0/6", "1 failed, 1 finished"):
        assert word in shown
    assert "[bold]no" in shown, "what is shown is text, not markup"
