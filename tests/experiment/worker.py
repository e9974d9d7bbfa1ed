"""Runs in processes that can be killed, and what to compare afterwards."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from everlearn.archive import load_archive
from everlearn.experiment import checkpoint
from everlearn.experiment.config import EvaluationSchedule, RunConfig
from everlearn.experiment.run import execute
from everlearn.experiment.store import CHECKPOINTS, METRICS, TRANSITIONS, read_lines

# A server that has imported everything and computed nothing: forks start in no time, and none
# of them inherits the threads of compiled kernels.
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["everlearn.experiment.run", "tests.experiment.worker"])

SYSTEM_CALLS = ("write", "fsync", "replace", "rename", "mkdir", "unlink", "rmdir", "ftruncate")


def tiny(agent: str = "random", **settings: Any) -> RunConfig:
    """A run of seconds that snapshots after every episode."""
    planner = {"candidates": 10, "elites": 5, "iterations": 1, "horizon": 5}
    model = {"oa": {"features": 10}, "mlp": {"hidden": 8, "layers": 2, "train_every": 7}}
    kind = agent.partition("-")[0]
    values: dict[str, Any] = {
        "agent": agent,
        "options": {**model[kind], **planner} if kind in model else {},
        "tasks": ("window-close", "button-press"),
        "episodes_per_task": 3,
        "max_steps": 10,
        "threads": 1,
        "evaluation": EvaluationSchedule(2, 1, 1, heldout=30),
        "checkpoint_seconds": 0.0,
    }
    return RunConfig(**{**values, **settings})


def start(config: RunConfig, folder: Path, crash_at: int | None = None) -> BaseProcess:
    """Start a run in a process; `crash_at` kills it at that system call that changes files."""
    process = CONTEXT.Process(target=_work, args=(config.to_json(), str(folder), crash_at))
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


def _work(config: str, folder: str, crash_at: int | None) -> None:
    if crash_at is not None:
        _crash_at(crash_at)
    execute(RunConfig.from_json(config), folder)


def _crash_at(count: int) -> None:
    """Kill this process just before or just after its `count`-th change of the disk."""
    seen = 0
    after = random.Random(count).random() < 0.5

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            nonlocal seen
            seen += 1
            if seen == count and not after:
                os.kill(os.getpid(), signal.SIGKILL)
            try:
                return call(*args, **options)
            finally:
                if seen == count:
                    os.kill(os.getpid(), signal.SIGKILL)

        return counted

    for name in SYSTEM_CALLS:
        setattr(os, name, wrapped(getattr(os, name)))


def outcome(folder: Path) -> dict[str, Any]:
    """Everything a run leaves, without its time stamps."""
    lines, _ = read_lines(folder / METRICS)
    for line in lines:
        line.pop("seconds", None)
    found: dict[str, Any] = {"lines": lines, "snapshots": checkpoint.names(folder / CHECKPOINTS)}
    for name in found["snapshots"]:
        snapshot = folder / CHECKPOINTS / name
        found[f"{name}/agent"] = (snapshot / "agent").read_bytes()
        _, state = load_archive(snapshot / "state", checkpoint.KIND, checkpoint.VERSION)
        # Both are about the digits of time stamps.
        found[f"{name}/state"] = {k: v for k, v in state.items() if k not in ("offset", "digest")}
    for file in sorted((folder / TRANSITIONS).glob("*")):
        found[file.name] = file.read_bytes()
    return found
