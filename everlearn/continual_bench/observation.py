"""The 26 numbers an agent sees, where they come from, and their bounds."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from everlearn.interfaces import Bodies, CommandedPosition
from everlearn.support.compiled import njit

HAND = slice(0, 3)
OPENING = 3
BUTTON_POSITION = slice(4, 7)
DOOR_HANDLE = slice(7, 10)
DOOR_ANGLE = 10
WINDOW_HANDLE = slice(11, 14)
FAUCET_HANDLE = slice(14, 17)
PEG_END = slice(17, 20)
BLOCK_POSITION = slice(20, 23)
OPENING_CHANGE = 23
PAD_OFFSETS = slice(24, 26)
SIZE = 26

NAMES = (
    *("hand x", "hand y", "hand z", "opening"),
    *("button x", "button y", "button z"),
    *("door x", "door y", "door z", "door angle"),
    *("window x", "window y", "window z"),
    *("faucet x", "faucet y", "faucet z"),
    *("peg x", "peg y", "peg z"),
    *("block x", "block y", "block z"),
    *("opening change", "left pad", "right pad"),
)
"""What people call the entries; no agent reads that."""

WORKSPACE_LOW = (-0.8, -0.8, 0.05)
WORKSPACE_HIGH = (0.8, 0.8, 0.5)
ACTION_SCALE = 0.01

COMMANDED_POSITION = CommandedPosition(
    scale=ACTION_SCALE,
    low=WORKSPACE_LOW,
    high=WORKSPACE_HIGH,
    action_indices=(0, 1, 2),
    observation_indices=(0, 1, 2),
)
"""How actions move the commanded hand position, which the observation does not show."""

BODIES = Bodies(
    hand=(0, 1, 2),
    grip=(0.0, 0.0, -0.045),
    opening=(OPENING,),
    objects=tuple(
        tuple(range(part.start, part.stop))
        for part in (
            BUTTON_POSITION,
            DOOR_HANDLE,
            WINDOW_HANDLE,
            FAUCET_HANDLE,
            PEG_END,
            BLOCK_POSITION,
        )
    ),
    # A millimetre; the door's handle is 0.4 m from its hinge.
    resting=tuple(
        (index, 0.003 if index == DOOR_ANGLE else 0.001)
        for index in range(BUTTON_POSITION.start, BLOCK_POSITION.stop)
    ),
)
"""The hand and what it can touch; the grip is where the rewards look for the fingers."""

_BOUNDS = (
    # low and high of each group, in the order of the observation
    (WORKSPACE_LOW, WORKSPACE_HIGH),  # hand
    ((0.2,), (1.0,)),  # opening
    ((-1.0, -1.0, 0.1), (1.0, 1.0, 0.3)),  # button
    ((-0.3, 0.3, 0.0, -1.7), (0.4, 0.8, 0.3, 0.1)),  # door handle and angle
    ((-0.8, 0.2, 0.0), (-0.4, 0.5, 0.4)),  # window handle
    ((0.4, -0.6, 0.0), (0.8, -0.2, 0.228)),  # faucet handle
    ((0.0, -0.8, 0.0), (0.2, 0.8, 0.5)),  # peg
    ((-0.8, -0.8, 0.0), (0.8, 0.8, 0.5)),  # block
    ((-0.1, 0.0, -0.05), (0.1, 0.05, 0.0)),  # opening change and pads
)
# Published in single precision, and observations are clipped to exactly these values.
LOW, HIGH = (
    np.concatenate([group[side] for group in _BOUNDS]).astype(np.float32).astype(np.float64)
    for side in (0, 1)
)

# Offsets from a body or site to the point that is observed.
_BUTTON_TOP = 0.193
_FAUCET_DROP = -0.01
_PEG_SITE = 9  # entry of `ObservationReader.indices`
_OPEN_DISTANCE = 0.1  # metres between the claws that count as an opening of one


@dataclass(frozen=True)
class ObservationReader:
    """Reads observations and fingers out of one simulation.

    It keeps views of MuJoCo's own arrays, which stay valid as long as the simulation does, so
    that a read is one compiled call.
    """

    positions: np.ndarray
    site_positions: np.ndarray
    geom_positions: np.ndarray
    joints: np.ndarray
    indices: np.ndarray
    low: np.ndarray
    high: np.ndarray

    @classmethod
    def of(
        cls,
        model: mujoco.MjModel,
        data: mujoco.MjData,
        low: np.ndarray = LOW,
        high: np.ndarray = HIGH,
    ) -> ObservationReader:
        """Look up the bodies, sites and joints by name, once; `low` and `high` are the bounds."""
        names = ("hand", "rightclaw", "leftclaw", "leftpad", "rightpad", "button", "block")
        bodies = [model.body(name).id for name in names]
        sites = [
            model.site(name).id
            for name in (
                "windowHandleCloseStart",
                "faucetHandleStartClose",
                "pegEnd",
                "rightEndEffector",
                "leftEndEffector",
            )
        ]
        rest = [model.geom("handle").id, int(model.joint("doorjoint").qposadr[0])]
        indices = np.array(bodies + sites + rest)
        return cls(data.xpos, data.site_xpos, data.geom_xpos, data.qpos, indices, low, high)

    def peg_end(self) -> np.ndarray:
        """Return where the peg's end is, also beyond the bounds of observations."""
        end: np.ndarray = self.site_positions[self.indices[_PEG_SITE]]
        return end

    def read(self, previous_opening: float, obs: np.ndarray, fingers: np.ndarray) -> float:
        """Fill `obs` (clipped) and `fingers`; return the gripper's opening.

        A negative `previous_opening` means that there is none: the change is zero.
        """
        opening: float = _read(
            self.positions,
            self.site_positions,
            self.geom_positions,
            self.joints,
            self.indices,
            previous_opening,
            self.low,
            self.high,
            obs,
            fingers,
        )
        return opening


@njit(cache=True)
def _read(  # type: ignore[no-untyped-def]
    positions, sites, geoms, joints, indices, previous_opening, low, high, obs, fingers
):
    hand, right_claw, left_claw = indices[0], indices[1], indices[2]
    left_pad, right_pad, button, block = indices[3], indices[4], indices[5], indices[6]
    window, faucet, peg, right, left = indices[7], indices[8], indices[9], indices[10], indices[11]
    apart = 0.0
    for axis in range(3):
        apart += (positions[right_claw, axis] - positions[left_claw, axis]) ** 2
        obs[axis] = positions[hand, axis]
        obs[4 + axis] = positions[button, axis]
        obs[7 + axis] = geoms[indices[12], axis]
        obs[11 + axis] = sites[window, axis]
        obs[14 + axis] = sites[faucet, axis]
        obs[17 + axis] = sites[peg, axis]
        obs[20 + axis] = positions[block, axis]
        fingers[axis] = (sites[right, axis] + sites[left, axis]) / 2.0
    obs[6] += _BUTTON_TOP
    obs[16] += _FAUCET_DROP
    obs[10] = joints[indices[13]]
    opening = min(max(np.sqrt(apart) / _OPEN_DISTANCE, 0.0), 1.0)
    obs[3] = opening
    obs[23] = opening - previous_opening if previous_opening >= 0.0 else 0.0
    fingers[3] = positions[left_pad, 1]
    fingers[4] = positions[right_pad, 1]
    obs[24] = fingers[3] - obs[1]
    obs[25] = fingers[4] - obs[1]
    for i in range(obs.shape[0]):
        obs[i] = min(max(obs[i], low[i]), high[i])
    return opening
