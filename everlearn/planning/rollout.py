"""Imagined sequences of actions: how they are bounded, rolled out and valued."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Objective, WorldModel
from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError

Actions = npt.NDArray[np.float32]


class Sequences(NamedTuple):
    """Sequences of actions, what they earned and what was imagined for them.

    Attributes
    ----------
    actions
        ``[N, H, A]``.
    returns
        ``[N]``; minus infinity where the objective was not finite.
    states
        ``[N, H + 1, S]``.
    """

    actions: Actions
    returns: npt.NDArray[np.float64]
    states: FloatArray

    def best(self, count: int) -> Sequences:
        """Return up to `count` sequences of finite return, best first."""
        # A stable sort: of equals the earlier wins, on every machine.
        order = np.argsort(-self.returns, kind="stable")[:count]
        order = order[np.isfinite(self.returns[order])]
        return Sequences(self.actions[order], self.returns[order], self.states[order])

    def first(self, count: int) -> Sequences:
        """Return the first `count` sequences."""
        return Sequences(self.actions[:count], self.returns[:count], self.states[:count])

    def joined(self, other: Sequences) -> Sequences:
        """Return these sequences followed by those of `other`."""
        return Sequences(
            np.concatenate([self.actions, other.actions]),
            np.concatenate([self.returns, other.returns]),
            np.concatenate([self.states, other.states]),
        )


def imagine(
    model: WorldModel,
    obs: FloatArray,
    objective: Objective,
    memory: FloatArray | None,
    actions: Actions,
    weights: npt.NDArray[np.float64],
    beyond: float = 1.0,
) -> Sequences:
    """Roll out ``actions[N, H, A]`` from ``obs[S]`` and sum their rewards times ``weights[H]``.

    If the objective knows a value of the last states (`final`), that counts `beyond` times.
    """
    count, horizon, _ = actions.shape
    states = np.asarray(model.rollout(obs, actions, memory=memory))
    expected = (count, horizon + 1, len(obs))
    if states.shape != expected:
        raise InvalidInputError(
            f"the model's rollout has shape {states.shape}; expected [N, H + 1, S] = {expected}"
        )
    returns, alive = earned(objective, states, actions, weights)
    final = getattr(objective, "final", None)
    if final is not None:
        returns += beyond * alive * final(states[:, -1])
    returns[~np.isfinite(returns)] = -np.inf
    return Sequences(actions, returns, states)


def earned(
    objective: Objective, states: FloatArray, actions: Actions, weights: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Sum rewards times ``weights[H]`` along ``states[N, H + 1, S]``, and say who is alive then.

    If the objective can tell how likely an episode goes on after a transition (`continues`), a
    reward counts as far as the episode has come to it, and the second array has the probability
    that the episode goes on after the last one; without, that is 1.
    """
    count, horizon, action_size = actions.shape
    flat = count * horizon
    # Step by step, as models imagine: then what the objective gets is no copy.
    steps = states.swapaxes(0, 1)
    transitions = (
        steps[:-1].reshape(flat, -1),
        actions.swapaxes(0, 1).reshape(flat, -1),
        steps[1:].reshape(flat, -1),
    )
    returned = objective(*transitions)
    rewards = as_numbers(returned, "what the objective returned", flags=True)
    if rewards.shape != (flat,):
        raise InvalidInputError(
            f"the objective returned {rewards.dtype} of shape {rewards.shape} for observations "
            f"{(flat, states.shape[2])} and actions {(flat, action_size)}; expected real numbers "
            f"of shape {(flat,)}, one for each transition"
        )
    alive: npt.NDArray[np.float64] = np.ones(count)
    continues = getattr(objective, "continues", None)
    if continues is not None:
        goes_on = _by_candidate(continues(*transitions), horizon)
        first = np.ones((count, 1))
        reached = np.cumprod(np.concatenate([first, goes_on], axis=1), axis=1)
        weights, alive = weights * reached[:, :-1], reached[:, -1]
    # Infinities of both signs may meet in a sum; the caller sorts out what comes of it.
    with np.errstate(invalid="ignore", over="ignore"):
        returns = (_by_candidate(rewards, horizon) * weights).sum(axis=1, dtype=np.float64)
    return returns, alive


def _by_candidate(values: npt.NDArray[Any], horizon: int) -> npt.NDArray[Any]:
    """Return ``values[H * N]`` as ``[N, H]``, each candidate's side by side."""
    return np.ascontiguousarray(values.reshape(horizon, -1).T)


def action_bounds(
    space: spaces.Box,
) -> tuple[Actions, Actions]:
    """Return finite bounds in float32, rounded inwards: whatever they clip is in the space."""
    if not isinstance(space, spaces.Box) or len(space.shape) != 1 or space.shape[0] == 0:
        raise InvalidInputError(f"action space is {space}; expected a Box with one axis")
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)
    if not (np.all(np.isfinite(low)) and np.all(np.isfinite(high)) and np.all(low <= high)):
        raise InvalidInputError(
            f"action bounds are {low} to {high}; expected finite ones with low <= high "
            "(gymnasium.wrappers.RescaleAction gives an environment such bounds)"
        )
    infinity = np.float32(np.inf)
    low32, high32 = low.astype(np.float32), high.astype(np.float32)
    low32 = np.where(low32 < low, np.nextafter(low32, infinity), low32)
    high32 = np.where(high32 > high, np.nextafter(high32, -infinity), high32)
    return low32, high32
