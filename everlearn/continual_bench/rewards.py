"""The six rewards, each written once as a compiled scalar function, and the table of all rewards.

They serve two callers. The environment knows where the fingers really are (`fingers` holds
the sites of the simulation); a planner sees only predicted observations and estimates them
(`estimate_fingers`). Rewards lie in [0, 10], but for pick-place, which is -10 once the block
is carried off the table.

The arguments of every reward are ``(obs, action, fingers, start)``:

- ``obs[26]``, the observation after the action (`observation.py` names its entries);
- ``action[4]``, as it was given, before any clipping;
- ``fingers[5]``, the point between the finger tips and the y of the left and right pad;
- ``start[6]``, the finger centre when the episode began and the place where the active
  task's object started.

Four quirks of the published rewards are kept, because they set its numbers:

- the window's start is read from a site that does not exist, `WINDOW_START`;
- finger sites and observation lag the joint state by one physics substep (environment);
- the caging of the peg is measured from the *active* task's object, the second half of
  ``start``;
- pick-place never uses the true fingers, and rounds the pads to single precision.
"""

from __future__ import annotations

import math

import numpy as np
from numba import prange

from everlearn.continual_bench import inverses
from everlearn.continual_bench.shaping import (
    TABLE_EDGE,
    caging,
    distance,
    gaussian,
    hamacher,
    long_tail,
)
from everlearn.interfaces import FloatArray
from everlearn.support.compiled import njit

BUTTON_TARGET_Z = 0.09999996829318347
BUTTON_TRAVEL = 0.09349997035412655
DOOR_TARGET_X = -0.25
WINDOW_TARGET_Y = 0.2
WINDOW_START = (-0.5, -0.3, 0.0)  # quirk: the handle really starts at (-0.605, 0.410, 0.202)
FAUCET_START = (0.6, -0.4, 0.0)
FAUCET_TARGET = (0.7749999999999999, -0.4, 0.125)
PEG_START = (0.08399999999999999, -0.75, 0.131)
PEG_TARGET = (0.194, -0.75, 0.131)
BLOCK_START = (0.5, 0.2, 0.0)
BLOCK_TARGET = (0.52, 0.33, 0.2)

# Finger centre below the hand, and pad offsets as a line in the gripper's opening: exact only
# for a hand that points straight down.
FINGER_DROP = 0.045
LEFT_PAD = (0.0498818, -0.00295677)
RIGHT_PAD = (-0.04990992, 0.00292741)

SHARE = 500
"""Predicted observations that one thread rewards at a time."""

BUTTON, DOOR, WINDOW, FAUCET, PEG, BLOCK = range(6)
"""Numbers of the built-in rewards, in the order of the published reward table."""

WINDOW_OPEN, FAUCET_OPEN, DOOR_CLOSE, PEG_RETURN, BLOCK_RETURN, LIFT_BLOCK, LIFT_PEG = range(6, 13)
"""Numbers of the rewards of a life (`inverses.py`)."""

KINDS = 13
"""How many rewards there are."""


