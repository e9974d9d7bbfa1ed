"""A world that costs nothing, so that a suite can run and evaluate in it hundreds of times."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from everlearn.support.errors import UnknownNameError
from everlearn.worlds import WORLDS, register_world


class Line(gymnasium.Env[Any, Any]):
    """Go right."""

    observation_space = spaces.Box(-1, 1, (1,), np.float64)
    action_space = spaces.Box(-1, 1, (1,), np.float64)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self._place = self.np_random.uniform(-1, 1, 1)
        return self._place.copy(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self._place = np.clip(self._place + 0.1 * action, -1, 1)
        solved = bool(self._place[0] > 0.9)
        return self._place.copy(), float(self._place[0]), solved, False, {"success": solved}


class LineWorld:
    name = "line"
    tasks = ("first", "second")
    measure = "success"
    max_steps = 5

    def make(self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None) -> Line:
        if task not in self.tasks:
            raise UnknownNameError(f"unknown task {task!r}; known: {', '.join(self.tasks)}")
        return Line()

    def objective(self, task: str) -> None:
        return None


if "line" not in WORLDS:
    register_world("line", LineWorld())
