"""What is compiled around a prediction, whatever predicts: inputs, states and memories of a step.

One imagined step of a candidate is::

    x      = (concat(s, a, features(m, s)) - centre) * multiplier     assemble_step
    change = prediction(x)                                            online or deep kernels
    s'     = clip(s + change, low, high)                              advance_step
    m'     = advance(m, s, a, s')

Arrays that travel together are named tuples. Their fields are taken out before a loop: within it
every access to an array counts references.

``fastmath`` is limited to reordering and contraction. NaN and infinity keep their meaning:
an imagined state may overflow, and then must reach the caller as NaN, not as a wild index.
Every kernel states it: one that does not inherits it from whichever caller is compiled first, and
its bits would depend on whether an agent first acts or first learns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from numba.core import types
from numba.extending import intrinsic

from everlearn.interfaces import FloatArray
from everlearn.support.compiled import njit
from everlearn.world_model.vectors import LANES, Vectors

FAST = {"reassoc", "contract", "nsz", "arcp"}


class Trajectories(NamedTuple):
    """What is imagined, step by step: rewards read all states of a step, without a copy."""

    states: FloatArray
    """``[H + 1, N, S]``; the first ones are given, the others are filled in."""
    actions: FloatArray
    """``[N, H, A]``."""
    memories: FloatArray
    """``[N, M]``: states of the memory, advanced in place."""


class Limits(NamedTuple):
    """How a predicted change is added to a state, ``[S]`` each."""

    low: FloatArray
    high: FloatArray
    smallest_change: FloatArray
    """A change below this is none."""


class MemoryTables(NamedTuple):
    """A memory as the kernels read it.

    A state of ``M`` numbers has up to three parts, in this order: a commanded position, the last
    action, and the last displacement. Each memory of the package is some of these.
    """

    action_indices: npt.NDArray[np.int64]
    """Actions that move the commanded position, ``[C]``; none if no position is kept."""
    observation_indices: npt.NDArray[np.int64]
    """Observations of the position that is commanded, ``[C]``."""
    scale: np.floating[Any]
    """By how much an action of 1 moves the commanded position."""
    gain: np.floating[Any]
    """Feature for a lag of one unit behind the commanded position."""
    low: FloatArray
    """Bounds of the commanded position, ``[C]``."""
    high: FloatArray
    centre: FloatArray
    """What is subtracted from each number of the other parts, ``[M - C]``."""
    multiplier: FloatArray
    """What the difference is multiplied by, ``[M - C]``."""
    actions: int
    """Numbers of the last action that are kept: all or none."""
    displacements: int
    """Numbers of the last displacement that are kept: all or none."""

    def astype(self, dtype: npt.DTypeLike) -> MemoryTables:
        """Return the tables with their real numbers in another type."""
        changed: dict[str, Any] = {
            name: value.astype(dtype)
            for name, value in self._asdict().items()
            if isinstance(value, (np.ndarray, np.generic)) and value.dtype.kind == "f"
        }
        return self._replace(**changed)


def memory_tables(centre: FloatArray, multiplier: FloatArray, **fields: Any) -> MemoryTables:
    """Return tables without a commanded position, and with nothing kept, but for `fields`."""
    nothing: dict[str, Any] = {
        "action_indices": np.zeros(0, np.int64),
        "observation_indices": np.zeros(0, np.int64),
        "scale": np.float64(0),
        "gain": np.float64(0),
        "low": np.zeros(0),
        "high": np.zeros(0),
        "actions": 0,
        "displacements": 0,
    }
    return MemoryTables(centre=centre, multiplier=multiplier, **(nothing | fields))


def given_features(count: int) -> MemoryTables:
    """Tables of a memory whose states are features already, computed by the caller."""
    return memory_tables(np.zeros(count), np.ones(count))


class StepTables(NamedTuple):
    """All that an imagined step needs but the prediction."""

    centre: FloatArray
    """Of each input ``[I]``: what is subtracted from it."""
    multiplier: FloatArray
    """What the difference is multiplied by, ``[I]``."""
    limits: Limits
    memory: MemoryTables
    read: int
    """Observations that are inputs, the first ones; the others count as 0 there."""


@njit(cache=True, fastmath=FAST)
def aligned_empty(rows: int, columns: int, like: Any) -> Any:
    """Room on cache lines, like the weights."""
    buffer = np.empty(rows * columns + LANES, like.dtype)
    skip = (-buffer.ctypes.data % 64) // buffer.itemsize
    return buffer[skip : skip + rows * columns].reshape((rows, columns))


@intrinsic
def _move_lanes(
    typingctx: Any, states: Any, step: Any, n: Any, i: Any, change: Any, c: Any, limits: Any
) -> Any:
    """``s' = clip(s + change, low, high)`` of `LANES` numbers of a state, from number `i` on.

    A change below the smallest one is none. Comparisons with NaN are false: it is added and stays.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        states_, step_, n_, i_, change_, c_, limits_ = args
        v = Vectors(context, builder, states.dtype)
        low, high, smallest = (
            v.load(v.pointer(*v.field(limits, limits_, name), [i_])) for name in Limits._fields
        )
        moved = v.load(v.pointer(change, change_, [c_, i_]))
        small = builder.fcmp_ordered("<", v.call("fabs", moved), smallest)
        moved = builder.select(small, v.constant(0.0), moved)
        value = builder.fadd(v.load(v.pointer(states, states_, [step_, n_, i_])), moved)
        value = builder.select(builder.fcmp_ordered("<", value, low), low, value)
        value = builder.select(builder.fcmp_ordered(">", value, high), high, value)
        following = builder.add(step_, step_.type(1))
        v.store(value, v.pointer(states, states_, [following, n_, i_]))
        return context.get_dummy_value()

    whole = types.intp
    return types.void(states, whole, whole, whole, change, whole, limits), codegen