@njit(cache=True)
def button_press(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Gripper closed and near the button, then the button down."""
    x, y, z = obs[4], obs[5], obs[6]
    off = distance(x, y, z, fingers[0], fingers[1], fingers[2])
    margin = distance(x, y, z, start[0], start[1], start[2])
    reward = 5.0 * hamacher(1.0 - obs[3], long_tail(off, 0.0, 0.01, margin))
    if off <= 0.03:
        reward += 5.0 * long_tail(abs(BUTTON_TARGET_Z - z), 0.0, 0.005, BUTTON_TRAVEL)
    return reward


@njit(cache=True)
def door_open(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Hand behind the handle, coming from above, then the door swung open."""
    if abs(obs[7] - DOOR_TARGET_X) <= 0.08:
        return 10.0
    x, y, z = obs[7] - 0.05, obs[8], obs[9]
    # A funnel around the handle: the further away, the higher the hand should be.
    rim = 0.12
    radius = math.sqrt((obs[0] - x) ** 2 + (obs[1] - y) ** 2)
    floor = 0.04 * math.log(radius - rim) + 0.4 if radius > rim else 0.0
    above = 1.0
    if obs[2] < floor:
        above = long_tail(floor - obs[2], 0.0, 0.01, floor / 2.0)
    off = distance(obs[0], obs[1], obs[2], x + 0.05, y + 0.03, z - 0.01)
    ready = hamacher(above, long_tail(off, 0.0, rim / 2.0, 0.5))
    angle = obs[10]
    opened = 0.8 * long_tail(math.pi / 2.0 + math.pi / 6.0 + angle, 0.0, 0.5, math.pi / 3.0) + (
        0.2 if angle < -math.pi / 90.0 else 0.0
    )
    effort = (min(max(action[3], -1.0), 1.0) + 1.0) / 2.0
    return 2.0 * hamacher(ready, effort) + 8.0 * opened


@njit(cache=True)
def window_close(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Fingers at the handle and the handle at its goal."""
    in_place = long_tail(
        abs(obs[12] - WINDOW_TARGET_Y),
        0.0,
        0.05,
        abs(abs(WINDOW_START[1] - WINDOW_TARGET_Y) - 0.05),
    )
    off = distance(obs[11], obs[12], obs[13], fingers[0], fingers[1], fingers[2])
    off_at_start = distance(
        WINDOW_START[0], WINDOW_START[1], WINDOW_START[2], start[0], start[1], start[2]
    )
    return 10.0 * hamacher(gaussian(off, 0.0, 0.02, abs(off_at_start - 0.02)), in_place)


@njit(cache=True)
def faucet_close(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Fingers at the handle, plus the handle at its goal."""
    x, y, z = obs[14], obs[15], obs[16]
    to_goal = distance(x, y, z, FAUCET_TARGET[0], FAUCET_TARGET[1], FAUCET_TARGET[2])
    if to_goal <= 0.07:
        return 10.0
    from_start = distance(
        FAUCET_START[0],
        FAUCET_START[1],
        FAUCET_START[2],
        FAUCET_TARGET[0],
        FAUCET_TARGET[1],
        FAUCET_TARGET[2],
    )
    in_place = long_tail(to_goal, 0.0, 0.07, abs(from_start - 0.07))
    off = distance(x, y, z, fingers[0], fingers[1], fingers[2])
    off_at_start = distance(
        FAUCET_START[0], FAUCET_START[1], FAUCET_START[2], start[0], start[1], start[2]
    )
    return 4.0 * gaussian(off, 0.0, 0.01, abs(off_at_start - 0.01)) + 6.0 * in_place


@njit(cache=True)
def peg_unplug(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Fingers around the peg, then the peg out of the wall."""
    x, y, z = obs[17], obs[18], obs[19]
    to_goal = distance(x, y, z, PEG_TARGET[0], PEG_TARGET[1], PEG_TARGET[2])
    if to_goal <= 0.05:
        return 10.0
    grasped = caging(
        x, y, z, 0.025, action[3], fingers[0], fingers[2], fingers[3], fingers[4], start, start[3:]
    )
    reward = 2.0 * grasped
    off = distance(x, y, z, fingers[0], fingers[1], fingers[2])
    if obs[3] > 0.5 and x - PEG_START[0] > 0.015 and off < 0.035:
        way = distance(
            PEG_START[0], PEG_START[1], PEG_START[2], PEG_TARGET[0], PEG_TARGET[1], PEG_TARGET[2]
        )
        reward += 1.0 + 5.0 * long_tail(to_goal, 0.0, 0.05, way)
    return reward


@njit(cache=True)
def pick_place(obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Fingers around the block, then the block at its goal in the air."""
    return block_to(obs, action, start, BLOCK_TARGET)


@njit(cache=True)
def block_to(obs, action, start, target):  # type: ignore[no-untyped-def]
    """Pick-place with the goal at `target`."""
    x, y, z = obs[20], obs[21], obs[22]
    if math.sqrt(x * x + y * y) > TABLE_EDGE:
        return -10.0
    to_goal = distance(x, y, z, target[0], target[1], target[2])
    if to_goal < 0.05:
        return 10.0
    # Quirk: fingers from the observation even in the environment, pads in single precision.
    finger_z = obs[2] - FINGER_DROP
    left_y = np.float64(np.float32(obs[1] + obs[24]))
    right_y = np.float64(np.float32(obs[1] + obs[25]))
    grasped = caging(
        x, y, z, 0.015, action[3], obs[0], finger_z, left_y, right_y, start, BLOCK_START
    )
    reward = 4.0 * grasped
    if distance(x, y, z, obs[0], obs[1], finger_z) < 0.02 and obs[3] > 0.0:
        way = distance(
            BLOCK_START[0], BLOCK_START[1], BLOCK_START[2], target[0], target[1], target[2]
        )
        reward += 1.0 + 4.0 * long_tail(to_goal, 0.0, 0.05, way)
    return reward


@njit(cache=True, inline="always")
def evaluate(kind, obs, action, fingers, start):  # type: ignore[no-untyped-def]
    """Reward number `kind`; one entry for all keeps a single compiled batch loop.

    Inlined: to hand four arrays on takes longer than most rewards.
    """
    if kind == BUTTON:
        return button_press(obs, action, fingers, start)
    if kind == DOOR:
        return door_open(obs, action, fingers, start)
    if kind == WINDOW:
        return window_close(obs, action, fingers, start)
    if kind == FAUCET:
        return faucet_close(obs, action, fingers, start)
    if kind == PEG:
        return peg_unplug(obs, action, fingers, start)
    if kind == WINDOW_OPEN:
        return inverses.window_open(obs, fingers)
    if kind == FAUCET_OPEN:
        return inverses.faucet_open(obs, fingers)
    if kind == DOOR_CLOSE:
        return inverses.door_close(obs, fingers)
    if kind == PEG_RETURN:
        return inverses.peg_return(obs, fingers)
    if kind == BLOCK_RETURN:
        return inverses.block_return(obs, action)
    if kind == LIFT_BLOCK:
        return inverses.lift(obs[20], obs[21], obs[22], obs, action, BLOCK_TARGET)
    if kind == LIFT_PEG:
        return inverses.lift(obs[17], obs[18], obs[19], obs, action, PEG_TARGET)
    return pick_place(obs, action, fingers, start)


@njit(cache=True, inline="always")
def succeeded(kind, obs):  # type: ignore[no-untyped-def]
    """Whether task number `kind` is solved; looser than the place where rewards reach ten."""
    if kind == BUTTON:
        return abs(BUTTON_TARGET_Z - obs[6]) <= 0.024
    if kind == DOOR:
        return abs(obs[7] - DOOR_TARGET_X) <= 0.08
    if kind == WINDOW:
        return abs(obs[12] - WINDOW_TARGET_Y) <= 0.05
    if kind == FAUCET:
        return (
            distance(
                obs[14], obs[15], obs[16], FAUCET_TARGET[0], FAUCET_TARGET[1], FAUCET_TARGET[2]
            )
            <= 0.07
        )
    if kind in (PEG, LIFT_PEG):
        return (
            distance(obs[17], obs[18], obs[19], PEG_TARGET[0], PEG_TARGET[1], PEG_TARGET[2]) <= 0.07
        )
    if kind == WINDOW_OPEN:
        return inverses.window_opened(obs)
    if kind == FAUCET_OPEN:
        return inverses.faucet_opened(obs)
    if kind == DOOR_CLOSE:
        return inverses.door_closed(obs)
    if kind == PEG_RETURN:
        return inverses.peg_returned(obs)
    if kind == BLOCK_RETURN:
        return inverses.block_returned(obs)
    return (
        distance(obs[20], obs[21], obs[22], BLOCK_TARGET[0], BLOCK_TARGET[1], BLOCK_TARGET[2])
        <= 0.07
    )


@njit(cache=True)
def estimate_fingers(obs, fingers):  # type: ignore[no-untyped-def]
    """Fill `fingers` from an observation alone, as if the hand pointed straight down."""
    fingers[0] = obs[0]
    fingers[1] = obs[1]
    fingers[2] = obs[2] - FINGER_DROP
    fingers[3] = obs[1] + LEFT_PAD[0] * obs[3] + LEFT_PAD[1]
    fingers[4] = obs[1] + RIGHT_PAD[0] * obs[3] + RIGHT_PAD[1]


@njit(cache=True)
def evaluate_all(obs, action, fingers, start, rewards, successes):  # type: ignore[no-untyped-def]
    """Fill rewards and successes of one step, those of the lowest numbers."""
    for kind in range(rewards.shape[0]):
        rewards[kind] = evaluate(kind, obs, action, fingers, start)
        successes[kind] = succeeded(kind, obs)


@njit(cache=True, parallel=True)
def _reward_batch(kind, obs, action, start, out):  # type: ignore[no-untyped-def]
    count = obs.shape[0]
    for share in prange((count + SHARE - 1) // SHARE):
        fingers = np.empty(5)
        for i in range(share * SHARE, min((share + 1) * SHARE, count)):
            estimate_fingers(obs[i], fingers)
            out[i] = evaluate(kind, obs[i], action[i], fingers, start)


@njit(cache=True, parallel=True)
def _success_batch(kind, obs, out):  # type: ignore[no-untyped-def]
    count = obs.shape[0]
    for share in prange((count + SHARE - 1) // SHARE):
        for i in range(share * SHARE, min((share + 1) * SHARE, count)):
            out[i] = succeeded(kind, obs[i])


def reward_batch(
    kind: int, action: FloatArray, next_obs: FloatArray, start: FloatArray
) -> FloatArray:
    """Rewards ``[N]`` of predicted observations, with estimated fingers."""
    out = np.empty(len(next_obs))
    _reward_batch(kind, next_obs, action, start, out)
    return out


def success_batch(kind: int, next_obs: FloatArray) -> np.ndarray:
    """Success flags ``[N]`` of observations."""
    out = np.empty(len(next_obs), dtype=np.bool_)
    _success_batch(kind, next_obs, out)
    return out
