"""Processes that are started beside this one and spoken to in lines of JSON.

Standard input of such a process stays open for as long as whoever started it lives; its own
standard output carries answers and nothing that a library prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from typing import IO

from everlearn.support.threads import thread_environment

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_MOST = 1 << 16


def start(module: str, threads: int, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` with so many threads in every library.

    What it says on standard error goes to `errors`, or to where this process says it.
    """
    return subprocess.Popen(
        (sys.executable, "-m", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **thread_environment(threads)},
        # A terminal sends its signals to a whole group; who stops is decided here.
        start_new_session=True,
    )


def how_it_ended(code: int) -> str:
    """Say what became of a process that ended with `code` and no word."""
    if code >= 0:
        return f"the process ended with code {code} and no word"
    try:
        return f"the process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was killed by signal {-code}"


def claim_output() -> int:
    """Return a descriptor for answers; what a library prints goes to the errors from now on."""
    answers = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    return answers


def input_lines() -> Iterator[str]:
    """Lines of standard input as they come, until it is closed; nothing is read ahead of them."""
    found = bytearray()
    while piece := os.read(_INPUT, _MOST):
        found += piece
        while b"\n" in found:
            line, _, rest = found.partition(b"\n")
            found = bytearray(rest)
            yield line.decode()
