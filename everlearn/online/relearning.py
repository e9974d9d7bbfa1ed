"""Learning all transitions so far with another scale of the inputs, beside the loop.

A scale that changes moves every cell, so that what was learned with the old one is void. To learn
thousands of transitions again takes seconds, in which an agent would stand still. So a second
learner takes them in, oldest first and a few a step, while the first one goes on. When it has
caught up it takes the first one's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.support.archive import part_of
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.scaling import InputScaling

WORK = 2e7
"""Numbers of the inverse that a step may change: the square of the cells in use, a transition."""

LEAST = 2
"""Transitions that a step takes in at the least; with one it would never catch up."""

PREFIX = "relearned/"
"""Of arrays in a state."""


class Relearning:
    """A learner that catches up with another scale.

    Parameters
    ----------
    learner
        One that has learned nothing yet.
    centre, multiplier
        The new scale.

    Attributes
    ----------
    done
        Transitions that it has learned.
    """

    def __init__(
        self,
        learner: Any,
        centre: npt.NDArray[np.float64],
        multiplier: npt.NDArray[np.float64],
    ) -> None:
        self.learner, self.centre, self.multiplier = learner, centre, multiplier
        self.done = 0

    def quota(self, cells: int) -> int:
        """Transitions to take in now, where the other learner uses so many cells.

        Many while few cells are in use, and then fewer.
        """
        return max(int(WORK / max(self.learner.used, cells, 1) ** 2), LEAST)

    @contextmanager
    def scaling(self, scaling: InputScaling) -> Iterator[None]:
        """Give `scaling` the new scale for a moment."""
        before = scaling.centre, scaling.multiplier
        scaling.take(self.centre, self.multiplier)
        try:
            yield
        finally:
            scaling.take(*before)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, for `restore`: arrays under `PREFIX`, and JSON facts."""
        learned, counts = self.learner.state()
        arrays = {"centre": self.centre, "multiplier": self.multiplier, **learned}
        facts = {"done": self.done, **counts}
        return {PREFIX + name: array.copy() for name, array in arrays.items()}, facts

    @classmethod
    def restored(
        cls,
        learner: Any,
        arrays: dict[str, npt.NDArray[Any]],
        facts: dict[str, Any],
        inputs: int,
        kept: int,
    ) -> Relearning:
        """Make the one that `state` described, of so many inputs and kept transitions."""
        mine = part_of(arrays, PREFIX)
        scale = [np.asarray(mine.pop(name, ())) for name in ("centre", "multiplier")]
        done: Any = facts.get("done")
        usable = all(
            part.shape == (inputs,) and part.dtype == np.float64 and np.isfinite(part).all()
            for part in scale
        )
        if not usable or type(done) is not int or not 0 <= done <= kept:
            raise InvalidInputError(
                f"a state cannot have learned {done!r} of {kept} transitions again with a scale of "
                f"shapes {[part.shape for part in scale]}; expected {inputs} inputs"
            )
        learner.restore(mine, facts)
        relearning = cls(learner, *scale)
        relearning.done = done
        return relearning
