"""What every test starts with."""

from __future__ import annotations

import sys

import numba
import pytest


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side; those that need two threads ask for them.

    When numba starts its threads, it tells OpenMP how many there are, whatever OMP_NUM_THREADS
    says: torch would go on with that number, and wait for threads that other tests hold up.
    """
    numba.set_num_threads(1)
    if (torch := sys.modules.get("torch")) is not None:
        torch.set_num_threads(1)
