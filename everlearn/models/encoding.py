"""Losse encoding: what turns an observation and an action into a few active cells.

A random projection ``P x``, squashed into (0, 1), is placed on grids of a few dimensions and
shared between the corners around it (paper, appendix on sparse feature encoding). Before
that, every input is scaled: the bounds of its space go to [-1, 1], times a gain.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.checks import as_numbers
from everlearn.errors import InvalidInputError
from everlearn.models import kernels
from everlearn.models.vectors import LANES
from everlearn.protocols import FloatArray

logger = logging.getLogger(__name__)

SPREAD = 2.0
"""Standard deviations that stand for half the range of an unbounded input."""


def padded(count: int, multiple: int) -> int:
    """`count` rounded up to a multiple."""
    return -(-count // multiple) * multiple


def aligned_zeros(shape: tuple[int, int], dtype: npt.DTypeLike) -> FloatArray:
    """Zeros that start on a cache line, so that vectors of weights do not straddle two."""
    line = 64
    item = np.dtype(dtype).itemsize
    buffer = np.zeros(shape[0] * shape[1] + line // item, dtype)
    skip = -buffer.ctypes.data % line // item
    return buffer[skip : skip + shape[0] * shape[1]].reshape(shape)


class InputScaling:
    """``(x - centre) * multiplier`` for every input of the model.

    Bounded inputs: the centre of the bounds, and gain over half their range, so that bounds
    become ``[-gain, gain]``. Inputs without bounds start with centre 0 and multiplier `gain`
    and are waiting for statistics: after `freeze` their mean plus or minus two standard
    deviations become ``[-gain, gain]``, once and for all, because moving the scale later would
    move every cell that has been learned.

    Parameters
    ----------
    low, high
        Bounds of each input; infinite where there are none.
    gain
        What the bounds become after scaling, for each input.
    """

    def __init__(self, low: FloatArray, high: FloatArray, gain: FloatArray) -> None:
        bounded = np.isfinite(low) & np.isfinite(high)
        half = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, -1)) / 2, 1.0)
        centre = np.where(bounded, np.where(bounded, low, 0) + half, 0.0)
        self.gain: npt.NDArray[np.float64] = np.asarray(gain, np.float64)
        self.centre: npt.NDArray[np.float64] = centre
        # An input that cannot vary (low == high) carries nothing: it is multiplied by zero.
        self.multiplier: npt.NDArray[np.float64] = np.where(
            half > 0, self.gain / np.where(half > 0, half, 1), 0.0
        )
        self.unbounded: npt.NDArray[np.bool_] = ~bounded
        self.frozen = not bool(self.unbounded.any())

    def freeze(self, samples: FloatArray) -> None:
        """Fix the scale of inputs without bounds by ``samples[N, I]``."""
        if self.frozen:
            return
        mean = samples.mean(axis=0)
        deviation = samples.std(axis=0)
        # A constant input has no scale of its own; leave room for a first movement.
        deviation = np.where(deviation > 1e-8 * (1 + np.abs(mean)), deviation, 1.0)
        self.centre = np.where(self.unbounded, mean, self.centre)
        self.multiplier = np.where(
            self.unbounded, self.gain / (SPREAD * deviation), self.multiplier
        )
        self.frozen = True
        logger.warning(
            "scale of %d unbounded inputs fixed by %d samples; it stays as it is from now on",
            int(self.unbounded.sum()),
            len(samples),
        )


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


def as_box(space: spaces.Space[Any], name: str) -> spaces.Box:
    """`space`, if it is a one-dimensional Box; anything else is refused."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.shape[0] == 0:
        raise InvalidInputError(
            f"{name} must be a one-dimensional Box; got {space}. "
            "Wrap the environment, for example with gymnasium.wrappers.FlattenObservation"
        )
    return space


def box_bounds(space: spaces.Space[Any], name: str) -> tuple[FloatArray, FloatArray]:
    """Bounds of a one-dimensional Box in float64."""
    box = as_box(space, name)
    return box.low.astype(np.float64), box.high.astype(np.float64)


def as_batch(
    value: object, name: str, width: int, dims: Sequence[int] = (1, 2)
) -> npt.NDArray[np.float64]:
    """`value` as finite float64 numbers of one of the allowed numbers of dimensions."""
    array = as_numbers(value, name).astype(np.float64, copy=False)
    if array.ndim not in dims or array.shape[-1] != width:
        expected = " or ".join(("[" + "N, H, "[3 * (3 - d) :] + f"{width}]") for d in dims)
        raise InvalidInputError(f"{name} must have shape {expected}; got {list(array.shape)}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise InvalidInputError(
            f"{name} must be finite; got {array[tuple(where)]} at index {where}"
        )
    return array