@intrinsic
def _displace_lanes(
    typingctx: Any, states: Any, step: Any, n: Any, i: Any, memories: Any, m: Any
) -> Any:
    """``m = s' - s`` of `LANES` numbers, from `i` on in a state and from `m` on in a memory."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        states_, step_, n_, i_, memories_, m_ = args
        v = Vectors(context, builder, states.dtype)
        following = builder.add(step_, step_.type(1))
        after = v.load(v.pointer(states, states_, [following, n_, i_]))
        before = v.load(v.pointer(states, states_, [step_, n_, i_]))
        v.store(builder.fsub(after, before), v.pointer(memories, memories_, [n_, m_]))
        return context.get_dummy_value()

    whole = types.intp
    return types.void(states, whole, whole, whole, memories, whole), codegen


@njit(cache=True, fastmath=FAST)
def memory_advance(start: int, count: int, step: int, trajectories: Any, tables: Any) -> None:
    """Advance memories of candidates ``start + c`` by a step whose next state is known."""
    states, actions, memories = trajectories
    indices, low, high, scale = tables.action_indices, tables.low, tables.high, tables.scale
    axes, first = indices.shape[0], indices.shape[0] + tables.actions
    displacements = tables.displacements
    one = memories.dtype.type(1)
    for n in range(start, start + count):
        for m in range(axes):
            moved = memories[n, m] + scale * min(max(actions[n, step, indices[m]], -one), one)
            memories[n, m] = min(max(moved, low[m]), high[m])
        for m in range(tables.actions):
            memories[n, axes + m] = actions[n, step, m]
        for i in range(displacements if displacements < LANES else 0):
            memories[n, first + i] = states[step + 1, n, i] - states[step, n, i]
        for vector in range((displacements + LANES - 1) // LANES if displacements >= LANES else 0):
            i = min(vector * LANES, displacements - LANES)  # see `advance_step`
            _displace_lanes(states, step, n, i, memories, first + i)


@njit(cache=True, fastmath=FAST)
def assemble_step(
    start: int, count: int, step: int, trajectories: Any, tables: Any, inputs: Any
) -> None:
    """Scaled inputs ``inputs[:, c]`` of candidates ``start + c`` at a step.

    Features of a memory are the lag of the commanded position, and all else scaled.

    Inputs lie feature by feature, candidates side by side: kernels work on vectors of
    candidates, all of which multiply the same weight.
    """
    states, actions, memories = trajectories
    centre, multiplier, remembered = tables.centre, tables.multiplier, tables.memory
    size = states.shape[2]
    action_size = actions.shape[2]
    zero = states.dtype.type(0)
    # Input by input: what all candidates share is loaded once, and lines are written in order.
    for i in range(tables.read):
        line, middle, factor = inputs[i], centre[i], multiplier[i]
        for c in range(count):
            line[c] = (states[step, start + c, i] - middle) * factor
    for i in range(tables.read, size):
        # Not what the entry is: it may be infinite, and infinity times zero is not zero.
        inputs[i, :count] = (zero - centre[i]) * multiplier[i]
    for a in range(action_size):
        i = size + a
        line, middle, factor = inputs[i], centre[i], multiplier[i]
        for c in range(count):
            line[c] = (actions[start + c, step, a] - middle) * factor
    axes, first = remembered.action_indices.shape[0], size + action_size
    for m in range(memories.shape[1]):
        line, middle, factor = inputs[first + m], centre[first + m], multiplier[first + m]
        if m < axes:
            i, gain = remembered.observation_indices[m], remembered.gain
            for c in range(count):
                lag = gain * (memories[start + c, m] - states[step, start + c, i])
                line[c] = (lag - middle) * factor
        else:
            mean, scale = remembered.centre[m - axes], remembered.multiplier[m - axes]
            for c in range(count):
                feature = (memories[start + c, m] - mean) * scale
                line[c] = (feature - middle) * factor


@njit(cache=True, fastmath=FAST)
def advance_step(
    start: int, count: int, step: int, trajectories: Any, tables: Any, change: Any
) -> None:
    """Add ``change[c]`` to the states of candidates ``start + c``, and advance their memories.

    A state of whole vectors and a few numbers more is done in vectors as well: the last one begins
    where it ends with the state, and does some numbers a second time.
    """
    states, limits = trajectories.states, tables.limits
    low, high, smallest_change = limits
    size = states.shape[2]
    zero = states.dtype.type(0)
    # Elements of whole arrays: a row by itself would be an array that is counted, which takes
    # longer than the arithmetic.
    for c in range(count):
        n = start + c
        for i in range(size if size < LANES else 0):
            moved = change[c, i]
            value = states[step, n, i] + (zero if abs(moved) < smallest_change[i] else moved)
            value = low[i] if value < low[i] else value
            states[step + 1, n, i] = high[i] if value > high[i] else value
        for vector in range((size + LANES - 1) // LANES if size >= LANES else 0):
            i = min(vector * LANES, size - LANES)
            _move_lanes(states, step, n, i, change, c, limits)
    memory_advance(start, count, step, trajectories, tables.memory)
