"""What rests, what moves together and what touches it, counted from transitions.

Nothing is declared by the environment: entries of the observation are numbers without a meaning.

    rest      an entry that most steps leave as it is, or that lies still when episodes begin
    object    resting entries that mostly move in the same steps, as connected components
    touch     an entry whose distance to the object, or whose own value, is nearly the same
              whenever the object begins to move after a rest

Memory is bounded: counts of pairs of entries, the last `ONSETS` beginnings of motion of each, and
a sample of all observations that is thinned out as time goes by. Nothing is drawn at random, so
that counting changes no action of an agent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray, State
from everlearn.support.archive import check_arrays
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.structure import MAX_FOUND, FoundObject, RestingEntry, Structure, Touch

WIDEST = 1e6
"""Bounds further apart say nothing of an entry's unit."""

BEYOND = 1e100
"""Of an entry with such a range nothing is told: sums of its squares would not be finite."""

STILL = 1e-5
"""Change in a step, in units of an entry, up to which it has not changed."""

MOVED = 1e-3
"""Change in a step, in units of an entry, from which on it moves: not a tremble."""

GROWTH = 2.0
"""A range that grows by this factor makes what counted as a change before meaningless."""

REST = 5
"""Steps without motion after which an object lies still, and can begin to move."""

OFTEN, EPISODES, START = 0.1, 5, 15
"""Share of still steps, episodes, and the step of an episode, by which one tells what begins at
rest: a skilled agent may move a thing in most steps, and what moves by itself is hardly ever
still."""

TOGETHER = 0.5
"""Share of the steps with motion of one of two entries, from which on they are one object."""

ENOUGH_STEPS, ENOUGH_MOVES, ENOUGH_ONSETS = 100, 3, 8
"""Steps to judge rest by, common moves to judge an object by, onsets to judge a touch by."""

CLOSE = 0.6
"""Largest spread of a touch, as a share of the usual spread."""

ALIKE, SLOPES = 0.5, (0.5, 2.0)
"""Correlation and slope of the changes of two entries that are of one kind: of one axis, in one
unit. What touches a thing moves along with it."""

FURTHER = 1.25
"""A distance may vary this much more than the place itself, and still be what is told."""

ONSETS, SAMPLE, REVIEW = 32, 256, 100
"""Beginnings of motion kept of each entry, observations kept, and steps between two reviews."""

MOST_ENTRIES = 128
"""Entries above which only rest is counted: pairs would need too much memory."""

Mask = npt.NDArray[np.bool_]


