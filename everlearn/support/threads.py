"""How many threads this process computes with, and what threads and processes must not share."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import numba
from threadpoolctl import (  # type: ignore[import-untyped]
    ThreadpoolController,
    threadpool_limits,
)

from everlearn.support.errors import InvalidInputError, NotReadyError

Method = TypeVar("Method", bound=Callable[..., Any])

_kernels = threading.RLock()
"""Held while kernels run: not every threading layer of numba serves two callers at a time."""

_owner: int | None = None
"""Process that has started the threads of the kernels."""


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


def check_not_forked() -> None:
    """Refuse to compute in a process that was forked from one that has computed.

    Threads do not survive a fork, but what they share with their process does: the next kernel
    would wait for them, or end the process.
    """
    global _owner
    if _owner is None:
        _owner = os.getpid()
    elif _owner != os.getpid() and numba.threading_layer() != "tbb":
        raise NotReadyError(
            "this process was forked from one whose kernels had run, and the threads that run them "
            "did not come along; start processes with multiprocessing.get_context('spawn') or "
            "'forkserver', and give them the agent, which can be pickled"
        )


def one_thread_at_a_time(method: Method) -> Method:
    """Let a method of an object with a lock ``_busy`` refuse a second thread that calls it."""

    @functools.wraps(method)
    def guarded(self: Any, *args: Any, **options: Any) -> Any:
        if not self._busy.acquire(blocking=False):
            raise NotReadyError(
                f"{method.__name__} was called while another thread uses this agent, or one that "
                "shares its model; give every thread an agent of its own, such as a deepcopy"
            )
        try:
            return method(self, *args, **options)
        finally:
            self._busy.release()

    return guarded  # type: ignore[return-value]


@contextmanager
def limited_threads(threads: int | None) -> Iterator[None]:
    """Give kernels and linear algebra so many threads; None leaves them what they have."""
    check_not_forked()
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
    def limited(self, *, blas: bool | None = False) -> Iterator[int]:
        """Within, kernels use this many threads, and BLAS one, or as many if `blas`.

        None leaves BLAS as it is, where it is not called: telling its libraries takes time.
        """
        check_not_forked()
        with _kernels:
            before, count = numba.get_num_threads(), self.number()
            numba.set_num_threads(count)
            try:
                if blas is None:
                    yield count
                else:
                    with self._pools.limit(limits=count if blas else 1, user_api="blas"):
                        yield count
            finally:
                numba.set_num_threads(before)
