"""The rewards of a life, each written once as a compiled scalar function.

Those of the tasks that undo the six::

    window-open     the window's handle back where it was
    faucet-open     the faucet's handle back where it was
    door-close      the door's handle back where it was
    peg-return      the peg's end back in front of the hole, from wherever it lies
    block-return    the block back on its spot on the table

And those of the two tasks in which something is lifted. Their published rewards take an open
gripper for granted, as at a reset, and are as large for a closed one that stands on the object;
goals and success are the same.

They lie in [0, 10], with the arguments of `rewards.py`, but for ``start``: their margins are
constants, as a visit of a life begins wherever the last one ended. Success is never looser than the
place where a reward reaches ten.

Four of them are pushes. A handle can only be pushed from behind, so fingers earn for being behind
it as seen from the goal, and the handle for being nearer to the goal while they are there. A visit
begins anywhere on the table: the way to an object is worth the same at any distance, and what a
model imagines of an object far from the hand is worth nothing.
"""

from __future__ import annotations

import math

from everlearn.continual_bench.shaping import TABLE_EDGE, distance, hamacher, long_tail
from everlearn.support.compiled import njit

WINDOW_OPEN_Y = 0.41
DOOR_CLOSED_X = 0.241
FAUCET_AXIS = (0.6, -0.4)
FAUCET_OPEN = (0.585, -0.225)
PEG_SPOT = (0.085, -0.75)
BLOCK_SPOT = (0.5, 0.2)
ON_TABLE = 0.035
"""Height of the block's centre below which it stands on the table."""
_WINDOW_NEAR, _DOOR_NEAR, _FAUCET_NEAR, _PEG_NEAR, _BLOCK_NEAR = 0.05, 0.08, 0.07, 0.045, 0.05
_LIFTED_NEAR = 0.05
_BETWEEN = 0.03  # metres from the point between the fingers at which an object is between them
_ACROSS = 2.0  # metres, more than any two points of the table are apart


@njit(cache=True)
def _reach(off):  # type: ignore[no-untyped-def]
    """Up to 4: half for the way across the table, half for the last decimetres."""
    return 2.0 * max(0.0, 1.0 - off / _ACROSS) + 2.0 * long_tail(off, 0.0, 0.01, 0.2)


@njit(cache=True)
def _hold(off, opening, effort):  # type: ignore[no-untyped-def]
    """Up to 5: open fingers come to the object, and close where they have it between them."""
    ready = opening if off > _BETWEEN else 1.0
    closing = long_tail(off, 0.0, 0.02, 0.05) * min(max(effort, 0.0), 1.0)
    return _reach(off) * (1.0 + ready) / 2.0 + closing


@njit(cache=True)
def lift(x, y, z, obs, action, goal):  # type: ignore[no-untyped-def]
    """Hold the object at (x, y, z) and bring it to `goal`."""
    to_goal = distance(x, y, z, goal[0], goal[1], goal[2])
    if to_goal <= _LIFTED_NEAR:
        return 10.0
    # The point between the fingers, from the observation alone, as for pick-place.
    off = distance(x, y, z, obs[0], obs[1], obs[2] - 0.045)
    there = long_tail(off, 0.0, 0.02, 0.05)
    carried = hamacher(there, long_tail(to_goal, 0.0, _LIFTED_NEAR, 0.3))
    return _hold(off, obs[3], action[3]) + 4.0 * carried


@njit(cache=True)
def _push(off, to_goal, near, way):  # type: ignore[no-untyped-def]
    """Fingers behind the object, and then the object on its way to the goal."""
    if to_goal <= near:
        return 10.0
    there = long_tail(off, 0.0, 0.03, 0.1)
    return _reach(off) + 6.0 * hamacher(there, long_tail(to_goal, 0.0, near, way))


@njit(cache=True)
def window_to_goal(obs):  # type: ignore[no-untyped-def]
    """Metres from an open window."""
    return abs(obs[12] - WINDOW_OPEN_Y)


@njit(cache=True)
def window_open(obs, fingers):  # type: ignore[no-untyped-def]
    """Push the handle in +y, a little below its middle as when it was closed."""
    off = distance(obs[11], obs[12] - 0.04, obs[13] - 0.02, fingers[0], fingers[1], fingers[2])
    return _push(off, window_to_goal(obs), _WINDOW_NEAR, 0.2)


@njit(cache=True)
def door_to_goal(obs):  # type: ignore[no-untyped-def]
    """Metres from a closed door, measured along x as for door-open."""
    return abs(obs[7] - DOOR_CLOSED_X)


