"""What every test starts with."""

from __future__ import annotations

import numba
import pytest


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Tests run side by side, one process a processor; those that need two threads ask for them."""
    numba.set_num_threads(1)
