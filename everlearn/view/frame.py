"""What the page shows at one moment, and the slot through which it gets there."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import Bodies, FloatArray, Plan

Lines = npt.NDArray[np.float32]
"""Paths ``[P, T, 3]`` in metres."""

NO_LINES: Lines = np.zeros((0, 2, 3), np.float32)

MOVED = 0.003
"""Metres that an object must move in imagination for its path to be shown."""


@dataclass(frozen=True, eq=False)
class Imagined:
    """Where a plan expects hand and objects to go.

    Attributes
    ----------
    paths
        Of the elites, ``[P, H + 1, 3]``.
    merit
        For each path the imagined return of its elite, from 0 for the worst to 1 for the best.
    plan
        Of what is executed, the best of them: the hand's path first.
    """

    paths: Lines = field(default_factory=lambda: NO_LINES)
    merit: npt.NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))
    plan: Lines = field(default_factory=lambda: NO_LINES)


@dataclass(frozen=True, eq=False)
class Frame:
    """One moment.

    Attributes
    ----------
    poses
        Positions and quaternions of all bodies ``[B, 7]``; None leaves them.
    status
        A line of Markdown.
    task
        Name of the current task.
    imagined
        What the plan expects.
    happened, predicted
        Where hand and moving objects went in the last steps, and where the model expects them to
        go with the same actions, ``[P, T, 3]``.
    curves
        By name, points ``(x, y)`` to draw; None leaves them as they are.
    goal
        Where the block is to go, in pick-place.
    """

    poses: FloatArray | None = None
    status: str = ""
    task: str = ""
    imagined: Imagined = field(default_factory=Imagined)
    happened: Lines = field(default_factory=lambda: NO_LINES)
    predicted: Lines = field(default_factory=lambda: NO_LINES)
    curves: dict[str, tuple[FloatArray, FloatArray]] | None = None
    goal: tuple[float, float, float] | None = None


class LatestFrame:
    """Holds one frame: a newer one takes its place, so that whoever puts never waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._frame: Frame | None = None
        self._closed = False
        self.dropped = 0

    def put(self, frame: Frame) -> None:
        """Show `frame` next; one that was not taken yet is dropped."""
        with self._changed:
            self.dropped += self._frame is not None
            self._frame = frame
            self._changed.notify()

    def take(self) -> Frame | None:
        """Wait for a frame and return it; None once the slot is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._frame is not None or self._closed)
            frame, self._frame = self._frame, None
            return None if self._closed else frame

    def close(self) -> None:
        """Let nobody wait any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


Part = tuple[tuple[int, ...], tuple[float, ...]]
"""Entries of an observation that are a position, and what is added to it."""


def moving_parts(states: FloatArray, bodies: Bodies | None) -> list[Part]:
    """Return the hand, and the objects that move in ``states[T, S]``."""
    if bodies is None or len(bodies.hand) != 3:
        return []
    moved = [
        (entries, (0.0, 0.0, 0.0))
        for entries in bodies.objects
        if np.ptp(states[:, list(entries)], axis=0).max() > MOVED
    ]
    return [(bodies.hand, bodies.grip), *moved]


def positions(states: FloatArray, parts: list[Part]) -> Lines:
    """Paths ``[P, T, 3]`` of parts in states ``[T, S]``."""
    if not parts or len(states) < 2:
        return NO_LINES
    paths = [states[:, list(entries)] + shift for entries, shift in parts]
    return np.asarray(paths, np.float32)


def imagined(plan: Plan | None, bodies: Bodies | None) -> Imagined:
    """Return the paths of a plan's elites."""
    if plan is None or not moving_parts(plan.states[0], bodies):
        return Imagined()
    order = np.argsort(plan.elite_returns)  # the best last, so that it is drawn on top
    returns = plan.elite_returns[order]
    spread = max(float(np.ptp(returns)), 1e-9)
    paths = [positions(states, moving_parts(states, bodies)) for states in plan.states[order]]
    merit = (returns - returns[0]) / spread
    counts = [len(found) for found in paths]
    return Imagined(np.concatenate(paths), merit.repeat(counts).astype(np.float32), paths[-1])


def segments(paths: Lines) -> Lines:
    """Straight pieces ``[P * (T - 1), 2, 3]`` of paths ``[P, T, 3]``."""
    return np.stack([paths[:, :-1], paths[:, 1:]], axis=2).reshape(-1, 2, 3)
