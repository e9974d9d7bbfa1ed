"""The online world model: predicts the change of an observation, and learns it step by step.

The model is ``y = W^T phi(x)`` with Losse features ``phi`` (encoding.py) of the observation,
the action and what is remembered (world_model/inputs.py, world_model/memory.py), and weights that
follow the leader (ridge.py). Imagination runs in compiled code (kernels/imagination.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import Bodies, FloatArray
from everlearn.online import snapshot
from everlearn.online.config import OnlineModelConfig
from everlearn.online.encoding import LosseEncoding
from everlearn.online.forgetting import ForgettingLearner
from everlearn.online.frozen import CANNOT_LEARN, FrozenLearner, weights_of
from everlearn.online.intervals import ErrorRecord, Interval, checked_share
from everlearn.online.kernels import imagination as kernels
from everlearn.online.recursive import RecursiveLearner
from everlearn.online.relearning import Relearning
from everlearn.online.ridge import RidgeLearner
from everlearn.support.archive import save_archive
from everlearn.support.checks import check_whole
from everlearn.support.errors import NotReadyError
from everlearn.support.settings import with_options
from everlearn.support.threads import Threads
from everlearn.world_model.base import ImaginingModel, Transitions
from everlearn.world_model.inputs import Batch
from everlearn.world_model.memory import Memory
from everlearn.world_model.step_kernels import MemoryTables, Trajectories

logger = logging.getLogger(__name__)

VISITS = 10.0
"""How fast cells get old: a cell of ten whole visits is a tenth as new as one of none."""

CHUNK = 256
"""Transitions of a batch encoded at a time."""

MAX_BLOCK = 112
"""Candidates imagined together: their inputs and outputs fit the nearest cache."""


def block_size(candidates: int, threads: int) -> int:
    """Candidates of a block: as many blocks for each thread, and all of nearly the same size."""
    share = -(-max(candidates, 1) // threads)
    blocks = -(-share // MAX_BLOCK)
    return -(-share // blocks)


class OnlineWorldModel(ImaginingModel):
    """A world model that learns from every transition at once and forgets none.

    After every `learn` the weights at the cells that the transition activated minimise the ridge
    loss of everything seen, all other weights held (equation 5). After `solve` (every
    `solve_every` transitions, if that is set) all weights do.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    config
        Settings; any of them can also be given by name, as in
        ``OnlineWorldModel(obs_space, act_space, features=100, ridge=1.0)``.
    seed
        Seed of the random projection.
    threads
        Threads of kernels and linear algebra; None takes what numba was given.
    memory
        What the model sees beside observation and action; nothing, as in the paper, if None.
    bodies
        Where hand and objects are in the observation; local grids need it.
    still
        Smallest change of each observation in a step, as for `ImaginingModel`.
    unread
        Observations, the last ones, that are predicted and not read, as for `ImaginingModel`.
    novelty
        Whether the last of them is not learned but counts how new an imagined step is: the mean
        over grids of ``1 / sqrt(1 + VISITS A_kk)`` at the cells ``k`` of the step, 1 where
        nothing was seen yet. ``A_kk``, the diagonal of the statistics, counts a cell's visits.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: OnlineModelConfig | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        memory: Memory | None = None,
        bodies: Bodies | None = None,
        still: npt.ArrayLike | None = None,
        unread: int = 0,
        novelty: bool = False,
        **options: Any,
    ) -> None:
        check_whole("seed", seed, 0)
        if threads is not None:
            check_whole("threads", threads, 1)
        self.config = with_options(config or OnlineModelConfig(), options)
        self.seed = seed
        super().__init__(
            observation_space,
            action_space,
            memory,
            self.config.precision,
            (self.config.observation_gain, self.config.action_gain),
            self.config.clip,
            still,
            unread,
        )
        self.bodies = bodies
        self.novelty = novelty
        self.encoding = LosseEncoding.of_config(self.config, self.inputs, bodies, seed)
        self._threads = Threads(threads)
        self.errors: ErrorRecord | None = None
        self._reset_learner()
        if self.config.intervals:
            self.errors = ErrorRecord(self)
        self.pending: list[Transitions] = []
        self.seen_low = np.full(self.inputs.read, np.inf)
        self.seen_high = -self.seen_low
        logger.info("kernels are compiled at their first use on a machine, which takes < 30 s")

    def _reset_learner(self) -> None:
        """Forget everything that was learned."""
        self.change_squares = np.zeros(self.inputs.read)
        self.changes_seen = 0
        self.relearning: Relearning | None = None
        self.learner: Any = self.fresh_learner()
        if self.novelty:
            self.clear_novelty()
        if self.errors is not None:
            self.errors.forget_places()

    def fresh_learner(self) -> Any:
        """Return a learner as the settings want it, which has learned nothing yet."""
        config, learner = self.config, self._empty_learner()
        if config.worlds == 1:
            return learner
        return ForgettingLearner(
            learner,
            self._empty_learner,
            local=self.grid_cells,
            worlds=config.worlds,
            surprise=config.surprise,
            fading=config.fading,
        )

    def _empty_learner(self) -> RidgeLearner | RecursiveLearner:
        """Return a learner that has learned nothing yet."""
        limit = self.config.max_memory_gb
        shared: dict[str, Any] = {
            "cells": self.encoding.cells,
            "outputs": self.inputs.observations - self.novelty,
            "dtype": self.dtype,
            "ridge": self.config.ridge,
            "max_bytes": None if limit is None else limit * 1e9,
            "unlearned": int(self.novelty),
        }
        learner: RidgeLearner | RecursiveLearner
        if self.config.update == "exact":
            learner = RecursiveLearner(**shared)
        else:
            learner = RidgeLearner(
                active=self.encoding.active,
                own_scale=self.inputs.unread - self.novelty,
                threads=self._threads,
                **shared,
            )
        return learner

    @property
    def exported(self) -> bool:
        """Whether the model has its weights alone, and cannot learn."""
        return isinstance(self.learner, FrozenLearner)

    def freeze(self) -> None:
        """Become a model that takes exported weights, and learns no more."""
        self.learner = FrozenLearner(
            cells=self.encoding.cells,
            outputs=self.inputs.observations - self.novelty,
            dtype=self.dtype,
            unlearned=int(self.novelty),
        )

    def _check_not_frozen(self) -> None:
        if self.exported:
            raise NotReadyError(CANNOT_LEARN)

    def clear_novelty(self) -> None:
        """Reset the counts of novelty: every cell counts as never active."""
        self.learner.table[: self.grid_cells, self.learner.outputs] = 1 / self.encoding.features

    def novelty_at(self, obs: FloatArray, action: FloatArray, memory: object = None) -> float:
        """Say how new a step is: 1 where nothing was seen yet, towards 0 where much was.

        The mean of ``1 / sqrt(1 + VISITS A_kk)`` over the cells ``k`` of grids that it activates.
        """
        cells, values = self.encode(obs, action, memory)
        cells = cells[(values != 0) & (cells < self.grid_cells)]
        known = cells[np.isin(cells, self.learner.cells_in_use)]
        seen = (1 / np.sqrt(1 + VISITS * self.learner.visits(known))).sum()
        return float((seen + len(cells) - len(known)) / max(len(cells), 1))

    @property
    def grid_cells(self) -> int:
        """Cells of grids; those of the linear part follow."""
        return self.encoding.cells - self.encoding.linear_cells

    def mark_novelty(self, cells: npt.NDArray[np.int64]) -> None:
        """Write how new `cells`, which are in use, still are, for imagination to sum up."""
        cells = cells[cells < self.grid_cells]
        visits = self.learner.visits(cells)
        novelty = 1 / (self.encoding.features * np.sqrt(1 + VISITS * visits))
        self.learner.table[cells, self.learner.outputs] = novelty

    # What it has learned ---------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        """``W[D, S]``, a read-only view."""
        view = self.learner.weights[:, : self.learner.outputs]
        view.flags.writeable = False
        return view

    @property
    def steps(self) -> int:
        """Number of transitions that the model has taken in.

        Some of them may wait for another scale of the inputs.
        """
        waiting = self._kept_transitions if self._scale_may_change else 0
        return max(self.learner.samples, waiting)

    @property
    def utilization(self) -> float:
        """Fraction of the cells that some transition has activated."""
        return self.learner.used / self.encoding.cells

    @property
    def fallbacks(self) -> int:
        """Updates that float32 could not solve and float64 did."""
        return self.learner.fallbacks

    @property
    def warming_up(self) -> bool:
        """Whether transitions are kept, and not learned yet, to fix the scale of inputs."""
        return not self.inputs.scaling.frozen and not self.config.refit

    @property
    def gives_intervals(self) -> bool:
        """Whether `predict` and `rollout` can give bounds: errors were counted."""
        return self.errors is not None and self.errors.scored > 0

    def residual(self) -> npt.NDArray[np.float64]:
        """``G = B - A W - r W`` of every cell ``[D, S]``, from the statistics, in float64.

        Minus half the gradient of the ridge loss: zero, up to rounding, at the active cells of
        the last transition (equation 5), and at all cells after `solve`. The exact update keeps
        no statistics to compute it from.
        """
        self._check_not_frozen()
        if self.config.update == "exact":
            raise NotReadyError("update='exact' keeps no statistics; the residual needs 'active'")
        return self.learner.residual()

    # Encoding and imagination ----------------------------------------------------------

    def encode(
        self, obs: object, action: object, memory: object = None
    ) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Active cells ``[N, K]`` and their values (``[K]`` each for a single input).

        Out of their reach local grids are there too, with values of 0.
        """
        observations, actions, states, single = self._checked_inputs(obs, action, memory)
        cells, values = self.encoding(self.inputs.assemble(observations, actions, states))
        return (cells[0], values[0]) if single else (cells, values)

    @overload
    def predict(
        self, obs: object, action: object, memory: object = None, interval: None = None
    ) -> FloatArray: ...

    @overload
    def predict(
        self, obs: object, action: object, memory: object = None, *, interval: float
    ) -> Interval: ...

    def predict(
        self, obs: object, action: object, memory: object = None, interval: float | None = None
    ) -> FloatArray | Interval:
        """Next observations ``[N, S]`` of ``obs[N, S]`` and ``action[N, A]``, or one ``[S]``.

        Parameters
        ----------
        obs, action, memory
            As for `ImaginingModel.predict`.
        interval
            Share of next observations that bounds are to hold, such as 0.9; then the result is an
            `Interval`. None predicts without bounds.
        """
        if interval is None:
            return super().predict(obs, action, memory)
        share, record = checked_share(interval), self._error_record()
        observations, actions, states, single = self._checked_inputs(obs, action, memory)
        plans = actions[:, None, :]
        imagined = self._imagine(observations, plans, states)
        found = record.bounds(self, imagined, plans, states, share)
        return Interval(*(part[0, 1] if single else part[:, 1] for part in found))

    @overload
    def rollout(
        self, obs: object, actions: object, memory: object = None, interval: None = None
    ) -> FloatArray: ...

    @overload
    def rollout(
        self, obs: object, actions: object, memory: object = None, *, interval: float
    ) -> Interval: ...

    def rollout(
        self, obs: object, actions: object, memory: object = None, interval: float | None = None
    ) -> FloatArray | Interval:
        """Imagined states ``[N, H + 1, S]`` along ``actions[N, H, A]``, from ``obs``.

        Parameters
        ----------
        obs, actions, memory
            As for `ImaginingModel.rollout`.
        interval
            Share of the states that bounds are to hold, of each number and step by itself; then
            the result is an `Interval`, whose first states have no width. None gives the states
            alone.
        """
        if interval is None:
            return super().rollout(obs, actions, memory)
        share, record = checked_share(interval), self._error_record()
        observations, plans, states = self._checked_plans(obs, actions, memory)
        imagined = self._imagine(observations, plans, states)
        return record.bounds(self, imagined, plans, states, share)

    def _error_record(self) -> ErrorRecord:
        """Return what is known of the model's errors, or say why nothing is."""
        if self.errors is None:
            raise NotReadyError(
                "the model was made without intervals; make it with intervals=True, and let it "
                "learn"
            )
        return self.errors

    def _run(self, trajectories: Trajectories, memory: MemoryTables) -> None:
        scaling = self.inputs.scaling
        tables = self._step_tables(scaling.centre, scaling.multiplier, memory)
        with self._threads.limited(blas=None) as threads:
            kernels.imagine(
                trajectories,
                tables,
                self.encoding.tables,
                self.learner.table,
                self.learner.vectors,
                block_size(len(trajectories.actions), threads),
            )

    # Learning --------------------------------------------------------------------------

    def _learn(self, transition: Transitions) -> None:
        """Equation 5 at the cells that a transition activates.

        While `warming_up`, transitions are kept; the one that completes the warm-up fixes the scale
        and learns all of them in order.
        """
        self._check_not_frozen()
        self._widen_range(transition)
        if not self._beyond_scale(transition):
            for one in zip(*self._after_warm_up(transition), strict=True):
                self._learn_one(*one)
        if self._scale_may_change:
            self._fit_scale(transition)
            if self.relearning is not None:
                self._catch_up(self.relearning)
            self._end_fitting()

    def _widen_range(self, transitions: Transitions) -> None:
        """Count `transitions` to what imagination may not leave by more than `seen_range`."""
        if self.config.seen_range is None:
            return
        seen = np.concatenate([transitions[0], transitions[2]])[:, : self.inputs.read]
        self.seen_low = np.minimum(self.seen_low, seen.min(axis=0))
        self.seen_high = np.maximum(self.seen_high, seen.max(axis=0))
        self.set_limits()

    def set_limits(self) -> None:
        """Limit imagined observations by what was seen, and by their space if it clips."""
        if self.config.seen_range is None or not np.isfinite(self.seen_low).all():
            return
        read = self.inputs.read
        room = self.config.seen_range * (self.seen_high - self.seen_low)
        low, high = self.seen_low - room, self.seen_high + room
        if self.config.clip:
            low, high = (
                np.maximum(low, self.inputs.low[:read]),
                np.minimum(high, self.inputs.high[:read]),
            )
        self._limits.low[:read], self._limits.high[:read] = low, high

    @property
    def _scale_may_change(self) -> bool:
        return self.config.refit > 0 and not self.inputs.scaling.frozen

    def _beyond_scale(self, transition: Transitions) -> bool:
        """Whether a transition lies so far out that the present scale cannot be right.

        With that scale its features would be so large that nothing else counted, or that float32
        did not resolve them. It is kept, and learned with the next scale.
        """
        if not self._scale_may_change:
            return False
        raw = self.inputs.raw(transition[0], transition[1], transition[3])
        return self.inputs.scaling.far_out(raw[0])

    def _fit_scale(self, transitions: Transitions) -> None:
        """Keep `transitions`; if it is time, fit the scale to all that are kept.

        It is time whenever their number passes a power of two, from 4 on: fewer say nothing about
        a scale. And when something moves that had not moved before.
        """
        before = self._kept_transitions
        self.pending.append(transitions)
        scaling, count = self.inputs.scaling, before + len(transitions[0])
        due = count.bit_length() > max(before.bit_length(), 2)
        raw = self.inputs.raw(transitions[0], transitions[1], transitions[3])
        with self._next_scale():
            if not due and not any(scaling.far_out(one) for one in raw):
                return
            obs, action, _, memory = self._kept()
            scale = scaling.refitted(self.inputs.raw(obs, action, memory))
        if scale is not None:
            self.relearning = Relearning(self.fresh_learner(), *scale)

    @property
    def _kept_transitions(self) -> int:
        return sum(len(part[0]) for part in self.pending)

    def _end_fitting(self) -> None:
        """Keep the scale for good, if there were enough transitions to fit it to."""
        if self.steps >= self.config.refit and self.relearning is None:
            self.inputs.scaling.frozen = True
            self.pending = []

    def _next_scale(self) -> AbstractContextManager[None]:
        """Give the inputs the scale that they will have, for a moment."""
        if self.relearning is None:
            return nullcontext()
        return self.relearning.scaling(self.inputs.scaling)

    def _catch_up(self, relearning: Relearning) -> None:
        """Learn some kept transitions with the new scale; after the last it is the model's."""
        part = slice(relearning.done, relearning.done + relearning.quota(self.learner.used))
        obs, action, next_obs, memory = self._kept()
        with relearning.scaling(self.inputs.scaling):
            samples = self._samples(obs[part], action[part], next_obs[part], memory[part])
            for cells, values, target in zip(*samples, strict=True):
                opened = self.encoding.opened(values[None])[0]
                weighted, weighted_target = self._weighted(values[None], target[None])
                relearning.learner.learn(cells[opened], weighted[0][opened], weighted_target[0])
                relearning.done += 1
        if relearning.done == len(obs):
            self._take_over(relearning)

    def _take_over(self, relearning: Relearning) -> None:
        """Let what was learned with the new scale replace what the model has."""
        self.inputs.scaling.take(relearning.centre, relearning.multiplier)
        self.learner, self.relearning = relearning.learner, None
        if self.errors is not None:
            self.errors.forget_places()
        if self.novelty:
            self.clear_novelty()
            self.mark_novelty(self.learner.cells_in_use)
        if self.config.update == "active":
            self.learner.solve()

    def _kept(self) -> Transitions:
        """All kept transitions as one batch."""
        if len(self.pending) == 1:
            return self.pending[0]
        obs, action, next_obs, memory = (
            np.concatenate(part) for part in zip(*self.pending, strict=True)
        )
        self.pending = [(obs, action, next_obs, memory)]
        return self.pending[0]

    def _after_warm_up(self, transitions: Transitions) -> Transitions:
        """Give what there is to learn now: `transitions`, none, or all kept ones with them."""
        if not self.warming_up:
            return transitions
        self.pending.append(transitions)
        obs, action, next_obs, memory = self._kept()
        if len(obs) < self.config.warm_up:
            return obs[:0], action[:0], next_obs[:0], memory[:0]
        self.inputs.scaling.freeze(self.inputs.raw(obs, action, memory))
        self.pending = []
        return obs, action, next_obs, memory

    def _learn_one(self, obs: Batch, action: Batch, next_obs: Batch, memory: Batch) -> None:
        cells, values, targets = self._samples(
            obs[None], action[None], next_obs[None], memory[None]
        )
        opened = self.encoding.opened(values)
        self._count_changes(targets)
        weighted, weighted_targets = self._weighted(values, targets)
        if self.errors is not None:
            self.errors.before(self, cells[opened], values[opened])
        self.learner.learn(cells[opened], weighted[opened], weighted_targets[0])
        if self.errors is not None:
            self.errors.after(self, (obs, action, next_obs, memory))
        if self.novelty:
            self.mark_novelty(cells[opened])
        if self.config.solve_every and self.steps % self.config.solve_every == 0:
            self.learner.solve()

    def _samples(
        self, obs: Batch, action: Batch, next_obs: Batch, memory: Batch
    ) -> tuple[npt.NDArray[np.int64], FloatArray, Batch]:
        """Cells, values and targets of transitions."""
        cells, values = self.encoding(self.inputs.assemble(obs, action, memory))
        return cells, values, (next_obs - obs)[:, : self.learner.outputs]

    def _count_changes(self, changes: Batch) -> None:
        """Count ``changes[N, S]`` of observations to what is usual."""
        if not self.config.outlier_penalty:
            return
        read = self.inputs.read
        self.change_squares += (changes[:, :read] ** 2).sum(axis=0)
        self.changes_seen += len(changes)

    def _weighted(self, values: FloatArray, targets: Batch) -> tuple[FloatArray, Batch]:
        """Multiply samples by the roots of their weights (`outlier_penalty`)."""
        penalty = self.config.outlier_penalty
        if not penalty:
            return values, targets
        usual = self.change_squares / max(self.changes_seen, 1)
        squares = targets[:, : self.inputs.read] ** 2 / np.where(usual > 0, usual, 1.0)
        beyond = np.maximum(squares.mean(axis=1, keepdims=True) - 1, 0)
        roots = 1 / np.sqrt(1 + penalty * beyond)
        return (values * roots).astype(self.dtype), targets * roots

    def learn_batch(
        self,
        obs: object,
        action: object,
        next_obs: object,
        memory: object = None,
        *,
        solve: bool = True,
    ) -> None:
        """Take in many transitions at once, then solve for all weights, unless `solve` is False.

        During the warm-up they are kept like those of `learn`, until there are enough.
        """
        self._check_not_frozen()
        transitions = self._checked(obs, action, next_obs, memory, (2,))
        self._widen_range(transitions)
        if self._scale_may_change:
            self._fit_scale(transitions)
        if self.relearning is None:
            self._add(*self._after_warm_up(transitions))
        else:
            # A batch may take its time: all kept transitions at once, with those of this call.
            self.inputs.scaling.take(self.relearning.centre, self.relearning.multiplier)
            self._reset_learner()
            self._add(*self._kept())
        if self._scale_may_change:
            self._end_fitting()
        if solve:
            self.solve()

    def _add(self, observations: Batch, actions: Batch, following: Batch, states: Batch) -> None:
        """Take transitions into the statistics; the weights stay as they are."""
        chunks = [slice(i, i + CHUNK) for i in range(0, len(observations), CHUNK)]

        def encoded(part: slice) -> Iterator[tuple[npt.NDArray[np.int64], FloatArray, Batch]]:
            cells, values, targets = self._samples(
                observations[part], actions[part], following[part], states[part]
            )
            # Samples with the same gates open have the same number of cells.
            opened_gates = self.encoding.opened(values)
            patterns, pattern_of = np.unique(opened_gates, axis=0, return_inverse=True)
            for number, opened in enumerate(patterns):
                chosen = np.ix_(pattern_of.reshape(-1) == number, opened)
                yield cells[chosen], values[chosen], targets[chosen[0].ravel()]

        # All cells first: a batch that does not fit is refused before any of it is taken in.
        touched = np.zeros(self.encoding.cells, np.bool_)
        for part in chunks:
            for cells, _, _ in encoded(part):
                touched[cells.ravel()] = True
        self.learner.admit(np.flatnonzero(touched))
        self._count_changes(following - observations)
        for part in chunks:
            for cells, values, targets in encoded(part):
                self.learner.add(cells, *self._weighted(values, targets))
        if self.novelty:
            self.mark_novelty(self.learner.cells_in_use)

    def solve(self) -> None:
        """Set the weights to the exact ridge solution of everything seen.

        Factorises a matrix over all cells in use: seconds at the paper's size.
        """
        self.learner.solve()

    # Snapshots -------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything the model knows, for `restore`: arrays and JSON facts."""
        return snapshot.model_state(self)

    def exported_state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Return what predictions need, for `restore` of a model after `freeze`."""
        if not self.learner.used or self.warming_up:
            raise NotReadyError("the model has not learned anything yet that could be exported")
        return snapshot.model_state(self, weights_of(self.learner), kept=False)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over a `state` of a model with the same spaces, settings and memory, to the bit."""
        snapshot.restore_model(self, arrays, meta)

    def save(self, path: str | Path) -> None:
        """Write the model to `path`, atomically."""
        save_archive(path, snapshot.KIND, snapshot.VERSION, *self.state())

    @classmethod
    def load(cls, path: str | Path, memory: Memory | None = None) -> OnlineWorldModel:
        """Read what `save` wrote; a memory that is none of this package's must be given."""
        return snapshot.load_model(cls, path, memory)
