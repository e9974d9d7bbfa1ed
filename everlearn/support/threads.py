"""How many threads this process computes with, which the bits of a run depend on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from threadpoolctl import (  # type: ignore[import-untyped]
    ThreadpoolController,
    threadpool_limits,
)

from everlearn.support.errors import InvalidInputError


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
