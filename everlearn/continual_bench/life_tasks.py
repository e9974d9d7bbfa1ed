"""The tasks of a life: the six, and those that undo them, with a script for each.

A life has no resets, so each of its objects has a task that changes it and one that changes it
back. The button needs one only: it springs back by itself. A task begins wherever the hand is, so
every script first raises the hand above everything that stands on the table.
"""

from __future__ import annotations

import math

import numpy as np

from everlearn.continual_bench import observation, rewards
from everlearn.continual_bench.scripts import CLOSED, OPEN, Phase, above, at, beside
from everlearn.continual_bench.tasks import PAPER_TASKS, TASKS, BuiltinObjective, Task, builtin_task
from everlearn.interfaces import FloatArray
from everlearn.registry import Registry

LIFE_TASKS: Registry[Task] = Registry("task of a life")
"""The six tasks in the paper's order, then those that undo them."""

OBJECTS: dict[str, tuple[str, ...]] = {
    "block": ("pick-place", "block-return"),
    "button": ("button-press",),
    "door": ("door-open", "door-close"),
    "peg": ("peg-unplug", "peg-return"),
    "window": ("window-close", "window-open"),
    "faucet": ("faucet-close", "faucet-open"),
}
"""Of each object, its task and the one that undoes it."""

LIFE_SCRIPTS: Registry[tuple[Phase, ...]] = Registry("script of a life")
"""Scripts by the name of their task, from wherever the hand is."""

_TRAVEL = 0.42
"""Height at which a hand passes above everything, in metres."""

_ORBIT, _TURN = 0.5, 0.6
"""Radius in metres at which it goes around the robot, and the angle to the point ahead."""

_KINDS = {"pick-place": rewards.LIFT_BLOCK, "peg-unplug": rewards.LIFT_PEG}
for _name, _kind, _like in (
    *((name, _KINDS.get(name, TASKS.get(name).kind), name) for name in PAPER_TASKS),
    ("window-open", rewards.WINDOW_OPEN, "window-close"),
    ("faucet-open", rewards.FAUCET_OPEN, "faucet-close"),
    ("door-close", rewards.DOOR_CLOSE, "door-open"),
    ("peg-return", rewards.PEG_RETURN, "peg-unplug"),
    ("block-return", rewards.BLOCK_RETURN, "pick-place"),
):
    _model = TASKS.get(_like)
    LIFE_TASKS.register(
        _name,
        builtin_task(
            _name, _kind, _model.camera, _model.hand, _model.object_start, _model.fingers_start
        ),
    )


def objective_of(task: str) -> BuiltinObjective:
    """Return a task's reward as a planner sees it, the same in every visit."""
    objective = LIFE_TASKS.get(task).objective()
    assert isinstance(objective, BuiltinObjective)
    return objective


def _up(obs: FloatArray) -> FloatArray:
    return np.array([obs[0], obs[1], _TRAVEL])


def _here(obs: FloatArray) -> FloatArray:
    return obs[observation.HAND]


def _script(task: str, *phases: Phase) -> None:
    first = phases[0]

    def across(obs: FloatArray) -> FloatArray:
        """Go around the robot, which stands in the middle."""
        x, y = first.goal(obs)[:2]
        angle = math.atan2(obs[1], obs[0])
        turn = (math.atan2(y, x) - angle + math.pi) % (2.0 * math.pi) - math.pi
        if abs(turn) > _TURN:
            angle += math.copysign(_TURN, turn)
            x, y = _ORBIT * math.cos(angle), _ORBIT * math.sin(angle)
        return np.array([x, y, _TRAVEL])

    LIFE_SCRIPTS.register(
        task,
        (
            Phase(_here, OPEN, near=-1.0, steps=25),
            Phase(_up, first.gripper, near=0.03, steps=60),
            Phase(across, first.gripper, near=0.03, steps=300),
            *phases,
        ),
    )


def _at_door(side: float, out: float, height: float, near: float = 0.03) -> Phase:
    """Return the phase that goes beside the handle, in coordinates that turn with the door."""

    def goal(obs: FloatArray) -> FloatArray:
        angle = obs[observation.DOOR_ANGLE]
        x = obs[7] + side * math.cos(angle) + out * math.sin(angle)
        y = obs[8] + side * math.sin(angle) - out * math.cos(angle)
        return np.array([x, y, height])

    return Phase(goal, CLOSED, near=near)


def _around_peg(away: float, height: float) -> Phase:
    """Return the phase that goes behind the peg's end, seen from its spot."""

    def goal(obs: FloatArray) -> FloatArray:
        end, spot = obs[observation.PEG_END][:2], np.array(rewards.inverses.PEG_SPOT)
        way = end - spot
        x, y = end + away * way / max(float(np.linalg.norm(way)), 1e-3)
        return np.array([x, y, height])

    return Phase(goal, CLOSED, near=0.025)


