"""The online world model: ridge regression on sparse features, solved after every step.

Follow the leader (paper, section on online world model learning): the model predicts the
change of the observation, ``y = W^T phi(x)``, and after every transition its weights at the
active cells ``s`` become the exact minimiser of the ridge loss of everything seen, the other
rows held (equation 5)::

    W_s <- (A_ss + r I)^-1 (B_s - A_s,rest W_rest),    A = sum phi phi^T,  B = sum phi y^T

In terms of the residual ``G = B - A W - r W`` that is ``W_s += (A_ss + r I)^-1 G_s``, and most
of ``G_s`` is known without touching ``A``: see `OnlineWorldModel._residual_of_active`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Literal

import numba
import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from scipy.linalg import lapack
from threadpoolctl import ThreadpoolController  # type: ignore[import-untyped]

from everlearn.errors import InvalidInputError, MemoryLimitError
from everlearn.models import checkpoint, kernels, update_kernels
from everlearn.models.encoding import LosseEncoding, aligned_zeros, as_box, padded
from everlearn.models.inputs import Batch, ModelInputs
from everlearn.models.memory import CompiledMemory, Memory, NoMemory
from everlearn.models.solver import BlockSolver, UnsolvableError
from everlearn.models.statistics import Statistics
from everlearn.protocols import FloatArray

logger = logging.getLogger(__name__)

CHUNK = 256
"""Transitions of a batch encoded at a time."""

REFRESH = 64
"""Updates after which the residual of every row has been computed anew."""

MAX_BLOCK = 96
"""Candidates imagined together: their inputs and outputs fit the nearest cache."""


@dataclass(frozen=True)
class OnlineWorldModelConfig:
    """Settings of an `OnlineWorldModel`; the defaults are the paper's."""

    features: int = 300
    """Grids of the encoding."""
    bins: int = 9
    """Edges along one dimension of a grid."""
    grid_dim: int = 2
    """Dimensions of a grid."""
    ridge: float = 0.005
    """Strength of the ridge, the paper's 1 / lambda."""
    ridge_growth: Literal["fixed", "samples"] = "fixed"
    """``fixed``: the ridge as it is; ``samples``: times the number of samples seen."""
    observation_gain: float = 3.0
    """What the bounds of an observation become after scaling."""
    action_gain: float = 1.5
    """What the bounds of an action become after scaling."""
    clip: bool = True
    """Keep predictions inside the observation space."""
    precision: Literal["float32", "float64"] = "float32"
    """Type of statistics, weights and predictions."""
    warm_up: int = 200
    """Transitions that fix the scale of unbounded inputs, before any is learned."""
    max_memory_gb: float | None = None
    """Refuse to learn before the statistics outgrow this."""
    threads: int | None = None
    """Threads of kernels and linear algebra; None takes what numba was given."""
    seed: int = 0
    """Seed of the random projection."""

    def __post_init__(self) -> None:
        for name in ("ridge", "observation_gain", "action_gain"):
            value = getattr(self, name)
            if not (isinstance(value, (int, float)) and math.isfinite(value) and value > 0):
                raise InvalidInputError(f"{name} must be a positive number; got {value!r}")
        for name, known in (
            ("ridge_growth", ("fixed", "samples")),
            ("precision", ("float32", "float64")),
        ):
            if getattr(self, name) not in known:
                raise InvalidInputError(
                    f"{name} must be one of {', '.join(known)}; got {getattr(self, name)!r}"
                )
        if self.warm_up < 2:
            raise InvalidInputError(f"warm_up must be at least 2; got {self.warm_up}")
        if self.threads is not None and self.threads < 1:
            raise InvalidInputError(f"threads must be at least 1; got {self.threads}")
        if self.max_memory_gb is not None and not self.max_memory_gb > 0:
            raise InvalidInputError(f"max_memory_gb must be positive; got {self.max_memory_gb}")


