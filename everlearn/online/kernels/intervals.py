"""Compiled part of intervals (see everlearn/online/intervals.py)."""

from __future__ import annotations

import math
from typing import Any

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import FAST

OCTAVE = 2
"""Bins of a histogram of scores by which a score doubles."""

LEAST = -10
"""Logarithm, to base 2, of the lower end of the first bin of scores that are not zero."""

BINS = 1 + 16 * OCTAVE
"""Bins: one for scores of exactly zero, then 16 octaves."""


@njit(cache=True, fastmath=FAST)
def expected_squares(
    squares: Any, visits: Any, usual: Any, known_at: float, cells: Any, values: Any, out: Any
) -> None:
    """Squared error to be expected at inputs, ``out[N, S]``, from what their cells have seen.

    With values ``v_k`` and visits ``n_k`` of the active cells ``k``::

        n = sum v_k n_k / sum v_k,   m = sum v_k n_k squares_k / sum v_k n_k
        out = (n m + known_at usual) / (n + known_at)
    """
    for n in range(cells.shape[0]):
        out[n] = 0.0
        share = 0.0
        seen = 0.0
        for k in range(cells.shape[1]):
            value = float(values[n, k])
            if value == 0.0:
                continue
            cell = cells[n, k]
            weight = value * visits[cell]
            share += value
            seen += weight
            for o in range(out.shape[1]):
                out[n, o] += weight * squares[cell, o]
        for o in range(out.shape[1]):
            if share > 0.0:
                out[n, o] = (out[n, o] / share + known_at * usual[o]) / (seen / share + known_at)
            else:
                out[n, o] = usual[o]


@njit(cache=True, fastmath=FAST)
def note_squares(
    squares: Any, visits: Any, longest: float, cells: Any, values: Any, found: Any
) -> None:
    """Bring squared errors ``found[N, S]`` into the running means of their cells, in order.

    With ``n`` the visits of a cell so far, `longest` at the most::

        squares += (found - squares) v / n

    So from that many visits on, old errors weigh less and less.
    """
    for n in range(cells.shape[0]):
        for k in range(cells.shape[1]):
            value = float(values[n, k])
            if value == 0.0:
                continue
            cell = cells[n, k]
            visits[cell] = min(visits[cell] + value, longest)
            rate = value / visits[cell]
            for o in range(found.shape[1]):
                squares[cell, o] += rate * (found[n, o] - squares[cell, o])


@njit(cache=True, fastmath=FAST)
def count_scores(counts: Any, regions: Any, longest: float, errors: Any, scales: Any) -> None:
    """Count ``|errors| / scales``, ``[N, S]`` each, into ``counts[regions, S, BINS]``, in order.

    A histogram that holds ``m`` fades by ``1 - 1 / (2 m + 2)`` at each score: scores weigh in
    proportion to their number, up to `longest` of them, and from then on recent ones weigh more.
    """
    for n in range(errors.shape[0]):
        for o in range(errors.shape[1]):
            line = counts[regions[n], o]
            held = 0.0
            for b in range(BINS):
                held += line[b]
            keep = 1.0 - 1.0 / min(2.0 * held + 2.0, longest)
            for b in range(BINS):
                line[b] *= keep
            error, scale = abs(errors[n, o]), scales[n, o]
            # An imagined state may overflow: NaN must not become a place in an array.
            if error == 0.0:
                line[0] += 1.0
            elif scale > 0.0 and error < math.inf and scale < math.inf:
                place = OCTAVE * (math.log2(error) - math.log2(scale) - LEAST)
                line[1 + int(min(max(place, 0.0), BINS - 2.0))] += 1.0
            else:
                line[BINS - 1] += 1.0
