"""How much of a stream is measured, and when."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from everlearn.support.errors import InvalidInputError


@dataclass(frozen=True)
class AuditConfig:
    """How much is measured.

    Attributes
    ----------
    exact
        Whether to follow the exact leader at every step; None decides by what it would cost.
    points
        Times at which hindsight, gap and assumptions are computed; None takes 30, or 8 if
        there are many cells.
    block
        Steps between two factorisations.
    probes
        Inputs of the stream on which assumption 1 is tried at each of those times.
    blocks
        Active blocks on which ``r_M`` is tried at each of those times.
    tolerance
        Relative slack before something counts as a failure.
    shuffle
        Take the transitions in random order: what is left of the regret then is not due to
        their order.
    seed
        Chooses probes and order.
    """

    exact: bool | None = None
    points: int | None = None
    block: int = 512
    probes: int = 16
    blocks: int = 4
    tolerance: float = 1e-6
    shuffle: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("block", "probes", "blocks"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} is {getattr(self, name)}; expected at least 1")
        if self.points is not None and self.points < 1:
            raise InvalidInputError(f"points is {self.points}; expected at least 1")
        if not 0 <= self.tolerance < 1:
            raise InvalidInputError(f"tolerance is {self.tolerance}; expected 0 to 1")


def audit_times(steps: int, count: int) -> list[int]:
    """Choose times up to `steps`: a third of them early and ever rarer, the others even.

    Growth is judged by what comes after the first tenth, so most times lie there.
    """
    early = max(count // 3, 1)
    first = np.geomspace(min(8, steps), max(steps / 10, 1), early, endpoint=False)
    later = np.linspace(max(steps / 10, 1), steps, max(count - early, 1))
    both: npt.NDArray[np.int64] = np.unique(np.round([*first, *later, steps]).astype(np.int64))
    return [int(time) for time in both if time <= steps]


def spans(times: list[int], block: int) -> list[tuple[int, int]]:
    """Cut the steps up to the last of `times` at all of them, into pieces of at most `block`."""
    borders = [0]
    for end in times:
        while end - borders[-1] > block:
            borders.append(borders[-1] + block)
        borders.append(end)
    return list(pairwise(borders))
