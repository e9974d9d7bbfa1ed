"""Runs in worker processes: pinned, killed, and with errors of the user's."""

import os
import signal
from pathlib import Path

import pytest

from everlearn.runs.loop import execute
from everlearn.support import processes
from everlearn.support.errors import InvalidInputError
from everlearn.support.lock import is_locked
from everlearn.support.processes import processors
from everlearn.sweeps import launch as launch_module
from everlearn.sweeps.job import Job, Resources
from everlearn.sweeps.launch import launch
from everlearn.sweeps.local import Pool
from tests.runs.worker import outcome
from tests.sweeps.helpers import USER_AGENTS, job_in, jobs_in, silent


@pytest.fixture(autouse=True)
def _retry_soon(monkeypatch):
    monkeypatch.setattr(launch_module, "RETRY_SECONDS", 0.01)


def swept(folder, jobs, **options):
    return launch(jobs, jobs, Pool(folder / "logs", Resources()), silent(), **options)


class Meddling(Pool):
    """A pool that inspects its workers, and signals the first one that has a snapshot."""

    def __init__(self, *args, number=None, **options):
        super().__init__(*args, **options)
        self.seen, self.number = {}, number

    def wait(self, seconds):
        for worker in self._running:
            folder = Path(worker.job.location)
            if worker.job.name not in self.seen and is_locked(folder):
                self.seen[worker.job.name] = self.inspect(worker.process.pid)
            if self.number is not None and list(folder.glob("checkpoints/0*")):
                worker.process.send_signal(self.number)
                self.number = None
        return super().wait(0.01)

    def inspect(self, pid):
        threads = [
            sorted(os.sched_getaffinity(int(task.name)))
            for task in Path(f"/proc/{pid}/task").iterdir()
        ]
        pairs = Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        variables = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        return threads, {k: v for k, v in variables.items() if k.endswith("_NUM_THREADS")}


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_runs_are_pinned_survive_a_signal_and_equal_those_alone(number, tmp_path):
    jobs = jobs_in(tmp_path / "sweep")
    pool = Meddling(tmp_path / "logs", Resources(threads=1), number=number)
    result = launch(jobs, jobs, pool, silent())
    assert sorted(result.finished) == ["random-0", "random-1"]
    assert result.restarts == 1
    for job in jobs:
        execute(job.config, tmp_path / "alone" / job.name)
        assert outcome(Path(job.location)) == outcome(tmp_path / "alone" / job.name)
    pins = []
    for threads, variables in pool.seen.values():
        assert all(cores == threads[0] for cores in threads), "every thread of the process"
        assert len(threads[0]) == 1
        assert set(variables.values()) == {"1"}
        pins.append(threads[0][0])
    assert len(set(pins)) == min(2, len(processors()))


def test_more_than_there_is_room_for_is_refused(tmp_path):
    for options in ({"workers": 10_000}, {"workers": 0}):
        with pytest.raises(InvalidInputError, match="room for"):
            Pool(tmp_path, Resources(), **options)
    with pytest.raises(InvalidInputError, match="GB of memory"):
        Pool(tmp_path, Resources(memory_gb=1e6))
    for resources in ({"threads": 0}, {"threads": 1.5}, {"memory_gb": 0.0}):
        with pytest.raises(InvalidInputError):
            Resources(**resources)


def test_a_container_has_its_share_of_the_processors(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "_QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {5, 2, 3, 9}, raising=False)
    assert processors() == [2, 3, 5, 9]
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert processors() == [2, 3, 5, 9]
    (tmp_path / "cpu.max").write_text("250000 100000\n")
    assert processors() == [2, 3]
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    assert processors() == [2]


# A user's own module ------------------------------------------------------------------------


def test_agents_of_the_users_run_and_their_errors_are_never_retried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"  # a folder of sys.path only, as that of a script
    elsewhere.mkdir()
    monkeypatch.syspath_prepend(elsewhere)
    (tmp_path / "user_agents.py").write_text(USER_AGENTS)
    (elsewhere / "more_agents.py").write_text("import user_agents\n")
    (tmp_path / "broken_agents.py").write_text("raise LookupError('no such file')\n")
    user = ("user_agents",)
    jobs = [
        job_in(tmp_path, "mine", imports=("more_agents",), evaluators=2),
        job_in(tmp_path, "dividing", imports=user),
        job_in(tmp_path, "leaving", imports=user),
        job_in(tmp_path, "mien", imports=user),
        job_in(tmp_path, "mine", 1, imports=("missing_agents",)),
        job_in(tmp_path, "mine", 2, imports=("broken_agents",)),
    ]
    result = swept(tmp_path, jobs)
    assert result.finished == ["mine-0"]
    assert (tmp_path / "logs" / "mine-0.log").read_text() == "", "its evaluators had no trouble"
    assert result.restarts == 0
    expected = {
        "dividing-0": "ZeroDivisionError: division by zero (user_agents.py, line",
        "leaving-0": "SystemExit: had enough",
        "mien-0": "unknown agent 'mien'",
        "mine-1": "No module named 'missing_agents'",
        "mine-2": "LookupError: no such file",
    }
    assert set(result.failed) == set(expected)
    for name, message in expected.items():
        log = tmp_path / "logs" / f"{name}.log"
        assert message in result.failed[name]
        assert result.failed[name].endswith(f"; traceback in {log}")
        assert "Traceback (most recent call last)" in log.read_text()
    assert "in divide" in (tmp_path / "logs" / "dividing-0.log").read_text()
    assert "Did you mean 'mine'" in result.failed["mien-0"]


def test_a_process_that_vanishes_without_an_exception_is_retried(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "user_agents.py").write_text(USER_AGENTS)
    job = job_in(tmp_path, "vanishing", imports=("user_agents",), snapshot_seconds=600.0)
    result = swept(tmp_path, [job], retries=1)
    assert result.restarts == 1
    error = result.failed["vanishing-0"]
    assert "the process ended with exit code 3 and reported no result; see " in error
    assert "(crashed 2 times without getting further)" in error


# Errors before the job runs -----------------------------------------------------------------


def test_a_job_that_cannot_be_read_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(Job, "to_json", lambda job: "{rubbish")
    result = swept(tmp_path, [job_in(tmp_path, "random")])
    assert result.restarts == 0
    assert result.failed["random-0"].startswith("JSONDecodeError: ")


@pytest.mark.parametrize("package", ["numba", "numpy", "everlearn"])
def test_a_package_that_cannot_be_imported_is_reported(package, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # which a worker searches first
    (tmp_path / f"{package}.py").write_text("raise ImportError('built for another Python')\n")
    result = swept(tmp_path, [job_in(tmp_path, "random")])
    assert result.restarts == 0
    error = result.failed["random-0"]
    assert "built for another Python" in error
    assert error.endswith(f"; traceback in {tmp_path / 'logs' / 'random-0.log'}")
