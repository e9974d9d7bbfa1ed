"""Products of matrices in tiles that are summed up in vector registers.

The libraries that NumPy and PyTorch call leave half of the vector unit of some processors unused,
and take longer to begin than to multiply where matrices are small. A product here is part of a
kernel, and reads its factors wherever they lie: rows and terms of the left one any step apart, of
the right one vectors of columns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import llvmlite.binding
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everlearn.support.compiled import njit
from everlearn.world_model.step_kernels import FAST
from everlearn.world_model.vectors import LANES, Vectors

_LONG = bool(llvmlite.binding.get_host_cpu_features().get("avx512f", False))

ROWS, VECTORS = (8, 3) if _LONG else (4, 1)
"""A tile in single precision: its sums, a row of vectors and one factor fill the registers.

In double precision, where a vector takes two of them, a tile is one vector wide.
"""

SINGLE = 4
"""Bytes of a number in single precision."""

_ROWS = (0,) * ROWS
_ONE, _TWO, _THREE = (0,), (0, 0), (0, 0, 0)
ALL, POSITIVE, WHERE_POSITIVE, SUBTRACT = (), (0,), (0, 0), (0, 0, 0)
"""What becomes of the sums of a tile; the lengths are known when kernels are compiled.

They are written, all of them or those that are positive or those where another array is positive,
or they are subtracted from what is there. What is not written is zero; NaN is.
"""


class Place(NamedTuple):
    """Where a product's factors and sums begin, and how far it is to the next row or term."""

    left: int
    left_row: int
    left_term: int
    right: int
    right_term: int
    start: int
    out: int
    gate: int
    out_row: int
    """Of `gate` as well."""


@intrinsic
def tile_product(
    typingctx: Any,
    left: Any,
    right: Any,
    start: Any,
    out: Any,
    gate: Any,
    place: Any,
    terms: Any,
    rows: Any,
    vectors: Any,
    sums: Any,
) -> Any:
    """``out[r, v] = start[v] + sum_k left[r, k] right[k, v]``, for a tile of rows and vectors.

    `rows` and `vectors` are tuples as long as a tile has of them; `sums` is what becomes of them,
    one of the constants above. `gate` is read for `WHERE_POSITIVE` only, `start` not for
    `SUBTRACT`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(context, builder, left.dtype)
        place_, terms_ = args[5], args[6]
        index = terms_.type
        at = {name: v.field(place, place_, name)[1] for name in Place._fields}
        sources = {
            name: v.pointer(array, value, [at[name]])
            for name, array, value in zip(
                ("left", "right", "start", "out", "gate"),
                (left, right, start, out, gate),
                args[:5],
                strict=True,
            )
        }
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        numbers = [ir.Constant(index, r) for r in range(len(rows))]
        subtract = len(sums) == len(SUBTRACT)
        totals = []
        for r in numbers:
            begun = builder.gep(sources["start"], [numbers[0]])
            if subtract:
                begun = builder.gep(sources["out"], [builder.mul(r, at["out_row"])])
            totals.append([cgutils.alloca_once(builder, v.vector) for _ in lanes])
            for total, lane in zip(totals[-1], lanes, strict=True):
                builder.store(v.load(builder.gep(begun, [lane])), total)
        steps = [builder.mul(r, at["left_row"]) for r in numbers]
        with cgutils.for_range(builder, terms_) as loop:
            values = builder.gep(sources["right"], [builder.mul(loop.index, at["right_term"])])
            loaded = [v.load(builder.gep(values, [lane])) for lane in lanes]
            factors = builder.gep(sources["left"], [builder.mul(loop.index, at["left_term"])])
            for step, line in zip(steps, totals, strict=True):
                factor = v.splat(builder.load(builder.gep(factors, [step])))
                factor = builder.fneg(factor) if subtract else factor
                for value, total in zip(loaded, line, strict=True):
                    builder.store(v.fma(factor, value, builder.load(total)), total)
        nothing = v.constant(0.0)
        for r, line in zip(numbers, totals, strict=True):
            row = builder.mul(r, at["out_row"])
            target = builder.gep(sources["out"], [row])
            for lane, total in zip(lanes, line, strict=True):
                value = builder.load(total)
                if len(sums) and not subtract:
                    decides = value
                    if len(sums) == len(WHERE_POSITIVE):
                        decides = v.load(builder.gep(builder.gep(sources["gate"], [row]), [lane]))
                    shut = builder.fcmp_ordered("<=", decides, nothing)
                    value = builder.select(shut, nothing, value)
                v.store(value, builder.gep(target, [lane]))
        return context.get_dummy_value()

    given = (left, right, start, out, gate, place, types.intp, rows, vectors, sums)
    return types.void(*given), codegen


@njit(cache=True, fastmath=FAST)
def product(
    factors: Any, out: Any, gate: Any, place: Any, shape: Any, packed: bool, sums: Any
) -> None:
    """``out[rows, vectors] = start + left right``, tile by tile.

    `factors` are the arrays of left, right and start, `shape` the numbers of rows, terms and
    vectors. A `packed` right factor lies in panels, one after the other, each as wide as a tile.
    """
    left, right, start = factors
    rows, terms, vectors = shape
    most = VECTORS if out.itemsize == SINGLE else 1
    panels = (vectors + most - 1) // most
    for panel in range(panels):
        first = panel * vectors // panels
        width = (panel + 1) * vectors // panels - first
        column = first * LANES
        for row in range(0, rows, ROWS):
            tile = Place(
                place.left + row * place.left_row,
                place.left_row,
                place.left_term,
                place.right + (column * terms if packed else column),
                width * LANES if packed else place.right_term,
                place.start + column,
                place.out + row * place.out_row + column,
                place.gate + row * place.out_row + column,
                place.out_row,
            )
            if width == len(_THREE):
                tile_product(left, right, start, out, gate, tile, terms, _ROWS, _THREE, sums)
            elif width == len(_TWO):
                tile_product(left, right, start, out, gate, tile, terms, _ROWS, _TWO, sums)
            else:
                tile_product(left, right, start, out, gate, tile, terms, _ROWS, _ONE, sums)


@njit(cache=True, fastmath=FAST)
def vectors_of(count: int) -> int:
    """Vectors that so many columns take."""
    return (count + LANES - 1) // LANES