class OnlineWorldModel:
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
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: OnlineWorldModelConfig | None = None,
        *,
        memory: Memory | None = None,
        **options: Any,
    ) -> None:
        known = {field.name for field in fields(OnlineWorldModelConfig)}
        if unknown := set(options) - known:
            raise InvalidInputError(
                f"unknown option {sorted(unknown)[0]!r}; known: {', '.join(sorted(known))}"
            )
        self.config = replace(config or OnlineWorldModelConfig(), **options)
        self.observation_space = as_box(observation_space, "observation_space")
        self.action_space = as_box(action_space, "action_space")
        self.memory: Memory = NoMemory() if memory is None else memory
        self.inputs = ModelInputs(
            self.observation_space,
            self.action_space,
            self.memory,
            self.config.observation_gain,
            self.config.action_gain,
        )
        self.dtype = np.dtype(self.config.precision)
        self.encoding = LosseEncoding(
            self.inputs.count,
            self.config.features,
            self.config.bins,
            self.config.grid_dim,
            np.random.default_rng(self.config.seed),
            self.dtype,
        )
        self._width = padded(self.inputs.observations, kernels.LANES)
        # A tuple as long as a row of weights has vectors: the kernels compile for that width.
        self._vectors = (0,) * (self._width // kernels.LANES)
        limit = self.config.max_memory_gb
        self._max_bytes = None if limit is None else limit * 1e9 - self._fixed_bytes()
        if self._max_bytes is not None and self._max_bytes < 0:
            raise MemoryLimitError(
                f"weights and work space alone need {self._fixed_bytes() / 1e9:.3g} GB, more than "
                f"max_memory_gb={limit:g}; raise it or take fewer features or bins"
            )
        self._statistics = Statistics(self.encoding.cells, self._width, self.dtype, self._max_bytes)
        self._weights = aligned_zeros((self.encoding.cells, self._width), self.dtype)
        self._solver = BlockSolver(self.encoding.active, self.dtype)
        self._pools = ThreadpoolController()
        self.steps = 0
        self._pending: list[tuple[Batch, Batch, Batch, Batch]] = []
        self._slot = np.full(self.encoding.cells, -1, np.int64)
        self._previous: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._carried: npt.NDArray[np.float64] = np.zeros((0, self._width))
        self._previous_ridge = 0.0
        self._bounds = np.stack([self.inputs.low, self.inputs.high])
        if not self.config.clip:
            self._bounds = np.stack([np.full(self._bounds.shape[1], b) for b in (-np.inf, np.inf)])
        self._bounds = self._bounds.astype(self.dtype)
        self._announced = False

    def _fixed_bytes(self) -> int:
        """Bytes that do not grow: weights and the work space of the solver."""
        item = self.dtype.itemsize
        block = self.encoding.active**2
        return self.encoding.cells * self._width * item + 2 * block * item

    # Facts -----------------------------------------------------------------------------

    @property
    def weights(self) -> FloatArray:
        """``W[D, S]``, a read-only view."""
        view = self._weights[:, : self.inputs.observations]
        view.flags.writeable = False
        return view

    @property
    def utilization(self) -> float:
        """Fraction of the cells that some transition has activated."""
        return self._statistics.used / self.encoding.cells

    @property
    def ridge(self) -> float:
        """The ridge in force: fixed, or growing with the samples."""
        if self.config.ridge_growth == "samples":
            return self.config.ridge * max(self.steps, 1)
        return self.config.ridge

    @property
    def fallbacks(self) -> int:
        """Updates that float32 could not solve and float64 did."""
        return self._solver.fallbacks

    @property
    def warming_up(self) -> bool:
        """Whether transitions are still kept to fix the scale of unbounded inputs."""
        return not self.inputs.scaling.frozen

    def residual(self) -> npt.NDArray[np.float64]:
        """``G = B - A W - r W`` of every cell ``[D, S]``, from the statistics, in float64.

        Minus half the gradient of the ridge loss; zero on the last active cells.
        """
        statistics, size = self._statistics, self.inputs.observations
        cells = statistics.cells
        weights = self._weights[:, :size].astype(np.float64)
        out = np.zeros_like(weights)
        for first in range(0, statistics.used, CHUNK):
            rows = slice(first, min(first + CHUNK, statistics.used))
            block = statistics.products[rows].astype(np.float64)
            out[cells[rows]] = (
                statistics.targets[rows, :size]
                - block @ weights
                - self.ridge * weights[cells[rows]]
            )
        return out

    # Encoding and prediction -----------------------------------------------------------

    @contextmanager
    def _parallel(self) -> Iterator[None]:
        """Give kernels and linear algebra the configured threads, and take them back."""
        if not self._announced:
            self._announced = True
            logger.info("loading kernels; the first time on a machine compiles them (< 30 s)")
        before = numba.get_num_threads()
        threads = min(self.config.threads or before, numba.config.NUMBA_NUM_THREADS)
        numba.set_num_threads(threads)
        try:
            with self._pools.limit(limits=threads, user_api="blas"):
                yield
        finally:
            numba.set_num_threads(before)

    def encode(
        self, obs: object, action: object, memory: object = None
    ) -> tuple[npt.NDArray[np.int64], FloatArray]:
        """Active cells ``[N, K]`` and their values (``[K]`` each for a single input)."""
        observations = self.inputs.check_observation(obs, "obs")
        actions = self.inputs.check_action(action, "action")
        single = observations.ndim == 1 and actions.ndim == 1
        observations, actions = _paired(observations, actions)
        states = self.inputs.check_memory(memory, observations)
        cells, values = self.encoding(self.inputs.assemble(observations, actions, states))
        return (cells[0], values[0]) if single else (cells, values)

    def predict(self, obs: object, action: object, memory: object = None) -> FloatArray:
        """Next observations ``[N, S]`` of ``obs[N, S]`` and ``action[N, A]``, or one ``[S]``.

        `memory` is the memory's state at `obs`, ``[M]`` or ``[N, M]``; None starts it anew
        there. Pure: nothing in the model changes.
        """
        observations = self.inputs.check_observation(obs, "obs")
        actions = self.inputs.check_action(action, "action")
        single = observations.ndim == 1 and actions.ndim == 1
        observations, actions = _paired(observations, actions)
        states = self.inputs.check_memory(memory, observations)
        out = self._imagine(observations, actions[:, None, :], states)[:, 1]
        return out[0] if single else out

    def rollout(self, obs: object, actions: object, memory: object = None) -> FloatArray:
        """Imagined states ``[N, H + 1, S]`` along ``actions[N, H, A]``, from ``obs``.

        ``obs`` is one observation ``[S]`` for all candidates or ``[N, S]``; `memory` likewise,
        or None to start it anew from `obs`.
        """
        plans = self.inputs.check_action(actions, "actions", (3,))
        observations = self.inputs.check_observation(obs, "obs")
        if observations.ndim == 2 and len(observations) != len(plans):
            raise InvalidInputError(
                f"obs must be one observation or {len(plans)}; got {len(observations)} of them"
            )
        observations = np.broadcast_to(observations, (len(plans), self.inputs.observations))
        states = self.inputs.check_memory(memory, observations)
        return self._imagine(observations, plans, states)

    def _imagine(self, obs: Batch, actions: Batch, memory: Batch) -> FloatArray:
        compiled = self.memory.compiled()
        states = np.empty((len(obs), actions.shape[1] + 1, self.inputs.observations), self.dtype)
        states[:, 0] = obs
        if compiled is not None:
            self._run(states, actions, memory, compiled)
            return states
        # A memory without compiled form: one step at a time, its features handed over.
        given = CompiledMemory(kernels.GIVEN_FEATURES, np.zeros(0, np.int64), np.zeros(0))
        state: FloatArray = memory
        for step in range(actions.shape[1]):
            now, action = states[:, step].astype(np.float64), actions[:, step]
            part = np.ascontiguousarray(states[:, step : step + 2])
            self._run(part, actions[:, step : step + 1], self.memory.features(state, now), given)
            states[:, step + 1] = part[:, 1]
            state = self.memory.advance(state, now, action, part[:, 1].astype(np.float64))
        return states

    def _run(
        self, states: FloatArray, actions: Batch, memory: FloatArray, compiled: CompiledMemory
    ) -> None:
        scaling = np.stack([self.inputs.scaling.centre, self.inputs.scaling.multiplier])
        with self._parallel():
            share = -(-len(states) // numba.get_num_threads())
            kernels.imagine(
                states,
                actions.astype(self.dtype),
                memory.astype(self.dtype),
                self.encoding.projection,
                scaling.astype(self.dtype),
                self._weights,
                self.encoding.bins,
                self.encoding.grid_dim,
                self._bounds,
                compiled.kind,
                compiled.whole,
                compiled.real.astype(self.dtype),
                self._vectors,
                min(MAX_BLOCK, padded(max(share, 1), kernels.LANES)),
            )

    # Learning --------------------------------------------------------------------------

    def learn(self, obs: object, action: object, next_obs: object, memory: object = None) -> None:
        """Take in one transition and update the weights at its active cells (equation 5).

        `memory` is the memory's state at `obs`. While `warming_up`, transitions are kept; the
        one that completes the warm-up fixes the scale and learns all of them in order.
        Bad input raises and changes nothing.
        """
        transition = self._checked(obs, action, next_obs, memory, (1,))
        if self.warming_up:
            self._pending.append(transition)
            if len(self._pending) < self.config.warm_up:
                return
            transitions = self._finish_warm_up()
        else:
            transitions = transition
        for one in zip(*transitions, strict=True):
            self._learn_one(*one)

    def _checked(
        self, obs: object, action: object, next_obs: object, memory: object, dims: tuple[int, ...]
    ) -> tuple[Batch, Batch, Batch, Batch]:
        observations = np.atleast_2d(self.inputs.check_observation(obs, "obs", dims))
        actions = np.atleast_2d(self.inputs.check_action(action, "action", dims))
        following = np.atleast_2d(self.inputs.check_observation(next_obs, "next_obs", dims))
        if not len(observations) == len(actions) == len(following):
            raise InvalidInputError(
                f"obs, action and next_obs must be equally many; got {len(observations)}, "
                f"{len(actions)} and {len(following)}"
            )
        states = np.array(self.inputs.check_memory(memory, observations))
        return observations.copy(), actions, following.copy(), states

    def _finish_warm_up(self) -> tuple[Batch, ...]:
        kept = tuple(np.concatenate(part) for part in zip(*self._pending, strict=True))
        obs, action, _, memory = kept
        self.inputs.scaling.freeze(self.inputs.raw(obs, action, memory))
        self._pending = []
        return kept

    def _learn_one(self, obs: Batch, action: Batch, next_obs: Batch, memory: Batch) -> None:
        inputs = self.inputs.assemble(obs[None], action[None], memory[None])
        cells, values = (part[0] for part in self.encoding(inputs))
        rows = self._statistics.admit(cells)
        target = next_obs - obs
        with self._parallel():
            update_kernels.accumulate(
                self._statistics.products,
                rows,
                cells,
                values,
                self._solver.gathered,
                self._solver.factor,
            )
            self._statistics.add_target(rows, values, target)
            self.steps += 1
            error = np.zeros(self._width)
            update_kernels.prediction(self._weights, cells, values, error)
            error[: len(target)] = target - error[: len(target)]
            self._update(cells, rows, np.outer(values.astype(np.float64), error))

    def refine(self, obs: object, action: object, memory: object = None) -> None:
        """Equation 5 at the active cells of one input, from the data already seen.

        Repeated over inputs it walks to the solution of `solve`, one block at a time.
        """
        observations = np.atleast_2d(self.inputs.check_observation(obs, "obs", (1,)))
        actions = np.atleast_2d(self.inputs.check_action(action, "action", (1,)))
        states = self.inputs.check_memory(memory, observations)
        cells = self.encoding(self.inputs.assemble(observations, actions, states))[0][0]
        # Cells that no sample activated have zero rows and zero weights: nothing to change.
        # They get rows all the same, so that the block keeps its size.
        rows = self._statistics.admit(cells)
        with self._parallel():
            update_kernels.gather(
                self._statistics.products,
                rows,
                cells,
                self._solver.gathered,
                self._solver.factor,
            )
            self._update(cells, rows, np.zeros((len(cells), self._width)))

    def _update(
        self,
        cells: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        gained: npt.NDArray[np.float64],
    ) -> None:
        """``W_s += (A_ss + r I)^-1 G_s``; `gained` is what the new sample added to ``G_s``."""
        ridge = self.ridge
        right = self._residual_of_active(cells, rows, gained, ridge)
        before = self._weights[cells]
        self._forget_previous()
        after, left = self._solver.solve(ridge, right, before)
        self._weights[cells] = after
        self._previous, self._carried, self._previous_ridge = cells, left, ridge
        self._slot[cells] = np.arange(len(cells))

    def _residual_of_active(
        self,
        cells: npt.NDArray[np.int64],
        rows: npt.NDArray[np.int64],
        gained: npt.NDArray[np.float64],
        ridge: float,
    ) -> npt.NDArray[np.float64]:
        """``G_s`` after the new sample.

        The last update left its own rows with a known, almost zero residual. On those of them
        that are active again only the sample (``phi e^T``) and a change of the ridge
        (``-(r - r_before) W``) have been added. Rows that were not active need ``A W``.
        """
        weights = self._weights[cells].astype(np.float64)
        # A few known rows are computed anew each time, in rotation, so that what rounding adds
        # to the statistics cannot pile up in rows that are active for ever.
        slots = self._slot[cells]
        slots[self.steps % REFRESH :: REFRESH] = -1
        fresh = np.flatnonzero(slots < 0)
        known = np.flatnonzero(slots >= 0)
        right = np.empty((len(cells), self._width))
        right[known] = self._carried[slots[known]] + gained[known]
        if ridge != self._previous_ridge:
            right[known] -= (ridge - self._previous_ridge) * weights[known]
        part = self._statistics.targets[rows[fresh]] - ridge * weights[fresh]
        update_kernels.subtract_products(
            self._statistics.products,
            rows[fresh],
            self._statistics.sorted_cells,
            self._weights,
            part,
            self._vectors,
        )
        right[fresh] = part
        return right

    def _forget_previous(self) -> None:
        """From here on no row's residual is known."""
        self._slot[self._previous] = -1
        self._previous = self._previous[:0]
        self._carried = self._carried[:0]

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
        transitions: tuple[Batch, ...] = self._checked(obs, action, next_obs, memory, (2,))
        if self.warming_up:
            self._pending.append(transitions)  # type: ignore[arg-type]
            if sum(len(kept[0]) for kept in self._pending) < self.config.warm_up:
                return
            transitions = self._finish_warm_up()
        observations, actions, following, states = transitions
        chunks = [slice(i, i + CHUNK) for i in range(0, len(observations), CHUNK)]
        touched = np.zeros(self.encoding.cells, np.bool_)
        for part in chunks:
            scaled = self.inputs.assemble(observations[part], actions[part], states[part])
            touched[self.encoding(scaled)[0].ravel()] = True
        self._statistics.admit(np.flatnonzero(touched))
        self._forget_previous()
        with self._parallel():
            for part in chunks:
                scaled = self.inputs.assemble(observations[part], actions[part], states[part])
                cells, values = self.encoding(scaled)
                targets = following[part] - observations[part]
                self._statistics.add(cells, values, targets, 2**self.encoding.grid_dim)
        self.steps += len(observations)
        if solve:
            self.solve()

    def solve(self) -> None:
        """Set the weights to the exact ridge solution of everything seen.

        Factorises a matrix over all cells in use, in float64: seconds at the paper's size.
        """
        statistics, used = self._statistics, self._statistics.used
        needed = used * statistics.row_bytes() + 8 * used**2
        if self._max_bytes is not None and needed > self._max_bytes:
            raise MemoryLimitError(
                f"solving over {used} cells needs {(needed + self._fixed_bytes()) / 1e9:.3g} GB, "
                f"more than max_memory_gb={self.config.max_memory_gb:g}; `learn` needs less"
            )
        if used == 0:
            return
        cells = statistics.cells
        matrix = np.empty((used, used))
        for row in range(used):
            matrix[row] = statistics.products[row, cells]
        matrix.ravel()[:: used + 1] += self.ridge
        with self._parallel():
            factor, info = lapack.dpotrf(matrix.T, lower=0, clean=0, overwrite_a=1)
            if info != 0:
                raise UnsolvableError(
                    f"the statistics of {used} cells with ridge {self.ridge:g} are not positive "
                    "definite in float64; use a larger ridge or precision='float64'"
                )
            solution, _ = lapack.dpotrs(factor, statistics.targets[:used], lower=0)
        self._forget_previous()
        self._weights[cells] = solution

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


def _paired(obs: Batch, action: Batch) -> tuple[Batch, Batch]:
    """Both as ``[N, ...]``; a single one goes with every one of the other."""
    obs, action = np.atleast_2d(obs), np.atleast_2d(action)
    count = max(len(obs), len(action))
    if len(obs) not in (1, count) or len(action) not in (1, count):
        raise InvalidInputError(
            f"obs and action must be equally many; got {len(obs)} and {len(action)}"
        )
    return (
        np.broadcast_to(obs, (count, obs.shape[1])),
        np.broadcast_to(action, (count, action.shape[1])),
    )
