"""What an agent does when its plan gets it nowhere: it moves elsewhere for a moment.

A plan made in a model that is wrong here can go in circles, or keep away from a place where
something went wrong once; a model that has stopped learning cannot find out. So an agent that
has seen no better reward for `patience` steps moves in one random direction for a few, and
plans again from there. If what it moves lags behind where it was told to be (a hand that presses
against something), a burst goes from where it is: the lag is taken back on the way. It needs no
knowledge of the task, and while a task goes well, so that rewards rise, it never happens.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.support.checks import check_number
from everlearn.support.errors import InvalidInputError


class Patience:
    """Counts steps without progress and replaces planned actions when there are too many.

    Parameters
    ----------
    low, high
        Bounds of the actions.
    patience
        Steps without progress before a burst; 0 never begins one.
    burst
        Steps of the longest burst; its length is drawn between half of that and all.
    moved
        Entries of the action that a burst sets; the others stay as planned.
    seed
        Of its own generator.
    progress
        Gain in reward that counts as progress.
    """

    def __init__(
        self,
        low: npt.NDArray[Any],
        high: npt.NDArray[Any],
        patience: int,
        burst: int,
        moved: tuple[int, ...],
        seed: int | np.random.SeedSequence,
        progress: float = 0.002,
    ) -> None:
        check_number("progress", progress, 0.0, math.inf)
        for name, value, least in (("patience", patience, 0), ("burst", burst, 1)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise InvalidInputError(f"{name} is {value!r}; expected a whole number >= {least}")
        self.patience, self.burst, self.progress = patience, burst, float(progress)
        self.bursts = 0
        self._low, self._high = np.asarray(low, np.float64), np.asarray(high, np.float64)
        self._moved = np.array(moved, np.int64)
        self._generator = np.random.default_rng(seed)
        self.begin_episode()

    def spawn(self, seed: int | np.random.SeedSequence) -> Patience:
        """Return a fresh one with the same settings and a generator of its own."""
        moved = tuple(int(i) for i in self._moved)
        return Patience(
            self._low, self._high, self.patience, self.burst, moved, seed, self.progress
        )

    def begin_episode(self) -> None:
        """Start counting anew; the generator goes on."""
        self._best = -np.inf
        self._waited = 0
        self._left = 0
        self._direction: npt.NDArray[np.float64] = np.zeros(len(self._moved))

    def adjusted(self, action: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the action to take where `action` was planned."""
        if self._left == 0:
            return action
        action = action.copy()
        action[self._moved] = self._direction
        return action

    def saw(self, reward: float, ahead: npt.NDArray[Any] | None = None) -> None:
        """Take note of the reward of a step, and begin or end a burst.

        `ahead` is how far what is moved lags behind its commands now, in actions.
        """
        if self.patience == 0:
            return
        if self._left > 0:
            # What a burst earns says nothing about the plan.
            self._left -= 1
            return
        if reward > self._best + self.progress:
            self._best, self._waited = float(reward), 0
            return
        self._waited += 1
        if self._waited >= self.patience:
            self._begin_burst(ahead)

    def _begin_burst(self, ahead: npt.NDArray[Any] | None) -> None:
        low, high = self._low[self._moved], self._high[self._moved]
        self._left = int(self._generator.integers((self.burst + 1) // 2, self.burst + 1))
        self._direction = self._generator.uniform(low, high)
        if ahead is not None:
            way = self._left * self._direction - ahead
            # In a straight line, as fast as the slowest axis allows.
            longest = np.max(np.where(way > 0, way / high, way / low), initial=1.0)
            self._left = math.ceil(longest)
            self._direction = way / self._left
        self._best, self._waited = -np.inf, 0
        self.bursts += 1

    def state(self) -> dict[str, Any]:
        """Everything that later actions depend on, as JSON."""
        return {
            "best": None if np.isinf(self._best) else self._best,
            "waited": self._waited,
            "left": self._left,
            "direction": self._direction.tolist(),
            "bursts": self.bursts,
            "generator": self._generator.bit_generator.state,
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        generator = np.random.default_rng(0)
        try:
            generator.bit_generator.state = state["generator"]
            best = -np.inf if state["best"] is None else float(state["best"])
            waited, left, bursts = (int(state[name]) for name in ("waited", "left", "bursts"))
            direction = np.array(state["direction"], np.float64)
            if min(waited, left, bursts) < 0 or not np.isfinite(direction).all():
                raise ValueError("counts are at least 0 and directions finite")
        except (KeyError, OverflowError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the stored patience is not usable: {error}") from error
        if direction.shape != self._moved.shape:
            raise InvalidInputError(
                f"the stored burst moves {len(direction)} entries of an action, "
                f"this agent {len(self._moved)}"
            )
        self._generator, self._direction = generator, direction
        self._best, self._waited, self._left, self.bursts = best, waited, left, bursts
