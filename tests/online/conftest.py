from __future__ import annotations

from collections.abc import Iterator

import pytest
from threadpoolctl import threadpool_limits


@pytest.fixture(autouse=True)
def _one_blas_thread() -> Iterator[None]:
    """Small matrices: more threads would only wait for each other."""
    with threadpool_limits(1, user_api="blas"):
        yield
