"""Follow the leader exactly: ridge regression whose solution is kept up sample by sample.

Equation 5 of the paper moves the rows of the active cells and holds all others (ridge.py). Here all
weights are the minimiser of the ridge loss of everything seen, after every sample::

    W = P B,    P = (A + r I)^-1,    A = sum phi phi^T,  B = sum phi y^T

``P`` is kept instead of ``A``: a sample changes it by a matrix of rank one (kernels/recursive.py),
at a cost of ``V^2`` for ``V`` cells in use, whatever was seen before. That suits encodings of a few
thousand cells; with the paper's 24,300 equation 5 is cheaper. ``P`` also says how much a prediction
can be trusted: its variance is ``phi^T P phi`` in units of the noise.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import recursive as kernels
from everlearn.online.ridge import UnsolvableError, check_cells
from everlearn.online.statistics import reserve
from everlearn.support.archive import check_arrays
from everlearn.support.errors import InvalidInputError, MemoryLimitError
from everlearn.world_model.vectors import LANES, aligned_zeros, padded

Cells = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]


class RecursiveLearner:
    """Weights that are the exact ridge solution after every sample.

    Parameters
    ----------
    cells
        Cells in all (``D``).
    outputs
        Numbers in a target (``S``).
    dtype
        Type of ``P`` and ``W``.
    ridge
        Strength of the ridge (``r``).
    max_bytes
        Refuse to grow beyond this; None for no limit.
    unlearned
        Further columns of `table`, after those of the outputs, that the caller fills.

    Attributes
    ----------
    weights, table
        ``W[D, L]``; predictions read the table, which is the same array.
    samples
        Samples learned from.
    used
        Cells that some sample has activated.
    unknown_before
        `variance` of the last sample before it was learned.
    """

    ARRAYS = ("cells", "inverse", "changes", "visits", "weights")
    """Names of what `state` returns."""
    fallbacks = 0
    """Updates that the first type could not solve: there are none here."""

    def __init__(
        self,
        *,
        cells: int,
        outputs: int,
        dtype: npt.DTypeLike,
        ridge: float,
        max_bytes: float | None = None,
        unlearned: int = 0,
    ) -> None:
        self.cells, self.outputs = cells, outputs
        self.dtype, self.ridge = np.dtype(dtype), ridge
        self.width = padded(outputs + unlearned, LANES)
        # A tuple as long as a row of weights has vectors: the kernels compile for that width.
        self.vectors = (0,) * (self.width // LANES)
        self._max_bytes = max_bytes
        self.weights = self.table = aligned_zeros((cells, self.width), self.dtype)
        self.inverse = reserve(cells, cells, self.dtype)
        # The group of changes that fills up, and the one that rows of P take in.
        self.changes: FloatArray = np.zeros((2, kernels.DELAY, cells), self.dtype)
        self.samples = 0
        self.unknown_before = 0.0
        self.used = 0
        self._kept_changes = 0
        self._folded = 0  # rows that have taken in the second group
        self._position_of: Cells = np.full(cells, -1, np.int64)
        self._cells: Cells = np.zeros(cells, np.int64)
        self._visits: Doubles = np.zeros(cells)
        self._gain: FloatArray = np.zeros(cells, self.dtype)

    @property
    def cells_in_use(self) -> Cells:
        """Cells in the order in which they were first activated."""
        return self._cells[: self.used]

    def knows(self, cells: Cells) -> npt.NDArray[np.bool_]:
        """Say of each cell whether some sample has activated it."""
        known: npt.NDArray[np.bool_] = self._position_of[cells] >= 0
        return known

    def visits(self, cells: Cells) -> Doubles:
        """Sum of the squared values that `cells` were activated with, the diagonal of ``A``."""
        return self._visits[cells]

    def admit(self, cells: Cells) -> Cells:
        """Positions of `cells` in ``P``, after giving one to those that have none."""
        fresh = np.unique(cells[self._position_of[cells] < 0])
        needed = self.used + len(fresh)
        taken = needed * self.cells * self.dtype.itemsize
        if self._max_bytes is not None and taken > self._max_bytes:
            raise MemoryLimitError(
                f"{needed} cells in use need {taken / 1e9:.3g} GB, more than allowed "
                f"({self._max_bytes / 1e9:.3g} GB); raise max_memory_gb or take fewer features or "
                "bins. Nothing was changed"
            )
        if len(fresh):
            positions = np.arange(self.used, needed)
            self._position_of[fresh] = positions
            self._cells[positions] = fresh
            # Nothing is known of a new cell but the ridge.
            self.inverse[positions, positions] = 1 / self.ridge
            self.used = needed
        return self._position_of[cells]

    def learn(self, cells: Cells, values: FloatArray, target: Doubles) -> None:
        """Take in one sample; all weights become the solution of everything seen."""
        active = values != 0
        cells, values = cells[active], values[active].astype(self.dtype, copy=False)
        positions = self.admit(cells)
        gains, errors = self._gain[: self.used], np.zeros(self.outputs, self.dtype)
        kernels.gain(
            self.inverse, self.changes, self._folded, positions, values, self.used, self._gain
        )
        growth = 1 + float(values @ gains[positions])
        if not growth > 0.5:  # in exact arithmetic it is 1 or more
            raise UnsolvableError(
                f"the inverse over {self.used} cells with ridge {self.ridge:g} is lost to rounding "
                f"in a sample with values up to {np.abs(values).max(initial=0.0):g}. Use a larger "
                "ridge, a smaller linear_gain or precision='float64'. The weights were left as "
                "they were"
            )
        errors[:] = (target - values @ self.weights[cells, : self.outputs]) / growth
        kernels.add_outer(self.weights, self.cells_in_use, gains, errors)
        self._keep(gains / np.sqrt(growth))
        self._visits[cells] += values.astype(np.float64) ** 2
        self.samples += 1
        self.unknown_before = growth - 1

    def add(self, cells: Cells, values: FloatArray, targets: Doubles) -> None:
        """Take in samples ``[N, K]``, one after the other."""
        for sample in zip(cells, values, targets, strict=True):
            self.learn(*sample)

    def solve(self) -> None:
        """Do nothing: the weights are the solution."""

    def _keep(self, change: FloatArray) -> None:
        """Keep a change for later, and let the next rows of ``P`` take in the group before it."""
        self.changes[0, self._kept_changes, : self.used] = change
        self._kept_changes += 1
        self._fold_until(self.used * self._kept_changes // kernels.DELAY)
        if self._kept_changes == kernels.DELAY:
            self._begin_to_fold()

    def _fold_until(self, row: int) -> None:
        """Let the rows before this one take in the second group."""
        kernels.fold(self.inverse, self.changes[1], self._folded, row, 0, self.used)
        self._folded = row

    def _begin_to_fold(self) -> None:
        """Make the group that fills up the one that rows take in; the one before is done."""
        self.changes[1] = self.changes[0]
        self.changes[0] = 0
        self._kept_changes = self._folded = 0

    def fold(self) -> None:
        """Bring all changes into ``P``."""
        for _ in self.changes:
            self._fold_until(self.used)
            self._begin_to_fold()

    def variance(self, cells: Cells, values: FloatArray) -> float:
        """``phi^T P phi``, what is not known of an input; ``|phi|^2 / r`` where nothing is."""
        positions = self._position_of[cells]
        known = positions >= 0
        rest = float((values[~known].astype(np.float64) ** 2).sum()) / self.ridge
        if not known.any():
            return rest
        values, positions = values[known].astype(self.dtype, copy=False), positions[known]
        gains = np.zeros(self.cells, self.dtype)
        kernels.gain(self.inverse, self.changes, self._folded, positions, values, self.used, gains)
        return rest + max(float(values @ gains[positions]), 0.0)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, for `restore`: arrays and JSON facts. ``P`` is stored as a triangle."""
        used, cells = self.used, self.cells_in_use
        triangle = np.concatenate(
            [self.inverse[row, : row + 1] for row in range(used)] or [np.zeros(0, self.dtype)]
        )
        arrays = {
            "cells": cells.copy(),
            "inverse": triangle,
            "changes": self.changes[:, :, :used].copy(),
            "visits": self._visits[cells],
            "weights": self.weights[cells, : self.outputs],
        }
        counts = {"kept_changes": self._kept_changes, "folded": self._folded}
        return arrays, {"steps": self.samples, **counts}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        used = len(np.atleast_1d(arrays.get("cells", ())))
        if "folded" not in meta:  # files from before there were two groups
            older = np.asarray(arrays.get("changes", ()))
            arrays, meta = (
                {**arrays, "changes": np.stack([older, 0 * older])},
                {**meta, "folded": 0},
            )
        check_arrays(
            arrays,
            {
                "cells": ("i", (used,)),
                "inverse": ("f", (used * (used + 1) // 2,)),
                "changes": ("f", (2, kernels.DELAY, used)),
                "visits": ("f", (used,)),
                "weights": ("f", (used, self.outputs)),
            },
        )
        samples: Any = meta.get("steps")
        kept: Any = meta.get("kept_changes")
        folded: Any = meta.get("folded")
        cells = arrays["cells"]
        check_cells(cells, "cells", self.cells)
        counted = type(samples) is int and samples >= 0 and type(folded) is int
        if not counted or kept not in range(kernels.DELAY) or not 0 <= folded <= used:
            raise InvalidInputError(
                f"a state of {used} cells cannot have counted {samples!r} steps, {kept!r} kept, "
                f"{folded!r} rows folded"
            )
        if not all(np.isfinite(arrays[name]).all() for name in ("inverse", "changes", "weights")):
            raise InvalidInputError("the stored weights have numbers that are not finite")
        inverse = reserve(self.cells, self.cells, self.dtype)
        first = 0
        for row in range(used):
            line = arrays["inverse"][first : first + row + 1]
            inverse[row, : row + 1] = line
            inverse[:row, row] = line[:-1]
            first += row + 1
        # A row that has taken in the second group, beside one that has not: the half of P that is
        # stored has what the latter knows.
        group = np.ascontiguousarray(arrays["changes"][1], self.dtype)
        kernels.fold(inverse, group, 0, folded, folded, used)
        # Nothing below can fail: the learner is either the old one or wholly the new one.
        self.inverse, self.used, self.samples, self._kept_changes = inverse, used, samples, kept
        self._folded = folded
        self._position_of[:] = -1
        self._position_of[cells] = np.arange(used)
        self._cells[:used] = cells
        self.changes[:] = 0
        self.changes[:, :, :used] = arrays["changes"]
        self._visits[:] = 0
        self._visits[cells] = arrays["visits"]
        self.weights[:, : self.outputs] = 0
        self.weights[cells, : self.outputs] = arrays["weights"]
