"""How many threads a run computes with, which its bits depend on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numba
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

from everlearn.errors import InvalidInputError


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
