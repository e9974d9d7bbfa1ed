"""Clocks that jump: no bit of a run depends on the time of day."""

from __future__ import annotations

import os
import random
import time
from functools import partial
from pathlib import Path

import pytest

from tests.runs.worker import finish, kill_at, outcome, start, tiny
from tests.torture.length import often

DECADE = 3.2e8


def jumping(seed: int) -> None:
    """Let every look at the time of day show another year, and other clocks leap ahead."""
    generator = random.Random(seed)
    real, ahead = time.monotonic, 0.0

    def day() -> float:
        return generator.uniform(-DECADE, 6 * DECADE)

    def leaping() -> float:
        nonlocal ahead
        ahead += generator.choice([0.0, 0.0, 0.0, generator.uniform(0, DECADE)])
        return real() + ahead

    time.time = day  # type: ignore[assignment]
    time.time_ns = lambda: int(1e9 * day())  # type: ignore[assignment]
    time.monotonic = leaping  # type: ignore[assignment]
    time.perf_counter = leaping  # type: ignore[assignment]


@pytest.mark.parametrize("times", [1, pytest.param(often(25), marks=pytest.mark.torture)])
def test_a_run_under_a_jumping_clock_and_its_resumption_have_the_same_bits(times, tmp_path, tally):
    # By the clock there is no snapshot, or one whenever it leaps: both end the same.
    expected = tmp_path / "expected"
    assert finish(start(tiny("oa"), expected)) == 0
    for number in range(times):
        folder = tmp_path / str(number)
        first = start(tiny("oa", snapshot_seconds=3600.0), folder, prepare=partial(jumping, number))
        kill_at(first, folder, random.Random(number).uniform(0.0, 0.4))
        for file in folder.rglob("*"):
            stamp = random.Random(str(file)).uniform(0, 4e9)
            os.utime(file, (stamp, stamp))
        assert finish(start(tiny("oa"), folder, prepare=partial(jumping, -number - 1))) == 0
        last = "000006-2-evaluated/agent"
        found, wanted = outcome(folder), outcome(expected)
        assert found["lines"] == wanted["lines"]
        assert found[last] == wanted[last]
        tally["runs under a jumping clock"] += 1


def test_nothing_reads_the_time_of_day():
    """A clock that people set has no business in the package."""
    words = ("time.time(", "time.time_ns(", "datetime.now", "datetime.utcnow", "date.today")
    sources = (Path(__file__).parents[2] / "everlearn").rglob("*.py")
    found = [(path.name, word) for path in sources for word in words if word in path.read_text()]
    assert not found
