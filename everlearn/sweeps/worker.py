"""The process of one run of a sweep.

``python -m everlearn.sweeps.worker`` reads its job as a line of JSON from standard input
and tells its outcome as a line on standard output. Standard input stays open for as long as
whoever started it lives: when it closes, the run stops as after SIGTERM, with a snapshot.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import threading
from collections.abc import Iterator

from everlearn.support.processes import claim_output, input_lines
from everlearn.sweeps.job import Job, run_job


def main() -> None:
    """Do the job that standard input brings."""
    answers = claim_output()
    lines = input_lines()
    text = next(lines, None)
    if text is None:
        raise SystemExit("the job never came: standard input was closed")
    job = Job.from_json(text)
    threading.Thread(target=_stop_when_alone, args=(lines,), daemon=True).start()
    outcome = run_job(job)
    os.write(answers, json.dumps(dataclasses.asdict(outcome)).encode() + b"\n")


def _stop_when_alone(lines: Iterator[str]) -> None:
    for _ in lines:
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
