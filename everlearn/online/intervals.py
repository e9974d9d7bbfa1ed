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
from scipy.spatial.distance import cdist

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import intervals as kernels
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.errors import InvalidInputError, NotReadyError, given
from everlearn.support.pickling import shallow_copy
from everlearn.world_model.vectors import aligned_zeros

if TYPE_CHECKING:
    from everlearn.online.model import OnlineWorldModel

Doubles = npt.NDArray[np.float64]
Cells = npt.NDArray[np.int64]
Arrays = dict[str, npt.NDArray[Any]]

HORIZONS = (1, 2, 4, 8, 15)
"""Steps ahead whose errors are counted."""

BLOCK = 512
"""Transitions that are predicted with the same weights."""

FIRST_BLOCK = 4
"""Length of the first block; blocks double until they have `BLOCK`."""

STRIDE = 8
"""Transitions between two starts of a prediction over many steps."""

GRIDS = 64
"""Grids whose cells keep errors, at the most."""

REGIONS = 48
"""Regions with histograms of their own, at the most."""

LONGEST = 200.0
"""Visits of a cell from which on its errors weigh the less the older they are."""

REMEMBERED = 400.0
"""Scores that a histogram remembers."""

KNOWN = 2.0
"""Visits after which a cell's errors count as much as those of all places."""

BORROWED = 5.0
"""Scores of all regions that the histogram of one is mixed with."""

MOST_UNKNOWN = 15.0
"""Most that `unknown` counts: an interval is widened by four at the most."""

CHUNK = 256
"""Predictions whose scales are computed together."""

PREFIX = "intervals/"
"""Of the names of arrays in a model's state."""

