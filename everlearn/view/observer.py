"""What the control loop tells the page: called after every step, it makes frames now and then."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np

from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.view.frame import NO_LINES, Frame, Lines, imagined, moving_parts, positions
from everlearn.view.scene import Simulation

HISTORY = 400
"""Points of a curve that are kept."""

RECENT = 10
"""Episodes that the share of solved ones is of."""

BACK = 15
"""Steps that a prediction goes back."""


class Observer:
    """Makes frames of an agent that acts in an environment.

    Parameters
    ----------
    simulation, facts
        The scene, and what its environment declares.
    put
        Takes a frame at once, such as `LatestFrame.put`.
    watched
        Says whether anybody looks: no frames are made for nobody.
    rate
        Frames a second at the most.
    share
        Processor time that watching may take, relative to that of the control loop; on a busy
        machine, where steps take longer, there are fewer frames.
    spent
        Says how much processor time the page has taken, in seconds.
    """

    def __init__(
        self,
        simulation: Simulation,
        facts: EnvironmentFacts,
        put: Callable[[Frame], None],
        watched: Callable[[], bool] = lambda: True,
        rate: float = 20.0,
        share: float = 1.0,
        spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.simulation, self.bodies = simulation, facts.bodies
        self._put, self._watched = put, watched
        self._interval = 1 / rate
        self._next = 0.0
        self._share, self._spent = share, spent
        self._own = 0.0  # processor time of making frames
        self._paid = 0.0  # what watching had taken when the last frame was made
        self._since = time.thread_time()
        self._steps = 0
        self._curves: dict[str, deque[tuple[float, float]]] = {}
        self._solved: deque[bool] = deque(maxlen=RECENT)
        self._agent: Any = None
        self._task, self._number = "", 0
        self.goal: tuple[float, float, float] | None = None
        self.note = ""
        self._begin()

    def begin_episode(self, agent: Any, task: str, number: int) -> None:
        """Hear of an episode that begins."""
        self._agent, self._task, self._number = agent, task, number
        self._begin()

    def _begin(self) -> None:
        self._last: deque[tuple[FloatArray, FloatArray, FloatArray | None]] = deque(maxlen=BACK)
        self._memory: FloatArray | None = None
        self._total, self._length = 0.0, 0
        self._rewards: list[float] = []
        self._expected: FloatArray | None = None
        self._plan: Any = None
        self._errors: list[float] = []

    def __call__(
        self, obs: FloatArray, action: FloatArray, after: FloatArray, reward: float
    ) -> None:
        """Hear of a step."""
        self._steps += 1
        self._length += 1
        self._total += reward
        self._rewards.append(reward)
        self._last.append((obs, action, self._memory))
        self._memory = getattr(self._agent, "memory_state", None)
        self._compare(obs, action)
        now = time.monotonic()
        if now >= self._next and self._watched() and self._affordable():
            self._next = now + self._interval
            self.show(after)

    def _affordable(self) -> bool:
        """Whether the last frame is paid for: the loop has worked long enough since then."""
        total = self._own + self._spent()
        if total - self._paid > self._share * (time.thread_time() - self._since):
            return False
        self._paid, self._since = total, time.thread_time()
        return True

    def end_episode(self, solved: bool | None) -> None:
        """Hear of the end of an episode."""
        if solved is not None:
            self._solved.append(solved)
            self._add(f"solved, mean of {RECENT} episodes", self._number, np.mean(self._solved))
        self._add("return of an episode", self._number, self._total)

    def _compare(self, obs: FloatArray, action: FloatArray) -> None:
        """Measure what the last plan expected against what came, once a new one is made."""
        plan = getattr(self._agent, "last_plan", None)
        if plan is None or plan is self._plan:
            return
        if self._expected is not None:
            self._errors.append(self._distance(self._expected, obs))
        self._plan = plan
        followed = np.array_equal(plan.action, np.asarray(action, plan.action.dtype))
        self._expected = plan.states[0, 1, : len(obs)] if followed else None

    def _distance(self, expected: FloatArray, obs: FloatArray) -> float:
        """Millimetres of hand and objects, or the mean of all observations without bodies."""
        away = np.abs(expected - obs)
        if self.bodies is None:
            return float(away.mean())
        parts = [self.bodies.hand, *self.bodies.objects]
        return 1000 * max(float(np.linalg.norm(away[list(part)])) for part in parts)

    # Frames ----------------------------------------------------------------------------

    def show(self, obs: FloatArray) -> None:
        """Make a frame of this moment."""
        began = time.thread_time()
        happened, predicted = self._hindsight(obs)
        self._add_points()
        self._put(
            Frame(
                poses=self.simulation.poses(),
                status=self._status(),
                task=self._task,
                imagined=imagined(getattr(self._agent, "last_plan", None), self.bodies),
                happened=happened,
                predicted=predicted,
                curves=self._points(),
                goal=self.goal,
            )
        )
        self._own += time.thread_time() - began

    def _hindsight(self, obs: FloatArray) -> tuple[Lines, Lines]:
        """Paths of the last steps: as they were, and as the model expects them by now."""
        if len(self._last) < 2 or self.bodies is None:
            return NO_LINES, NO_LINES
        observed = np.array([*(before for before, _, _ in self._last), obs])
        parts = moving_parts(observed, self.bodies)
        happened = positions(observed, parts)
        model = getattr(self._agent, "model", None)
        if model is None:
            return happened, NO_LINES
        actions = np.array([action for _, action, _ in self._last])
        start, _, memory = self._last[0]
        states = model.rollout(self._read(model, start), actions[None], memory=memory)[0]
        return happened, positions(np.asarray(states), parts)

    @staticmethod
    def _read(model: Any, obs: FloatArray) -> FloatArray:
        """Return an observation as the model reads it: reward and end, if it learns them, are 0."""
        return np.append(obs, np.zeros(model.observation_space.shape[0] - len(obs)))

    def _add_points(self) -> None:
        if self._rewards:
            self._add("reward", self._steps, float(np.mean(self._rewards)))
            self._rewards = []
        if self._errors:
            unit = "" if self.bodies is None else ", mm"
            self._add(f"model error of one step{unit}", self._steps, float(np.mean(self._errors)))
            self._errors = []
        model: Any = getattr(self._agent, "model", None)
        if self._last and hasattr(model, "novelty_at"):
            before, action, memory = self._last[-1]
            novelty = model.novelty_at(self._read(model, before), action, memory)
            self._add("uncertainty (novelty of the step)", self._steps, novelty)

    def _add(self, name: str, x: float, y: float | np.floating[Any]) -> None:
        self._curves.setdefault(name, deque(maxlen=HISTORY)).append((x, float(y)))

    def _points(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        found = {}
        for name, points in self._curves.items():
            x, y = np.array(points, np.float64).T
            found[name] = (x, y)
        return found

    def _status(self) -> str:
        reward = f", return {self._total:.1f}" if self._length else ""
        note = f"  \n{self.note}" if self.note else ""
        return f"**{self._task}**, episode {self._number}, step {self._length}{reward}{note}"
