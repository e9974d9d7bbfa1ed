"""A value function on landmarks: what is earned after the end of a plan.

A plan of 25 decisions sees two seconds ahead. What comes later matters where rewards are far away
or an episode can end. So the agent keeps landmarks, visited states that lie at least a spacing
apart, and a value v of each. The value of any state is their average, weighted by a kernel::

    V(s)  = sum_i k(s, c_i) v_i / sum_i k(s, c_i),       k(s, c) = exp(-|s - c|^2 / 2 h^2)

A landmark is backed up with short plans from it in the world model::

    v_i  <-  max over plans of  sum_t discount^t r_t + discount^L V(s_L)

This is fitted value iteration. With an average it cannot diverge (Gordon 1995), and what the model
learns anywhere reaches every landmark. A few landmarks are backed up after each decision.

Values come in two rows: what the objective earns, and the same with the bonus for novelty, which
lets an agent that learns head for what is new beyond the horizon of its plans.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective
from everlearn.planning.rollout import earned
from everlearn.support.archive import check_arrays
from everlearn.support.checks import check_number, check_whole
from everlearn.support.compiled import njit
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import ModelInputs

EARNED, EXPLORING = 0, 1
"""Rows of the values: of the objective alone, and with the bonus for novelty."""

BACKUPS = 32
"""Landmarks backed up after each decision."""

PLANS = 8
"""Short plans compared in a backup: the best one so far, a change of it, and random ones."""

LENGTH = 5
"""Decisions of a short plan."""

OVERREACH = 0.3
"""How far, in ranges, random actions are drawn beyond the bounds that then clip them."""

CHANGE = 0.15
"""Deviation of a change of the best short plan, in ranges of the action space."""

WIDTH = 0.7
"""Width h of the kernel, in spacings."""

FIRST_SPACING = 0.05
"""Spacing at first, in half ranges of the scaled inputs, for each root of an input."""

WIDER = 1.1
"""Growth of the spacing when there are too many landmarks."""

KEPT = 0.9
"""Fraction of the landmarks that stay then, at the most."""


@dataclass(frozen=True)
class ValueConfig:
    """Settings of a `ValueMap`."""

    landmarks: int = 0
    """Most states with a value of their own; 0 for plans without a value at their end."""
    weight: float = 1.0
    """What the value at the end of a plan counts beside the rewards along it.

    Plans that earn nothing are told apart by values however little these count. Where rewards are
    dense, a smaller weight keeps errors of the values from outweighing rewards close by.
    """

    def __post_init__(self) -> None:
        check_whole("landmarks", self.landmarks, 0)
        check_number("weight", self.weight, 0.0, 1e6)


class Imagining(Protocol):
    """What a backup asks of a world model."""

    inputs: ModelInputs

    def rollout_from(self, obs: FloatArray, actions: FloatArray) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` from ``obs[N, S]`` along ``actions[N, H, A]``."""
        ...


@dataclass(frozen=True)
class ValuedObjective:
    """An objective, and what is earned after the last step of a plan."""

    objective: Objective
    values: ValueMap
    row: int

    def __call__(self, obs: FloatArray, action: FloatArray, after: FloatArray, /) -> FloatArray:
        """Rewards of the objective."""
        return np.asarray(self.objective(obs, action, after))

    @property
    def continues(self) -> Any:
        """Probability that an episode goes on, if the objective can tell."""
        return getattr(self.objective, "continues", None)

    def final(self, states: FloatArray) -> npt.NDArray[np.float64]:
        """Return what the value at ``states[N, S]``, where plans end, counts for."""
        return self.values.config.weight * self.values.at(states, self.row).astype(np.float64)


