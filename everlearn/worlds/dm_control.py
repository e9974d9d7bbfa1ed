"""Tasks of the dm_control suite as worlds; needs the extra ``suite``."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn.interfaces import FloatArray, Measure, Objective
from everlearn.support.errors import MissingExtraError, UnknownNameError, unknown_name
from everlearn.worlds.gymnasium import check_only_task

FRAME = 240
"""Width and height of a rendered frame in pixels."""


class DMControlWorld:
    """One task of the suite; an episode is 1,000 steps with rewards in [0, 1].

    Parameters
    ----------
    task
        Domain and task, such as ``cartpole-swingup`` or ``ball_in_cup-catch``; hyphens and
        underscores are the same.
    """

    measure: Measure = "return"
    max_steps = 1000

    def __init__(self, task: str) -> None:
        known = {f"{domain}-{name}": (domain, name) for domain, name in _suite().ALL_TASKS}
        alike = {_plain(name): name for name in known}
        if _plain(task) not in alike:
            raise UnknownNameError(unknown_name("dm_control task", task, known))
        self._domain, self._task = known[alike[_plain(task)]]
        self.name = f"dm_control:{task}"
        self.tasks = (task,)

    def make(
        self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> DMControlEnv:
        """Return an environment of the task."""
        check_only_task(self.name, self.tasks, task, reset_noise)
        return DMControlEnv(self._domain, self._task, render_mode=render_mode)

    def objective(self, task: str) -> Objective | None:
        """Return None: the reward is learned."""
        return None


class DMControlEnv(gymnasium.Env[FloatArray, FloatArray]):
    """A task of the suite as a Gymnasium environment with flat observations.

    Parameters
    ----------
    domain, task
        As the suite calls them.
    render_mode
        ``"rgb_array"`` or None.
    """

    metadata: dict[str, Any] = {"render_modes": ["rgb_array"]}  # noqa: RUF012

    def __init__(self, domain: str, task: str, *, render_mode: str | None = None) -> None:
        self._env = _suite().load(domain, task, task_kwargs={"random": 0})
        self.render_mode = render_mode
        self.metadata = {**self.metadata, "render_fps": round(1 / self._env.control_timestep())}
        size = sum(int(np.prod(item.shape)) for item in self._env.observation_spec().values())
        self.observation_space = spaces.Box(-np.inf, np.inf, (size,), np.float64)
        action = self._env.action_spec()
        self.action_space = spaces.Box(
            action.minimum.astype(np.float64), action.maximum.astype(np.float64), dtype=np.float64
        )

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[FloatArray, dict[str, Any]]:
        """Start an episode; equal seeds give equal starts."""
        super().reset(seed=seed)
        if seed is not None:
            # The suite draws starts from this generator, and offers no other way to seed it anew.
            self._env.task._random = np.random.RandomState(seed % 2**32)
        return _flat(self._env.reset().observation), {}

    def step(self, action: FloatArray) -> tuple[FloatArray, float, bool, bool, dict[str, Any]]:
        """Act for one control period."""
        step = self._env.step(np.asarray(action, np.float64))
        # An episode that ends with a discount of 1 was cut off by its time limit.
        terminated = bool(step.last() and step.discount == 0.0)
        return (
            _flat(step.observation),
            float(step.reward or 0.0),
            terminated,
            step.last() and not terminated,
            {},
        )

    def render(self) -> Any:
        """Return a frame of the scene's first camera."""
        return self._env.physics.render(FRAME, FRAME, camera_id=0)

    def close(self) -> None:
        """Free the simulation."""
        self._env.close()


def _suite() -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it tries one renderer after another
            return importlib.import_module("dm_control.suite")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            "worlds of dm_control need the package dm_control; install everlearn[suite]"
        ) from error


def _flat(observation: dict[str, Any]) -> FloatArray:
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float64)


def _plain(name: str) -> str:
    return name.replace("_", "-").lower()
