"""How many threads compiled kernels and linear algebra use, for the length of a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


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
