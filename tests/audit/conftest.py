"""One thread for all: several only wait for each other in matrices this small."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from everlearn.support.threads import limited_threads


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    with limited_threads(1):
        yield
