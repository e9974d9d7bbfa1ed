"""Python processes that are started beside this one, on processors of their own.

They speak in lines of JSON. Standard input of such a process stays open for as long as the process
that started it lives; its standard output carries answers and nothing that a library prints.
Needs nothing but the standard library: a worker can report that anything else fails to import.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_INPUT, _OUTPUT, _ERRORS = 0, 1, 2
_CHUNK = 1 << 16
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def start(module: str, threads: int, errors: IO[bytes] | None = None) -> subprocess.Popen[bytes]:
    """Start ``python -m module`` with so many threads in every library.

    Its standard error goes to `errors`, or to that of this process.
    """
    return subprocess.Popen(
        (sys.executable, "-m", module),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env={**os.environ, **process_environment(threads)},
        # A terminal signals a whole process group; this process decides who stops.
        start_new_session=True,
    )


def process_environment(threads: int) -> dict[str, str]:
    """Variables for a process with so many threads that finds the modules that this one finds.

    ``PYTHONPATH`` has the folders of this process's ``sys.path`` outside the Python installation,
    and the working folder last: a module of the user's is found wherever the process runs.
    """
    names = ("NUMBA", "OMP", "OPENBLAS", "MKL")
    variables = {f"{name}_NUM_THREADS": str(threads) for name in names}
    paths = sysconfig.get_paths()
    installed = [Path(paths[name]) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    # An entry "" and a relative one are meant from the working folder.
    entries = dict.fromkeys(Path(entry).absolute() for entry in (*sys.path, "."))
    folders = [
        str(entry)
        for entry in entries
        if entry.exists() and not any(map(entry.is_relative_to, installed))
    ]
    return {**variables, "PYTHONPATH": os.pathsep.join(folders)}


def processors() -> list[int]:
    """Numbers of the processors that this process may use, no more than its share of them.

    A container may see all processors of its machine and have the time of two: the share is
    what counts.
    """
    if hasattr(os, "sched_getaffinity"):
        usable = sorted(os.sched_getaffinity(0))
    else:
        usable = list(range(os.cpu_count() or 1))
    try:
        quota, period = _QUOTA.read_text(encoding="utf-8").split()
        share = max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        share = len(usable)
    return usable[:share]


@contextmanager
def pinned(cores: Sequence[int]) -> Iterator[None]:
    """Within, this thread and what it starts stay on `cores`, where the system can do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def how_it_ended(code: int) -> str:
    """Say how a process ended that did not report a result, from its exit code."""
    if code >= 0:
        return f"the process ended with exit code {code} and reported no result"
    try:
        return f"the process was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"the process was killed by signal {-code}"


def claim_output() -> int:
    """Return a descriptor for answers; what libraries print goes to standard error from now on."""
    answers = os.dup(_OUTPUT)
    os.dup2(_ERRORS, _OUTPUT)
    return answers


def input_lines() -> Iterator[str]:
    """Lines of standard input as they come, until it is closed; nothing is read ahead of them."""
    buffer = bytearray()
    while chunk := os.read(_INPUT, _CHUNK):
        buffer += chunk
        while b"\n" in buffer:
            line, _, rest = buffer.partition(b"\n")
            buffer = bytearray(rest)
            yield line.decode()
