"""Compiled recursion of exact ridge regression: gains, rank-one changes of the inverse, weights.

Notation: ``V`` cells in use, ``P = (A + r I)^-1`` over them, ``phi`` one input. A sample changes
``P`` by a matrix of rank one (Sherman and Morrison)::

    k = P phi,    d = 1 + phi^T k,    P <- P - k k^T / d,    W <- W + k e^T / d

Reading and writing all of ``P`` takes longer than the arithmetic. So `DELAY` changes
``u = k / sqrt(d)`` are kept beside ``P`` and folded into it at once; until then
``P - sum u u^T`` is what counts. To fold them in one go would make every eighth sample wait for a
pass over all of ``P``. So the rows of ``P`` take in a full group of changes a few at a time, while
the next group fills up.
"""

from __future__ import annotations

from typing import Any

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import FAST

DELAY = 8
"""Changes of a group, folded into the inverse together; `fold` is written out for as many."""


@njit(cache=True, fastmath=FAST)
def gain(
    inverse: Any, changes: Any, folded: int, positions: Any, values: Any, used: int, out: Any
) -> None:
    """``out[:used] = (P - sum u u^T) phi`` for the input with `values` at `positions`.

    ``changes[2, DELAY, V]`` has the group that fills up, and the one that the first `folded` rows
    of ``P`` have taken in. Changes that are not there are rows of zeros.
    """
    for i in range(used):
        out[i] = 0
    # P is symmetric: its columns at `positions` are its rows, which lie in memory as they are read.
    for j in range(positions.shape[0]):
        value, row = values[j], inverse[positions[j]]
        for i in range(used):
            out[i] += value * row[i]
    for group in range(2):
        first = group * folded  # rows before this one know the group
        for q in range(changes.shape[1]):
            change = changes[group, q]
            share = out.dtype.type(0)
            for j in range(positions.shape[0]):
                if positions[j] >= first:
                    share += values[j] * change[positions[j]]
            for i in range(used):
                out[i] -= share * change[i]


@njit(cache=True, fastmath={"contract"})
def fold(inverse: Any, changes: Any, first: int, stop: int, start: int, used: int) -> None:
    """``P -= sum u u^T`` over a group of changes, in rows `first` to `stop`, from `start` on.

    Sums keep their order, also at the end of a row, where vectors end: ``P`` stays symmetric to the
    bit where both rows have taken in the group, and one half of it is all that a file needs.
    """
    u0, u1, u2, u3 = changes[0], changes[1], changes[2], changes[3]
    u4, u5, u6, u7 = changes[4], changes[5], changes[6], changes[7]
    for i in range(first, stop):
        c0, c1, c2, c3 = u0[i], u1[i], u2[i], u3[i]
        c4, c5, c6, c7 = u4[i], u5[i], u6[i], u7[i]
        row = inverse[i]
        for j in range(start, used):
            part = c0 * u0[j] + c1 * u1[j] + c2 * u2[j] + c3 * u3[j]
            row[j] -= part + (c4 * u4[j] + c5 * u5[j] + c6 * u6[j] + c7 * u7[j])


@njit(cache=True, fastmath=FAST)
def add_outer(weights: Any, cells: Any, gains: Any, errors: Any) -> None:
    """``weights[cells[i]] += gains[i] * errors``."""
    for i in range(cells.shape[0]):
        row, factor = weights[cells[i]], gains[i]
        for output in range(errors.shape[0]):
            row[output] += factor * errors[output]
