"""The cross-entropy method with colored noise, memory and shift initialisation.

One decision, from the mean mu and the elites that the last decision left, both shifted by one
step::

    sigma <- initial deviation
    repeat K times:
        candidates <- clip(mu + sigma * colored noise), N of them
        returns    <- sum over the horizon of discount^t * objective(s_t, a_t, s_t+1),
                      the last of them times 1 + final weight
        elites     <- best of candidates and of a fraction of the elites before
        mu, sigma  <- momentum * old + (1 - momentum) * mean and deviation of the elites

Elites of an earlier iteration keep the returns they had: the model does not change within a
decision, so imagining them again would cost time and give the same numbers.
"""

from __future__ import annotations

import dataclasses
import math
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective, Plan, WorldModel
from everlearn.planning.noise import colored_noise
from everlearn.planning.rollout import Actions, Sequences, action_bounds, imagine
from everlearn.support.checks import check_number, check_whole
from everlearn.support.compiled import njit
from everlearn.support.errors import InvalidInputError

MARGIN = 1.1
"""How long an iteration may take, in times of the longest so far, where there is a deadline."""


@dataclass(frozen=True)
class CEMConfig:
    """Settings of `CEMPlanner`; the defaults are the paper's, or fill in where it is silent."""

    candidates: int = 150
    """Sequences of actions imagined in each iteration, N."""
    horizon: int = 15
    """Steps of a sequence, H."""
    iterations: int = 3
    """Iterations of a decision, K."""
    elites: int = 15
    """Best sequences that the next mean and deviation are fitted to."""
    noise_beta: float = 2.0
    """Exponent of the noise spectrum along the horizon; 0 is white."""
    deviation: float = 0.5
    """Initial sigma of a decision, in half ranges of the action space."""
    noise_decades: float = 0.0
    """Decades by which a candidate scales its noise down at the most; each draws its own factor.

    Small and large changes of a plan are tried side by side then: balancing needs small ones,
    swinging up large ones. 0 gives all the same noise.
    """
    kept_elites: float = 0.3
    """Fraction of the elites that the next iteration and, shifted, the next decision get."""
    momentum: float = 0.1
    """Weight of the old mean and deviation in the new ones."""
    discount: float = 1.0
    """Weight of a reward relative to the one a step before it."""
    final_weight: float = 0.0
    """How many more times the reward of the last step counts, for all that comes after it."""

    def __post_init__(self) -> None:
        for name in ("candidates", "horizon", "iterations", "elites"):
            check_whole(name, getattr(self, name), 1)
        if self.elites > self.candidates:
            raise InvalidInputError(
                f"elites is {self.elites}, more than the {self.candidates} candidates"
            )
        check_number("noise_beta", self.noise_beta, 0.0, 1e6)
        check_number("deviation", self.deviation, 0.0, 100.0)
        check_number("noise_decades", self.noise_decades, 0.0, 10.0)
        for name in ("kept_elites", "momentum", "discount"):
            check_number(name, getattr(self, name), 0.0, 1.0)
        check_number("final_weight", self.final_weight, 0.0, 1e6)

    @property
    def kept(self) -> int:
        """Number of elites kept between iterations and, shifted, between decisions."""
        return round(self.kept_elites * self.elites)

    def build(self, action_space: spaces.Box, seed: int | np.random.SeedSequence = 0) -> CEMPlanner:
        """Make a planner with these settings for an action space with finite bounds."""
        return CEMPlanner(action_space, self, seed)


