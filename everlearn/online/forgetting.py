"""Forgetting where the world has changed, and only there.

Follow-The-Leader weighs all evidence alike, which is right as long as the world stays as it is.
`ForgettingLearner` stands in for a learner of this package and does three things more:

**Notice.** Each cell knows how well outputs were predicted when it was active: a running mean of
squared errors. So a sample has an error that is to be expected from its cells, and ``z`` is the
error that it has, in units of it. Sums of ``z - 3`` that do not fall below zero (CUSUM) pass
`surprise` where errors are larger than they were in the same cells, for many steps in a row; errors
in cells that are new say nothing.

**Fade.** While an output is surprising, evidence about the cells ``s`` that were active fades by a
factor ``k``: a share ``k`` of it stays what it was, and in the rest the weights of ``s`` are taken
for given::

    A_ss, A_si <- k A_ss, k A_si        B_s <- k B_s,    B_i <- B_i - (1 - k) A_is W_s

The residual of all other cells ``i`` does not change: they forget nothing. The exact learner keeps
``P = (A + r I)^-1``, the covariance of the weights in units of the noise. There the weights of
``s`` may have moved, each on its own: ``P_cc <- P_cc + (1 - k) WALK / r`` for ``c`` in ``s``. Cells
that are active everywhere, as those of a linear part, keep what they know.

**Remember.** Before anything fades the learner is stored. If a stored one predicts recent steps
better than the present one, it takes its place at once: an old world has come back. Stored learners
go on learning from whatever fits them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.online.kernels import forgetting as kernels
from everlearn.online.recursive import RecursiveLearner
from everlearn.online.ridge import RidgeLearner
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.errors import InvalidInputError

Cells = npt.NDArray[np.int64]
Doubles = npt.NDArray[np.float64]
Learner = RidgeLearner | RecursiveLearner

FLOOR = 0.02
"""Share of an output's mean square that an error may always have."""

ALLOWED, LARGEST = 3.0, 10.0
"""``z`` above which a step counts as surprising, and the most that it counts."""

KNOWN = 4.0
"""Visits after which half of a cell's error is known."""

LONGEST = 400.0
"""Visits over which a cell averages its errors."""

WALK = 0.002
"""How far the weights of a cell move that forgets all, in variances of a weight that is unknown."""

EVERY = 20
"""Surprising steps after which evidence fades."""

CLEAR = 50.0
"""Largest error of an output that counts where learners are compared, in units of `FLOOR`."""

COMPARED = 20.0
"""Steps over which the errors of stored learners are compared with the present one's."""

BETTER = 0.5
"""A stored learner takes over if its errors are smaller than the present ones by this factor."""


def fade(learner: Learner, cells: Cells, keep: float) -> None:
    """Let the evidence about `cells`, which are in use, fade to a share `keep`."""
    if isinstance(learner, RecursiveLearner):
        _fade_inverse(learner, cells, keep)
    else:
        _fade_statistics(learner, cells, keep)


def _fade_statistics(learner: RidgeLearner, cells: Cells, keep: float) -> None:
    statistics = learner.statistics
    used = statistics.used
    chosen = np.zeros(used, np.bool_)
    chosen[statistics.position_of[cells]] = True
    weights = learner.weights[statistics.cells, : learner.outputs].astype(np.float64)
    statistics.targets[:used][chosen] *= keep
    kernels.fade_rows(statistics.tiles, used, chosen, weights, keep, statistics.targets)
    learner.forget_previous()


def _fade_inverse(learner: RecursiveLearner, cells: Cells, keep: float) -> None:
    learner.fold()
    positions = learner.admit(cells)
    learner.inverse[positions, positions] += (1 - keep) * WALK / learner.ridge


