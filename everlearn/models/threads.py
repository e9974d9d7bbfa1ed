"""How many threads compiled kernels and linear algebra use, for the length of a call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]


class Threads:
    """A number of threads, given to numba and BLAS together.

    Parameters
    ----------
    count
        Threads; None takes what numba has been given. Never more than numba was started with.
    """

    def __init__(self, count: int | None) -> None:
        self.count = count
        self._pools = ThreadpoolController()

    @contextmanager
    def limited(self) -> Iterator[int]:
        """Within, both use this many threads; afterwards as many as before."""
        before = numba.get_num_threads()
        count = min(self.count or before, numba.config.NUMBA_NUM_THREADS)
        numba.set_num_threads(count)
        try:
            with self._pools.limit(limits=count, user_api="blas"):
                yield count
        finally:
            numba.set_num_threads(before)
