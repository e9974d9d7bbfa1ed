"""One decision for several steps: the action is repeated, and learned from as one transition."""

from __future__ import annotations

from typing import Any

import numpy as np

from everlearn.interfaces import FloatArray


class RepeatedAction:
    """Counts the steps of a decision.

    Parameters
    ----------
    times
        Steps that a decision is for.

    Attributes
    ----------
    steps
        Steps since the decision; 0 where the next step needs one.
    start, action
        Observation at the decision, and what was decided.
    reward
        Sum of the rewards since.
    """

    def __init__(self, times: int) -> None:
        self.times = times
        self.clear()

    def clear(self) -> None:
        """Forget the decision."""
        self.steps, self.reward = 0, 0.0
        self.start: FloatArray = np.zeros(0)
        self.action: FloatArray = np.zeros(0)

    def count(self, obs: FloatArray, action: FloatArray, reward: float, terminated: bool) -> bool:
        """Count a step, and return whether the decision is over: call `clear` then.

        A step with another action than the one before is a decision of its own.
        """
        if not self.steps or not np.array_equal(action, self.action):
            self.steps, self.reward = 0, 0.0
            # Copies: the environment may write its next observation into the same array.
            self.start, self.action = obs.copy(), action.copy()
        self.steps += 1
        self.reward += reward
        return terminated or self.steps >= self.times

    def state(self) -> dict[str, Any]:
        """Return everything, as JSON."""
        return {
            "steps": self.steps,
            "reward": self.reward,
            "start": self.start.tolist(),
            "action": self.action.tolist(),
        }

    def restore(self, state: dict[str, Any], entries: int, actions: int) -> None:
        """Take over what `state` returned, for so many entries of observations and actions."""
        start, action = (np.array(state[name], np.float64) for name in ("start", "action"))
        steps, reward = int(state["steps"]), float(state["reward"])
        shapes = ((entries,), (actions,)) if steps else ((0,), (0,))
        fits = (start.shape, action.shape) == shapes and 0 <= steps < max(self.times, 1)
        if not fits or not np.isfinite([*start, *action, reward]).all():
            raise ValueError(f"a repeated action of {self.times} steps cannot be {state}")
        self.steps, self.reward, self.start, self.action = steps, reward, start, action
