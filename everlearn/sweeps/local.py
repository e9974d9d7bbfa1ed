"""Runs on this machine: a process each, on processors of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everlearn.support.errors import InvalidInputError
from everlearn.support.processes import how_it_ended, start
from everlearn.support.threads import pinned, processors
from everlearn.sweeps.job import Job, Outcome, Resources

POLL = 0.05
"""Seconds between two looks at the processes."""

WORKER = "everlearn.sweeps.worker"


@dataclass(frozen=True)
class _Running:
    """A job at work."""

    job: Job
    process: subprocess.Popen[bytes]
    cores: tuple[int, ...]
    log: IO[bytes]


class Pool:
    """Runs jobs in processes, as many at a time as there are processors for.

    Each process has `threads` threads and is pinned to as many processors, which no other one
    of the pool has. It ends with its run: what a crash takes with it is that one run, which
    goes on from its last snapshot.

    Parameters
    ----------
    logs
        Folder for what the processes say, a file for each job.
    resources
        What a run needs.
    workers
        Runs at a time; None takes as many as there is room for.
    """

    def __init__(self, logs: Path, resources: Resources, workers: int | None = None) -> None:
        self.logs, self.threads = logs, resources.threads
        cores, threads = processors(), resources.threads
        self.workers = _fitting(len(cores), resources, workers)
        self._free = [
            tuple(cores[i * threads : (i + 1) * threads]) for i in reversed(range(self.workers))
        ]
        self._queue: deque[Job] = deque()
        self._running: list[_Running] = []

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue."""
        self._queue.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Start what can be started; give what has ended, waiting for so long if nothing has."""
        deadline = time.monotonic() + seconds
        while True:
            while self._queue and self._free:
                self._start(self._queue.popleft(), self._free.pop())
            ended = [one for one in self._running if one.process.poll() is not None]
            if ended or time.monotonic() >= deadline:
                return [(one.job, self._end(one)) for one in ended]
            time.sleep(POLL)

    def running(self, job: Job) -> bool:
        """Whether a job is at work."""
        return any(one.job == job for one in self._running)

    def stop(self) -> None:
        """Ask for an end after the episodes at hand; what waits is not started any more."""
        self._queue.clear()
        for one in self._running:
            one.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """End what still runs, at once."""
        for one in list(self._running):
            one.process.kill()
            one.process.wait()
            self._end(one)

    def _start(self, job: Job, cores: tuple[int, ...]) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        log = (self.logs / f"{job.name.replace('/', '-')}.log").open("ab")
        with pinned(cores):
            process = start(WORKER, self.threads, log)
        self._running.append(_Running(job, process, cores, log))
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # if it died already, `wait` says so
            process.stdin.write(job.to_json().encode() + b"\n")
            process.stdin.flush()

    def _end(self, one: _Running) -> Outcome:
        """Free what a process had and say how it ended."""
        process = one.process
        assert process.stdin is not None
        assert process.stdout is not None
        said = process.stdout.read()
        for stream in (process.stdin, process.stdout, one.log):
            with suppress(BrokenPipeError):  # what was left to write has no reader any more
                stream.close()
        self._running.remove(one)
        self._free.append(one.cores)
        try:
            return Outcome(**json.loads(said))
        except (ValueError, TypeError):  # it said nothing, or not to the end
            return Outcome("crashed", f"{how_it_ended(process.returncode)}; see {one.log.name}")


def _fitting(cores: int, resources: Resources, workers: int | None) -> int:
    """Return the runs at a time that neither processors nor memory are too small for."""
    room = cores // resources.threads
    reason = f"{cores} processors with {resources.threads} threads a run"
    if resources.memory_gb is not None and _memory_gb() // resources.memory_gb < room:
        room = int(_memory_gb() // resources.memory_gb)
        reason = f"{_memory_gb():.1f} GB of memory with {resources.memory_gb:g} GB a run"
    wanted = max(1, room) if workers is None else workers
    if not 1 <= wanted <= room:
        raise InvalidInputError(
            f"{reason} leave room for {room} runs at a time, not {wanted}; ask for something else"
        )
    return wanted


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