class StructureCounter:
    """Counts what transitions say about the entries of an observation.

    Parameters
    ----------
    low, high
        Bounds of an observation, infinite where there are none. The width between them is the
        unit of an entry; without it, or where it is beyond all measure, the range seen is.

    Attributes
    ----------
    steps
        Transitions counted.
    """

    def __init__(self, low: npt.NDArray[Any], high: npt.NDArray[Any]) -> None:
        entries = len(low)
        self.entries, self.steps = entries, 0
        with np.errstate(over="ignore"):
            width = np.asarray(high, np.float64) - np.asarray(low, np.float64)
        self._bounded = np.where((width >= 0) & (width <= WIDEST), width, 0.0)
        self._pairs = paired = entries if entries <= MOST_ENTRIES else 0
        whole, number = np.int64, np.float64
        self._arrays: dict[str, npt.NDArray[Any]] = {
            "last": np.full(entries, np.nan),
            "low": np.full(entries, np.inf),
            "high": np.full(entries, -np.inf),
            "range": self._bounded.copy(),
            "counted": np.zeros(entries, whole),
            "still": np.zeros(entries, whole),
            "begun": np.zeros(entries, whole),
            "calm": np.zeros(entries, whole),
            "smallest": np.full(entries, np.inf),
            "resting": np.zeros(entries, np.bool_),
            "quiet": np.zeros(entries, whole),
            "settled": np.zeros(entries, np.bool_),
            "object": np.arange(entries),
            "began": np.zeros(entries, whole),
            "moves": np.zeros((paired, paired), whole),
            "together": np.zeros((paired, paired), whole),
            "products": np.zeros((paired, paired), number),
            "squares": np.zeros((paired, paired), number),
            "onset_steps": np.full((paired, ONSETS), -1),
            "onsets": np.zeros((paired, ONSETS, entries), number),
            "sample": np.zeros((SAMPLE if paired else 0, entries), number),
        }
        self._kept, self._every, self._since = 0, 1, 0
        self._name_arrays()

    def _name_arrays(self) -> None:
        arrays = self._arrays
        self._last, self._low, self._high = (arrays[name] for name in ("last", "low", "high"))
        self._range, self._counted, self._still = (
            arrays[name] for name in ("range", "counted", "still")
        )
        self._begun, self._calm = arrays["begun"], arrays["calm"]
        self._smallest, self._resting = arrays["smallest"], arrays["resting"]
        self._quiet, self._settled = arrays["quiet"], arrays["settled"]
        self._object, self._began = arrays["object"], arrays["began"]
        self._moves, self._together = arrays["moves"], arrays["together"]
        self._products, self._squares = arrays["products"], arrays["squares"]
        self._onset_steps, self._onsets = arrays["onset_steps"], arrays["onsets"]
        self._sample = arrays["sample"]

    # Counting --------------------------------------------------------------------------

    def observe(self, obs: FloatArray, next_obs: FloatArray) -> None:
        """Count a transition; one that does not follow the last one begins an episode."""
        if not np.array_equal(obs, self._last):
            # What still falls into place after a reset was moved by nobody.
            self._quiet[:] = 0
            self._settled[:] = False
            self._since = 0
            np.minimum(self._low, obs, out=self._low)
            np.maximum(self._high, obs, out=self._high)
        np.minimum(self._low, next_obs, out=self._low)
        np.maximum(self._high, next_obs, out=self._high)
        self._last[:] = next_obs
        with np.errstate(over="ignore"):
            change = np.abs(next_obs - obs)
            width = np.maximum(self._high - self._low, self._bounded)
        grown = width / GROWTH > self._range
        if grown.any():
            self._forget(grown, width)
        self._counted += 1
        moved = change > MOVED * width
        self._still += change <= STILL * width
        np.minimum(self._smallest, change, out=self._smallest, where=moved)
        if self._pairs:
            self._count_motion(obs, next_obs, moved)
        self._quiet += 1
        self._quiet[moved] = 0
        self._settled |= self._quiet >= REST
        self._since += 1
        if self._since == START:
            self._begun += 1
            self._calm += self._settled
        self.steps += 1
        if self.steps % REVIEW == 0:
            self._review()

    def _forget(self, grown: Mask, width: FloatArray) -> None:
        """Count anew the entries whose range has grown: earlier changes were a tremble."""
        self._range[grown] = width[grown]
        for counts in (self._counted, self._still, self._begun, self._calm):
            counts[grown] = 0
        self._smallest[grown] = np.inf
        self._resting[grown] = False

    def _count_motion(self, obs: FloatArray, next_obs: FloatArray, moved: Mask) -> None:
        if self.steps % self._every == 0:
            self._keep(obs)
        moving = np.flatnonzero(moved & self._resting & self._settled)
        if len(moving):
            self._moves[moving] += 1
            self._together[np.ix_(moving, moving)] += 1
            with np.errstate(over="ignore", invalid="ignore"):
                change = next_obs - obs
                self._products[moving] += change[moving, None] * change
                self._squares[moving] += change * change
            for thing in set(self._object[moving].tolist()):
                members = np.flatnonzero(self._object == thing)
                if self._quiet[members].min() >= REST:
                    slots = self._began[members] % ONSETS
                    self._onsets[members, slots] = obs
                    self._onset_steps[members, slots] = self.steps
                    self._began[members] += 1

    def _keep(self, obs: FloatArray) -> None:
        """Keep an observation; a full sample keeps every other one from now on."""
        if self._kept == SAMPLE:
            self._sample[: SAMPLE // 2] = self._sample[::2].copy()
            self._kept, self._every = SAMPLE // 2, 2 * self._every
            if self.steps % self._every:
                return
        self._sample[self._kept] = obs
        self._kept += 1

    def _review(self) -> None:
        """Judge anew which entries rest, and which of them are one object."""
        begins_calm = (self._begun >= EPISODES) & (2 * self._calm > self._begun)
        resting = 2 * self._still > self._counted
        resting |= begins_calm & (self._still > OFTEN * self._counted)
        resting &= (self._counted >= ENOUGH_STEPS) & (self._range < BEYOND)
        begins = resting & ~self._resting
        self._resting[:] = resting
        if not self._pairs:
            return
        if begins.any():  # counts of a pair are of the steps in which both rested
            for counts in (self._moves, self._together, self._products, self._squares):
                counts[begins] = 0
                counts[:, begins] = 0
            self._began[begins] = 0
            self._onset_steps[begins] = -1
        both = self._together
        usual = np.sqrt(self._moves * self._moves.T)
        linked = (both >= ENOUGH_MOVES) & (both >= TOGETHER * usual)
        linked &= resting & resting[:, None]
        np.fill_diagonal(linked, True)
        thing = np.arange(self.entries)
        while True:  # the smallest number spreads along links
            spread = np.where(linked, thing, self.entries).min(axis=1)
            if np.array_equal(spread, thing):
                break
            thing = spread
        self._object[:] = thing

    # Findings --------------------------------------------------------------------------

    def still(self) -> FloatArray:
        """Return the smallest motion of each entry that rests: less is a tremble; 0 of others."""
        with np.errstate(over="ignore", invalid="ignore"):
            width = np.maximum(self._high - self._low, self._bounded)
        return np.where(self._resting, MOVED * width, 0.0)

    def structure(self, names: Sequence[str] | None = None) -> Structure:
        """Return what was found; entries without names are called by their numbers."""
        called = [str(entry) for entry in range(self.entries)] if names is None else list(names)
        if len(called) != self.entries:
            raise InvalidInputError(
                f"{len(called)} names were given for {self.entries} entries; give one for each"
            )
        resting = tuple(
            RestingEntry(
                entry,
                called[entry],
                float(self._still[entry] / self._counted[entry]),
                float(self._smallest[entry]) if np.isfinite(self._smallest[entry]) else None,
            )
            for entry in np.flatnonzero(self._resting)[:MAX_FOUND].tolist()
        )
        things = dict.fromkeys(self._object[self._resting & (self._began > 0)].tolist())
        objects = []
        for thing in things:
            members = np.flatnonzero((self._object == thing) & self._resting)
            began = int(self._began[members].max())
            if began >= ENOUGH_MOVES:
                entries = tuple(members.tolist())
                words = tuple(called[entry] for entry in entries)
                touches = self._touches(entries, called) if began >= ENOUGH_ONSETS else ()
                objects.append(FoundObject(entries, words, began, touches))
        return Structure(self.steps, resting, tuple(objects))

    def _touches(self, members: tuple[int, ...], called: list[str]) -> tuple[Touch, ...]:
        steps = self._onset_steps[list(members)].ravel()
        onsets = self._onsets[list(members)].reshape(-1, self.entries)
        _, first = np.unique(steps, return_index=True)
        at = onsets[[place for place in first if steps[place] >= 0][-ONSETS:]]
        sample = self._sample[: self._kept]
        found = []
        usable = (self._high > self._low) & (self._range < BEYOND)
        free = np.flatnonzero(~self._resting & usable).tolist()
        alike = np.array([[self._likeness(beside, entry) for beside in members] for entry in free])
        for row, entry in enumerate(free):
            own = _spread(at[:, entry])
            column = int(alike[row].argmax())
            nearest = members[column]
            # Both ways: of the entries that move alike, each has one of its own kind.
            kin = alike[row, column] >= max(ALIKE, alike[:, column].max())
            if not kin or _spread(at[:, entry] - at[:, nearest]) > FURTHER * own:
                values, usual, beside_name, beside = at[:, entry], sample[:, entry], "", None
            else:
                values = at[:, entry] - at[:, nearest]
                usual = sample[:, entry] - sample[:, nearest]
                beside_name, beside = called[nearest], nearest
            spread = _spread(values)
            share = _share(spread, usual)
            if share <= CLOSE:
                offset = float(np.median(values))
                found.append(
                    Touch(entry, called[entry], beside, beside_name, offset, spread, share)
                )
        return tuple(sorted(found, key=lambda touch: touch.share))

    def _likeness(self, moved: int, other: int) -> float:
        """Correlation of the changes of two entries while one moves; 0 if one changes far more."""
        product, squares = self._products[moved, other], self._squares[moved]
        if not (np.isfinite(product) and 0 < squares[other] < np.inf and squares[moved] < np.inf):
            return 0.0
        if not SLOPES[0] <= product / squares[other] <= SLOPES[1]:
            return 0.0
        return float(product / np.sqrt(squares[other]) / np.sqrt(squares[moved]))

    # Keeping ---------------------------------------------------------------------------

    def state(self) -> State:
        """Everything counted: arrays and facts that JSON can hold."""
        meta = {"steps": self.steps, "kept": self._kept, "every": self._every}
        return dict(self._arrays), {**meta, "since": self._since}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        expected = {name: (own.dtype.kind, own.shape) for name, own in self._arrays.items()}
        check_arrays(arrays, expected)
        for name, least, most in (
            *(("steps", 0, None), ("kept", 0, SAMPLE)),
            *(("every", 1, None), ("since", 0, None)),
        ):
            check_whole(name, meta[name], least, most)
        things = arrays["object"]
        if (things < 0).any() or (things >= self.entries).any() or (arrays["counted"] < 0).any():
            raise InvalidInputError("a state of a structure names entries that are not there")
        self._arrays = {
            name: np.array(array, self._arrays[name].dtype) for name, array in arrays.items()
        }
        self._name_arrays()
        self.steps, self._kept = int(meta["steps"]), int(meta["kept"])
        self._every, self._since = int(meta["every"]), int(meta["since"])


def _spread(values: FloatArray) -> float:
    """Half the width of the middle two thirds: the standard deviation of a normal variable."""
    low, high = np.percentile(values, (16, 84))
    return float(high - low) / 2


def _share(spread: float, usual: FloatArray) -> float:
    """Return a spread as a share of the usual one; 1 where that is nothing."""
    whole = _spread(usual)
    return spread / whole if whole > 0 else 1.0
