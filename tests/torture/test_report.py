"""A report on 200 runs of the paper's length."""

import pytest

from benchmarks.report import LONGEST, SEEDS, seconds_for
from tests.torture.length import often

pytestmark = pytest.mark.torture


def test_two_hundred_runs_of_paper_length_in_half_a_minute():
    _, worked = seconds_for(seeds=often(SEEDS, 2))
    # The time of the processor: the wall clock would measure the neighbours.
    assert worked < LONGEST