@njit(cache=True)
def door_close(obs, fingers):  # type: ignore[no-untyped-def]
    """Push the handle from the outer side of the door, which turns with it."""
    angle = obs[10]
    x = obs[7] + 0.06 * math.sin(angle)
    y = obs[8] - 0.06 * math.cos(angle)
    off = distance(x, y, obs[9], fingers[0], fingers[1], fingers[2])
    return _push(off, door_to_goal(obs), _DOOR_NEAR, 0.45)


@njit(cache=True)
def faucet_to_goal(obs):  # type: ignore[no-untyped-def]
    """Metres from an open faucet."""
    return math.sqrt((obs[14] - FAUCET_OPEN[0]) ** 2 + (obs[15] - FAUCET_OPEN[1]) ** 2)


@njit(cache=True)
def faucet_open(obs, fingers):  # type: ignore[no-untyped-def]
    """Push the handle anticlockwise around its axis."""
    x, y = obs[14] - FAUCET_AXIS[0], obs[15] - FAUCET_AXIS[1]
    radius = max(math.sqrt(x * x + y * y), 1e-3)
    # Across the handle, against the way that it has to go.
    behind_x, behind_y = obs[14] + 0.04 * y / radius, obs[15] - 0.04 * x / radius
    off = distance(behind_x, behind_y, obs[16], fingers[0], fingers[1], fingers[2])
    return _push(off, faucet_to_goal(obs), _FAUCET_NEAR, 0.25)


@njit(cache=True)
def peg_to_goal(obs):  # type: ignore[no-untyped-def]
    """Metres on the table from the peg's spot in front of the hole."""
    return math.sqrt((obs[17] - PEG_SPOT[0]) ** 2 + (obs[18] - PEG_SPOT[1]) ** 2)


@njit(cache=True)
def peg_return(obs, fingers):  # type: ignore[no-untyped-def]
    """Push, drag or carry the peg's end to its spot."""
    to_goal = max(peg_to_goal(obs), 1e-3)
    x = obs[17] + 0.05 * (obs[17] - PEG_SPOT[0]) / to_goal
    y = obs[18] + 0.05 * (obs[18] - PEG_SPOT[1]) / to_goal
    off = distance(x, y, obs[19], fingers[0], fingers[1], fingers[2])
    return _push(off, to_goal, _PEG_NEAR, 0.4)


@njit(cache=True)
def block_to_goal(obs):  # type: ignore[no-untyped-def]
    """Metres on the table from the block's spot."""
    return math.sqrt((obs[20] - BLOCK_SPOT[0]) ** 2 + (obs[21] - BLOCK_SPOT[1]) ** 2)


@njit(cache=True)
def block_return(obs, action):  # type: ignore[no-untyped-def]
    """Hold the block, bring it above its spot, and lower it."""
    x, y, z = obs[20], obs[21], obs[22]
    if math.sqrt(x * x + y * y) > TABLE_EDGE:
        return 0.0
    to_goal = block_to_goal(obs)
    height = max(z - 0.02, 0.0)
    if to_goal <= _BLOCK_NEAR and z <= ON_TABLE:
        return 10.0
    off = distance(x, y, z, obs[0], obs[1], obs[2] - 0.045)
    there = long_tail(off, 0.0, 0.02, 0.05)
    # Height counts less the further the block has to go, so that it may be lifted on the way.
    way = to_goal + height * long_tail(to_goal, 0.0, _BLOCK_NEAR, 0.1)
    carried = hamacher(there, long_tail(way, 0.0, 0.01, 0.3))
    return _hold(off, obs[3], action[3]) + 4.0 * carried


@njit(cache=True)
def window_opened(obs):  # type: ignore[no-untyped-def]
    """Whether the window is open."""
    return window_to_goal(obs) <= _WINDOW_NEAR


@njit(cache=True)
def door_closed(obs):  # type: ignore[no-untyped-def]
    """Whether the door is closed."""
    return door_to_goal(obs) <= _DOOR_NEAR


@njit(cache=True)
def faucet_opened(obs):  # type: ignore[no-untyped-def]
    """Whether the faucet is open."""
    return faucet_to_goal(obs) <= _FAUCET_NEAR


@njit(cache=True)
def peg_returned(obs):  # type: ignore[no-untyped-def]
    """Whether the peg's end is at its spot."""
    return peg_to_goal(obs) <= _PEG_NEAR


@njit(cache=True)
def block_returned(obs):  # type: ignore[no-untyped-def]
    """Whether the block stands on its spot."""
    return block_to_goal(obs) <= _BLOCK_NEAR and obs[22] <= ON_TABLE