class ValueMap:
    """Landmarks and their values.

    Parameters
    ----------
    inputs
        Inputs of the model: which observations are read, and their present scale.
    action_space
        Bounds of the actions.
    config
        Settings.
    discount
        Weight of a reward relative to the one a decision before it.
    seed
        Seeds the short plans of backups.

    Attributes
    ----------
    count
        Landmarks so far.
    spacing
        Distance that landmarks keep, in scaled inputs.
    """

    ARRAYS = ("states", "values", "plans")
    """Names of what `state` returns."""

    def __init__(
        self,
        inputs: ModelInputs,
        action_space: spaces.Box,
        config: ValueConfig,
        discount: float,
        seed: int | np.random.SeedSequence,
    ) -> None:
        self.config, self.discount = config, discount
        self._low = action_space.low.astype(np.float32)
        self._high = action_space.high.astype(np.float32)
        self._generator = np.random.default_rng(seed)
        self.count = 0
        self._turn = 0
        self._inputs = inputs
        most, read, actions = config.landmarks, inputs.read, len(self._low)
        self._states: npt.NDArray[np.float64] = np.zeros((most, read))
        self._points: npt.NDArray[np.float32] = np.zeros((most, read), np.float32)
        self._values: npt.NDArray[np.float32] = np.zeros((2, most), np.float32)
        self._plans: npt.NDArray[np.float32] = np.zeros((most, LENGTH, actions), np.float32)
        half_range = float(inputs.scaling.gain[:read].max())
        self.spacing = FIRST_SPACING * half_range * float(np.sqrt(read))
        self._scale = self._scale_of(inputs)

    def at(self, states: FloatArray, row: int = EARNED) -> npt.NDArray[np.float32]:
        """Values of ``states[N, S]``; 0 where there is no landmark yet."""
        out = np.zeros(len(states), np.float32)
        if self.count:
            factor = np.float32(-0.5 / (WIDTH * self.spacing) ** 2)
            points = self._points[: self.count]
            _average(self._scaled(states), points, self._values[row, : self.count], factor, out)
        return out

    def add(self, state: FloatArray) -> None:
        """Make ``state[S]`` a landmark, unless one is near."""
        self._follow_scale()
        point = self._scaled(state[None])[0]
        if _nearest(self._points[: self.count], point) < self.spacing**2:
            return
        if self.count == self.config.landmarks:
            self._thin(int(KEPT * self.count))
            if _nearest(self._points[: self.count], point) < self.spacing**2:
                return
        i = self.count
        start = [self.at(state[None], row)[0] for row in (EARNED, EXPLORING)]
        self._states[i], self._points[i] = state[: self._inputs.read], point
        self._values[:, i] = start
        self._plans[i] = self._drawn((1, LENGTH))[0]
        self.count += 1

    def forget_values(self) -> None:
        """Start all values at 0, for another objective; the landmarks stay."""
        self._values[:] = 0

    def improve(self, model: Imagining, objective: Objective, exploring: Objective | None) -> None:
        """Back up the next landmarks in turn.

        Parameters
        ----------
        model
            Imagines.
        objective
            What is earned.
        exploring
            The same with the bonus for novelty; None where there is none.
        """
        self._follow_scale()
        number = min(BACKUPS, self.count)
        if not number:
            return
        chosen = (self._turn + np.arange(number)) % self.count
        self._turn = int(chosen[-1] + 1) % self.count
        plans = self._short_plans(chosen)
        obs = np.zeros((number * PLANS, self._inputs.observations))
        obs[:, : self._inputs.read] = np.repeat(self._states[chosen], PLANS, axis=0)
        flat = plans.reshape(number * PLANS, LENGTH, -1)
        states = model.rollout_from(obs, flat)
        weights = self.discount ** np.arange(LENGTH, dtype=np.float64)
        wanted = {EARNED: objective} if exploring is None else {0: objective, 1: exploring}
        for row, one in wanted.items():
            returns, alive = earned(one, states, flat, weights)
            returns += self.discount**LENGTH * alive * self.at(states[:, -1], row)
            returns = np.where(np.isfinite(returns), returns, -np.inf).reshape(number, PLANS)
            best, highest = returns.argmax(axis=1), returns.max(axis=1)
            usable = np.isfinite(highest)
            self._values[row, chosen[usable]] = highest[usable]
            if row == EARNED:
                self._plans[chosen] = plans[np.arange(number), best]
        if exploring is None:
            self._values[EXPLORING] = self._values[EARNED]

    def _short_plans(self, chosen: npt.NDArray[np.int64]) -> npt.NDArray[np.float32]:
        """Draw ``[n, PLANS, LENGTH, A]`` for the landmarks `chosen`.

        The best plan so far is always among them, so that a value follows the model and does not
        depend on the luck of a draw.
        """
        number, half = len(chosen), PLANS // 2
        plans = np.empty((number, PLANS, *self._plans.shape[1:]), np.float32)
        plans[:, 0] = self._plans[chosen]
        noise = self._generator.standard_normal(plans[:, 1].shape, np.float32)
        plans[:, 1] = plans[:, 0] + CHANGE * (self._high - self._low) * noise
        plans[:, 2:half] = self._drawn((number, half - 2, LENGTH))
        # Half of them hold one action.
        plans[:, half:] = self._drawn((number, PLANS - half, 1))
        return np.clip(plans, self._low, self._high)

    def _drawn(self, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """Draw actions of a shape; many of them lie on the bounds."""
        share = self._generator.random((*shape, len(self._low)), np.float32)
        share = np.clip(share * (1 + 2 * OVERREACH) - OVERREACH, 0, 1)
        return np.asarray(self._low + (self._high - self._low) * share, np.float32)

    def _scaled(self, states: FloatArray) -> npt.NDArray[np.float32]:
        """Scaled inputs of the observations in ``states[N, S]`` that are read."""
        scaling, read = self._inputs.scaling, self._inputs.read
        scaled = (states[:, :read] - scaling.centre[:read]) * scaling.multiplier[:read]
        return np.ascontiguousarray(scaled, np.float32)

    @staticmethod
    def _scale_of(inputs: ModelInputs) -> npt.NDArray[np.float64]:
        return np.stack([inputs.scaling.centre, inputs.scaling.multiplier])

    def _follow_scale(self) -> None:
        """Place the landmarks anew if the inputs are scaled otherwise now."""
        scale = self._scale_of(self._inputs)
        if np.array_equal(scale, self._scale):
            return
        self._scale = scale
        self._points[: self.count] = self._scaled(self._states[: self.count])
        self._keep(_spread(self._points[: self.count], self.spacing**2))

    def _thin(self, most: int) -> None:
        """Widen the spacing until at most so many landmarks are left."""
        kept = np.ones(self.count, np.bool_)
        while kept.sum() > most:
            self.spacing *= WIDER
            kept = _spread(self._points[: self.count], self.spacing**2)
        self._keep(kept)

    def _keep(self, kept: npt.NDArray[np.bool_]) -> None:
        """Drop all other landmarks."""
        left = int(kept.sum())
        for array in (self._states, self._points, self._plans):
            array[:left] = array[: self.count][kept]
        self._values[:, :left] = self._values[:, : self.count][:, kept]
        self.count = left
        self._turn %= max(left, 1)

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything, for `restore`: arrays and JSON facts."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "states": self._states[: self.count].copy(),
            "values": self._values[:, : self.count].copy(),
            "plans": self._plans[: self.count].copy(),
        }
        meta = {
            "spacing": self.spacing,
            "turn": self._turn,
            "generator": self._generator.bit_generator.state,
        }
        return arrays, meta

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        count = len(np.atleast_1d(arrays.get("states", ())))
        check_arrays(
            arrays,
            {
                "states": ("f", (count, self._inputs.read)),
                "values": ("f", (2, count)),
                "plans": ("f", (count, *self._plans.shape[1:])),
            },
        )
        spacing, turn = float(meta["spacing"]), int(meta["turn"])
        inside = (arrays["plans"] >= self._low) & (arrays["plans"] <= self._high)
        fits = count <= self.config.landmarks and 0 <= turn <= count and inside.all()
        finite = all(np.isfinite(arrays[name]).all() for name in self.ARRAYS)
        if not (fits and finite and np.isfinite(spacing) and spacing > 0):
            raise InvalidInputError(
                f"a value map of at most {self.config.landmarks} landmarks cannot have {count} "
                f"with spacing {spacing:g} and turn {turn}, or has numbers out of bounds"
            )
        generator = np.random.default_rng(0)
        generator.bit_generator.state = meta["generator"]
        self._generator, self.spacing, self._turn, self.count = generator, spacing, turn, count
        for mine, name in ((self._states, "states"), (self._plans, "plans")):
            mine[:count] = arrays[name]
        self._values[:, :count] = arrays["values"]
        self._scale = self._scale_of(self._inputs)
        self._points[:count] = self._scaled(self._states[:count])


