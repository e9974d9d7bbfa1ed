"""What is compiled around a prediction, whatever predicts: inputs, states and memories of a step.

``fastmath`` is limited to reordering and contraction. NaN and infinity keep their meaning:
an imagined state may overflow, and then must reach the caller as NaN, not as a wild index.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from everlearn.world_model.vectors import LANES

FAST = {"reassoc", "contract", "nsz", "arcp"}

NO_MEMORY, COMMAND_MEMORY, HISTORY_MEMORY, GIVEN_FEATURES, MOTION_MEMORY = range(5)


@njit(cache=True)
def aligned_empty(rows: int, columns: int, like: Any) -> Any:
    """Room on cache lines, like the weights."""
    buffer = np.empty(rows * columns + LANES, like.dtype)
    skip = (-buffer.ctypes.data % 64) // buffer.itemsize
    return buffer[skip : skip + rows * columns].reshape((rows, columns))


@njit(cache=True)
def memory_features(kind: int, whole: Any, real: Any, memory: Any, obs: Any, out: Any) -> None:
    """Features of one memory state; the layout of `whole` and `real` is that of memory.py."""
    if kind == COMMAND_MEMORY:
        axes = memory.shape[0]
        for m in range(axes):
            out[m] = real[1] * (memory[m] - obs[whole[axes + m]])
    elif kind == HISTORY_MEMORY:
        for m in range(memory.shape[0]):
            out[m] = (memory[m] - real[2 * m]) * real[2 * m + 1]
    elif kind == MOTION_MEMORY:
        axes = memory.shape[0] - obs.shape[0]
        for m in range(axes):
            out[m] = real[1] * (memory[m] - obs[whole[axes + m]])
        for m in range(axes, memory.shape[0]):
            out[m] = memory[m] * real[2 + axes + m]
    elif kind == GIVEN_FEATURES:
        for m in range(memory.shape[0]):
            out[m] = memory[m]


@njit(cache=True)
def memory_advance(
    kind: int, whole: Any, real: Any, memory: Any, obs: Any, action: Any, next_obs: Any
) -> None:
    """Advance one memory state in place by one step."""
    if kind in (COMMAND_MEMORY, MOTION_MEMORY):
        axes = whole.shape[0] // 2
        for m in range(axes):
            one = real.dtype.type(1)
            moved = memory[m] + real[0] * min(max(action[whole[m]], -one), one)
            memory[m] = min(max(moved, real[2 + m]), real[2 + axes + m])
        if kind == MOTION_MEMORY:
            for i in range(obs.shape[0]):
                memory[axes + i] = next_obs[i] - obs[i]
    elif kind == HISTORY_MEMORY:
        count = action.shape[0]
        for m in range(count):
            memory[m] = action[m]
        for m in range(obs.shape[0]):
            memory[count + m] = next_obs[m] - obs[m]


@njit(cache=True, fastmath=FAST)
def assemble_step(
    start: int,
    count: int,
    step: int,
    states: Any,
    actions: Any,
    memories: Any,
    scaling: Any,
    kind: int,
    whole: Any,
    real: Any,
    inputs: Any,
) -> None:
    """Scaled inputs ``inputs[:, c]`` of candidates ``start + c`` at a step."""
    size = states.shape[2]
    action_size = actions.shape[2]
    feature = np.empty(scaling.shape[1] - size - action_size, states.dtype)
    for c in range(count):
        n = start + c
        for i in range(size):
            inputs[i, c] = (states[n, step, i] - scaling[0, i]) * scaling[1, i]
        for a in range(action_size):
            i = size + a
            inputs[i, c] = (actions[n, step, a] - scaling[0, i]) * scaling[1, i]
        memory_features(kind, whole, real, memories[n], states[n, step], feature)
        for m in range(feature.shape[0]):
            i = size + action_size + m
            inputs[i, c] = (feature[m] - scaling[0, i]) * scaling[1, i]


@njit(cache=True, fastmath=FAST)
def advance_step(
    start: int,
    count: int,
    step: int,
    states: Any,
    actions: Any,
    memories: Any,
    change: Any,
    limits: Any,
    kind: int,
    whole: Any,
    real: Any,
) -> None:
    """Add ``change[c]`` to the states of candidates ``start + c``, and advance their memories.

    ``limits[3, S]``: lowest and highest value, and the size below which a change is none.
    """
    for c in range(count):
        n = start + c
        for i in range(states.shape[2]):
            # NaN passes all comparisons unchanged.
            value = states[n, step, i]
            if not abs(change[c, i]) < limits[2, i]:
                value += change[c, i]
            if value < limits[0, i]:
                value = limits[0, i]
            if value > limits[1, i]:
                value = limits[1, i]
            states[n, step + 1, i] = value
        memory_advance(
            kind,
            whole,
            real,
            memories[n],
            states[n, step],
            actions[n, step],
            states[n, step + 1],
        )
