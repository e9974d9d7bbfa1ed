"""How wrong a prediction may be: bounds that hold as often as they should.

**A scale in closed form.** What a ridge regression does not know of an input is
``phi^T (A + r I)^-1 phi``, in units of the squared error of known inputs (`unknown`). Those errors
differ from place to place: each cell keeps a running mean of the squared errors ``e^2`` that were
made where it was active, recent ones weigh more. With ``m(x)`` the mean over the active cells, a
prediction one step ahead has the scale ``s``, and one ``h`` steps ahead ``s_h``::

    s(x)^2 = m(x) (1 + unknown(x)),      s_h^2 = (1 + unknown(x_0)) sum_i m(x_i),   i < h

**Corrected by experience.** Histograms of the scores ``|e| / s`` say what share of the errors was
within so many scales: the bound of a share is its quantile (conformal prediction). There is one
for each observation, for 1, 2, 4, 8 and 15 steps, and for each of a few regions of the
observations, because errors have longer tails in some places than in others. Steps between have
quantiles between. Histograms fade as they are added to, so a region that is not visited keeps what
was true there.

**Honest errors.** An error counts only if the weights had not learned from that transition, nor
from those around it. So transitions are kept in blocks, and when a block is full it is predicted
with the weights from before it: every transition one step ahead, and every few of them 15.

An observation that never changed against the prediction has a scale of zero, and one that rests so
often that the quantile is zero gets an interval of no width.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import intervals as kernels
from everlearn.support.errors import InvalidInputError, NotReadyError, given
from everlearn.support.pickling import shallow_copy
from everlearn.world_model.vectors import aligned_zeros

if TYPE_CHECKING:
    from everlearn.online.model import OnlineWorldModel

Doubles = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int64]

HORIZONS = (1, 2, 4, 8, 15)
"""Steps ahead whose errors are counted."""

BLOCK = 128
"""Transitions that are predicted with the same weights."""

FIRST_BLOCK = 4
"""Length of the first block; blocks double until they have `BLOCK`."""

STRIDE = 8
"""Transitions between two starts of a prediction over many steps."""

GRIDS = 64
"""Grids whose cells keep errors, at the most."""

REGIONS = 32
"""Regions with histograms of their own, at the most."""

LONGEST = 100.0
"""Visits of a cell from which on its errors weigh the less the older they are."""

REMEMBERED = 400.0
"""Scores that a histogram remembers."""

KNOWN = 2.0
"""Visits after which a cell's errors count as much as those of all places."""

BORROWED = 5.0
"""Scores of all regions that the histogram of one is mixed with."""

MOST_UNKNOWN = 15.0
"""Most that `unknown` counts: an interval is widened by four at the most."""

MOST = 1e30
"""Largest squared error that is counted: float32 holds its sums."""

CHUNK = 256
"""Predictions whose scales are computed together."""


class Interval(NamedTuple):
    """A prediction with bounds, each of the shape of the prediction.

    Attributes
    ----------
    mean
        What is predicted without bounds.
    low, high
        Bounds between which the truth lies as often as was asked for. Where they are equal, the
        observation is expected to be exactly the mean.
    """

    mean: FloatArray
    low: FloatArray
    high: FloatArray

    def covers(self, truth: FloatArray) -> npt.NDArray[np.bool_]:
        """Say of each number whether it lies within the bounds, which count as within."""
        rounded = np.asarray(truth).astype(self.mean.dtype)
        within: npt.NDArray[np.bool_] = (self.low <= rounded) & (rounded <= self.high)
        return within


def checked_share(interval: object) -> float:
    """Return the share of truths that bounds are to hold, or say what it must be."""
    number = isinstance(interval, (int, float)) and not isinstance(interval, bool)
    if not number or not 0 < interval < 1:  # type: ignore[operator]
        raise InvalidInputError(
            f"interval is {given(interval)}; expected the share of truths that the bounds are to "
            "hold, a number above 0 and below 1, such as 0.9"
        )
    return float(interval)  # type: ignore[arg-type]


def unknown(model: OnlineWorldModel, cells: Cells, values: FloatArray) -> float:
    """Return what the statistics do not know of an input: ``phi^T (A + r I)^-1 phi``, or nearly.

    The exact learner keeps the inverse. Elsewhere the diagonal of ``A`` has to do: with ``n`` the
    visits to the active cells of grids, this is::

        |phi|^2 / (r + n |phi|^2),    n = sum phi_k^2 A_kk / sum phi_k^4

    That is exact if all that was seen there had the same ``phi``, and if nothing was.
    """
    learner = model.learner
    if hasattr(learner, "variance"):
        return min(float(learner.variance(cells, values)), MOST_UNKNOWN)
    used = (values != 0) & (cells < model.grid_cells)
    cells, squares = cells[used], values[used].astype(np.float64) ** 2
    size = float(squares.sum())
    if size == 0:
        return 0.0
    known = learner.knows(cells)
    visits = float(squares[known] @ learner.visits(cells[known])) / float(squares @ squares)
    return min(size / (model.config.ridge + visits * size), MOST_UNKNOWN)