@njit(cache=True)
def _average(at: Any, points: Any, values: Any, factor: Any, out: Any) -> None:
    """``out[n]``: average of `values`, weighted by the kernel between ``at[n]`` and `points`.

    Distances count from the nearest point, which keeps the sum of weights from vanishing far away.
    """
    squares = np.empty(points.shape[0], points.dtype)
    for n in range(at.shape[0]):
        least = np.float32(np.inf)
        for i in range(points.shape[0]):
            square = np.float32(0)
            for k in range(points.shape[1]):
                away = at[n, k] - points[i, k]
                square += away * away
            squares[i] = square
            least = min(least, square)
        total, weights = np.float32(0), np.float32(0)
        for i in range(points.shape[0]):
            exponent = factor * (squares[i] - least)
            # Below this the weight is less than 1e-5 of the nearest point's.
            if exponent > np.float32(-12):
                weight = np.exp(exponent)
                total += weight * values[i]
                weights += weight
        out[n] = total / weights


@njit(cache=True)
def _nearest(points: Any, point: Any) -> Any:
    """Squared distance from `point` to the nearest of `points`; infinite without any."""
    least = np.inf
    for i in range(points.shape[0]):
        square = 0.0
        for k in range(point.shape[0]):
            square += (points[i, k] - point[k]) ** 2
        least = min(least, square)
    return least


@njit(cache=True)
def _spread(points: Any, least: float) -> Any:
    """Which points to keep, first come first served, so that squares of distances are `least`."""
    kept = np.ones(points.shape[0], np.bool_)
    for i in range(points.shape[0]):
        for j in range(i):
            if kept[j]:
                square = 0.0
                for k in range(points.shape[1]):
                    square += (points[i, k] - points[j, k]) ** 2
                if square < least:
                    kept[i] = False
                    break
    return kept
