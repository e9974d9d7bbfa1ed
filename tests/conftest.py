"""What every test starts with."""

from __future__ import annotations

import sys

import numba
import pytest

from everlearn.support.processes import processors


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Give the number of workers that `-n auto` stands for.

    One more than there are processors: tests wait for processes and browsers a fifth of the time.
    """
    return len(processors()) + 1


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side; those that need two threads ask for them.

    When numba starts its threads, it tells OpenMP how many there are, whatever OMP_NUM_THREADS
    says: torch would go on with that number, and wait for threads that other tests hold up.
    """
    numba.set_num_threads(1)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
