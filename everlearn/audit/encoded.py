"""A stream as the model's features: what the theorem is about, ``phi(x_t)`` and ``y_t``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.audit.stream import TransitionStream
from everlearn.interfaces import FloatArray
from everlearn.online import OnlineWorldModel
from everlearn.support.errors import InvalidInputError

CHUNK = 256
"""Transitions encoded at a time."""

Doubles = npt.NDArray[np.float64]


class EncodedStream:
    """Features and targets of a stream, with rows only for cells that the stream touches.

    Cells that no input activates have zero rows in ``A``, ``B`` and ``W`` of every model here:
    leaving them out changes nothing but the size of the matrices.

    Parameters
    ----------
    model
        Its encoding is used. Inputs without bounds get their scale from the first ``warm_up``
        transitions now, before anything is learned: the theorem knows no features that change.
    stream
        The transitions.
    order
        The order in which to take them ``[T]``, if not their own; what a memory holds at each
        stays what it was.
    """

    def __init__(
        self,
        model: OnlineWorldModel,
        stream: TransitionStream,
        order: npt.NDArray[np.int64] | None = None,
    ) -> None:
        if model.steps or model.pending:
            raise InvalidInputError(
                f"the model has learned {model.steps} transitions; an audit starts with a new one"
            )
        memory = stream.memory_states(model.memory)
        order = np.arange(stream.steps) if order is None else order
        self.observations: Doubles = stream.observations[order].astype(np.float64)
        self.actions: Doubles = stream.actions[order].astype(np.float64)
        self.next_observations: Doubles = stream.next_observations[order].astype(np.float64)
        self.memory: Doubles = memory[order].astype(np.float64)
        self.targets: Doubles = self.next_observations - self.observations
        if model.warming_up:
            part = slice(0, model.config.warm_up)
            model.inputs.scaling.freeze(
                model.inputs.raw(self.observations[part], self.actions[part], self.memory[part])
            )
        self.steps, self.active = stream.steps, model.encoding.active
        self.cells: npt.NDArray[np.int64] = np.empty((self.steps, self.active), np.int64)
        self.values: FloatArray = np.empty((self.steps, self.active), model.dtype)
        for first in range(0, self.steps, CHUNK):
            part = slice(first, first + CHUNK)
            self.cells[part], self.values[part] = model.encode(
                self.observations[part], self.actions[part], self.memory[part]
            )
        self.used: npt.NDArray[np.int64] = np.unique(self.cells)
        """Cells that the stream touches ``[V]``, in increasing order."""
        self._row_of = np.zeros(model.encoding.cells, np.int64)
        self._row_of[self.used] = np.arange(len(self.used))

    @property
    def outputs(self) -> int:
        """Numbers in a target (``S``)."""
        return int(self.targets.shape[1])

    def rows(self, step: int) -> npt.NDArray[Any]:
        """Rows of the active cells ``s`` of transition `step` (from 0)."""
        return np.asarray(self._row_of[self.cells[step]])

    def dense(self, steps: slice | npt.NDArray[np.int64]) -> Doubles:
        """Features ``[n, V]`` of some transitions in float64."""
        rows = self._row_of[self.cells[steps]]
        out = np.zeros((len(rows), len(self.used)))
        np.put_along_axis(out, rows, self.values[steps].astype(np.float64), axis=1)
        return out