_BLOCK, _PEG = observation.BLOCK_POSITION, observation.PEG_END
_WINDOW, _FAUCET = observation.WINDOW_HANDLE, observation.FAUCET_HANDLE

_script(
    "pick-place",
    Phase(above(_BLOCK, 0.0, 0.0, 0.14), OPEN),
    Phase(beside(_BLOCK, 0.0, 0.0, 0.036), OPEN, near=0.008, steps=40),
    Phase(beside(_BLOCK, 0.0, 0.0, 0.036), CLOSED, near=0.0, steps=18),
    Phase(at(0.52, 0.32, 0.26), CLOSED, near=0.0),
)
_script(
    "block-return",
    Phase(above(_BLOCK, 0.0, 0.0, 0.14), OPEN),
    Phase(beside(_BLOCK, 0.0, 0.0, 0.036), OPEN, near=0.008, steps=40),
    Phase(beside(_BLOCK, 0.0, 0.0, 0.036), CLOSED, near=0.0, steps=18),
    Phase(beside(_BLOCK, 0.0, 0.0, 0.15), CLOSED, near=0.0, steps=15),
    Phase(at(*rewards.inverses.BLOCK_SPOT, 0.15), CLOSED, near=0.02),
    Phase(at(*rewards.inverses.BLOCK_SPOT, 0.05), CLOSED, near=0.0, steps=40),
    Phase(at(*rewards.inverses.BLOCK_SPOT, 0.06), OPEN, near=0.0),
)
_script(
    "button-press",
    Phase(above(observation.BUTTON_POSITION, 0.0, 0.0, 0.32), CLOSED, near=0.025),
    Phase(beside(observation.BUTTON_POSITION, 0.0, 0.0, -0.1), CLOSED, near=0.0),
)
_script(
    "door-open",
    _at_door(-0.03, -0.02, 0.3, near=0.08),
    _at_door(0.0, -0.03, 0.17),
    Phase(at(-0.3, 0.36, 0.15), CLOSED, near=0.0),
)
_script(
    "door-close",
    _at_door(0.0, 0.14, 0.3),
    _at_door(0.0, 0.14, 0.17),
    Phase(at(0.25, 0.75, 0.17), CLOSED, near=0.0),
)
_script(
    "peg-unplug",
    Phase(beside(_PEG, 0.0, 0.0, 0.1), OPEN),
    Phase(beside(_PEG, 0.0, 0.0, 0.032), OPEN, near=0.01, steps=40),
    Phase(beside(_PEG, 0.0, 0.0, 0.032), CLOSED, near=0.0, steps=18),
    Phase(at(0.25, -0.75, 0.2), CLOSED, near=0.02, steps=60),
    Phase(at(0.194, -0.75, 0.17), CLOSED, near=0.0),
)
_script(
    "peg-return",
    _around_peg(0.11, 0.2),
    _around_peg(0.11, 0.09),
    Phase(at(*rewards.inverses.PEG_SPOT, 0.09), CLOSED, near=0.0),
)
_script(
    "window-close",
    Phase(above(_WINDOW, 0.0, 0.08, 0.34), CLOSED, near=0.03),
    Phase(beside(_WINDOW, 0.0, 0.08, 0.02), CLOSED, near=0.025),
    Phase(beside(_WINDOW, 0.0, -0.3, 0.02), CLOSED, near=0.0),
)
_script(
    "window-open",
    Phase(above(_WINDOW, 0.0, -0.09, 0.34), CLOSED, near=0.03),
    Phase(beside(_WINDOW, 0.0, -0.09, 0.02), CLOSED, near=0.025),
    Phase(beside(_WINDOW, 0.0, 0.3, 0.02), CLOSED, near=0.0),
)
_script(
    "faucet-close",
    Phase(above(_FAUCET, -0.11, -0.01, 0.24), CLOSED, near=0.03),
    Phase(beside(_FAUCET, -0.1, -0.01, 0.012), CLOSED, near=0.025),
    Phase(at(0.8, -0.3, 0.13), CLOSED, near=0.06),
    Phase(at(0.8, -0.5, 0.13), CLOSED, near=0.0),
)
_script(
    "faucet-open",
    Phase(above(_FAUCET, 0.02, -0.1, 0.34), CLOSED, near=0.03),
    Phase(beside(_FAUCET, 0.02, -0.1, 0.012), CLOSED, near=0.025, steps=60),
    Phase(at(0.62, -0.12, 0.13), CLOSED, near=0.0),
)
