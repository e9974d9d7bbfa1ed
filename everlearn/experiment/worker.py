"""The process of one run of a sweep.

``python -m everlearn.experiment.worker`` reads its job as a line of JSON from standard input
and tells its outcome as a line on standard output. Standard input stays open for as long as
whoever started it lives: when it closes, the run stops as after SIGTERM, with a snapshot.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading

from everlearn.experiment.job import Job, run_job

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2


def main() -> None:
    """Do the job that standard input brings."""
    # Nothing that a library prints may be taken for the outcome.
    answer = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    job = Job.from_json(_read_line())
    threading.Thread(target=_stop_when_alone, daemon=True).start()
    outcome = run_job(job)
    os.write(answer, json.dumps(dataclasses.asdict(outcome)).encode() + b"\n")


def _read_line() -> str:
    """Read up to the end of a line, without a buffer: a thread reads on from there."""
    found = bytearray()
    while not found.endswith(b"\n"):
        piece = os.read(_INPUT, 1)
        if not piece:
            raise SystemExit("the job never came: standard input was closed")
        found += piece
    return found.decode()


def _stop_when_alone() -> None:
    while os.read(_INPUT, 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