class ForgettingLearner:
    """A learner that notices changes, forgets where they are, and knows worlds that were before.

    Parameters
    ----------
    present
        What learns now.
    empty
        Makes another learner like it that has learned nothing.
    local
        Cells that are active in some places only: the first ones. What is active everywhere says
        nothing about where the world has changed, and keeps its evidence.
    worlds
        Most learners in all.
    surprise
        Sum of surprising errors from which on an output has changed.
    fading
        What a surprising step leaves of the evidence about its cells.

    Attributes
    ----------
    present
        The learner of the present world.
    stored
        Those of other worlds, the oldest first.
    changes, returns
        How often a change was noticed, and how often it was the return of a stored world.
    """

    def __init__(
        self,
        present: Learner,
        empty: Any,
        *,
        local: int,
        worlds: int,
        surprise: float,
        fading: float,
    ) -> None:
        self.present, self._empty = present, empty
        self._local = local
        self._worlds, self._surprise, self._fading = worlds, surprise, fading
        self.stored: list[Learner] = []
        self.changes = self.returns = 0
        cells, outputs = present.cells, present.outputs
        # Of each cell and output: squared errors, and the visits they are a mean of.
        self._errors: FloatArray = np.zeros((cells, outputs), np.float32)
        self._visits: Doubles = np.zeros(cells)
        self._squares: Doubles = np.zeros(outputs)
        self._sums: Doubles = np.zeros(outputs)
        self._compared: Doubles = np.zeros(worlds)
        self._surprised = 0
        self._suspects: Cells = np.zeros(cells, np.int64)

    def __getattr__(self, name: str) -> Any:
        if name == "present":  # while it is being made or copied
            raise AttributeError(name)
        return getattr(self.present, name)

    @property
    def surprising(self) -> bool:
        """Whether some output is not predicted as it used to be."""
        return bool((self._sums > self._surprise).any())

    def learn(self, cells: Cells, values: FloatArray, target: Doubles) -> None:
        """Take in one sample, after a look at how surprising it is."""
        shares = values.astype(np.float64) ** 2
        error = self._error(self.present, cells, values, target)
        expected, known = self._expected(cells, shares)
        self._take_note(cells, shares, error, target)
        before = self.surprising
        z = np.minimum(error**2 / expected, LARGEST)
        self._sums = np.clip(self._sums + known * (z - ALLOWED), 0.0, 2.0 * self._surprise)
        if self.stored:
            self._compare(cells, values, target)
        if not self._returned() and self.surprising and not before:
            self.changes += 1
            self._store()
        if self.surprising:
            self._suspects[cells] += 1
            self._surprised += 1
            if self._surprised % EVERY == 0:
                self._fade_suspects()
        self.present.learn(cells, values, target)
        for other in self.stored:
            fits = self._error(other, cells, values, target) ** 2 <= ALLOWED * self._unit
            if fits.all():
                other.add(cells[None], values[None], target[None])

    def _error(
        self, learner: Learner, cells: Cells, values: FloatArray, target: Doubles
    ) -> Doubles:
        weights = learner.weights[cells, : learner.outputs]
        return target - values.astype(np.float64) @ weights

    @property
    def _unit(self) -> Doubles:
        """Squared error that each output may always have."""
        unit: Doubles = FLOOR * self._squares / max(self.present.samples, 1) + 1e-12
        return unit

    def _expected(self, cells: Cells, shares: Doubles) -> tuple[Doubles, float]:
        """Squared error that the cells let expect of each output, and how well they know it."""
        visits = self._visits[cells]
        known = float(shares @ (visits / (visits + KNOWN)) / shares.sum())
        weights = shares * visits
        mean = weights @ self._errors[cells] / max(float(weights.sum()), 1e-9)
        return mean + self._unit, known

    def _take_note(self, cells: Cells, shares: Doubles, error: Doubles, target: Doubles) -> None:
        self._visits[cells] = np.minimum(self._visits[cells] + shares, LONGEST)
        # A linear part has values far above 1: one sample is at most half of the mean.
        rates = np.minimum(shares / np.maximum(self._visits[cells], 1e-9), 0.5)[:, None]
        self._errors[cells] += (rates * (error**2 - self._errors[cells])).astype(np.float32)
        self._squares += target**2

    def _compare(self, cells: Cells, values: FloatArray, target: Doubles) -> None:
        """Keep the recent errors of all learners, in units of what may always be wrong."""
        unit = self._unit
        for number, learner in enumerate([self.present, *self.stored]):
            error = self._error(learner, cells, values, target)
            found = np.minimum(error**2 / unit, CLEAR).sum()
            self._compared[number] += (found - self._compared[number]) / COMPARED

    def _returned(self) -> bool:
        """Take up a stored learner if it predicts the present better, and store the present one."""
        errors = self._compared[1 : 1 + len(self.stored)]
        present = self._compared[0]
        if not len(errors) or present < ALLOWED or errors.min() >= BETTER * present:
            return False
        best = int(np.argmin(errors))
        self.returns += 1
        self.present, self.stored[best] = self.stored[best], self.present
        self.present.solve()
        self._sums[:] = 0.0  # nothing is to fade: this world is known
        self._start_over()
        return True

    def _store(self) -> None:
        """Keep the present learner as it is, before anything fades; the oldest one may go."""
        copy: Learner = self._empty()
        copy.restore(*self.present.state())
        self.stored.append(copy)
        del self.stored[: max(0, len(self.stored) - (self._worlds - 1))]
        self._start_over()

    def _start_over(self) -> None:
        self._compared[:] = 0.0
        self._suspects[:] = 0
        self._surprised = 0

    def _fade_suspects(self) -> None:
        """Let evidence fade in the cells that were active in surprising steps."""
        cells = np.flatnonzero(self._suspects[: self._local])
        fade(self.present, cells, self._fading**EVERY)
        self._suspects[:] = 0

    # What a model does with a learner ----------------------------------------------------

    def add(self, cells: Cells, values: FloatArray, targets: Doubles) -> None:
        """Take in samples of the present world; none of them is surprising."""
        self.present.add(cells, values, targets)

    def admit(self, cells: Cells) -> Any:
        """Make room for `cells`."""
        return self.present.admit(cells)

    def solve(self) -> None:
        """Set the weights to the exact ridge solution of the present world."""
        self.present.solve()

    @property
    def ARRAYS(self) -> tuple[str, ...]:  # noqa: N802  (the name that all learners have)
        """Names of what `state` returns."""
        stored = [
            f"world{number}/{name}"
            for number in range(self._worlds)
            for name in self.present.ARRAYS
        ]
        return (*self.present.ARRAYS, *stored, *_OWN)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, for `restore`: arrays and JSON facts."""
        arrays, meta = self.present.state()
        counts = []
        for number, learner in enumerate(self.stored):
            found, facts = learner.state()
            arrays |= {f"world{number}/{name}": array for name, array in found.items()}
            counts.append(facts)
        own = (self._errors, self._visits, self._squares, self._sums, self._compared)
        arrays |= dict(zip(_OWN, (*own, self._suspects), strict=True))
        facts = {
            "stored": counts,
            "changes": self.changes,
            "returns": self.returns,
            "surprised": self._surprised,
        }
        return {name: array.copy() for name, array in arrays.items()}, meta | {"forgetting": facts}

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        facts = meta.get("forgetting")
        if not isinstance(facts, dict) or not isinstance(facts.get("stored"), list):
            raise InvalidInputError(
                "the state was saved by a model that does not forget; set model.worlds to 1"
            )
        if len(facts["stored"]) >= self._worlds:
            raise InvalidInputError(
                f"the state has {len(facts['stored'])} stored worlds, more than model.worlds"
            )
        cells, outputs = self.present.cells, self.present.outputs
        shapes = ((cells, outputs), (cells,), (outputs,), (outputs,), (self._worlds,))
        expected: dict[str, tuple[str, tuple[int, ...]]] = {
            name: ("f", shape) for name, shape in zip(_OWN, shapes, strict=False)
        }
        own = {name: arrays[name] for name in _OWN if name in arrays}
        check_arrays(own, {**expected, _OWN[-1]: ("i", (cells,))})
        present, stored = self._empty(), []
        present.restore(self._of(arrays, ""), meta)
        for number, counts in enumerate(facts["stored"]):
            other = self._empty()
            other.restore(self._of(arrays, f"world{number}/"), counts)
            stored.append(other)
        self.present, self.stored = present, stored
        self._errors, self._visits, self._squares, self._sums, self._compared = (
            own[name].copy() for name in _OWN[:-1]
        )
        self._suspects = own[_OWN[-1]].copy()
        self.changes, self.returns, self._surprised = (
            int(facts[name]) for name in ("changes", "returns", "surprised")
        )

    def _of(self, arrays: dict[str, npt.NDArray[Any]], prefix: str) -> dict[str, npt.NDArray[Any]]:
        found = part_of(arrays, prefix) if prefix else arrays
        return {name: array for name, array in found.items() if name in self.present.ARRAYS}


_OWN = tuple(
    f"forgetting/{name}" for name in ("errors", "visits", "squares", "sums", "compared", "suspects")
)
