"""What an agent does when its plan gets it nowhere: it moves elsewhere for a moment.

A plan made in a model that is wrong here can go in circles, or keep away from a place where
something went wrong once; a model that has stopped learning cannot find out. So an agent that
has seen no better reward for `patience` steps moves in one random direction for a few, and
plans again from there. If what it moves lags behind its commanded position (a hand that presses
against something), a burst starts from where it is: the lag is taken back on the way. It needs no
knowledge of the task, and while a task goes well, so that rewards rise, it never happens.

While an agent learns, the reward is the environment's. In an evaluation no reward of the
environment is read: the reward is what the agent's own objective, or its learned reward, says of
the transition.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.support.checks import check_number, check_whole
from everlearn.support.errors import InvalidInputError


@dataclass(frozen=True)
class EscapeConfig:
    """When an agent leaves its plan, and for how long."""

    patience: int = 0
    """Steps without progress before a burst of random motion; 0: never."""
    progress: float = 0.002
    """Gain in reward that counts as progress."""
    burst: int = 14
    """Steps of the longest burst; its length is drawn between half of that and all."""

    def __post_init__(self) -> None:
        check_whole("patience", self.patience, 0)
        check_number("progress", self.progress, 0.0, math.inf)
        check_whole("burst", self.burst, 1)


class Escape:
    """Counts steps without progress and replaces planned actions when there are too many.

    Parameters
    ----------
    action_space
        Bounds of the actions.
    config
        Settings.
    moved
        Entries of the action that a burst sets, all if None; the others stay as planned.
    seed
        Of its own generator.

    Attributes
    ----------
    bursts
        Bursts begun in this episode.
    """

    def __init__(
        self,
        action_space: spaces.Box,
        config: EscapeConfig,
        moved: tuple[int, ...] | None = None,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self.action_space, self.config = action_space, config
        self._moved = np.arange(action_space.shape[0]) if moved is None else np.array(moved, int)
        self._low = action_space.low.astype(np.float64)[self._moved]
        self._high = action_space.high.astype(np.float64)[self._moved]
        self._generator = np.random.default_rng(seed)
        self.begin_episode()

    def spawn(self, seed: int | np.random.SeedSequence) -> Escape:
        """Return a fresh one with the same settings and a generator of its own."""
        return Escape(self.action_space, self.config, tuple(self._moved.tolist()), seed)

    def begin_episode(self) -> None:
        """Start counting anew; the generator goes on."""
        self.bursts = 0
        self.begin_task()

    def begin_task(self) -> None:
        """Forget how good rewards were: another task has other ones."""
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

    def observe(self, reward: float, ahead: npt.NDArray[Any] | None = None) -> None:
        """Take note of the reward of a step, and begin or end a burst.

        `ahead` is how far what is moved lags behind its commands now, in actions.
        """
        if self.config.patience == 0:
            return
        if self._left > 0:
            # What a burst earns says nothing about the plan.
            self._left -= 1
            return
        if reward > self._best + self.config.progress:
            self._best, self._waited = float(reward), 0
            return
        self._waited += 1
        if self._waited >= self.config.patience:
            self._begin_burst(ahead)

    def _begin_burst(self, ahead: npt.NDArray[Any] | None) -> None:
        low, high, longest = self._low, self._high, self.config.burst
        self._left = int(self._generator.integers((longest + 1) // 2, longest + 1))
        self._direction = self._generator.uniform(low, high)
        if ahead is not None:
            way = self._left * self._direction - ahead
            # In a straight line, as fast as the slowest axis allows.
            steps = np.max(np.where(way > 0, way / high, way / low), initial=1.0)
            self._left = math.ceil(steps)
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
            raise InvalidInputError(f"the stored escape is not usable: {error}") from error
        if direction.shape != self._moved.shape:
            raise InvalidInputError(
                f"the stored burst moves {len(direction)} entries of an action, "
                f"this agent {len(self._moved)}"
            )
        self._generator, self._direction = generator, direction
        self._best, self._waited, self._left, self.bursts = best, waited, left, bursts
