"""Scripted controllers: the proof that every task can be solved, and a source of demonstrations.

A script is a list of phases. Each phase names a point relative to something observed, what the
gripper does meanwhile, and when it is over; the hand goes there by proportional control.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from everlearn.continual_bench import observation
from everlearn.interfaces import FloatArray
from everlearn.registry import Registry
from everlearn.support.checks import check_number

OPEN, CLOSED = -1.0, 1.0
# Action for a metre of distance; below the speed limit of one centimetre a step it slows down.
GAIN = 12.0
MAX_NOISE = 10.0
"""Largest deviation of noise on actions, which lie in [-1, 1]; more changes nothing."""


@dataclass(frozen=True)
class Phase:
    """One leg of a script.

    Parameters
    ----------
    goal
        Where the hand should go, as a function of the observation.
    gripper
        Effort of the gripper, -1 open to 1 closed.
    near
        The phase is over within this distance of the goal, in metres.
    steps
        It is over after this many steps in any case.
    """

    goal: Callable[[FloatArray], FloatArray]
    gripper: float
    near: float = 0.02
    steps: int = 200


def beside(what: slice, x: float, y: float, z: float) -> Callable[[FloatArray], FloatArray]:
    """Return the point at an offset from an observed position."""
    offset = np.array([x, y, z])
    return lambda obs: obs[what] + offset


def above(what: slice, x: float, y: float, height: float) -> Callable[[FloatArray], FloatArray]:
    """Return the point beside an observed position, at a fixed height over the table."""
    return lambda obs: np.array([obs[what][0] + x, obs[what][1] + y, height])


def at(x: float, y: float, z: float) -> Callable[[FloatArray], FloatArray]:
    """Return a fixed point."""
    point = np.array([x, y, z])
    return lambda obs: point


SCRIPTS: Registry[tuple[Phase, ...]] = Registry("script")
"""Scripts by the name of their task."""

SCRIPTS.register(
    "pick-place",
    (
        Phase(above(observation.BLOCK_POSITION, 0.0, 0.0, 0.14), OPEN),
        Phase(beside(observation.BLOCK_POSITION, 0.0, 0.0, 0.036), OPEN, near=0.008),
        Phase(beside(observation.BLOCK_POSITION, 0.0, 0.0, 0.036), CLOSED, near=0.0, steps=18),
        Phase(at(0.52, 0.32, 0.26), CLOSED, near=0.0),
    ),
)
SCRIPTS.register(
    "button-press",
    (
        Phase(above(observation.BUTTON_POSITION, 0.0, 0.0, 0.32), CLOSED, near=0.025),
        Phase(beside(observation.BUTTON_POSITION, 0.0, 0.0, -0.1), CLOSED, near=0.0),
    ),
)
SCRIPTS.register(
    "door-open",
    (
        Phase(beside(observation.DOOR_HANDLE, -0.03, 0.02, 0.15), CLOSED, near=0.08),
        Phase(beside(observation.DOOR_HANDLE, 0.0, 0.03, 0.02), CLOSED, near=0.03),
        Phase(at(-0.3, 0.36, 0.15), CLOSED, near=0.0),
    ),
)
SCRIPTS.register(
    "peg-unplug",
    (
        Phase(beside(observation.PEG_END, 0.0, 0.0, 0.1), OPEN),
        Phase(beside(observation.PEG_END, 0.0, 0.0, 0.032), OPEN, near=0.01),
        Phase(beside(observation.PEG_END, 0.0, 0.0, 0.032), CLOSED, near=0.0, steps=18),
        Phase(at(0.4, -0.75, 0.16), CLOSED, near=0.0),
    ),
)
SCRIPTS.register(
    "window-close",
    (
        Phase(above(observation.WINDOW_HANDLE, 0.0, 0.08, 0.34), CLOSED, near=0.03),
        Phase(beside(observation.WINDOW_HANDLE, 0.0, 0.08, 0.02), CLOSED, near=0.025),
        Phase(beside(observation.WINDOW_HANDLE, 0.0, -0.3, 0.02), CLOSED, near=0.0),
    ),
)
SCRIPTS.register(
    "faucet-close",
    (
        Phase(above(observation.FAUCET_HANDLE, -0.11, -0.01, 0.24), CLOSED, near=0.03),
        Phase(beside(observation.FAUCET_HANDLE, -0.1, -0.01, 0.012), CLOSED, near=0.025),
        Phase(at(0.8, -0.3, 0.13), CLOSED, near=0.06),
        Phase(at(0.8, -0.5, 0.13), CLOSED, near=0.0),
    ),
)


class ScriptedController:
    """Plays the script of one task.

    Parameters
    ----------
    task
        Name of a task that has a script.
    noise
        Standard deviation of Gaussian noise added to every action, for varied demonstrations.
    seed
        Seed of that noise.
    scripts
        Where the script is looked up.

    Attributes
    ----------
    phase, phase_steps
        Where it is in the script: the number of the phase, and the steps spent in it.
    """

    def __init__(
        self,
        task: str,
        noise: float = 0.0,
        seed: int = 0,
        scripts: Registry[tuple[Phase, ...]] = SCRIPTS,
    ) -> None:
        check_number("noise", noise, 0.0, MAX_NOISE)
        self.phases = scripts.get(task)
        self.noise = noise
        self._generator = np.random.default_rng(seed)
        self.reset()

    def reset(self) -> None:
        """Go back to the first phase, for a new episode."""
        self.phase = 0
        self.phase_steps = 0

    def act(self, obs: FloatArray) -> FloatArray:
        """Return the action at `obs`, inside [-1, 1]."""
        phase = self.phases[self.phase]
        way = phase.goal(obs) - obs[observation.HAND]
        last = self.phase == len(self.phases) - 1
        if not last and (np.linalg.norm(way) < phase.near or self.phase_steps >= phase.steps):
            self.phase += 1
            self.phase_steps = 0
            return self.act(obs)
        self.phase_steps += 1
        action = np.append(GAIN * way, phase.gripper)
        if self.noise:
            action += self._generator.normal(0.0, self.noise, 4)
        return np.clip(action, -1.0, 1.0)
