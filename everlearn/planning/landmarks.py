"""A value function on landmarks: what is earned after the end of a plan.

A plan of 25 decisions sees two seconds. What comes after counts where rewards are far away or an
episode can end. The agent keeps landmarks, states it has visited that lie at least a spacing
apart, and a value for each::

    V(s)  = sum_i k(s, c_i) v_i / sum_i k(s, c_i),        k(s, c) = exp(-|s - c|^2 / 2 h^2)
    v_i  <- max over short plans from c_i of  sum_t discount^t r_t + discount^L V(s_L)

Both r and s_L come from the world model, so that every landmark profits from what is learned
anywhere, and nothing is stored but states. V is an average of the v_i: such fitted value
iteration cannot diverge (Gordon 1995). A few landmarks are backed up after every decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.support.checks import check_number, check_whole

Doubles = npt.NDArray[np.float64]


@dataclass(frozen=True)
class ValueConfig:
    """Settings of a `ValueMap`."""

    landmarks: int = 0
    """Most states that have a value of their own; 0 for no value function."""
    backups: int = 32
    """Landmarks backed up after each decision."""
    plans: int = 8
    """Short plans that a backup compares."""
    length: int = 5
    """Decisions of a short plan."""
    weight: float = 1.0
    """What a value counts beside the rewards of the plan."""
    width: float = 0.7
    """Width of the kernel, in spacings of the landmarks."""

    def __post_init__(self) -> None:
        check_whole("landmarks", self.landmarks, 0)
        for name in ("backups", "plans", "length"):
            check_whole(name, getattr(self, name), 1)
        check_number("width", self.width, 0.01, 100.0)


class ValueMap:
    def __init__(self, inputs, action_space, config: ValueConfig, discount: float, seed) -> None:
        self.inputs, self.config, self.discount = inputs, config, discount
        self.read = inputs.read
        self.low, self.high = action_space.low.astype(float), action_space.high.astype(float)
        self.generator = np.random.default_rng(seed)
        most = config.landmarks
        self.states = np.zeros((most, self.read))
        self.values = np.zeros((2, most))
        self.best = np.zeros((most, config.length, len(self.low)), np.float32)
        self.count = 0
        self.spacing = 0.05 * 3.0 * np.sqrt(self.read)
        self._turn = 0
        self._scale = None

    def scaled(self, states):
        scaling = self.inputs.scaling
        return (states - scaling.centre[: self.read]) * scaling.multiplier[: self.read]

    def _positions(self):
        scaling = self.inputs.scaling
        key = (scaling.multiplier[: self.read].tobytes(), scaling.centre[: self.read].tobytes())
        if key != self._scale:
            self._scale = key
            self._points = np.zeros((self.config.landmarks, self.read), np.float32)
            self._points[: self.count] = self.scaled(self.states[: self.count])
            if self.count:
                self._thin(0)
        return self._points[: self.count]

    def add(self, state) -> None:
        points = self._positions()
        point = self.scaled(state[: self.read]).astype(np.float32)
        if self.count:
            near = ((points - point) ** 2).sum(axis=1)
            if near.min() < self.spacing**2:
                return
            if self.count == self.config.landmarks:
                self._thin(int(0.9 * self.count))
                return self.add(state)
            start = self.value(state[None, : self.read], slice(None))[:, 0]
        else:
            start = 0.0
        i = self.count
        self.states[i], self._points[i] = state[: self.read], point
        self.values[:, i] = start
        self.best[i] = self.generator.uniform(self.low, self.high, self.best[i].shape)
        self.count += 1

    def _thin(self, most: int) -> None:
        points = self._points[: self.count].copy()
        while True:
            kept: list[int] = []
            for i in range(self.count):
                if not kept or ((points[kept] - points[i]) ** 2).sum(axis=1).min() >= self.spacing**2:
                    kept.append(i)
            if not most or len(kept) <= most:
                break
            self.spacing *= 1.1
        n = len(kept)
        for array in (self.states, self._points, self.best):
            array[:n] = array[kept]
        self.values[:, :n] = self.values[:, kept]
        self.count = n

    def value(self, states, kind):
        """V of ``states[N, S]``: kind 0 of what is earned, 1 with what is new."""
        points = self._positions()
        at = self.scaled(states[:, : self.read]).astype(np.float32)
        d2 = (at**2).sum(1)[:, None] + (points**2).sum(1)[None] - 2 * at @ points.T
        d2 -= d2.min(axis=1, keepdims=True)
        k = np.exp(d2 * (-0.5 / (self.config.width * self.spacing) ** 2))
        v = self.values[kind, : self.count].astype(np.float32)
        return (v @ k.T) / k.sum(axis=1)

    def improve(self, model, objective, bonus: float) -> None:
        config = self.config
        n = min(config.backups, self.count)
        if not n:
            return
        chosen = (self._turn + np.arange(n)) % self.count
        self._turn = int(chosen[-1]) + 1
        k, length, a = config.plans, config.length, len(self.low)
        plans = np.empty((n, k, length, a), np.float32)
        span = self.high - self.low
        # held actions, random: bang and zero and in between
        u = self.generator.uniform(-0.3, 1.3, (n, k, 1, a))
        plans[:] = self.low + span * np.clip(u, 0, 1)
        w = self.generator.uniform(-0.3, 1.3, (n, k // 2, length, a))
        plans[:, : k // 2] = self.low + span * np.clip(w, 0, 1)
        plans[:, 0] = self.best[chosen]
        plans[:, 1] = np.clip(self.best[chosen] + 0.15 * span * self.generator.normal(size=(n, length, a)), self.low, self.high)
        obs = np.zeros((n * k, self.inputs.observations))
        obs[:, : self.read] = np.repeat(self.states[chosen], k, axis=0)
        flat = plans.reshape(n * k, length, a)
        states = model._imagine(obs, flat.astype(np.float64), np.zeros((n * k, 0)))
        first = objective.first
        gain = np.diff(states[:, :, first], axis=1).astype(float)
        ends = np.clip(np.diff(states[:, :, first + 1], axis=1), 0, 1).astype(float)
        alive = np.cumprod(1 - ends, axis=1)
        going = np.concatenate([np.ones((n * k, 1)), alive[:, :-1]], axis=1)
        weights = self.discount ** np.arange(length)
        tail = self.discount**length * alive[:, -1] * self.value(states[:, -1], slice(None))
        earned = (gain * going * weights).sum(1)
        out = np.stack([earned, earned]) + tail
        if bonus:
            new = np.diff(states[:, :, first + 2], axis=1).astype(float)
            out[1] += bonus * (new * going * weights).sum(1)
        out = out.reshape(2, n, k)
        self.values[:, chosen] = out.max(axis=2)
        top = out[0].argmax(axis=1)
        self.best[chosen] = plans[np.arange(n), top]
