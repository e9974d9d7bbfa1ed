"""Runs on this machine: a worker process each, on processors of its own.

`Pool` starts the workers. ``python -m everlearn.sweeps.local`` is a worker: it reads its job as a
line of JSON from standard input and answers with its outcome as a line on standard output.
Standard input stays open for as long as the pool lives; when it closes, the run stops as after
SIGTERM, with a snapshot.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from everlearn.support.errors import InvalidInputError
from everlearn.support.processes import (
    claim_output,
    how_it_ended,
    input_lines,
    pinned,
    processors,
    start,
)
from everlearn.sweeps.job import MAX_TRACEBACK, Job, Outcome, Resources, failure, run_job

POLL = 0.05
"""Seconds between two looks at the processes."""

WORKER = "everlearn.sweeps.local"


@dataclass(frozen=True)
class _Worker:
    """A process with a job."""

    job: Job
    process: subprocess.Popen[bytes]
    cores: tuple[int, ...]
    log: IO[bytes]
    log_start: int
    """Size of the log before this attempt, which appends to it."""


class Pool:
    """Runs jobs in worker processes, as many at a time as there are processors for.

    Each worker has `threads` threads and is pinned to as many processors, which no other worker
    of the pool has. It does one job and ends, so a crash costs one run, which resumes from its
    last snapshot.

    Parameters
    ----------
    logs
        Folder for the standard error of the workers, a file for each job.
    resources
        What a run needs.
    workers
        Runs at a time; None takes as many as there is room for.
    """

    def __init__(self, logs: Path, resources: Resources, workers: int | None = None) -> None:
        self.logs, self.threads = logs, resources.threads
        cores, threads = processors(), resources.threads
        self.workers = _number_of_workers(len(cores), resources, workers)
        self._free = [
            tuple(cores[i * threads : (i + 1) * threads]) for i in reversed(range(self.workers))
        ]
        self._queue: deque[Job] = deque()
        self._running: list[_Worker] = []

    def submit(self, job: Job) -> None:
        """Put a job at the end of the queue."""
        self._queue.append(job)

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Start queued jobs; return those that ended, after at most so many seconds."""
        deadline = time.monotonic() + seconds
        while True:
            while self._queue and self._free:
                self._start(self._queue.popleft(), self._free.pop())
            ended = [worker for worker in self._running if worker.process.poll() is not None]
            if ended or time.monotonic() >= deadline:
                return [(worker.job, self._collect(worker)) for worker in ended]
            time.sleep(POLL)

    def is_running(self, job: Job) -> bool:
        """Whether a worker has the job."""
        return any(worker.job == job for worker in self._running)

    def stop(self) -> None:
        """Ask all runs to stop after the current episode; drop the queue."""
        self._queue.clear()
        for worker in self._running:
            worker.process.send_signal(signal.SIGTERM)

    def close(self) -> None:
        """Kill the workers that are left."""
        for worker in list(self._running):
            worker.process.kill()
            worker.process.wait()
            self._collect(worker)

    def _start(self, job: Job, cores: tuple[int, ...]) -> None:
        self.logs.mkdir(parents=True, exist_ok=True)
        log = job.log(self.logs).open("ab")
        log_start = log.tell()
        with pinned(cores):
            process = start(WORKER, self.threads, log)
        self._running.append(_Worker(job, process, cores, log, log_start))
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # if it died already, `wait` says so
            process.stdin.write(job.to_json().encode() + b"\n")
            process.stdin.flush()

    def _collect(self, worker: _Worker) -> Outcome:
        """Free the processors of a worker that has ended, and return its outcome."""
        process = worker.process
        assert process.stdin is not None
        assert process.stdout is not None
        answer = process.stdout.read()
        for stream in (process.stdin, process.stdout, worker.log):
            with suppress(BrokenPipeError):  # what was left to write has no reader any more
                stream.close()
        self._running.remove(worker)
        self._free.append(worker.cores)
        log = Path(worker.log.name)
        try:
            outcome = Outcome(**json.loads(answer))
        except (ValueError, TypeError):  # nothing, or not all of it
            error = _python_error(log, worker.log_start) if process.returncode > 0 else None
            if error is None:
                return Outcome("crashed", f"{how_it_ended(process.returncode)}; see {log}")
            outcome = Outcome("failed", error)
        if outcome.end == "failed":
            return Outcome("failed", f"{outcome.text}; traceback in {log}")
        return outcome


def _python_error(log: Path, begin: int) -> str | None:
    """Return the error with which Python itself ended a worker, from the end of its log.

    A worker reports every exception once it runs; this finds those before, as when everlearn
    cannot be imported.
    """
    with log.open("rb") as file:
        file.seek(max(begin, file.seek(0, os.SEEK_END) - MAX_TRACEBACK))
        text = file.read().decode(errors="replace").rstrip()
    last = text.rpartition("\n")[2]
    raised = "Traceback (most recent call last)" in text
    return last if raised or last.startswith(f"{sys.executable}: ") else None


def _number_of_workers(cores: int, resources: Resources, workers: int | None) -> int:
    """Return how many runs at a time processors and memory have room for, or refuse `workers`."""
    room = cores // resources.threads
    reason = f"{cores} processors with {resources.threads} threads a run"
    if resources.memory_gb is not None and _memory_gb() // resources.memory_gb < room:
        room = int(_memory_gb() // resources.memory_gb)
        reason = f"{_memory_gb():.1f} GB of memory with {resources.memory_gb:g} GB a run"
    wanted = max(1, room) if workers is None else workers
    if not 1 <= wanted <= room:
        raise InvalidInputError(
            f"{reason} leave room for {room} runs at a time, not {wanted}; change --workers, "
            "--threads or --memory-gb"
        )
    return wanted


def _memory_gb() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9


def main() -> None:
    """Do the job that standard input brings, in a worker process."""
    answers = claim_output()
    lines = input_lines()
    text = next(lines, None)
    if text is None:
        raise SystemExit("no job: standard input was closed")
    threading.Thread(target=_stop_with_pool, args=(lines,), daemon=True).start()
    try:
        outcome = run_job(Job.from_json(text))
    except Exception as error:  # a job that cannot be read
        outcome = failure(error)
    sys.stderr.write(outcome.traceback)
    sys.stderr.flush()
    answer = {"end": outcome.end, "text": outcome.text}
    os.write(answers, json.dumps(answer).encode() + b"\n")


def _stop_with_pool(lines: Iterator[str]) -> None:
    """Stop this process when standard input closes: the pool is gone."""
    for _ in lines:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
