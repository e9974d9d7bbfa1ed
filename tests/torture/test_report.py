"""A report on 200 runs of the paper's length."""

import pytest

from benchmarks.report import LONGEST, seconds_for

pytestmark = pytest.mark.torture


def test_two_hundred_runs_of_paper_length_in_half_a_minute():
    _, worked = seconds_for()
    # The time of the processor: the wall clock would measure the neighbours.
    assert worked < LONGEST