class CEMPlanner:
    """Plans by the cross-entropy method in a model's imagination.

    Parameters
    ----------
    action_space
        Bounds of the actions; they must be finite.
    config
        Settings; the paper's by default.
    seed
        Seeds the planner's own generator; equal seeds give equal plans.
    """

    def __init__(
        self,
        action_space: spaces.Box,
        config: CEMConfig | None = None,
        seed: int | np.random.SeedSequence = 0,
    ) -> None:
        self.config = CEMConfig() if config is None else config
        self.action_space = action_space
        self._low, self._high = action_bounds(action_space)
        middle = self._low + (self._high - self._low) / 2
        self._half_range = (self._high - self._low) / 2
        self._bounds = np.stack([self._low, self._high])
        self._initial_mean = np.tile(middle, (self.config.horizon, 1)).astype(np.float32)
        self._weights = self.config.discount ** np.arange(self.config.horizon, dtype=np.float64)
        self._weights[-1] *= 1 + self.config.final_weight
        self._beyond = self.config.discount**self.config.horizon
        self._generator = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Forget earlier plans; the generator goes on."""
        self._mean: Actions = self._initial_mean.copy()
        # Kept elites without their executed first action: the new last one is drawn afresh.
        actions = self.action_space.shape[0]
        self._elites: Actions = np.empty((0, self.config.horizon - 1, actions), dtype=np.float32)

    def spawn(self, seed: int | np.random.SeedSequence) -> CEMPlanner:
        """Return a fresh planner with the same settings, its own memory and generator."""
        return CEMPlanner(self.action_space, self.config, seed)

    def plan(
        self,
        model: WorldModel,
        obs: FloatArray,
        objective: Objective,
        memory: FloatArray | None = None,
        deadline_ms: float | None = None,
    ) -> Plan:
        """Search for the best actions from `obs`, and remember them for the next decision.

        Parameters
        ----------
        model
            Imagines: ``rollout(obs, actions, memory=memory)``.
        obs
            The present observation, ``[S]``. The model checks it, unless it was checked before.
        objective
            Batched reward; called once an iteration on flattened ``[N * H]`` transitions.
        memory
            State of the model's memory at `obs`, if it has one.
        deadline_ms
            Do not begin an iteration that would end later than this after the call, judged by
            the longest one so far. The first is always done.
        """
        started = time.perf_counter()
        if deadline_ms is not None:
            check_number("deadline_ms", deadline_ms, 0.0, math.inf)
        deadline = math.inf if deadline_ms is None else started + deadline_ms / 1000.0
        before = self._generator.bit_generator.state
        try:
            return self._search(model, obs, objective, memory, started, deadline)
        except BaseException:
            self._generator.bit_generator.state = before
            raise

    def _search(
        self,
        model: WorldModel,
        obs: FloatArray,
        objective: Objective,
        memory: FloatArray | None,
        started: float,
        deadline: float,
    ) -> Plan:
        config = self.config
        mean: Actions = self._mean
        deviation: Actions = np.tile(config.deviation * self._half_range, (config.horizon, 1))
        all_returns: list[npt.NDArray[np.float64]] = []
        elites: Sequences | None = None
        best: Sequences | None = None
        longest = 0.0
        while True:
            begun = time.perf_counter()
            candidates = self._candidates(mean, deviation)
            if not all_returns:
                # The last decision's elites, shifted: they take the place of the first
                # candidates and keep those candidates' last action.
                candidates[: len(self._elites), :-1] = self._elites
            imagined = imagine(
                model, obs, objective, memory, candidates, self._weights, self._beyond
            )
            all_returns.append(imagined.returns)
            found = imagined.best(config.elites)
            if elites is not None:
                # The old ones first: among equals the plan at hand is kept.
                found = elites.first(config.kept).joined(found).best(config.elites)
            if len(found.returns) == 0:
                raise InvalidInputError(
                    f"the objective gave no finite return for any of {len(candidates)} candidates "
                    f"from observation {obs}; check it for imagined states, which may lie "
                    "outside of what the environment shows"
                )
            elites = found
            if best is None or elites.returns[0] > best.returns[0]:
                best = elites.first(1)
            mean = _mixed(config.momentum, mean, elites.actions.mean(axis=0))
            deviation = _mixed(config.momentum, deviation, elites.actions.std(axis=0))
            now = time.perf_counter()
            longest = max(longest, now - begun)
            if len(all_returns) == config.iterations or now + MARGIN * longest > deadline:
                break

        actions = best.actions[0]
        self._mean = np.concatenate([mean[1:], self._initial_mean[-1:]])
        self._elites = elites.actions[: config.kept, 1:].copy()
        return Plan(
            action=actions[0].copy(),
            actions=actions,
            value=float(best.returns[0]),
            returns=tuple(all_returns),
            elites=elites.actions,
            elite_returns=elites.returns,
            states=elites.states,
            iterations_done=len(all_returns),
            seconds=time.perf_counter() - started,
        )

    def _candidates(self, mean: Actions, deviation: Actions) -> Actions:
        """Draw the candidates ``[N, H, A]`` of an iteration, inside the bounds."""
        config = self.config
        count = config.candidates
        noise = colored_noise(
            self._generator, (count, len(self._low), config.horizon), config.noise_beta
        )
        scale: FloatArray = np.ones(count, np.float32)
        if config.noise_decades:
            decades = config.noise_decades * self._generator.random((count, 1, 1), np.float32)
            scale = (np.float32(10) ** -decades).reshape(-1)
        candidates = np.empty((count, config.horizon, len(self._low)), dtype=np.float32)
        _place(noise, scale, mean, deviation, self._bounds, candidates)
        return candidates

    def state(self) -> tuple[dict[str, npt.NDArray[Any]], dict[str, Any]]:
        """Everything that later plans depend on: arrays and a JSON dictionary."""
        arrays: dict[str, npt.NDArray[Any]] = {
            "mean": self._mean.copy(),
            "elites": self._elites.copy(),
        }
        meta = {
            "config": dataclasses.asdict(self.config),
            "generator": self._generator.bit_generator.state,
        }
        return arrays, meta

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over what `state` returned; on bad input raise and change nothing."""
        config = dataclasses.asdict(self.config)
        if meta.get("config") != config:
            raise InvalidInputError(
                f"the stored planner has settings {meta.get('config')}, this one {config}; "
                "make one with the stored settings"
            )
        mean, elites = arrays.get("mean"), arrays.get("elites")
        if not _is_float32(mean, [self._mean.shape]):
            raise InvalidInputError(f"the stored mean is not float32 of shape {self._mean.shape}")
        tail = self._elites.shape[1:]
        most = self.config.kept
        if not _is_float32(elites, [(count, *tail) for count in range(most + 1)]):
            raise InvalidInputError(
                f"the stored elites are not float32 of shape {('E', *tail)} with E <= {most}"
            )
        generator = np.random.default_rng(0)
        try:
            generator.bit_generator.state = meta["generator"]
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidInputError(f"the stored generator state is not usable: {error}") from error
        self._mean = np.array(mean)
        self._elites = np.array(elites)
        self._generator = generator


