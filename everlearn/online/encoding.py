"""Losse encoding: what turns an observation and an action into a few active cells.

A random projection ``P x`` of scaled inputs, squashed into (0, 1), is placed on grids of a few
dimensions and shared between the corners around it (paper, appendix on sparse feature encoding).

The paper's grids are dense: every row of ``P`` mixes all inputs, so that a grid resolves none of
them finely (in a workspace of 1.6 m a bin of nine is wider than the table). Local grids see one
object from the hand: each of their rows mixes a few of

- the position of the object, seen from between the fingers, at a gain (in inputs a metre) of its
  own: fine for fingers that close on a block, coarse for an arm that sweeps a door open;
- how far the hand is open, the action, and how the hand moves (features of the memory).

Contact depends on just these, and on nothing that happens elsewhere on the table. From afar there
is none: with a reach, the grids of an object count only where the hand is near it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import Bodies, FloatArray
from everlearn.online.config import OnlineModelConfig
from everlearn.online.kernels.imagination import (
    UNROLL,
    EncodingTables,
    Gates,
    Projection,
    encode_block,
)
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import ModelInputs
from everlearn.world_model.vectors import LANES, padded

PRODUCT_SHARE = 0.3
"""What products are multiplied by, relative to the inputs of the linear part."""

MOST_PRODUCTS = 128
"""Products of one degree; more are drawn at random from all."""

GAIN_RANGE = 4.0
"""Largest over smallest gain of distances in local grids."""

Rows = npt.NDArray[np.float64]
"""Rows ``[R, inputs + 1]`` of a projection of scaled inputs; the last column is a constant."""


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
        Dimensions of a grid; each takes one row of the projection.
    rng
        Source of the projection.
    dtype
        float32 or float64, the type of all that is computed.
    linear
        Number of inputs, the last ones, that are features of their own beside the grids.
    linear_gain
        What these are multiplied by.
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
        linear_gain: float = 1.0,
        products: npt.NDArray[np.int64] | None = None,
        product_scale: float = 1.0,
    ) -> None:
        self.inputs, self.features, self.bins, self.grid_dim = inputs, features, bins, grid_dim
        self.linear, self.linear_gain = linear, linear_gain
        self.products = np.zeros((0, 2), np.int64) if products is None else products
        self.product_scale = product_scale
        # As many as whole grids have active, so that the kernels need not tell them apart.
        # The constant and the padding count too.
        linear_inputs = self.padded_inputs - self.first_linear
        self.linear_cells = padded(linear_inputs, 2**grid_dim) if linear else 0
        self.dtype = np.dtype(dtype)
        nothing = _compiled(np.zeros((0, self.padded_inputs), self.dtype))
        self._gates = Gates(nothing, np.full(1, features, np.int64), np.ones(1, self.dtype)[0])
        self.set_projection(rng.normal(0.0, inputs**-0.5, (features * grid_dim, inputs)))

    @classmethod
    def of_config(
        cls,
        config: OnlineModelConfig,
        inputs: ModelInputs,
        bodies: Bodies | None,
        seed: int,
    ) -> LosseEncoding:
        """Draw the encoding of a model: dense grids first, then local ones, object by object.

        The paper's is that of all grids dense and all inputs read.
        """
        first_linear = 0 if config.linear_observations else inputs.observations
        encoding = cls(
            inputs.count,
            config.features,
            config.bins,
            config.grid_dim,
            np.random.default_rng(seed),
            config.precision,
            inputs.count - first_linear if config.linear else 0,
            config.linear_gain,
            _products(np.random.default_rng((seed, 1)), inputs, config.degree),
            1 / config.observation_gain,
        )
        local = round(config.local_grids * config.features)
        if local and (bodies is None or not inputs.scaling.frozen):
            raise InvalidInputError(
                "local_grids needs `bodies`, the positions of hand and objects in the observation, "
                "and finite bounds; an environment declares them as `bodies`. Without, leave "
                "local_grids at 0"
            )
        if not local and not config.row_inputs and inputs.gridded.all():
            return encoding
        rng = np.random.default_rng(seed)
        count = (config.features - local) * config.grid_dim
        if config.row_inputs:
            rows = _sparse_rows(rng, count, inputs, config.row_inputs)
        else:
            rows = _dense_rows(rng, count, inputs)
        if local and bodies is not None:
            rows = np.concatenate([rows, _local_rows(rng, local, config, inputs, bodies)])
            if config.local_reach:
                sizes = _grids_of_objects(local, bodies)
                encoding._set_gates(_relative_positions(inputs, bodies), sizes, config.local_reach)
        encoding.set_projection(rows)
        return encoding

    def set_projection(self, projection: FloatArray) -> None:
        """Use ``projection[features * grid_dim, inputs]``, or one column more for a constant."""
        self.projection = np.zeros((self.features * self.grid_dim, self.padded_inputs), self.dtype)
        self.projection[:, : projection.shape[1]] = projection
        self._set_tables()

    def _set_gates(self, rows: FloatArray, sizes: Sequence[int], reach: float) -> None:
        """Let the last grids count only where something is near.

        Parameters
        ----------
        rows
            ``[gates, axes, inputs + 1]``: a relative position, whose length is the distance.
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
        self._gates = Gates(
            _compiled(flat), firsts.astype(np.int64), np.full(1, reach, self.dtype)[0]
        )

    def _set_tables(self) -> None:
        self.tables = EncodingTables(
            _compiled(self.projection),
            self._gates,
            self.bins,
            self.grid_dim,
            self.first_linear,
            self.padded_inputs,
            np.full(1, self.linear_gain, self.dtype)[0],
            self.products,
            np.full(1, self.product_scale, self.dtype)[0],
            np.full(1, PRODUCT_SHARE, self.dtype)[0],
        )

    @property
    def padded_inputs(self) -> int:
        """Inputs of the kernels: these, a constant one, and zeros."""
        return padded(self.inputs + 1, UNROLL) + len(self.products)

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
        encode_block(self.tables, columns, indices, values)
        return indices, values

    def opened(self, values: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each of ``values[N, K]`` whether its gate is open."""
        corners = 2**self.grid_dim
        out = np.ones(values.shape, np.bool_)
        for first, last in itertools.pairwise(self._gates.firsts * corners):
            # The corners of an open grid share its value: one of them at least is not 0.
            out[:, first:last] = np.any(values[:, first : first + corners], axis=1, keepdims=True)
        return out


def _compiled(rows: FloatArray) -> Projection:
    """`rows` as the kernels read them: without the zeros, as a local grid reads few inputs."""
    read = rows != 0
    most = padded(max(int(read.sum(axis=1).max(initial=0)), 1), UNROLL)
    # Inputs that are read come first, in their order; zeros fill up to an even number.
    order = np.argsort(~read, axis=1, kind="stable")[:, :most]
    factors = np.ascontiguousarray(np.take_along_axis(rows, order, axis=1))
    counts = np.array([padded(int(n), UNROLL) for n in read.sum(axis=1)], np.int64)
    sources = np.ascontiguousarray(order.astype(np.int64))
    return Projection(sources, factors, counts, _alike(sources, counts))


def _alike(sources: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count the rows from each one on that read the same inputs, itself included."""
    alike = np.ones(len(counts), np.int64)
    for row in range(len(counts) - 2, -1, -1):
        read, following = (sources[r, : counts[r]] for r in (row, row + 1))
        if np.array_equal(read, following):
            alike[row] += alike[row + 1]
    return alike


def _dense_rows(rng: np.random.Generator, rows: int, inputs: ModelInputs) -> Rows:
    """Draw rows that mix all inputs that dense grids read: N(0, 1 / inputs)."""
    seen = np.flatnonzero(inputs.gridded)
    out = np.zeros((rows, inputs.count + 1))
    out[:, seen] = rng.normal(0.0, len(seen) ** -0.5, (rows, len(seen)))
    return out


def _sparse_rows(rng: np.random.Generator, rows: int, inputs: ModelInputs, mixed: int) -> Rows:
    """Draw rows that mix a few inputs each, out of observations and actions: N(0, 1 / mixed)."""
    observed = np.arange(inputs.observations + inputs.actions)
    seen = observed[(observed < inputs.read) | (observed >= inputs.observations)]
    mixed = min(mixed, len(seen))
    out = np.zeros((rows, inputs.count + 1))
    for row in out:
        row[rng.choice(seen, mixed, replace=False)] = rng.normal(0.0, mixed**-0.5, mixed)
    return out


def _products(rng: np.random.Generator, inputs: ModelInputs, degree: int) -> npt.NDArray[np.int64]:
    """Draw which observations and actions are multiplied with each other."""
    observed = np.arange(inputs.observations + inputs.actions)
    seen = observed[(observed < inputs.read) | (observed >= inputs.observations)]
    rows: list[tuple[int, ...]] = []
    for factors in range(2, degree + 1):
        every = list(itertools.combinations_with_replacement(seen.tolist(), factors))
        if len(every) > MOST_PRODUCTS:
            chosen = np.sort(rng.choice(len(every), MOST_PRODUCTS, replace=False))
            every = [every[i] for i in chosen]
        rows += [row + (-1,) * (degree - factors) for row in every]
    rows = rows[: len(rows) // UNROLL * UNROLL]
    return np.array(rows, np.int64).reshape(-1, max(degree, 2))


def _local_rows(
    rng: np.random.Generator,
    grids: int,
    config: OnlineModelConfig,
    inputs: ModelInputs,
    bodies: Bodies,
) -> Rows:
    """Draw rows of local grids, one object after the other; each mixes a few inputs.

    Distances are multiplied by `local_gain` at most, and by a fourth of it at least.
    """
    views = [_view(inputs, bodies, number) for number in range(len(bodies.objects))]
    mixed = config.local_inputs
    if mixed > len(views[0]):
        raise InvalidInputError(
            f"local_inputs is {mixed}; a local grid has only {len(views[0])} inputs to mix"
        )
    out = np.zeros((grids * config.grid_dim, inputs.count + 1))
    seen = np.repeat(np.arange(len(views)), _grids_of_objects(grids, bodies))
    for row in range(len(out)):
        view = views[seen[row // config.grid_dim]]
        chosen = rng.choice(len(view), mixed, replace=False)
        factors = rng.normal(0.0, mixed**-0.5, mixed)
        metres = chosen < len(bodies.hand)
        factors[metres] *= config.local_gain * GAIN_RANGE ** -rng.uniform()
        out[row] = factors @ view[chosen]
    return out


def _grids_of_objects(grids: int, bodies: Bodies) -> list[int]:
    """Local grids of each object, as evenly as they go."""
    count = len(bodies.objects)
    return [grids // count + (number < grids % count) for number in range(count)]


def _relative_positions(inputs: ModelInputs, bodies: Bodies) -> Rows:
    """Where each object is, seen from between the fingers, ``[objects, axes, inputs + 1]``."""
    axes = len(bodies.hand)
    views = [_view(inputs, bodies, number)[:axes] for number in range(len(bodies.objects))]
    return np.stack(views)


def _view(inputs: ModelInputs, bodies: Bodies, number: int) -> Rows:
    """Return what a local grid can mix, each as a row over scaled inputs and the constant.

    The relative position comes first, in metres.
    """
    # A scaled input is x = (raw - centre) * multiplier, so raw = x / multiplier + centre.
    centre, multiplier = inputs.scaling.centre, inputs.scaling.multiplier
    axes = list(zip(bodies.objects[number], bodies.hand, bodies.grip, strict=True))
    relative = np.zeros((len(axes), inputs.count + 1))
    for row, (item, hand, offset) in zip(relative, axes, strict=True):
        row[item] = 1 / multiplier[item]
        row[hand] = -1 / multiplier[hand]
        row[-1] = centre[item] - centre[hand] - offset
    motion = inputs.observations + inputs.actions + np.array(inputs.features_of(bodies.hand), int)
    actions = np.arange(inputs.observations, inputs.observations + inputs.actions)
    others = np.concatenate([np.array(bodies.opening, int), actions, motion])
    return np.concatenate([relative, np.eye(inputs.count + 1)[others]])
