"""The online world model: predicts the change of an observation, exact after every step.

The model is ``y = W^T phi(x)`` with Losse features ``phi`` (encoding.py) of the observation,
the action and what is remembered (inputs.py, memory.py), and weights that follow the leader
(learner.py). Imagination runs in compiled code (kernels.py).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import Bodies, FloatArray
from everlearn.online import snapshot as checkpoint
from everlearn.online.config import OnlineModelConfig
from everlearn.online.encoding import LosseEncoding
from everlearn.online.kernels import imagination as kernels
from everlearn.online.projections import (
    dense_rows,
    local_rows,
    local_sizes,
    relative_places,
)
from everlearn.online.ridge import RidgeLearner
from everlearn.support.errors import InvalidInputError
from everlearn.support.threads import Threads
from everlearn.world_model.base import ImaginingModel, Transitions, paired
from everlearn.world_model.inputs import Batch
from everlearn.world_model.memory import CompiledMemory, Memory
from everlearn.world_model.vectors import LANES, padded

logger = logging.getLogger(__name__)

CHUNK = 256
"""Transitions of a batch encoded at a time."""

MAX_BLOCK = 96
"""Candidates imagined together: their inputs and outputs fit the nearest cache."""


class OnlineWorldModel(ImaginingModel):
    """A world model that is exact after every transition.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    config
        Settings; any of them can also be given by name, as in
        ``OnlineWorldModel(obs_space, act_space, features=100, ridge=1.0)``.
    memory
        What the model sees beside observation and action; nothing, as in the paper, if None.
    bodies
        Where hand and objects are in the observation; local grids need it.
    still
        Smallest change of each observation in a step, as for `ImaginingModel`.
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
        **options: Any,
    ) -> None:
        known = {field.name for field in fields(OnlineModelConfig)}
        if unknown := set(options) - known:
            raise InvalidInputError(
                f"unknown option {sorted(unknown)[0]!r}; known: {', '.join(sorted(known))}"
            )
        self.config = replace(config or OnlineModelConfig(), **options)
        self.seed = seed
        super().__init__(
            observation_space,
            action_space,
            memory,
            self.config.precision,
            (self.config.observation_gain, self.config.action_gain),
            self.config.clip,
            still,
        )
        self.encoding = LosseEncoding(
            self.inputs.count,
            self.config.features,
            self.config.bins,
            self.config.grid_dim,
            np.random.default_rng(seed),
            self.dtype,
            self.inputs.count - self.inputs.observations if self.config.linear else 0,
        )
        self.bodies = bodies
        self._set_projection()
        self._threads = Threads(threads)
        limit = self.config.max_memory_gb
        self.learner = RidgeLearner(
            self.encoding.cells,
            self.encoding.active,
            2**self.encoding.grid_dim,
            self.inputs.observations,
            self.dtype,
            self.config.ridge,
            False,
            None if limit is None else limit * 1e9,
            self._threads,
        )
        self.pending: list[Transitions] = []
        logger.info("kernels are compiled at their first use on a machine, which takes < 30 s")

    def _set_projection(self) -> None:
        """Draw the projections of dense and local grids, if that is not just the paper's."""
        config, dim = self.config, self.config.grid_dim
        grids = round(config.local_grids * config.features)
        if grids and (self.bodies is None or self.warming_up):
            raise InvalidInputError(
                "local_grids needs `bodies`, the places of hand and objects in the observation, "
                "and finite bounds; an environment declares them as `bodies`. Without, leave "
                "local_grids at 0"
            )
        if not grids and self.inputs.gridded.all():
            return
        rng = np.random.default_rng(self.seed)
        rows = dense_rows(rng, (config.features - grids) * dim, self.inputs)
        if grids and self.bodies is not None:
            local = local_rows(
                rng,
                grids,
                dim,
                self.inputs,
                self.bodies,
                config.local_gain,
                config.local_inputs,
                0.0,
            )
            rows = np.concatenate([rows, local])
            if config.local_reach:
                self.encoding.set_gates(
                    relative_places(self.inputs, self.bodies),
                    local_sizes(grids, self.bodies),
                    config.local_reach,
                )
        self.encoding.set_projection(rows)

    # Facts -----------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        """``W[D, S]``, a read-only view."""
        view = self.learner.weights[:, : self.inputs.observations]
        view.flags.writeable = False
        return view

    @property
    def steps(self) -> int:
        """Transitions learned."""
        return self.learner.samples

    @property
    def utilization(self) -> float:
        """Fraction of the cells that some transition has activated."""
        return self.learner.statistics.used / self.encoding.cells

    @property
    def ridge(self) -> float:
        """The ridge in force: fixed, or growing with the samples."""
        return self.learner.ridge

    @property
    def fallbacks(self) -> int:
        """Updates that float32 could not solve and float64 did."""
        return self.learner.solver.fallbacks

    @property
    def warming_up(self) -> bool:
        """Whether transitions are still kept to fix the scale of unbounded inputs."""
        return not self.inputs.scaling.frozen

    def residual(self) -> npt.NDArray[np.float64]:
        """``G = B - A W - r W`` of every cell ``[D, S]``, from the statistics, in float64.

        Minus half the gradient of the ridge loss; zero on the last active cells.
        """
        return self.learner.residual()

    # Encoding and imagination ----------------------------------------------------------

    def encode(
        self, obs: object, action: object, memory: object = None
    ) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Active cells ``[N, K]`` and their values (``[K]`` each for a single input).

        Out of their reach local grids are there too, with values of 0.
        """
        observations = self.inputs.check_observation(obs, "obs")
        actions = self.inputs.check_action(action, "action")
        single = observations.ndim == 1 and actions.ndim == 1
        observations, actions = paired(observations, actions)
        states = self.inputs.check_memory(memory, observations)
        cells, values = self.encoding(self.inputs.assemble(observations, actions, states))
        return (cells[0], values[0]) if single else (cells, values)

    def _run(
        self, states: FloatArray, actions: Batch, memory: FloatArray, compiled: CompiledMemory
    ) -> None:
        scaling = np.stack([self.inputs.scaling.centre, self.inputs.scaling.multiplier])
        with self._threads.limited() as threads:
            share = -(-len(states) // threads)
            kernels.imagine(
                states,
                actions.astype(self.dtype),
                memory.astype(self.dtype),
                self.encoding.compiled,
                self.encoding.gates,
                self.encoding.padded_inputs,
                scaling.astype(self.dtype),
                self.learner.table,
                self.encoding.bins,
                self.encoding.grid_dim,
                self.encoding.first_linear,
                self._limits,
                compiled.kind,
                compiled.whole,
                compiled.real.astype(self.dtype),
                self.learner.vectors,
                min(MAX_BLOCK, padded(max(share, 1), LANES)),
            )

    # Learning --------------------------------------------------------------------------

    def learn(self, obs: object, action: object, next_obs: object, memory: object = None) -> None:
        """Take in one transition and update the weights at its active cells (equation 5).

        `memory` is the memory's state at `obs`. While `warming_up`, transitions are kept; the
        one that completes the warm-up fixes the scale and learns all of them in order.
        Bad input raises and changes nothing.
        """
        transition = self._checked(obs, action, next_obs, memory, (1,))
        for one in zip(*self._after_warm_up(transition), strict=True):
            self._learn_one(*one)

    def _after_warm_up(self, transitions: Transitions) -> Transitions:
        """Give what there is to learn now: `transitions`, none, or all kept ones with them."""
        if not self.warming_up:
            return transitions
        self.pending.append(transitions)
        obs, action, next_obs, memory = (
            np.concatenate(part) for part in zip(*self.pending, strict=True)
        )
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
        self.learner.learn(cells[opened], values[opened], targets[0])
        if self.config.solve_every and self.steps % self.config.solve_every == 0:
            self.learner.solve()

    def _samples(
        self, obs: Batch, action: Batch, next_obs: Batch, memory: Batch
    ) -> tuple[npt.NDArray[np.int64], FloatArray, Batch]:
        """Cells, values and targets of transitions.

        One that counts w times has both values and targets times the root of w: in the ridge
        loss that is the same.
        """
        cells, values = self.encoding(self.inputs.assemble(obs, action, memory))
        targets = next_obs - obs
        return cells, values, targets

    def refine(self, obs: object, action: object, memory: object = None) -> None:
        """Equation 5 at the active cells of one input, from the data already seen.

        Repeated over inputs it walks to the solution of `solve`, one block at a time.
        """
        observations = self.inputs.check_observation(obs, "obs", (1,))
        actions = self.inputs.check_action(action, "action", (1,))
        cells, values = self.encode(observations, actions, memory)
        self.learner.refine(cells[self.encoding.opened(values[None])[0]])

    def learn_batch(
        self,
        obs: object,
        action: object,
        next_obs: object,
        memory: object = None,
        *,
        solve: bool = True,
    ) -> None:
        """Take in many transitions at once, then `solve` exactly (unless told not to).

        During the warm-up they are kept like those of `learn`, until there are enough.
        """
        transitions = self._checked(obs, action, next_obs, memory, (2,))
        observations, actions, following, states = self._after_warm_up(transitions)
        chunks = [slice(i, i + CHUNK) for i in range(0, len(observations), CHUNK)]

        def encoded(part: slice) -> Iterator[tuple[npt.NDArray[np.int64], FloatArray, Batch]]:
            cells, values, targets = self._samples(
                observations[part], actions[part], following[part], states[part]
            )
            # Samples with the same gates open have the same number of cells.
            patterns, kind = np.unique(self.encoding.opened(values), axis=0, return_inverse=True)
            for number, opened in enumerate(patterns):
                chosen = np.ix_(kind.reshape(-1) == number, opened)
                yield cells[chosen], values[chosen], targets[chosen[0].ravel()]

        # All cells first: a batch that does not fit is refused whole, before any is taken in.
        touched = np.zeros(self.encoding.cells, np.bool_)
        for part in chunks:
            for cells, _, _ in encoded(part):
                touched[cells.ravel()] = True
        self.learner.statistics.admit(np.flatnonzero(touched))
        for part in chunks:
            for samples in encoded(part):
                self.learner.add(*samples)
        if solve:
            self.solve()

    def solve(self) -> None:
        """Set the weights to the exact ridge solution of everything seen.

        Factorises a matrix over all cells in use, in float64: seconds at the paper's size.
        """
        self.learner.solve()

    # Keeping ---------------------------------------------------------------------------

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything the model knows, for `restore`: arrays and JSON facts."""
        return checkpoint.model_state(self)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over a `state` of a model with the same spaces, settings and memory, to the bit."""
        checkpoint.restore_model(self, arrays, meta)

    def save(self, path: str | Path) -> None:
        """Write the whole model to `path`, atomically."""
        checkpoint.save_model(self, path)

    @classmethod
    def load(cls, path: str | Path) -> OnlineWorldModel:
        """Read what `save` wrote."""
        return checkpoint.load_model(cls, path)
