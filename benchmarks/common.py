"""One row of the speed table, and a timer that is fair on a shared machine."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Row:
    """What was measured: seconds of ours and of the reference, and the ratio asked for."""

    name: str
    ours: str
    ours_seconds: float
    reference: str
    reference_seconds: float
    at_least: float | None = None
    limit: str = ""
    """What the time of ours is spent on: what would have to get faster."""

    @property
    def ratio(self) -> float:
        """How many times faster ours is."""
        return self.reference_seconds / self.ours_seconds

    @property
    def met(self) -> bool | None:
        """Whether the ratio reaches its bar; None when none is set."""
        return None if self.at_least is None else self.ratio >= self.at_least

    def as_dict(self) -> dict[str, Any]:
        """All of it as plain values, ratio and verdict included."""
        return {**asdict(self), "ratio": self.ratio, "met": self.met}


def interleaved(
    functions: dict[str, Callable[[], object]], repeats: dict[str, int] | int, rounds: int = 5
) -> dict[str, float]:
    """Median seconds a call of each function, measured in turns.

    Turns spread a noisy neighbour over all of them; one untimed call each warms caches and
    compilers.
    """
    counts = {n: repeats if isinstance(repeats, int) else repeats[n] for n in functions}
    for function in functions.values():
        function()
    samples: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = time.perf_counter()
            for _ in range(counts[name]):
                function()
            samples[name].append((time.perf_counter() - start) / counts[name])
    return {name: float(np.median(values)) for name, values in samples.items()}
