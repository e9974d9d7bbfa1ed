"""Pick-place with its goal elsewhere: the same reward around another point."""

from __future__ import annotations

import numpy as np

from everlearn.continual_bench import rewards
from everlearn.continual_bench.observation import BLOCK_POSITION
from everlearn.continual_bench.tasks import TASKS
from everlearn.interfaces import FloatArray
from everlearn.support.checks import as_numbers
from everlearn.support.compiled import njit
from everlearn.support.errors import InvalidInputError, given

GOAL_RADIUS = 0.07
"""Metres from the goal within which the block counts as there, as in the task itself."""

GOAL_LOW, GOAL_HIGH = (-0.7, -0.7, 0.02), (0.7, 0.7, 0.45)
"""Corners of where a goal can be."""

GOAL_REACH = 0.75
"""Largest distance of a goal from the middle of the table."""


@njit(cache=True)
def _block_rewards(action, obs, start, target, out):  # type: ignore[no-untyped-def]
    for i in range(len(obs)):
        out[i] = rewards.block_to(obs[i], action[i], start, target)


class BlockGoal:
    """Objective of pick-place with its goal at `target`, in metres.

    Parameters
    ----------
    target
        Three finite numbers on or above the table.
    """

    def __init__(self, target: object = rewards.BLOCK_TARGET) -> None:
        array = as_numbers(target, "goal of the block")
        if array.shape != (3,) or not np.isfinite(array).all():
            raise InvalidInputError(
                f"goal of the block is {given(target)}; expected three finite numbers"
            )
        inside = (array >= GOAL_LOW).all() and (array <= GOAL_HIGH).all()
        if not inside or np.hypot(array[0], array[1]) > GOAL_REACH:
            raise InvalidInputError(
                f"goal of the block {array.tolist()} is out of reach: expected a point within "
                f"{GOAL_REACH} m of the middle of the table, {GOAL_LOW[2]} to {GOAL_HIGH[2]} m high"
            )
        self.target = (float(array[0]), float(array[1]), float(array[2]))
        self._start = TASKS.get("pick-place").start()

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        """Rewards ``[N]``."""
        out = np.empty(len(next_obs))
        _block_rewards(action, next_obs.astype(np.float64), self._start, self.target, out)
        return out

    def succeeded(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> np.ndarray:
        """Say which transitions ``[N]`` solve the task."""
        away = next_obs[:, BLOCK_POSITION] - self.target
        return np.asarray(np.linalg.norm(away, axis=1) <= GOAL_RADIUS)


def within_reach(point: FloatArray) -> tuple[float, float, float]:
    """Return the place nearest to `point` where a goal can be."""
    x, y, z = np.clip(np.nan_to_num(np.asarray(point, np.float64)), GOAL_LOW, GOAL_HIGH)
    shrink = min(1.0, (GOAL_REACH - 1e-9) / max(float(np.hypot(x, y)), 1e-9))
    return float(x * shrink), float(y * shrink), float(z)
