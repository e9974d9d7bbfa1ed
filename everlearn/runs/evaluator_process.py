"""The process of one helper of an evaluation (`helpers.py`).

``python -m everlearn.runs.evaluator_process`` reads lines of JSON from standard input: first the
run's config, then snapshots to take the agent from and episodes to play with it. Each of these
is answered by a line on standard output: ``true`` for a snapshot, the success of an episode.
It ends when standard input is closed, whatever it is doing.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from everlearn.runs.config import RunConfig
from everlearn.runs.evaluate import Evaluator
from everlearn.runs.loop import make, restore_agent
from everlearn.runs.snapshots import read_snapshot
from everlearn.support.processes import claim_output, input_lines
from everlearn.support.threads import limited_threads


def main() -> None:
    """Answer until nobody asks any more."""
    answers = claim_output()
    requests = _requests()
    first = next(requests)
    config = RunConfig.from_json(first["config"])
    with limited_threads(first["threads"]):
        for answer in _answers(config, requests):
            os.write(answers, json.dumps(answer).encode() + b"\n")


def _answers(config: RunConfig, requests: Iterator[dict[str, Any]]) -> Iterator[bool]:
    env, agent = make(config)
    env.close()  # made for its spaces alone
    evaluator = Evaluator(config)
    done = 0
    for request in requests:
        if "snapshot" in request:
            snapshot = read_snapshot(Path(request["snapshot"]))
            restore_agent(config, snapshot, agent)
            done = snapshot.state.episode
            yield True
        else:
            yield evaluator.episode(agent, request["task"], done, request["episode"])


def _requests() -> Iterator[dict[str, Any]]:
    """Give what is asked; a thread reads it and ends the process when nobody is there any more."""
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
