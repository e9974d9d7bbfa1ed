"""Weights without the statistics that they were solved from: they predict, and learn no more.

The statistics of equation 5 grow with the square of the cells in use and take hundreds of
megabytes; the weights take about one. An exported agent has these alone.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.ridge import check_cells
from everlearn.support.archive import check_arrays
from everlearn.support.errors import InvalidInputError, NotReadyError
from everlearn.world_model.vectors import LANES, aligned_zeros, padded

Cells = npt.NDArray[np.int64]


class FrozenLearner:
    """Takes the place of a learner; see `RidgeLearner` for the parameters and attributes."""

    ARRAYS = ("cells", "weights", "visits")
    """Names of what `restore` takes."""
    fallbacks = 0
    samples = 0

    def __init__(
        self, *, cells: int, outputs: int, dtype: npt.DTypeLike, unlearned: int = 0
    ) -> None:
        self.cells, self.outputs = cells, outputs
        self.dtype = np.dtype(dtype)
        self.width = padded(outputs + unlearned, LANES)
        # A tuple as long as a row of weights has vectors: the kernels compile for that width.
        self.vectors = (0,) * (self.width // LANES)
        self.weights = self.table = aligned_zeros((cells, self.width), self.dtype)
        self.cells_in_use: Cells = np.zeros(0, np.int64)
        self._visits: FloatArray = np.zeros(cells, np.float32)

    @property
    def used(self) -> int:
        """Cells that some sample has activated."""
        return len(self.cells_in_use)

    def knows(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Say of each cell whether some sample has activated it."""
        known: npt.NDArray[np.bool_] = self._visits[cells] > 0
        return known

    def visits(self, cells: Cells) -> FloatArray:
        """Sum of the squared values that `cells` were activated with."""
        return self._visits[cells]

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `weights_of` returned; on bad input raise and change nothing."""
        used = len(np.atleast_1d(arrays.get("cells", ())))
        kinds = {
            "cells": ("i", (used,)),
            "weights": ("f", (used, self.outputs)),
            "visits": ("f", (used,)),
        }
        check_arrays(arrays, kinds)
        check_cells(arrays["cells"], "cells", self.cells)
        samples = meta.get("steps")
        if type(samples) is not int or samples < 0:
            raise InvalidInputError(f"'steps' of a state is {samples!r}; not usable")
        for name in ("weights", "visits"):
            if not np.isfinite(arrays[name]).all():
                raise InvalidInputError(f"{name!r} of a state has numbers that are not finite")
        if (arrays["visits"] < 0).any():
            raise InvalidInputError("'visits' of a state has negative numbers")
        self.cells_in_use, self.samples = arrays["cells"].astype(np.int64), samples
        self.table[:] = 0
        self.table[self.cells_in_use, : self.outputs] = arrays["weights"]
        self._visits[:] = 0
        self._visits[self.cells_in_use] = arrays["visits"]

    def learn(self, *_: object) -> NoReturn:
        """Refuse."""
        raise NotReadyError(CANNOT_LEARN)

    add = admit = solve = state = residual = learn


CANNOT_LEARN = (
    "this agent was exported: it has the weights of its model and not the statistics that learning "
    "and saving need. To act without learning, use agent.evaluation_copy(seed); to learn on, load "
    "a file that agent.save(path) wrote, with OnlineAgent.from_file(path)"
)


def weights_of(learner: Any) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
    """Return what predictions of a learner need, for `FrozenLearner.restore`."""
    # Sorted, so that equal agents give equal files whatever was met first.
    cells = np.sort(learner.cells_in_use)
    arrays = {
        "cells": cells,
        # Not the weights: predictions read the table, which may be of another type.
        "weights": learner.table[cells, : learner.outputs].copy(),
        "visits": np.asarray(learner.visits(cells), np.float32),
    }
    return arrays, {"steps": learner.samples}
