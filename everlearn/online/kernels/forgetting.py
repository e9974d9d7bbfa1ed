"""Compiled part of local forgetting (see everlearn/online/forgetting.py)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from everlearn.online.kernels.update import SIDE, first_tile
from everlearn.support.compiled import njit


@njit(cache=True, parallel=True)
def fade_rows(tiles: Any, used: int, chosen: Any, weights: Any, keep: float, targets: Any) -> None:
    """Scale all entries of A in a chosen row or column by `keep`, and hand on what they explained.

    ``chosen[used]`` says which positions ``s`` fade, ``weights[used, S]`` are W by position. Of
    every other row ``i`` what the faded evidence attributed to ``s`` is taken off the target::

        A_ss, A_si <- keep A_ss, keep A_si        B_i <- B_i - (1 - keep) A_is W_s
    """
    flat = tiles.reshape(-1)
    outputs = weights.shape[1]  # targets are wider: whole vectors
    # Two passes, as both a row and its mirror image are stored once: sums first, then scaling.
    for number in prange(used):
        i = np.int64(number)
        if not chosen[i]:
            for j in range(used):
                if chosen[j]:
                    row, column = (i, j) if i >= j else (j, i)
                    tile = first_tile(row // SIDE) + column // SIDE
                    entry = flat[SIDE * SIDE * tile + SIDE * (row % SIDE) + column % SIDE]
                    if entry != 0:
                        for o in range(outputs):
                            targets[i, o] -= (1 - keep) * entry * weights[j, o]
    for number in prange((used + SIDE - 1) // SIDE):
        block = np.int64(number)
        for place in range(SIDE):
            row = SIDE * block + place
            if row < used:
                for column in range(row + 1):
                    if chosen[row] or chosen[column]:
                        tile = first_tile(block) + column // SIDE
                        flat[SIDE * SIDE * tile + SIDE * place + column % SIDE] *= keep
                # Tiles on the diagonal hold both halves.
                for other in range(row + 1, SIDE * (block + 1)):
                    if other < used and (chosen[row] or chosen[other]):
                        tile = first_tile(block) + block
                        flat[SIDE * SIDE * tile + SIDE * place + other % SIDE] *= keep
