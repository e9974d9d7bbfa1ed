"""Processes that evaluate beside this one: each takes the next episode that nobody has.

An evaluation episode is a function of the agent and of its own seeds. So it does not matter who
plays it, and two processes with a thread each play two episodes in less time than one process
with two threads, whose parts wait for each other at every decision.

``python -m everlearn.runs.evaluators`` is such a process. It reads lines of JSON from standard
input: first the run's config and the modules that its parent has imported for the user, then
snapshots to take the agent from and episodes to play with it. Each of these is answered by a line
on standard output: ``true`` for a snapshot, the outcome of an episode. While it works on one it
says so now and then, with a line ``null``: a process that has not said anything for `SILENCE`
seconds hangs. It ends when standard input is closed, whatever it is doing.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from everlearn.registry import imported_modules, load_plugins
from everlearn.runs.config import MAX_EVALUATORS, RunConfig
from everlearn.support.processes import (
    claim_output,
    how_it_ended,
    input_lines,
    processors,
    start,
)
from everlearn.support.threads import limited_threads

MODULE = "everlearn.runs.evaluators"

SILENCE = 300.0
"""Seconds without a word after which a process is given up; kernels may have to be compiled."""

CHUNK = 1 << 16
BEAT = 1.0
"""Seconds between two signs of life, at least."""

Unit = tuple[str, int]
"""An evaluation episode: its task, and its number among those of the task."""


class EvaluatorLostError(Exception):
    """An evaluator process does not answer any more."""


Outcomes = SimpleQueue["tuple[Unit, dict[str, Any]] | EvaluatorLostError"]
"""Episodes with how they ended, and why a process takes no more."""


class Evaluators:
    """Processes that evaluate what a run's snapshots hold.

    If one dies or hangs, the others play its episode and the rest.

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
        self._processes = [_Process(config, threads) for _ in range(count)]

    @contextmanager
    def taking(self, units: deque[Unit], snapshot: Path) -> Iterator[Outcomes]:
        """Within, all of them take episodes from the end of `units` while there are any.

        Outcomes come in any order.
        """
        outcomes: Outcomes = SimpleQueue()
        threads = [
            # One that hangs must not keep this process alive.
            threading.Thread(
                target=self._take, args=(process, units, snapshot, outcomes), daemon=True
            )
            for process in self._processes
        ]
        for thread in threads:
            thread.start()
        yield outcomes
        for thread in threads:
            thread.join()

    def close(self) -> None:
        """End them at once."""
        while self._processes:
            self._processes.pop().close()

    def _take(
        self, process: _Process, units: deque[Unit], snapshot: Path, outcomes: Outcomes
    ) -> None:
        unit = None
        try:
            process.ask({"snapshot": str(snapshot)})
            while units:
                try:
                    unit = units.pop()
                except IndexError:  # somebody else was faster
                    break
                task, episode = unit
                outcomes.put((unit, process.ask({"task": task, "episode": episode})))
                unit = None
        except EvaluatorLostError as error:
            if unit is not None:
                units.append(unit)
            if process in self._processes:  # else it was ended on purpose
                self._processes.remove(process)
                process.close()
            outcomes.put(error)


def evaluators_for(config: RunConfig) -> Evaluators | None:
    """Start what a config asks for beside this process; None if it evaluates alone."""
    # Who plays an episode does not change it: no config starts more than the machine has room for.
    count = min(config.evaluators or 1, max(MAX_EVALUATORS, len(processors()))) - 1
    return Evaluators(config, count, evaluator_threads(config) or 1) if count else None


def evaluator_threads(config: RunConfig) -> int | None:
    """Threads of each process that evaluates; None leaves this one what it has."""
    if config.threads is None:
        return None
    return max(1, config.threads // (config.evaluators or 1))


class _Process:
    """One process, and how to speak to it."""

    def __init__(self, config: RunConfig, threads: int) -> None:
        self._process: subprocess.Popen[bytes] = start(MODULE, threads)
        self._unread = b""
        with suppress(BrokenPipeError):  # the first question finds out
            # Those of the config too: whoever evaluates has imported them, or refused the run.
            imports = (*imported_modules(), *config.imports)
            self._say({"config": config.to_json(), "threads": threads, "imports": imports})

    def ask(self, question: dict[str, Any]) -> Any:
        """Return the answer, however long it takes, as long as there are signs of life."""
        try:
            self._say(question)
            while (answer := json.loads(self._line())) is None:
                pass  # a sign of life
            return answer
        except TimeoutError as error:
            self._process.kill()
            raise EvaluatorLostError(
                f"the process said nothing for {SILENCE:g} seconds and was killed"
            ) from error
        except (OSError, ValueError) as error:  # no line, half a line, or closed here
            code = self._process.wait()
            raise EvaluatorLostError(how_it_ended(code)) from error

    def _line(self) -> bytes:
        """Return what the process says next, or raise `TimeoutError` if it says nothing."""
        assert self._process.stdout is not None
        while b"\n" not in self._unread:
            ready, _, _ = select.select([self._process.stdout], [], [], SILENCE)
            if not ready:
                raise TimeoutError
            chunk = os.read(self._process.stdout.fileno(), CHUNK)
            if not chunk:
                raise BrokenPipeError
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line

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


def main() -> None:
    """Answer until standard input is closed."""
    answers = claim_output()
    requests = _requests()
    first = next(requests)
    load_plugins(first["imports"])
    config = RunConfig.from_json(first["config"])
    with limited_threads(first["threads"]):
        for answer in _answers(config, requests, _Heart(answers)):
            os.write(answers, json.dumps(answer).encode() + b"\n")


class _Heart:
    """Gives signs of life; asked after every step whether to stop, which it never does."""

    def __init__(self, answers: int) -> None:
        self._answers, self._last = answers, time.monotonic()

    def __call__(self) -> bool:
        if time.monotonic() - self._last >= BEAT:
            os.write(self._answers, b"null\n")
            self._last = time.monotonic()
        return False


def _answers(config: RunConfig, requests: Iterator[dict[str, Any]], heart: _Heart) -> Iterator[Any]:
    # The other end of this module: a run that starts processes imports none of these for them.
    from everlearn.runs.evaluate import Evaluator
    from everlearn.runs.loop import make, restore_agent
    from everlearn.runs.snapshots import read_snapshot

    environments, agent, _ = make(config)
    environments.close()  # made for their spaces alone
    evaluator = Evaluator(config, heart)
    done = 0
    for request in requests:
        if "snapshot" in request:
            snapshot = read_snapshot(Path(request["snapshot"]))
            restore_agent(config, snapshot, agent)
            done = snapshot.state.episode
            yield True
        else:
            yield evaluator.episode(agent, request["task"], done, request["episode"])._asdict()


def _requests() -> Iterator[dict[str, Any]]:
    """Give what is asked; a thread reads it and ends the process when standard input is closed."""
    waiting: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        for line in input_lines():
            waiting.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    while True:
        yield json.loads(waiting.get())


if __name__ == "__main__":
    main()
