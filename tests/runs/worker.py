"""Runs in processes that can be killed, and what to compare afterwards."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pathlib
import random
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from everlearn.runs import metrics_file, snapshots
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import CHECKPOINTS, METRICS, TRANSITIONS, StorageError, read_lines
from everlearn.support.archive import load_archive
from everlearn.support.lock import FolderInUseError

# A server that has imported everything and computed nothing: forks start in no time, and none
# of them inherits the threads of compiled kernels. What cannot be imported is left out.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["everlearn.runs.loop", "tests.runs.worker", "tests.runs.preloaded", "everlearn.deep.sac.agent"]
)

SYSTEM_CALLS = ("write", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "ftruncate")


def tiny(agent: str = "random", **settings: Any) -> RunConfig:
    """A run of seconds that snapshots after every episode."""
    planner = {"planner.candidates": 10, "planner.elites": 5}
    planner |= {"planner.iterations": 1, "planner.horizon": 5}
    kinds: dict[str, dict[str, Any]] = {
        "oa": {"model.features": 10, **planner},
        "mlp": {"model.hidden": 8, "model.layers": 2, "model.train_every": 7, **planner},
        "sac": {"hidden": 8, "batch": 8, "warm_up": 12, "random_steps": 5, "retraining": 5},
    }
    values: dict[str, Any] = {
        "agent": agent,
        "options": kinds.get(agent.partition("-")[0], {}),
        "tasks": ("window-close", "button-press"),
        "episodes_per_task": 3,
        "max_steps": 10,
        "threads": 1,
        "evaluation": EvaluationSchedule(2, 1, 1, heldout=30),
        "snapshot_seconds": 0.0,
    }
    return RunConfig(**{**values, **settings})


Prepare = Callable[[], None]


def start(
    config: RunConfig,
    folder: Path,
    crash_at: int | None = None,
    prepare: Prepare | None = None,
    extend: bool = False,
) -> BaseProcess:
    """Start a run in a process.

    `crash_at` kills it at that system call that changes files; `prepare`, a function of a
    module, is called in it before the run.
    """
    if crash_at is not None:
        prepare = partial(trip_at, crash_at, kill)
    process = CONTEXT.Process(target=_work, args=(config.to_json(), str(folder), prepare, extend))
    process.start()
    return process


def finish(process: BaseProcess) -> int | None:
    """Wait for a process and return its exit code."""
    process.join(550)
    return process.exitcode


def uninterrupted(config: RunConfig, folder: Path) -> float:
    """Run to the end and return the seconds it took from its first write on."""
    process = start(config, folder)
    _wait_for_metrics(process, folder)
    began = time.monotonic()
    assert finish(process) == 0
    return time.monotonic() - began


def kill_at(process: BaseProcess, folder: Path, seconds: float) -> None:
    """Kill a process so long after it began to write."""
    _wait_for_metrics(process, folder)
    time.sleep(seconds)
    process.kill()
    process.join()


def _wait_for_metrics(process: BaseProcess, folder: Path) -> None:
    while not (folder / METRICS).exists() and process.is_alive():
        time.sleep(0.002)


IN_USE, REFUSED = 75, 74
"""Exit codes of a run whose folder another process has, and of one that the disk refuses."""


def _work(config: str, folder: str, prepare: Prepare | None, extend: bool) -> None:
    if prepare is not None:
        prepare()
    try:
        execute(RunConfig.from_json(config), folder, extend=extend)
    except FolderInUseError:
        sys.exit(IN_USE)
    except StorageError:
        sys.exit(REFUSED)


def kill(call: str, seen: int, count: int) -> None:
    """Kill this process just before or just after its `count`-th change of the disk."""
    after = random.Random(count).random() < 0.5
    if seen == count + after:
        os.kill(os.getpid(), signal.SIGKILL)


def fill(call: str, seen: int, count: int) -> None:
    """Let the disk be full from the `count`-th change on; what frees room still works."""
    if seen >= count and call not in ("unlink", "rmdir", "ftruncate"):
        raise OSError(errno.ENOSPC, "No space left on device")


def holders(name: str) -> list[Any]:
    """Who has a reference to a function of `os`: in Python 3.10, pathlib keeps its own."""
    own = getattr(pathlib, "_normal_accessor", None)
    return [os, own] if hasattr(own, name) else [os]


def trip_at(count: int, trouble: Callable[[str, int, int], None]) -> None:
    """Make trouble around the `count`-th change of the disk; changes are counted from 1 on."""
    seen = 0

    def wrapped(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            trouble(name, seen, count)
            return call(*args, **options)

        return counted

    for name in SYSTEM_CALLS:
        call = wrapped(name, getattr(os, name))
        for holder in holders(name):
            setattr(holder, name, call)


def outcome(folder: Path) -> dict[str, Any]:
    """Everything a run leaves, without its time stamps."""
    lines, _ = read_lines(folder / METRICS)
    for line in lines:
        for name in ("seconds", "processor_seconds"):
            line.pop(name, None)
    found: dict[str, Any] = {
        "lines": lines,
        "snapshots": metrics_file.snapshot_names(folder / CHECKPOINTS),
    }
    for name in found["snapshots"]:
        snapshot = folder / CHECKPOINTS / name
        found[f"{name}/agent"] = (snapshot / "agent").read_bytes()
        _, state = load_archive(snapshot / "state", snapshots.KIND, snapshots.VERSION)
        # Both are about the digits of time stamps.
        found[f"{name}/state"] = {k: v for k, v in state.items() if k not in ("offset", "digest")}
    for file in sorted((folder / TRANSITIONS).glob("*")):
        found[file.name] = file.read_bytes()
    return found
