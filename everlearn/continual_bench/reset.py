"""How an episode starts: hand and objects brought to their places."""

from __future__ import annotations

import mujoco
import numpy as np

from everlearn.continual_bench import observation, rewards
from everlearn.continual_bench.observation import ObservationReader
from everlearn.continual_bench.tasks import Task
from everlearn.interfaces import FloatArray

SUBSTEPS = 5
"""Physics steps of 2.5 ms in one step of the environment."""

SETTLE_STEPS = 50
"""Environment steps in which the arm moves to its start."""

MAX_RESET_NOISE = 0.1
"""Metres; more would start some tasks solved."""

SPREAD = 9
"""Numbers that spread a start: hand (3), door, window, faucet, peg, block (2)."""

# Where a reset puts what can move: addresses into the joint positions and velocities.
_DOOR, _WINDOW, _FAUCET = 10, 11, 12
PEG_QPOS, _PEG_TURN, BLOCK_QPOS = slice(13, 16), slice(16, 20), slice(20, 23)
_PEG_VELOCITY, _BLOCK_VELOCITY = slice(13, 16), slice(20, 25)
_WINDOW_OPEN = 0.2
PEG_PLACE = (0.044, -0.75, 0.131)
# Metres of handle for a radian of door or faucet, to spread them in metres like the rest.
_DOOR_RADIUS, _FAUCET_RADIUS = 0.4, 0.175
_PEG_SPREAD = 0.02  # more would start the peg too near its goal

_MOCAP_TURN = (1.0, 0.0, 1.0, 0.0)


def settle(
    model: mujoco.MjModel,
    data: mujoco.MjData,
    reader: ObservationReader,
    task: Task,
    spread: FloatArray,
) -> FloatArray:
    """Bring hand and objects to where an episode of `task` starts.

    The order of the steps and of the forward passes is the published one; another order
    changes the solver's warm start, and with it the last bits of everything that follows.

    Parameters
    ----------
    model, data, reader
        The simulation, and what reads it.
    task
        Says where the hand starts.
    spread
        `SPREAD` metres by which things are moved from their places.

    Returns
    -------
    start
        What the rewards take their margins from (`rewards.py`).
    """
    mujoco.mj_resetData(model, data)
    # Published start poses are in single precision.
    hand = np.array(task.hand, dtype=np.float32) + spread[:3]
    data.mocap_pos[0] = np.clip(hand, observation.WORKSPACE_LOW, observation.WORKSPACE_HIGH)
    data.mocap_quat[0] = _MOCAP_TURN
    data.ctrl[:] = -1.0, 1.0
    mujoco.mj_step(model, data, SETTLE_STEPS * SUBSTEPS)
    # Quirk: fingers lag the joints by a substep, also where the margins come from.
    fingers = np.zeros(5)
    reader.read(-1.0, np.zeros(observation.SIZE), fingers)

    data.qpos[_DOOR] = 0.0 - abs(spread[3]) / _DOOR_RADIUS
    data.qpos[_WINDOW] = _WINDOW_OPEN - abs(spread[4])
    data.qpos[_FAUCET] = spread[5] / _FAUCET_RADIUS
    data.qvel[[_DOOR, _WINDOW, _FAUCET]] = 0.0
    data.qpos[PEG_QPOS] = PEG_PLACE
    data.qpos[PEG_QPOS.start] += min(abs(spread[6]), _PEG_SPREAD)
    data.qpos[_PEG_TURN] = 1.0, 0.0, 0.0, 0.0
    data.qvel[_PEG_VELOCITY] = 0.0
    mujoco.mj_forward(model, data)
    data.qpos[BLOCK_QPOS] = rewards.BLOCK_START
    data.qpos[BLOCK_QPOS.start : BLOCK_QPOS.start + 2] += spread[7:]
    data.qvel[_BLOCK_VELOCITY] = 0.0
    mujoco.mj_forward(model, data)
    mujoco.mj_forward(model, data)
    return np.array([*fingers[:3], *task.object_start])