BLOCK_PARTS = ("obs", "action", "next_obs", "memory", "unknown")
"""What is kept of the transitions of a block."""


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
        self._usual_count = 0.0
        self._sizes = (inputs.observations, inputs.actions, inputs.observations, model.memory.size)
        self._read = inputs.read
        self._everywhere: FloatArray = np.zeros(
            (len(HORIZONS), self.outputs, kernels.BINS), np.float32
        )
        self.forget_places()

    def forget_places(self) -> None:
        """Forget what was known place by place: inputs are scaled otherwise from now on."""
        self.squares: FloatArray = np.zeros((self._cells, self.outputs), np.float32)
        self.visits: Doubles = np.zeros(self._cells)
        self.centres: Doubles = np.zeros((0, self._read))
        self.reach = 0.0
        self.counts: FloatArray = np.zeros((REGIONS, *self._everywhere.shape), np.float32)
        self._start_block(FIRST_BLOCK if not self.scored else BLOCK)

    def _start_block(self, length: int) -> None:
        self._block: list[Doubles] = [np.zeros((length, size)) for size in self._sizes]
        self._unknown: Doubles = np.zeros(length)
        self._filled = 0
        self._weights: FloatArray | None = None

    # Learning --------------------------------------------------------------------------

    def before(self, model: OnlineWorldModel, cells: Cells, values: FloatArray) -> None:
        """Keep what is needed of the model before it learns a transition with these cells."""
        learner = model.learner
        if self._weights is None:
            self._weights = aligned_zeros(learner.table.shape, learner.table.dtype)
            self._weights[:] = learner.table
        if not hasattr(learner, "variance"):  # the exact learner computes it while it learns
            self._unknown[self._filled] = unknown(model, cells, values)

    def after(self, model: OnlineWorldModel, transition: Sequence[FloatArray]) -> None:
        """Keep a transition that was learned; a full block is counted."""
        for kept, part in zip(self._block, transition, strict=True):
            kept[self._filled] = part
        if hasattr(model.learner, "variance"):
            self._unknown[self._filled] = min(model.learner.unknown_before, MOST_UNKNOWN)
        self._filled += 1
        if self._filled == len(self._unknown):
            self._count(model)
            self._start_block(min(2 * self._filled, BLOCK))

    def _count(self, model: OnlineWorldModel) -> None:
        """Count the errors that the weights from before the block make in it."""
        assert self._weights is not None
        earlier = shallow_copy(model)
        earlier.learner = _Before(self._weights, model.learner.vectors)
        obs, action, next_obs, memory = self._block
        local = self._local(*model.encoding(model.inputs.assemble(obs, action, memory)))
        expected = self._expected(*local)
        widened = 1 + self._unknown
        regions = self._region_of(self._places(model, obs), add=True)

        dtype, size = model.dtype, self.outputs
        imagined = earlier._imagine(obs, action[:, None], memory)[:, 1, :size]
        errors = (next_obs.astype(dtype)[:, :size] - imagined).astype(np.float64)
        self._add_scores(0, regions, errors, np.sqrt(widened[:, None] * expected))
        self._count_ahead(earlier, regions, expected, widened)

        squares = errors**2
        kernels.note_squares(self.squares, self.visits, LONGEST, *local, squares)
        for found in squares:
            self._usual_count = min(self._usual_count + 1, REMEMBERED)
            self.usual += (found - self.usual) * 2 / (self._usual_count + 1)
        self.scored += len(squares)

    def _count_ahead(
        self, earlier: Any, regions: Cells, expected: Doubles, widened: Doubles
    ) -> None:
        """Count errors of predictions over several steps, from every few transitions on."""
        obs, action, next_obs, memory = self._block
        count, read = len(obs), self._read
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
        everywhere = self._everywhere[None, number]
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
        scaling, read = model.inputs.scaling, self._read
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
        everywhere = self._everywhere.astype(np.float64)
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
        return found

    # Keeping ---------------------------------------------------------------------------

    def state(self, *, learning: bool = True) -> tuple[Arrays, dict[str, Any]]:
        """Everything, for `restore`; without `learning` what bounds need, and no block."""
        arrays: Arrays = {
            "squares": self.squares.copy(),
            "visits": self.visits.copy(),
            "usual": self.usual.copy(),
            "centres": self.centres.copy(),
            "counts": self.counts[: len(self.centres)].copy(),
            "everywhere": self._everywhere.copy(),
        }
        meta: dict[str, Any] = {
            "scored": self.scored,
            "usual_count": self._usual_count,
            "reach": self.reach,
            "block": len(self._unknown),
        }
        if learning:
            kept = zip(BLOCK_PARTS, (*self._block, self._unknown), strict=True)
            arrays |= {name: part[: self._filled].copy() for name, part in kept}
            if self._weights is not None:
                rows = np.flatnonzero(self._weights.any(axis=1))
                arrays |= {"rows": rows, "weights": self._weights[rows]}
        return {PREFIX + name: array for name, array in arrays.items()}, meta

    def check(self, arrays: Arrays, meta: Any, model: OnlineWorldModel) -> None:
        """Refuse a state that does not fit: the compiled kernels trust every index."""
        found = part_of(arrays, PREFIX)
        if not isinstance(meta, dict):
            raise InvalidInputError(f"'intervals' of a state are {given(meta)}; not usable")
        regions = len(np.atleast_1d(found.get("centres", ())))
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            "squares": ("f", self.squares.shape),
            "visits": ("f", self.visits.shape),
            "usual": ("f", self.usual.shape),
            "centres": ("f", (regions, self._read)),
            "counts": ("f", (regions, *self._everywhere.shape)),
            "everywhere": ("f", self._everywhere.shape),
        }
        filled = len(np.atleast_1d(found.get("obs", ())))
        if "obs" in found:
            widths: list[tuple[int, ...]] = [*((size,) for size in self._sizes), ()]
            expected |= {
                name: ("f", (filled, *width))
                for name, width in zip(BLOCK_PARTS, widths, strict=True)
            }
        table = model.learner.table
        if "rows" in found:
            rows = len(np.atleast_1d(found["rows"]))
            expected |= {"rows": ("i", (rows,)), "weights": ("f", (rows, table.shape[1]))}
        check_arrays(found, expected)
        if "rows" in found and not (
            (found["rows"] >= 0).all() and (found["rows"] < len(table)).all()
        ):
            raise InvalidInputError("'intervals/rows' of a state are no cells of the encoding")
        whole: dict[str, Any] = {name: meta.get(name) for name in ("scored", "block")}
        numbers: dict[str, Any] = {name: meta.get(name) for name in ("usual_count", "reach")}
        if (
            any(type(value) is not int or value < 0 for value in whole.values())
            or any(type(value) not in (int, float) or value < 0 for value in numbers.values())
            or not max(filled, 1) <= whole["block"] <= BLOCK
            or (filled and filled == whole["block"])
            or bool(filled) != ("rows" in found)
            or not regions <= REGIONS
            or bool(regions) > bool(whole["scored"])
            or not all(
                np.isfinite(part).all() and (part >= 0).all()
                for part in (
                    found[name] for name in ("squares", "visits", "usual", "counts", "everywhere")
                )
            )
        ):
            raise InvalidInputError(
                f"'intervals' of a state say {whole | numbers}, with {regions} regions and "
                f"{filled} transitions of a block; not usable"
            )

    def restore(self, arrays: Arrays, meta: dict[str, Any], model: OnlineWorldModel) -> None:
        """Take over what `state` returned, after `check`."""
        found = {name: array.copy() for name, array in part_of(arrays, PREFIX).items()}
        self.squares = found["squares"].astype(np.float32)
        self.visits = found["visits"].astype(np.float64)
        self.usual = found["usual"].astype(np.float64)
        self._everywhere = found["everywhere"].astype(np.float32)
        self.centres = found["centres"].astype(np.float64)
        self.counts = np.zeros((REGIONS, *self._everywhere.shape), np.float32)
        self.counts[: len(self.centres)] = found["counts"]
        self.scored, self.reach = meta["scored"], float(meta["reach"])
        self._usual_count = float(meta["usual_count"])
        self._start_block(meta["block"])
        if "rows" in found:
            self._filled = len(found["obs"])
            for part, name in zip((*self._block, self._unknown), BLOCK_PARTS, strict=True):
                part[: self._filled] = found[name]
            table = model.learner.table
            self._weights = aligned_zeros(table.shape, table.dtype)
            self._weights[found["rows"]] = found["weights"]


def _between(quantiles: Doubles, steps: int) -> Doubles:
    """Quantiles ``[steps, S]`` of every step ahead, from ``[HORIZONS, S]`` of some of them."""
    ahead = np.log(np.minimum(np.arange(1, steps + 1), HORIZONS[-1]))
    known = np.log(HORIZONS)
    return np.stack([np.interp(ahead, known, line) for line in quantiles.T], axis=1)
