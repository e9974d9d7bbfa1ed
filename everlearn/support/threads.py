"""How many threads a run computes with, which its bits depend on, and where there is room."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numba
from threadpoolctl import (  # type: ignore[import-untyped]
    ThreadpoolController,
    threadpool_limits,
)

from everlearn.support.errors import InvalidInputError

_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def available_threads() -> int:
    """Threads that can be had: one a processor, or what NUMBA_NUM_THREADS says."""
    return int(numba.config.NUMBA_NUM_THREADS)


def check_threads(threads: int | None) -> None:
    """Refuse more threads than there are."""
    if threads is not None and threads > available_threads():
        raise InvalidInputError(
            f"threads is {threads}, but only {available_threads()} can be used here; ask for "
            f"fewer, or set NUMBA_NUM_THREADS={threads} to share processors"
        )


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Give kernels and linear algebra so many threads; None leaves them what they have."""
    before = numba.get_num_threads()
    numba.set_num_threads(threads or before)
    try:
        with threadpool_limits(limits=threads):
            yield
    finally:
        numba.set_num_threads(before)


def processors() -> list[int]:
    """Numbers of the processors that this process may use, no more than its share of them.

    A container may see all processors of its machine and have the time of two: the share is
    what counts.
    """
    if hasattr(os, "sched_getaffinity"):
        found = sorted(os.sched_getaffinity(0))
    else:
        found = list(range(os.cpu_count() or 1))
    try:
        quota, period = _QUOTA.read_text(encoding="utf-8").split()
        share = max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no control group, or one without a limit ("max")
        share = len(found)
    return found[:share]


def thread_environment(threads: int) -> dict[str, str]:
    """Variables that make a process start with so many threads in every library."""
    names = ("NUMBA", "OMP", "OPENBLAS", "MKL")
    return {f"{name}_NUM_THREADS": str(threads) for name in names}


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


class Threads:
    """A number of threads for kernels, and for linear algebra on request.

    Small systems are solved by one thread: BLAS threads wait for each other by spinning, and
    would hold the cores that the kernels before and after need.

    Parameters
    ----------
    count
        Threads; None takes what numba has been given. Never more than numba was started with.
    """

    def __init__(self, count: int | None) -> None:
        self.count = count
        self._pools = ThreadpoolController()

    def number(self) -> int:
        """Threads to use now."""
        given = self.count or numba.get_num_threads()
        return int(min(given, numba.config.NUMBA_NUM_THREADS))

    @contextmanager
    def limited(self, *, blas: bool = False) -> Iterator[int]:
        """Within, kernels use this many threads, and BLAS one, or as many if `blas`."""
        before, count = numba.get_num_threads(), self.number()
        numba.set_num_threads(count)
        try:
            with self._pools.limit(limits=count if blas else 1, user_api="blas"):
                yield count
        finally:
            numba.set_num_threads(before)
