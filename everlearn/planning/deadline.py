"""The time of a step, shared between the plan and everything else.

A step is `act` and then `observe`. A plan can be cut short, and learning cannot. So a plan gets
what the deadline leaves after all else, as long as that took in the steps before.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from everlearn.support.checks import check_number

FADING = 0.99
"""What a step leaves of the longest time beside plans: one slow step counts for some hundred."""


class Deadline:
    """Counts the time of steps, and says how much of it a plan may take.

    Parameters
    ----------
    milliseconds
        Longest time that a step should take; None sets no limit.
    """

    def __init__(self, milliseconds: float | None) -> None:
        if milliseconds is not None:
            check_number("deadline_ms", milliseconds, 0.0, math.inf)
        self.milliseconds = milliseconds
        self._beside = 0.0  # seconds that steps with a plan took, the plan not counted
        self._spent = 0.0
        self._planned = False

    @property
    def for_plan(self) -> float | None:
        """Milliseconds that a plan may take now."""
        if self.milliseconds is None:
            return None
        return max(self.milliseconds - 1000 * self._beside, 0.0)

    def begin_step(self) -> None:
        """Begin to count a step."""
        self._spent, self._planned = 0.0, False

    def planned(self, seconds: float) -> None:
        """Take note that `seconds` of this step were those of a plan."""
        self._spent, self._planned = self._spent - seconds, True

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count the time that passes to this step."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self._spent += time.perf_counter() - started

    def end_step(self) -> None:
        """Expect of the next steps with a plan what this one took beside its own."""
        if self._planned:
            self._beside = max(self._spent, FADING * self._beside)
        self.begin_step()
