"""Runs on a Ray cluster: a task each, with its resources."""

from __future__ import annotations

import importlib
import importlib.util
import signal
import socket
import threading
from typing import Any

from everlearn.support.errors import InvalidInputError, MissingExtraError
from everlearn.support.threads import processors, thread_environment
from everlearn.sweeps.job import Job, Outcome, Resources, run_job
from everlearn.sweeps.storage import open_place

LOCAL = "local"
"""Address that starts Ray on this machine."""

PATIENCE = 10.0
"""Seconds for a cluster to answer at its address."""


class RayCluster:
    """Runs jobs as Ray tasks.

    Ray finds a node with the resources of a task. A task that is lost with its worker or its
    node is not repeated by Ray but handed back as crashed: who launches decides, by one rule
    for every backend, and the run goes on from its last snapshot wherever it lands.

    Parameters
    ----------
    address
        ``local``, ``auto``, ``host:port`` or ``ray://host:port``.
    resources
        What a run needs.
    """

    def __init__(self, address: str, resources: Resources) -> None:
        self._ray = _ray()
        self._refs: dict[Any, Job] = {}
        self._stopping = False
        self._began = not self._ray.is_initialized()
        if self._began:
            self._connect(address)
        options: dict[str, Any] = {
            "num_cpus": resources.threads,
            "max_retries": 0,
            "max_calls": 1,  # a process a run, whose memory goes with it
            "runtime_env": {"env_vars": thread_environment(resources.threads)},
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
            # Ray takes the signal for itself; what it means here is up to who launches.
            if threading.current_thread() is threading.main_thread():
                signal.signal(signal.SIGTERM, before)

    def submit(self, job: Job) -> None:
        """Hand a job to Ray."""
        self._refs[self._task.options(name=job.name).remote(job.to_json())] = job

    def wait(self, seconds: float) -> list[tuple[Job, Outcome]]:
        """Give what has ended, waiting for so long if nothing has."""
        if not self._refs:
            return []
        ready, _ = self._ray.wait(list(self._refs), num_returns=1, timeout=seconds)
        if ready:  # and what else there is by now
            waiting = list(self._refs)
            ready, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [(self._refs.pop(ref), self._outcome(ref)) for ref in ready]

    def running(self, job: Job) -> bool:
        """Whether a job is at work, as far as can be told: Ray may have it in its queue."""
        return job in self._refs.values() and open_place(job.place).running() is not False

    def stop(self) -> None:
        """Ask for an end after the episodes at hand; what waits is not started any more."""
        self._stopping = True
        for ref in self._refs:
            self._ray.cancel(ref)  # which a run takes as SIGINT

    def close(self) -> None:
        """Leave the cluster, which ends what still runs."""
        for ref in self._refs:
            self._ray.cancel(ref, force=True)
        self._refs.clear()
        if self._began:
            self._ray.shutdown()

    def _outcome(self, ref: Any) -> Outcome:
        errors = self._ray.exceptions
        try:
            end, text = self._ray.get(ref)
        except errors.TaskCancelledError:
            return Outcome("stopped")
        except (errors.RayTaskError, errors.RuntimeEnvSetupError) as error:
            return Outcome("failed", f"the task could not start: {_first_line(error)}")
        except errors.RayError as error:
            return Outcome("stopped" if self._stopping else "crashed", _first_line(error))
        return Outcome(end, text)


def _run(job: str) -> tuple[str, str]:
    """Do a job inside a task; words and not classes, so that any version can read them."""
    outcome = run_job(Job.from_json(job))
    return outcome.end, outcome.text


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[-1] if lines else ''}"


def _check_answers(address: str) -> None:
    """Refuse an address where nobody listens; Ray itself would try for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if colon and port.isdecimal():
        socket.create_connection((host, int(port)), timeout=PATIENCE).close()


def _ray() -> Any:
    if importlib.util.find_spec("ray") is None:
        raise MissingExtraError(
            "sweeps on a cluster need Ray, which is not installed: pip install "
            "'everlearn[cluster]', or leave --ray out to use this machine alone"
        )
    return importlib.import_module("ray")
