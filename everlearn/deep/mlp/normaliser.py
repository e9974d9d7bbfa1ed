"""Mean and deviation of what a network is given and asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray, State
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError

Doubles = npt.NDArray[np.float64]


class RunningMoments:
    """Mean and variance of every column of a stream, without keeping the stream.

    Parameters
    ----------
    width
        Numbers in a row.
    """

    def __init__(self, width: int) -> None:
        self.count = 0
        self.mean: Doubles = np.zeros(width)
        self._squares: Doubles = np.zeros(width)

    def add(self, rows: FloatArray) -> None:
        """Take in ``rows[N, width]`` (Chan, Golub and LeVeque 1979)."""
        added = len(rows)
        if not added:
            return
        values = np.asarray(rows, np.float64)
        mean = values.mean(axis=0)
        gap = mean - self.mean
        total = self.count + added
        self._squares += ((values - mean) ** 2).sum(axis=0) + gap**2 * self.count * added / total
        self.mean += gap * added / total
        self.count = total

    @property
    def deviation(self) -> Doubles:
        """Standard deviation of each column; zero before the first row."""
        return np.sqrt(self._squares / max(self.count, 1))

    def state(self) -> State:
        """Everything, as arrays and facts."""
        return {"mean": self.mean.copy(), "squares": self._squares.copy()}, {"count": self.count}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        for name in ("mean", "squares"):
            given = arrays[name]
            if given.shape != self.mean.shape or given.dtype != self.mean.dtype:
                raise InvalidInputError(
                    f"stored {name} has shape {given.shape} of {given.dtype}; expected "
                    f"{self.mean.shape} of {self.mean.dtype}"
                )
        check_whole("count of stored moments", meta["count"], 0)
        self.count = int(meta["count"])
        self.mean, self._squares = arrays["mean"].copy(), arrays["squares"].copy()


class Normaliser:
    """``(x - centre) / deviation``, with a smallest deviation for what hardly varies.

    Parameters
    ----------
    centre, deviation
        Of each number.
    """

    def __init__(self, centre: FloatArray, deviation: FloatArray) -> None:
        self.centre: Doubles = np.array(centre, np.float64)
        self.deviation: Doubles = np.array(deviation, np.float64)

    @classmethod
    def of(cls, moments: RunningMoments, smallest: FloatArray) -> Normaliser:
        """Make one from moments."""
        return cls(moments.mean, np.maximum(moments.deviation, smallest))

    def __call__(self, values: FloatArray) -> npt.NDArray[np.float32]:
        """Normalise ``values[N, width]``."""
        return ((values - self.centre) / self.deviation).astype(np.float32)
