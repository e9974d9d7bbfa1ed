"""Runs on a Ray cluster: a task each, with its resources."""

from __future__ import annotations

import dataclasses
import importlib
import importlib.util
import os
import signal
import socket
import threading
from pathlib import Path
from typing import Any

from everlearn.registry import IMPORT_VARIABLE
from everlearn.support.errors import InvalidInputError, MissingExtraError
from everlearn.support.processes import process_environment, processors
from everlearn.sweeps.job import Job, Outcome, Resources, failure, run_job
from everlearn.sweeps.storage import open_storage

LOCAL = "local"
"""Address that starts Ray on this machine."""

CONNECT_SECONDS = 10.0
"""Time for a cluster to answer at its address."""


class RayCluster:
    """Runs jobs as Ray tasks.

    Ray finds a node with the resources of a task. Ray itself does not retry a task that is lost
    with its worker or its node; it is reported as crashed, and `launch` decides by one rule for
    every backend. The run resumes from its last snapshot on whichever node it gets.

    Parameters
    ----------
    address
        ``local``, ``auto``, ``host:port`` or ``ray://host:port``.
    logs
        Folder for the tracebacks of failed runs, a file for each job.
    resources
        What a run needs.
    """

    def __init__(self, address: str, logs: Path, resources: Resources) -> None:
        self._ray = _import_ray()
        self.logs = logs
        self._jobs: dict[Any, Job] = {}
        self._stopping = False
        self._connected_here = not self._ray.is_initialized()
        if self._connected_here:
            self._connect(address)
        variables = process_environment(resources.threads)
        if IMPORT_VARIABLE in os.environ:
            variables[IMPORT_VARIABLE] = os.environ[IMPORT_VARIABLE]
        options: dict[str, Any] = {
            "num_cpus": resources.threads,
            "max_retries": 0,
            "max_calls": 1,  # a process a run, whose memory is freed with it
            "runtime_env": {"env_vars": variables},
        }
        if resources.memory_gb is not None:
            options["memory"] = int(resources.memory_gb * 1e9)
        self._task = self._ray.remote(**options)(_run)

    def _connect(self, address: str) -> None:
        quietly: dict[str, Any] = {"logging_level": "warning", "log_to_driver": False}
        before = signal.getsignal(signal.SIGTERM)
        try:
            if address == LOCAL:
                self._ray.init(num_cpus=len(processors()), include_dashboard=False, **quietly)
            else:
                _check_answers(address)
                self._ray.init(address=address, **quietly)
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidInputError(
                f"no Ray cluster at {address!r} ({error}); start one with `ray start --head`, "
                f"give its address, or {LOCAL!r} for one on this machine"
            ) from error
        finally:
            # Ray replaces the handler; `launch` handles the signal.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

    def submit(self, job: Job) -> None:
        """Hand a job to Ray."""
        self._jobs[self._task.options(name=job.name).remote(job.to_json())] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Return the jobs that ended, after at most so many seconds."""
        if not self._jobs:
            return []
        ready, _ = self._ray.wait(list(self._jobs), num_returns=1, timeout=seconds)
        if ready:  # and all others that have ended by now
            tasks = list(self._jobs)
            ready, _ = self._ray.wait(tasks, num_returns=len(tasks), timeout=0)
        ended = [(self._jobs.pop(task), task) for task in ready]
        return [(job, self._outcome(job, task)) for job, task in ended]

    def is_running(self, job: Job) -> bool:
        """Whether a job is running, as far as can be told: Ray may still have it in its queue."""
        return job in self._jobs.values() and open_storage(job.location).is_running() is not False

    def stop(self) -> None:
        """Ask all runs to stop after the current episode; tasks that wait are cancelled."""
        self._stopping = True
        for task in self._jobs:
            self._ray.cancel(task)  # a run receives SIGINT

    def close(self) -> None:
        """Leave the cluster and end the tasks that are left."""
        for task in self._jobs:
            self._ray.cancel(task, force=True)
        self._jobs.clear()
        if self._connected_here:
            self._ray.shutdown()

    def _outcome(self, job: Job, task: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            outcome = Outcome(**self._ray.get(task))
        except errors.TaskCancelledError:
            return Outcome("stopped")
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            text = f"the task could not start: {_last_line(error)}"
            outcome = Outcome("failed", text, str(error))
        except errors.RayError as error:
            return Outcome("stopped" if self._stopping else "crashed", _last_line(error))
        if outcome.end == "failed":
            self.logs.mkdir(parents=True, exist_ok=True)
            log = job.log(self.logs)
            with log.open("a", encoding="utf-8") as file:
                file.write(outcome.traceback)
            return Outcome("failed", f"{outcome.text}; traceback in {log}")
        return outcome


def _run(text: str) -> dict[str, str]:
    """Do a job inside a task; words and not classes, so that any version can read them."""
    try:
        outcome = run_job(Job.from_json(text))
    except Exception as error:  # a job that cannot be read
        outcome = failure(error)
    return dataclasses.asdict(outcome)


def _last_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def _import_ray() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError(
            "sweeps on a cluster need Ray, which is not installed: pip install "
            "'everlearn[cluster]', or leave --ray out to use this machine alone"
        )
    return importlib.import_module("ray")
