"""Losse encoding: what turns an observation and an action into a few active cells.

A random projection ``P x``, squashed into (0, 1), is placed on grids of a few dimensions and
shared between the corners around it (paper, appendix on sparse feature encoding). Before
that, every input is scaled: the bounds of its space go to [-1, 1], times a gain.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import imagination as kernels
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.vectors import LANES, padded

logger = logging.getLogger(__name__)


def _compiled(
    rows: FloatArray,
) -> tuple[npt.NDArray[np.int64], FloatArray, npt.NDArray[np.int64]]:
    """`rows` as the kernels read them: what each row reads, the factors, and how many."""
    # The kernels skip what a row does not read: a local grid reads few inputs.
    read = rows != 0
    most = padded(max(int(read.sum(axis=1).max(initial=0)), 1), kernels.UNROLL)
    order = np.argsort(~read, axis=1, kind="stable")[:, :most]
    factors = np.ascontiguousarray(np.take_along_axis(rows, order, axis=1))
    counts = np.array([padded(int(n), kernels.UNROLL) for n in read.sum(axis=1)], np.int64)
    return np.ascontiguousarray(order.astype(np.int64)), factors, counts


class LosseEncoding:
    """Random projection, logistic function and soft binning on grids.

    Parameters
    ----------
    inputs
        Numbers in an input.
    features
        Grids.
    bins
        Edges along one dimension of a grid.
    grid_dim
        Dimensions of a grid; each takes one projection.
    linear
        Number of inputs, the last ones, that are features of their own beside the grids.
    rng
        Source of the projection.
    dtype
        float32 or float64, the type of all that is computed.
    """

    def __init__(
        self,
        inputs: int,
        features: int,
        bins: int,
        grid_dim: int,
        rng: np.random.Generator,
        dtype: npt.DTypeLike,
        linear: int = 0,
    ) -> None:
        for name, value, least in (
            ("inputs", inputs, 1),
            ("features", features, 1),
            ("bins", bins, 2),
            ("grid_dim", grid_dim, 1),
        ):
            if not isinstance(value, (int, np.integer)) or value < least:
                raise InvalidInputError(f"{name} must be an integer >= {least}; got {value!r}")
        self.features, self.bins, self.grid_dim = int(features), int(bins), int(grid_dim)
        self.inputs = int(inputs)
        if not 0 <= linear <= self.inputs:
            raise InvalidInputError(f"linear must be 0 to {self.inputs} inputs; got {linear!r}")
        self.linear = int(linear)
        # As many as whole grids have active, so that the kernels need not tell them apart.
        # The constant and the padding count too.
        linear_inputs = self.padded_inputs - self.first_linear
        self.linear_cells = padded(linear_inputs, 2**self.grid_dim) if linear else 0
        self.dtype = np.dtype(dtype)
        self._no_gates()
        self.set_projection(rng.normal(0.0, inputs**-0.5, (features * grid_dim, inputs)))

    def set_projection(self, projection: FloatArray) -> None:
        """Use ``projection[features * grid_dim, inputs]``, or one column more for a constant."""
        self.projection = np.zeros((self.features * self.grid_dim, self.padded_inputs), self.dtype)
        self.projection[:, : projection.shape[1]] = projection
        self.compiled = _compiled(self.projection)

    def set_gates(self, rows: FloatArray, sizes: Sequence[int], reach: float) -> None:
        """Let the last grids count only where something is near.

        Parameters
        ----------
        rows
            ``[gates, axes, inputs + 1]``: the relative place, whose length is the distance.
        sizes
            Grids of each gate; together the last ones.
        reach
            A gate is open up to half this distance and closes until it is reached. The cells
            behind a closed gate have value 0: what is learned elsewhere leaves them alone.
        """
        gates, axes, columns = rows.shape
        flat = np.zeros((gates * axes, self.padded_inputs), self.dtype)
        flat[:, :columns] = rows.reshape(gates * axes, columns)
        firsts = self.features - sum(sizes) + np.concatenate([[0], np.cumsum(sizes)])
        self.gates = (*_compiled(flat), firsts.astype(np.int64), np.asarray(reach, self.dtype)[()])

    def _no_gates(self) -> None:
        nothing = np.zeros((0, self.padded_inputs), self.dtype)
        firsts = np.full(1, self.features, np.int64)
        self.gates = (*_compiled(nothing), firsts, np.ones((), self.dtype)[()])

    @property
    def padded_inputs(self) -> int:
        """Inputs of the kernels: these, a constant one, and zeros."""
        return padded(self.inputs + 1, kernels.UNROLL)

    @property
    def first_linear(self) -> int:
        """First input of the linear part; past the last, padded one if there is none."""
        return self.inputs - self.linear if self.linear else self.padded_inputs

    @property
    def cells(self) -> int:
        """Cells of all grids and of the linear part (``D``)."""
        return self.features * self.bins**self.grid_dim + self.linear_cells

    @property
    def active(self) -> int:
        """Active cells of one input (``K``), if every gate is open."""
        return self.features * 2**self.grid_dim + self.linear_cells

    def __call__(self, inputs: FloatArray) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Active cells ``[N, K]`` and their values of scaled inputs ``[N, inputs]``.

        Cells behind a closed gate are there too, with value 0; `opened` leaves them out.
        """
        count = len(inputs)
        columns = np.zeros((self.projection.shape[1], padded(count, LANES)), self.dtype)
        columns[: self.inputs, :count] = inputs.T
        columns[self.inputs] = 1
        indices = np.empty((count, self.active), np.int64)
        values = np.empty((count, self.active), self.dtype)
        kernels.encode_block(
            self.compiled,
            self.gates,
            columns,
            self.bins,
            self.grid_dim,
            self.first_linear,
            indices,
            values,
        )
        return indices, values

    def opened(self, values: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each of ``values[N, K]`` whether its gate is open."""
        corners = 2**self.grid_dim
        out = np.ones(values.shape, np.bool_)
        firsts = self.gates[3] * corners
        for first, last in itertools.pairwise(firsts):
            # The corners of an open grid share its value: one of them at least is not 0.
            out[:, first:last] = np.any(values[:, first : first + corners], axis=1, keepdims=True)
        return out