@njit(cache=True)
def _place(noise: Any, scale: Any, mean: Any, deviation: Any, bounds: Any, out: Any) -> None:
    """``out[n, t, a] = clip(mean[t, a] + scale[n] deviation[t, a] noise[n, a, t], *bounds[a])``."""
    candidates, horizon, actions = out.shape
    # In the order of the noise, where neighbours make vectors; then put where they belong.
    row = np.empty((actions, horizon), out.dtype)
    means, deviations = mean.T.copy(), deviation.T.copy()
    for n in range(candidates):
        factor = scale[n]
        for a in range(actions):
            low, high = bounds[0, a], bounds[1, a]
            for t in range(horizon):
                value = means[a, t] + factor * (deviations[a, t] * noise[n, a, t])
                # Comparisons with NaN are false: it stays.
                value = low if value < low else value
                row[a, t] = high if value > high else value
        for t in range(horizon):
            for a in range(actions):
                out[n, t, a] = row[a, t]


def _mixed(momentum: float, old: Actions, new: Actions) -> Actions:
    """Mix old and new; a Python float leaves the arrays their precision."""
    return np.asarray(momentum * old + (1.0 - momentum) * new, dtype=np.float32)


def _is_float32(array: object, shapes: list[tuple[int, ...]]) -> bool:
    return isinstance(array, np.ndarray) and array.dtype == np.float32 and array.shape in shapes