class _Before(NamedTuple):
    """Weights from before a block, in the place of a learner."""

    table: FloatArray
    vectors: tuple[int, ...]


class ErrorRecord:
    """What a model knows of its errors, and the bounds that follow from it.

    Parameters
    ----------
    model
        Whose errors these are; it must be complete, and is not kept.

    Attributes
    ----------
    scored
        Transitions whose errors were counted.
    squares, visits
        Of each cell that keeps errors: their mean squares ``[C, S]``, and how often it was active.
    usual, usual_count
        Mean squares ``[S]`` of all errors, and how many they are a mean of.
    centres, reach, counts
        Of each region: its centre, how far it reaches, and histograms ``[HORIZONS, S, BINS]``.
    everywhere
        Histograms of all regions together.
    block, block_unknown, filled, weights
        The transitions of the present block, what was unknown of each, how many there are, and the
        table of weights from before it; None before its first.
    """

    def __init__(self, model: OnlineWorldModel) -> None:
        encoding, inputs = model.encoding, model.inputs
        self.outputs = model.learner.outputs
        corners, cells = 2**encoding.grid_dim, encoding.bins**encoding.grid_dim
        grids = np.arange(0, encoding.features, -(-encoding.features // GRIDS))
        # Columns of encoded inputs that are corners of these grids, and their cells counted anew.
        self._columns = (grids[:, None] * corners + np.arange(corners)).ravel()
        self._shift = np.repeat((grids - np.arange(len(grids))) * cells, corners)
        self._cells = len(grids) * cells
        self.scored = 0
        self.usual: Doubles = np.zeros(self.outputs)
        self.usual_count = 0.0
        self.sizes = (inputs.observations, inputs.actions, inputs.observations, model.memory.size)
        self.read = inputs.read
        self.everywhere: FloatArray = np.zeros(
            (len(HORIZONS), self.outputs, kernels.BINS), np.float32
        )
        self.forget_places()

    def forget_places(self) -> None:
        """Forget what was known place by place: inputs are scaled otherwise from now on."""
        self.squares: FloatArray = np.zeros((self._cells, self.outputs), np.float32)
        self.visits: Doubles = np.zeros(self._cells)
        self.centres: Doubles = np.zeros((0, self.read))
        self.reach = 0.0
        self.counts: FloatArray = np.zeros((REGIONS, *self.everywhere.shape), np.float32)
        self.start_block(FIRST_BLOCK if not self.scored else BLOCK)

    def start_block(self, length: int) -> None:
        """Begin a block of so many transitions, with the weights that there will be."""
        self.block: list[Doubles] = [np.zeros((length, size)) for size in self.sizes]
        self.block_unknown: Doubles = np.zeros(length)
        self.filled = 0
        self.weights: FloatArray | None = None

    # Learning --------------------------------------------------------------------------

    def before(self, model: OnlineWorldModel, cells: Cells, values: FloatArray) -> None:
        """Keep what is needed of the model before it learns a transition with these cells."""
        learner = model.learner
        if not self.filled:
            self.weights = aligned_zeros(learner.table.shape, learner.table.dtype)
            self.weights[:] = learner.table
        if not hasattr(learner, "variance"):  # the exact learner computes it while it learns
            self.block_unknown[self.filled] = unknown(model, cells, values)

    def after(self, model: OnlineWorldModel, transition: Sequence[FloatArray]) -> None:
        """Keep a transition that was learned; a full block is counted."""
        for kept, part in zip(self.block, transition, strict=True):
            kept[self.filled] = part
        if hasattr(model.learner, "variance"):
            self.block_unknown[self.filled] = min(model.learner.unknown_before, MOST_UNKNOWN)
        self.filled += 1
        if self.filled == len(self.block_unknown):
            self._count(model)
            self.start_block(min(2 * self.filled, BLOCK))

    def _count(self, model: OnlineWorldModel) -> None:
        """Count the errors that the weights from before the block make in it."""
        assert self.weights is not None
        earlier = shallow_copy(model)
        earlier.learner = _Before(self.weights, model.learner.vectors)
        obs, action, next_obs, memory = self.block
        local = self._local(*model.encoding(model.inputs.assemble(obs, action, memory)))
        expected = self._expected(*local)
        widened = 1 + self.block_unknown
        regions = self._region_of(self._places(model, obs), add=True)

        dtype, size = model.dtype, self.outputs
        imagined = earlier._imagine(obs, action[:, None], memory)[:, 1, :size]
        errors = (next_obs.astype(dtype)[:, :size] - imagined).astype(np.float64)
        self._add_scores(0, regions, errors, np.sqrt(widened[:, None] * expected))
        self._count_ahead(earlier, regions, expected, widened)

        squares = np.minimum(np.nan_to_num(errors, nan=np.inf) ** 2, MOST)
        kernels.note_squares(self.squares, self.visits, LONGEST, *local, squares)
        for found in squares:
            self.usual_count = min(self.usual_count + 1, REMEMBERED)
            self.usual += (found - self.usual) / self.usual_count
        self.scored += len(squares)

    def _count_ahead(
        self, earlier: Any, regions: Cells, expected: Doubles, widened: Doubles
    ) -> None:
        """Count errors of predictions over several steps, from every few transitions on."""
        obs, action, next_obs, memory = self.block
        count, read = len(obs), self.read
        longest = min(HORIZONS[-1], count)
        # Steps from each transition on that follow one another without a break.
        goes_on = (next_obs[:-1, :read] == obs[1:, :read]).all(axis=1)
        ends, here = np.append(np.flatnonzero(~goes_on), count - 1), np.arange(count)
        unbroken = ends[np.searchsorted(ends, here)] - here + 1
        starts = np.arange(0, count, STRIDE)
        starts = starts[unbroken[starts] >= HORIZONS[1]]
        if not len(starts):
            return
        steps = np.minimum(starts[:, None] + np.arange(longest), count - 1)
        imagined = earlier._imagine(obs[starts], action[steps], memory[starts])
        # Observations that are not read count from 0 in every transition: they are summed up.
        truth = next_obs[steps]
        truth[:, :, read:] = obs[starts, None, read:] + np.cumsum(
            (next_obs - obs)[steps][:, :, read:], axis=1
        )
        along = np.cumsum(expected[steps], axis=1)
        for number, horizon in enumerate(HORIZONS):
            chosen = unbroken[starts] >= horizon
            if number == 0 or not chosen.any():
                continue
            size, last = self.outputs, horizon - 1
            right = truth[chosen, last, :size].astype(imagined.dtype)
            errors = (right - imagined[chosen, horizon, :size]).astype(np.float64)
            begun = starts[chosen]
            scales = np.sqrt(widened[begun, None] * along[chosen, last])
            self._add_scores(number, regions[begun], errors, scales)

    def _add_scores(self, number: int, regions: Cells, errors: Doubles, scales: Doubles) -> None:
        kernels.count_scores(self.counts[:, number], regions, REMEMBERED, errors, scales)
        everywhere = self.everywhere[None, number]
        kernels.count_scores(everywhere, np.zeros_like(regions), REMEMBERED, errors, scales)

    # Places ----------------------------------------------------------------------------

    def _local(self, cells: Cells, values: FloatArray) -> tuple[Cells, FloatArray]:
        """Those of the active cells that keep errors, ``[N, K]``, and their values."""
        return cells[:, self._columns] - self._shift, values[:, self._columns]

    def _expected(self, cells: Cells, values: FloatArray) -> Doubles:
        """Squared errors ``m(x)[N, S]`` that the cells let expect."""
        out = np.zeros((len(cells), self.outputs))
        kernels.expected_squares(self.squares, self.visits, self.usual, KNOWN, cells, values, out)
        return out

    def _places(self, model: OnlineWorldModel, obs: Doubles) -> Doubles:
        """Scaled observations that are read, which regions are regions of."""
        scaling, read = model.inputs.scaling, self.read
        return (obs[:, :read] - scaling.centre[:read]) * scaling.multiplier[:read]

    def _region_of(self, places: Doubles, *, add: bool) -> Cells:
        """Region of each place: the one with the nearest centre.

        With `add` a place that is further than the reach from all centres becomes one. If there
        are too many, the reach grows and neighbours become one region, histograms added.
        """
        if add:
            distances = self._distances(places).min(axis=1, initial=np.inf)
            while (distances > self.reach).any():
                place = places[int(np.argmax(distances > self.reach))]
                if len(self.centres) == REGIONS:
                    self._merge()
                self.centres = np.concatenate([self.centres, place[None]])
                distances = self._distances(places).min(axis=1)
        nearest: Cells = self._distances(places).argmin(axis=1)
        return nearest

    def _distances(self, places: Doubles) -> Doubles:
        """Distances ``[N, R]`` of places from the centres of regions."""
        # Imported here: a tenth of the time that commands take to start.
        from scipy.spatial.distance import cdist

        return np.asarray(cdist(places, self.centres), np.float64)

    def _merge(self) -> None:
        """Make room for a region: neighbours within the reach, which grows, become one."""
        gaps = self._distances(self.centres)
        np.fill_diagonal(gaps, np.inf)
        self.reach = max(1.2 * self.reach, float(gaps.min()))
        kept: list[int] = []
        counts = np.zeros_like(self.counts)
        for number in range(len(self.centres)):
            near = [k for k in kept if gaps[number, k] <= self.reach]
            if near:
                into = min(near, key=lambda k: gaps[number, k])
                counts[kept.index(into)] += self.counts[number]
            else:
                counts[len(kept)] = self.counts[number]
                kept.append(number)
        self.centres, self.counts = self.centres[kept], counts
        if len(kept) == REGIONS:
            self._merge()

    # Bounds ----------------------------------------------------------------------------

    def bounds(
        self,
        model: OnlineWorldModel,
        states: FloatArray,
        actions: Doubles,
        memory: Doubles,
        share: float,
    ) -> Interval:
        """Bounds of imagined ``states[N, H + 1, S]`` along ``actions[N, H, A]``.

        The first states are given, so their intervals have no width.
        """
        if not self.scored:
            raise NotReadyError(
                f"intervals need errors to go by, and the model has learned {model.steps} "
                f"transitions one by one; let it learn {FIRST_BLOCK} or more with learn first"
            )
        count, horizon = actions.shape[:2]
        quantiles = self._quantiles(share)
        given_states = states[:, 0].astype(np.float64)
        regions: Cells = np.zeros(count, np.int64)
        if len(self.centres):
            regions = self._region_of(self._places(model, given_states), add=False)
        widths = np.zeros(states.shape)
        for first in range(0, count, CHUNK):
            part = slice(first, first + CHUNK)
            scales = self._scales(model, states[part], actions[part], memory[part])
            along = np.stack([_between(quantiles[region], horizon) for region in regions[part]])
            widths[part, 1:, : self.outputs] = scales * along
        low, high = states - widths, states + widths
        if model.config.clip:
            low = np.minimum(np.maximum(low, model.inputs.low), states)
            high = np.maximum(np.minimum(high, model.inputs.high), states)
        return Interval(states, low.astype(model.dtype), high.astype(model.dtype))

    def _scales(
        self, model: OnlineWorldModel, states: FloatArray, actions: Doubles, memory: Doubles
    ) -> Doubles:
        """Scales ``[N, H, S]`` of the errors of imagined states, from the second on."""
        read = model.inputs.read
        expected = np.zeros((*actions.shape[:2], self.outputs))
        widened = np.ones(len(actions))
        for step in range(actions.shape[1]):
            here, action = states[:, step].astype(np.float64), actions[:, step]
            cells, values = model.encoding(model.inputs.assemble(here, action, memory))
            expected[:, step] = self._expected(*self._local(cells, values))
            if step == 0:
                opened = model.encoding.opened(values)
                for n, of_n in enumerate(opened):
                    widened[n] += unknown(model, cells[n, of_n], values[n, of_n])
            after = states[:, step + 1, :read].astype(np.float64)
            memory = np.asarray(model.memory.advance(memory, here[:, :read], action, after))
        scales: Doubles = np.sqrt(widened[:, None, None] * np.cumsum(expected, axis=1))
        return scales

    def _quantiles(self, share: float) -> Doubles:
        """Quantile of the scores in each region, for each horizon and output."""
        everywhere = self.everywhere.astype(np.float64)
        total = np.maximum(everywhere.sum(axis=2, keepdims=True), 1e-9)
        counts = self.counts + BORROWED * everywhere / total
        sums = np.cumsum(counts, axis=3)
        wanted = share * sums[..., -1:]
        place = np.minimum((sums < wanted).sum(axis=3, keepdims=True), kernels.BINS - 1)
        above = np.take_along_axis(sums, place, 3)
        inside = np.take_along_axis(counts, place, 3)
        part = 1 - (above - wanted) / np.maximum(inside, 1e-12)
        octaves = kernels.LEAST + (place - 1 + np.clip(part, 0.0, 1.0)) / kernels.OCTAVE
        found: Doubles = np.where(place == 0, 0.0, 2.0**octaves)[..., 0]
        # Nothing may be known so far ahead, as in short episodes: then as of fewer steps.
        for number in range(1, len(HORIZONS)):
            if not self.everywhere[number].any():
                found[:, number] = found[:, number - 1]
        return found


def _between(quantiles: Doubles, steps: int) -> Doubles:
    """Quantiles ``[steps, S]`` of every step ahead, from ``[HORIZONS, S]`` of some of them."""
    ahead = np.log(np.minimum(np.arange(1, steps + 1), HORIZONS[-1]))
    known = np.log(HORIZONS)
    return np.stack([np.interp(ahead, known, line) for line in quantiles.T], axis=1)
