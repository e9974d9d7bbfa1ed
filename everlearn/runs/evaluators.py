"""Processes that evaluate beside this one: each takes the next episode that nobody has.

An evaluation episode is a function of the agent and of its own seeds. So it does not matter who
plays it, and two processes with a thread each play two episodes in less time than one process
with two threads, whose parts wait for each other at every decision.
"""

from __future__ import annotations

import json
import subprocess
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from everlearn.runs.config import RunConfig
from everlearn.support.processes import how_it_ended, start

MODULE = "everlearn.runs.evaluator_process"

Unit = tuple[str, int]
"""An evaluation episode: its task, and its number among those of the task."""


class HelperLostError(Exception):
    """A helper does not answer any more."""


Outcomes = SimpleQueue["tuple[Unit, bool] | HelperLostError"]
"""Episodes with their success, and why a helper takes no more."""


class Helpers:
    """Processes that evaluate what a run's snapshots hold.

    One that dies is done without: the episode it had is there for somebody else again.

    Parameters
    ----------
    config
        The run's.
    count
        How many to start.
    threads
        Threads of each.
    """

    def __init__(self, config: RunConfig, count: int, threads: int) -> None:
        self._helpers = [_Helper(config, threads) for _ in range(count)]

    @contextmanager
    def taking(self, units: deque[Unit], snapshot: Path) -> Iterator[Outcomes]:
        """Within, all of them take episodes from the end of `units` while there are any.

        Outcomes come in any order.
        """
        outcomes: Outcomes = SimpleQueue()
        threads = [
            # A helper that hangs must not keep the process.
            threading.Thread(
                target=self._take, args=(helper, units, snapshot, outcomes), daemon=True
            )
            for helper in self._helpers
        ]
        for thread in threads:
            thread.start()
        yield outcomes
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """End them at once."""
        while self._helpers:
            self._helpers.pop().close()

    def _take(
        self, helper: _Helper, units: deque[Unit], snapshot: Path, outcomes: Outcomes
    ) -> None:
        unit = None
        try:
            helper.ask({"snapshot": str(snapshot)})
            while units:
                try:
                    unit = units.pop()
                except IndexError:  # somebody else was faster
                    break
                task, episode = unit
                success = helper.ask({"task": task, "episode": episode})
                outcomes.put((unit, bool(success)))
                unit = None
        except HelperLostError as error:
            if unit is not None:
                units.append(unit)
            if helper in self._helpers:  # else it was ended on purpose
                self._helpers.remove(helper)
                helper.close()
            outcomes.put(error)


def helpers_for(config: RunConfig) -> Helpers | None:
    """Start what a config asks for beside this process; None if it evaluates alone."""
    count = (config.evaluators or 1) - 1
    return Helpers(config, count, evaluator_threads(config) or 1) if count else None


def evaluator_threads(config: RunConfig) -> int | None:
    """Threads of each process that evaluates; None leaves this one what it has."""
    if config.threads is None:
        return None
    return max(1, config.threads // (config.evaluators or 1))


class _Helper:
    """One process, and how to speak to it."""

    def __init__(self, config: RunConfig, threads: int) -> None:
        self._process: subprocess.Popen[bytes] = start(MODULE, threads)
        with suppress(BrokenPipeError):  # the first question finds out
            self._say({"config": config.to_json(), "threads": threads})

    def ask(self, question: dict[str, Any]) -> Any:
        """Return the answer, however long it takes."""
        assert self._process.stdout is not None
        try:
            self._say(question)
            return json.loads(self._process.stdout.readline())
        except (BrokenPipeError, ValueError) as error:  # no line, half a line, or closed here
            code = self._process.wait()
            raise HelperLostError(how_it_ended(code)) from error

    def close(self) -> None:
        """End it at once."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):  # what was left to write has no reader any more
                stream.close()

    def _say(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(message).encode() + b"\n")
        self._process.stdin.flush()
