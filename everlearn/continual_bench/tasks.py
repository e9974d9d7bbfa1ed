"""The tasks: six built in under the paper's names, and any that a user registers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlearn.continual_bench import rewards
from everlearn.continual_bench.observation import WORKSPACE_HIGH, WORKSPACE_LOW
from everlearn.interfaces import FloatArray, Objective
from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError

Success = Callable[[FloatArray, FloatArray, FloatArray], np.ndarray]


@dataclass(frozen=True)
class Task:
    """One thing to do in the world.

    A task changes the reward, the success and where the hand starts; never the dynamics.

    Parameters
    ----------
    name
        The name under which every command and environment knows it.
    hand
        Where the hand starts an episode, in metres.
    camera
        The camera that shows it.
    reward, success
        Batched functions of ``(obs[N, 26], action[N, 4], next_obs[N, 26])``: rewards ``[N]``
        and flags ``[N]``.
    kind
        Number of the built-in reward, or -1 for a task that a user registered.
    object_start
        Where the task's object stands at first; the caging of the peg is measured from it.
    fingers_start
        Finger centre after a reset without noise; sets the rewards' margins.
    """

    name: str
    hand: tuple[float, float, float]
    camera: str
    reward: Objective
    success: Success
    kind: int = -1
    object_start: tuple[float, float, float] = (0.0, 0.0, 0.0)
    fingers_start: tuple[float, float, float] = (0.0, 0.0, 0.0)

    def start(self) -> FloatArray:
        """Return the start that rewards take their margins from (`rewards.py`)."""
        return np.array([*self.fingers_start, *self.object_start])

    def objective(self, start: FloatArray | None = None) -> Objective:
        """Return the reward as a planner sees it: a function of predicted observations.

        Parameters
        ----------
        start
            The start of the episode at hand, from the environment's ``start``; without it, that
            of a reset without noise.
        """
        if self.kind < 0:
            return TaskObjective(self.reward, self.success)
        return BuiltinObjective(self.kind, self.start() if start is None else np.array(start))


class BuiltinObjective:
    """A built-in reward on predicted observations, with estimated fingers."""

    def __init__(self, kind: int, start: FloatArray) -> None:
        self.kind = kind
        self.start = start

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        """Rewards ``[N]``; the observation before the action plays no part."""
        return rewards.reward_batch(self.kind, action, next_obs, self.start)

    def succeeded(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> np.ndarray:
        """Say which transitions ``[N]`` solve the task."""
        return rewards.success_batch(self.kind, next_obs)


class TaskObjective:
    """The reward of a registered task, which also knows what solves it."""

    def __init__(self, reward: Objective, success: Success) -> None:
        self.reward = reward
        self.succeeded = success

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        """Rewards ``[N]``."""
        return self.reward(obs, action, next_obs)


class _BuiltinSuccess:
    """A built-in success on observations."""

    def __init__(self, kind: int) -> None:
        self.kind = kind

    def __call__(self, obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> np.ndarray:
        return rewards.success_batch(self.kind, next_obs)


TASKS: Registry[Task] = Registry("task")
"""Every task by name, built-in ones first."""


def builtin_task(
    name: str,
    kind: int,
    camera: str,
    hand: tuple[float, float, float],
    object_start: tuple[float, float, float],
    fingers_start: tuple[float, float, float],
) -> Task:
    """Return a task with one of the compiled rewards."""
    start = np.array([*fingers_start, *object_start])
    return Task(
        name=name,
        hand=hand,
        camera=camera,
        reward=BuiltinObjective(kind, start),
        success=_BuiltinSuccess(kind),
        kind=kind,
        object_start=object_start,
        fingers_start=fingers_start,
    )


def _builtin(name: str, *rest: Any) -> None:
    TASKS.register(name, builtin_task(name, *rest))


# The paper's names in the paper's order: where the hand starts, where the object stands, and
# where the fingers are once the hand has moved there (measured after a reset).
_builtin(
    "pick-place",
    rewards.BLOCK,
    "camera_block",
    (0.25, 0.1, 0.2),
    rewards.BLOCK_START,
    (0.2564255177953212, 0.10750284814305036, 0.15194744181638628),
)
_builtin(
    "button-press",
    rewards.BUTTON,
    "camera_button",
    (0.0, -0.3, 0.1),
    (-0.5, -0.5, 0.0),
    (-0.01156538755558522, -0.30001792936132643, 0.05117210059046829),
)
_builtin(
    "door-open",
    rewards.DOOR,
    "camera_door",
    (0.0, 0.6, 0.2),
    (0.05, 0.9, 0.15),
    (0.02480098847003661, 0.6307405923013121, 0.17771271497295765),
)
_builtin(
    "peg-unplug",
    rewards.PEG,
    "camera_peg",
    (0.15, -0.75, 0.2),
    rewards.PEG_START,
    (0.15759419121977705, -0.7497404420192895, 0.15033485740800695),
)
_builtin(
    "window-close",
    rewards.WINDOW,
    "camera_window",
    (-0.2, 0.3, 0.1),
    (-0.7, 0.2, 0.202),
    (-0.21523085266903758, 0.2822907768012331, 0.06265230723885298),
)
_builtin(
    "faucet-close",
    rewards.FAUCET,
    "camera_faucet",
    (0.0, -0.3, 0.1),
    rewards.FAUCET_START,
    (-0.01156538755558522, -0.30001792936132643, 0.05117210059046829),
)

PAPER_TASKS = TASKS.names()
"""The six built-in tasks in the order in which the paper learns them."""


def register_task(
    name: str,
    reward: Objective,
    success: Success,
    *,
    like: str = "pick-place",
    hand: tuple[float, float, float] | None = None,
    camera: str | None = None,
    replace: bool = False,
) -> Task:
    """Add a task of your own; from then on it works wherever a built-in one does.

    Parameters
    ----------
    name
        Its name.
    reward, success
        Batched functions of ``(obs[N, 26], action[N, 4], next_obs[N, 26])`` that return ``[N]``
        rewards and ``[N]`` flags. The environment calls them with ``N = 1``, a planner with
        thousands.
    like
        A known task whose start of the hand and camera are taken where none is given.
    hand
        Where the hand starts, inside the workspace.
    camera
        Name of a camera of the scene.
    replace
        Take the name over from a task that has it already. The six built-in tasks keep theirs.

    Examples
    --------
    >>> import numpy as np
    >>> from everlearn.continual_bench import register_task
    >>> def height(obs, action, next_obs):
    ...     return next_obs[:, 2]
    >>> def high(obs, action, next_obs):
    ...     return next_obs[:, 2] > 0.4
    >>> register_task("reach-up", height, high, like="button-press", replace=True).name
    'reach-up'
    """
    if name in PAPER_TASKS:
        raise InvalidInputError(f"{name!r} is a built-in task; choose another name")
    if not callable(reward) or not callable(success):
        raise InvalidInputError(
            f"reward and success of task {name!r} must be functions of (obs, action, next_obs)"
        )
    model = TASKS.get(like)
    place = model.hand if hand is None else tuple(float(x) for x in hand)
    inside = len(place) == 3 and all(
        low <= x <= high for low, x, high in zip(WORKSPACE_LOW, place, WORKSPACE_HIGH, strict=True)
    )
    if not inside:
        raise InvalidInputError(
            f"hand start {place} of task {name!r} must be three numbers inside the workspace "
            f"{WORKSPACE_LOW} to {WORKSPACE_HIGH}"
        )
    task = Task(
        name=name,
        hand=(place[0], place[1], place[2]),
        camera=model.camera if camera is None else camera,
        reward=reward,
        success=success,
        object_start=model.object_start,
    )
    return TASKS.register(name, task, replace=replace)
