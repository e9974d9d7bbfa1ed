"""Sweeps under fire: kill -9 of workers, of the driver and of nodes; every run ends, to the bit."""

from __future__ import annotations

import contextlib
import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from rich.console import Console

from everlearn.runs.metrics_file import METRICS
from everlearn.sweeps.grid import sweep_jobs
from everlearn.sweeps.job import Outcome, Resources, is_finished, run_job
from everlearn.sweeps.launch import run_sweep
from everlearn.sweeps.progress import SweepProgress
from tests.runs.worker import outcome
from tests.torture.length import often

pytestmark = [pytest.mark.torture, pytest.mark.timeout(3000)]

MARK = "EVERLEARN_TORTURE"
SWEPT, ON_CLUSTER = often(6, 3), often(12, 6)
"""Runs of a sweep on this machine, and of one on a cluster."""
EPISODES = 8
"""Of each task: runs that are over in a second would hardly be met by a kill."""
SMALL = ("model.features=10", "planner.candidates=10", "planner.elites=5", "planner.horizon=5")


def marked(value: str) -> list[int]:
    """Processes that this test started, found by a variable in their environment."""
    found = []
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):  # it may be gone by now
                if f"{MARK}={value}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    found.append(int(place.name))
    return found


def jobs_in(out: Path, seeds: int) -> list:
    return sweep_jobs(
        ["oa"],
        range(seeds),
        str(out),
        preset="smoke",
        options=SMALL,
        snapshot_seconds=0.0,
        episodes_per_task=EPISODES,
    )


def stored(out: Path) -> int:
    """Bytes of metrics of all runs of a sweep."""
    return sum(file.stat().st_size for file in out.glob(f"*/{METRICS}"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What each run comes to by itself, by its name."""
    folder = tmp_path_factory.mktemp("alone")
    found = {}
    for job in jobs_in(folder, ON_CLUSTER):
        assert run_job(job) == Outcome("finished")
        found[job.name] = outcome(Path(job.location))
    return found


@pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="looks into /proc")
def test_workers_and_the_driver_are_killed_at_random(alone, tmp_path, tally):
    out, generator, mark = tmp_path / "sweep", random.Random(0), str(tmp_path)
    words = ["sweep", "--agents", "oa", "--seeds", f"0-{SWEPT - 1}", "--preset", "smoke"]
    words += ["--snapshot-seconds", "0", "--retries", "1000", "--out", str(out)]
    words += ["--episodes-per-task", str(EPISODES)]

    words += [word for option in SMALL for word in ("--option", option)]

    def start() -> subprocess.Popen:
        return subprocess.Popen(
            [sys.executable, "-m", "everlearn", *words],
            env={**os.environ, MARK: mark},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    driver, workers_killed, drivers_killed = start(), 0, 0
    began = time.monotonic()
    while driver.poll() is None:
        assert time.monotonic() - began < 2400
        # Sometimes while processes start, and otherwise after a step forward: on a busy machine
        # nothing would ever end if everything were killed every few seconds.
        before, patience = stored(out), generator.choice([0.0, 600.0, 600.0])
        waited = time.monotonic()
        while driver.poll() is None and time.monotonic() - waited < patience:
            if stored(out) > before:
                break
            time.sleep(0.1)
        time.sleep(generator.uniform(0.0, 1.0))
        victims = [pid for pid in marked(mark) if pid != driver.pid]
        if generator.random() < 0.2:
            driver.kill()
            driver.wait()
            drivers_killed += 1
            driver = start()
        elif victims:
            with contextlib.suppress(ProcessLookupError):  # it had just finished
                os.kill(generator.choice(victims), signal.SIGKILL)
                workers_killed += 1
    assert driver.returncode == 0
    for job in jobs_in(out, SWEPT):
        assert outcome(Path(job.location)) == alone[job.name], job.name
    assert workers_killed >= 3
    assert not marked(mark), "nobody is left behind"
    tally["kills of a worker of a sweep survived"] += workers_killed
    tally["kills of the driver of a sweep survived"] += drivers_killed


def processes_of(node) -> tuple[list[int], bool]:
    """Processes of a node of a cluster, and whether it is at a run: its worker then says so."""
    (raylet,) = node.all_processes["raylet"]
    found, busy = [raylet.process.pid], False
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            with contextlib.suppress(OSError):  # it may be gone by now
                parent = int((place / "stat").read_text().rpartition(")")[2].split()[1])
                if parent == found[0]:
                    words = (place / "cmdline").read_bytes()
                    busy |= words.startswith(b"ray::") and not words.startswith(b"ray::IDLE")
                    found.append(int(place.name))
    return found, busy


class Saboteur(SweepProgress):
    """Kills a busy node when so many runs are finished, and brings another in its place."""

    def __init__(self, cluster, jobs, moments):
        super().__init__(Console(file=io.StringIO()), quiet=True)
        self.cluster, self.jobs, self.moments = cluster, jobs, list(moments)
        self.killed = []

    def refresh(self):
        done = sum(is_finished(job) for job in self.jobs)
        if not self.moments or done < self.moments[0]:
            return
        for node in self.cluster.worker_nodes.copy():
            processes, busy = processes_of(node)
            if busy:
                self.moments.pop(0)
                # All at once, as when a machine fails: a worker alone would finish its run.
                for process in processes:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)
                self.cluster.remove_node(node, allow_graceful=False)
                self.killed.append(done)
                self.cluster.add_node(num_cpus=1)
                return


def test_a_cluster_of_three_nodes_loses_one_twice(alone, tmp_path, monkeypatch, tally):
    ray = pytest.importorskip("ray", reason="needs the extra cluster")
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        jobs = jobs_in(tmp_path / "sweep", ON_CLUSTER)
        board = Saboteur(cluster, jobs, (ON_CLUSTER // 6, ON_CLUSTER // 2))
        result = run_sweep(
            jobs, str(tmp_path / "sweep"), Resources(), board, ray=cluster.address, retries=10
        )
    finally:
        ray.shutdown()
        cluster.shutdown()
        signal.signal(signal.SIGTERM, before)
    assert sorted(result.finished) == sorted(alone)
    assert result.failed == {}
    assert len(board.killed) == 2, "no node was at a run when it was time"
    assert result.restarts >= 2, "runs were lost with their node and started again"
    for job in jobs:
        assert outcome(Path(job.location)) == alone[job.name], job.name
    tally["nodes of a cluster lost"] += 2
    tally["runs on the cluster equal to the bit"] += len(jobs)
    assert threading.current_thread() is threading.main_thread()
