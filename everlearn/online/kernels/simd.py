"""Vector instructions of encoding and prediction with the online model."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everlearn.world_model.vectors import LANES, Vectors

CORNERS = 4
"""Cells around a location on a grid of two dimensions."""


@intrinsic
def project_lanes(
    typingctx: Any,
    projection: Any,
    row: Any,
    inputs: Any,
    column: Any,
    out: Any,
    first: Any,
    panel: Any,
    rows: Any,
) -> Any:
    """``out[first + r, c] = sum over k of factors[f, k] * inputs[sources[f, k], c]``.

    For the rows ``f = row + r`` of a projection, as many as the tuple `rows` is long, which
    must read the same inputs, and the columns c from `column` on, as many vectors of them as the
    tuple `panel` is long: what is read serves all of them. A row reads an even number of inputs:
    two sums run side by side, because one alone would wait for its own result at every step.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        projection_, row_, inputs_, column_, out_, first_, _, _ = args
        v = Vectors(context, builder, inputs.dtype)
        index = row_.type
        zero, two = ir.Constant(index, 0), ir.Constant(index, 2)
        lanes = [ir.Constant(index, n * LANES) for n in range(len(panel))]
        count = builder.load(v.pointer(*v.field(projection, projection_, "counts"), [row_]))
        read = v.pointer(*v.field(projection, projection_, "sources"), [row_, zero])
        numbers = [builder.add(row_, ir.Constant(index, n)) for n in range(len(rows))]
        factors = v.field(projection, projection_, "factors")
        weights = [v.pointer(*factors, [number, zero]) for number in numbers]
        base = v.pointer(inputs, inputs_, [zero, column_])
        stride = v.shape(inputs, inputs_, 1)
        sums = [
            [[cgutils.alloca_once_value(builder, v.constant(0.0)) for _ in range(2)] for _ in lanes]
            for _ in weights
        ]
        for total in (one for line in sums for pair in line for one in pair):
            builder.store(v.constant(0.0), total)
        with cgutils.for_range(builder, builder.udiv(count, two)) as loop:
            for i in range(2):
                k = builder.add(builder.mul(loop.index, two), ir.Constant(index, i))
                source = builder.load(builder.gep(read, [k]))
                line = builder.gep(base, [builder.mul(source, stride)])
                loaded = [v.load(builder.gep(line, [lane])) for lane in lanes]
                for pointer, totals in zip(weights, sums, strict=True):
                    weight = v.splat(builder.load(builder.gep(pointer, [k])))
                    for value, pair in zip(loaded, totals, strict=True):
                        builder.store(v.fma(weight, value, builder.load(pair[i])), pair[i])
        for n, totals in enumerate(sums):
            target = builder.add(first_, ir.Constant(index, n))
            pointer = v.pointer(out, out_, [target, column_])
            for lane, (even, odd) in zip(lanes, totals, strict=True):
                total = builder.fadd(builder.load(even), builder.load(odd))
                v.store(total, builder.gep(pointer, [lane]))
        return context.get_dummy_value()

    signature = types.void(projection, types.intp, inputs, types.intp, out, types.intp, panel, rows)
    return signature, codegen


def _located(v: Vectors, projected: Any, bins: Any) -> tuple[Any, Any]:
    """Lower edges (int32) of projections on a line of `bins` edges, and how far past them.

    ``location = (bins - 1) * logistic(projection)``.
    """
    builder = v.builder
    last = builder.sitofp(builder.sub(bins, ir.Constant(bins.type, 1)), v.scalar)
    location = builder.fmul(v.logistic(projected), v.splat(last))
    lower = builder.fptosi(location, ir.VectorType(ir.IntType(32), LANES))
    top = builder.trunc(builder.sub(bins, ir.Constant(bins.type, 2)), ir.IntType(32))
    top = v.splat(top)
    lower = builder.select(builder.icmp_signed("<", lower, top), lower, top)
    return lower, builder.fsub(location, builder.sitofp(lower, v.vector))


@intrinsic
def locate_lanes(
    typingctx: Any, position: Any, column: Any, bins: Any, cell: Any, fraction: Any
) -> Any:
    """Place `LANES` projections on a line: lower edge (int32) and how far past it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        position_, column_, bins_, cell_, fraction_ = args
        v = Vectors(context, builder, position.dtype)
        projected = v.load(v.pointer(position, position_, [column_]))
        lower, past = _located(v, projected, bins_)
        v.store(lower, v.pointer(cell, cell_, [column_]))
        v.store(past, v.pointer(fraction, fraction_, [column_]))
        return context.get_dummy_value()

    return types.void(position, types.intp, types.intp, cell, fraction), codegen


@intrinsic
def locate_plane(
    typingctx: Any, positions: Any, grid: Any, column: Any, bins: Any, cells: Any, corners: Any
) -> Any:
    """Place `LANES` pairs of projections ``positions[2 g + dim, c]`` on grid g of a group.

    Grids have two dimensions. ``cells[g, c]`` becomes the first of the four corners around,
    counted in the grid, and ``corners[4 g + n, c]`` their weights: itself, its neighbour, and
    the two a line on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        positions_, grid_, column_, bins_, cells_, corners_ = args
        v = Vectors(context, builder, positions.dtype)
        index = column_.type
        located = []
        for dim in range(2):
            axis = builder.add(builder.mul(grid_, ir.Constant(index, 2)), ir.Constant(index, dim))
            projected = v.load(v.pointer(positions, positions_, [axis, column_]))
            located.append(_located(v, projected, bins_))
        (i, s), (j, t) = located
        both = builder.fmul(s, t)
        right = builder.fsub(t, both)
        below = builder.fsub(s, both)
        neither = builder.fsub(builder.fsub(v.constant(1.0), s), right)
        line = v.splat(builder.trunc(bins_, ir.IntType(32)))
        cell = builder.add(builder.mul(i, line), j)
        v.store(cell, v.pointer(cells, cells_, [grid_, column_]))
        first = builder.mul(grid_, ir.Constant(index, CORNERS))
        for n, weight in enumerate((neither, right, below, both)):
            corner = builder.add(first, ir.Constant(index, n))
            v.store(weight, v.pointer(corners, corners_, [corner, column_]))
        return context.get_dummy_value()

    whole = types.intp
    return types.void(positions, whole, whole, whole, cells, corners), codegen


@intrinsic
def logistic_lanes(typingctx: Any, x: Any, column: Any, out: Any) -> Any:
    """Logistic function of `LANES` numbers, as `locate_lanes` uses it."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        v = Vectors(context, builder, x.dtype)
        value = v.logistic(v.load(v.pointer(x, args[0], [args[1]])))
        v.store(value, v.pointer(out, args[2], [args[1]]))
        return context.get_dummy_value()

    return types.void(x, types.intp, out), codegen


@intrinsic
def add_row(typingctx: Any, out: Any, row: Any, weights: Any, index: Any, factor: Any) -> Any:
    """``out[row] += factor * weights[index]``, for rows of whole vectors."""

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_, row_, weights_, index_, factor_ = args
        v = Vectors(context, builder, out.dtype)
        splat = v.splat(factor_)
        width = v.shape(out, out_, 1)
        step = ir.Constant(width.type, LANES)
        with cgutils.for_range(builder, builder.udiv(width, step)) as loop:
            lane = builder.mul(loop.index, step)
            target = v.pointer(out, out_, [row_, lane])
            source = v.load(v.pointer(weights, weights_, [index_, lane]))
            v.store(v.fma(splat, source, v.load(target)), target)
        return context.get_dummy_value()

    return types.void(out, types.intp, weights, types.intp, out.dtype), codegen


@intrinsic
def add_grids(
    typingctx: Any,
    change: Any,
    weights: Any,
    first: Any,
    bins: Any,
    cells: Any,
    corners: Any,
    grids: Any,
    vectors: Any,
) -> Any:
    """Add what a group of two-dimensional grids predicts to ``change[c]``, all c.

    ``cells`` and ``corners`` are those of `locate_plane`; the weights of the first grid begin at
    row `first`, those of the others follow. `grids` is a tuple as long as the group has grids,
    and `vectors` one as long as a row has vectors, so that both are known when this is compiled:
    sums stay in registers, and are read and written once for the whole group.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        change_, weights_, first_, bins_, cells_, corners_, _, _ = args
        v = Vectors(context, builder, change.dtype)
        index = bins_.type

        def number(value: int) -> Any:
            return ir.Constant(index, value)

        width, zero = number(len(vectors) * LANES), number(0)
        targets = v.pointer(change, change_, [zero, zero])
        lanes = [number(n * LANES) for n in range(len(vectors))]
        next_line = builder.mul(bins_, width)
        rows_of_grid = builder.mul(bins_, bins_)
        group = []
        for g in range(len(grids)):
            row = builder.add(first_, builder.mul(rows_of_grid, number(g)))
            sources = v.pointer(weights, weights_, [row, zero])
            located = v.pointer(cells, cells_, [number(g), zero])
            factors = [
                v.pointer(corners, corners_, [number(CORNERS * g + n), zero])
                for n in range(CORNERS)
            ]
            group.append((sources, located, factors))
        with cgutils.for_range(builder, v.shape(change, change_, 0)) as loop:
            c = loop.index
            target = builder.gep(targets, [builder.mul(c, width)])
            totals = [v.load(builder.gep(target, [lane])) for lane in lanes]
            for sources, located, factors in group:
                cell = builder.sext(builder.load(builder.gep(located, [c])), index)
                corner = builder.gep(sources, [builder.mul(cell, width)])
                lower = builder.gep(corner, [next_line])
                rows = (corner, builder.gep(corner, [width]), lower, builder.gep(lower, [width]))
                for row, pointer in zip(rows, factors, strict=True):
                    splat = v.splat(builder.load(builder.gep(pointer, [c])))
                    totals = [
                        v.fma(splat, v.load(builder.gep(row, [lane])), total)
                        for lane, total in zip(lanes, totals, strict=True)
                    ]
            for lane, total in zip(lanes, totals, strict=True):
                v.store(total, builder.gep(target, [lane]))
        return context.get_dummy_value()

    whole = types.intp
    given = (change, weights, whole, whole, cells, corners, grids, vectors)
    return types.void(*given), codegen


@intrinsic
def add_linear(
    typingctx: Any,
    change: Any,
    weights: Any,
    first: Any,
    inputs: Any,
    start: Any,
    stop: Any,
    vectors: Any,
) -> Any:
    """``change[c] += sum over i of inputs[i, c] * weights[first + i - start]``, all c.

    For the inputs from `start` to `stop`; `vectors` as for `add_grids`.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        change_, weights_, first_, inputs_, start_, stop_, _ = args
        v = Vectors(context, builder, change.dtype)
        index = first_.type
        zero = ir.Constant(index, 0)
        width = ir.Constant(index, len(vectors) * LANES)
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        targets = v.pointer(change, change_, [zero, zero])
        sources = v.pointer(weights, weights_, [first_, zero])
        totals = [cgutils.alloca_once_value(builder, v.constant(0.0)) for _ in lanes]
        with cgutils.for_range(builder, v.shape(change, change_, 0)) as loop:
            target = builder.gep(targets, [builder.mul(loop.index, width)])
            for lane, total in zip(lanes, totals, strict=True):
                builder.store(v.load(builder.gep(target, [lane])), total)
            with cgutils.for_range(builder, stop_, start=start_) as one:
                splat = v.splat(builder.load(v.pointer(inputs, inputs_, [one.index, loop.index])))
                row = builder.gep(sources, [builder.mul(builder.sub(one.index, start_), width)])
                for lane, total in zip(lanes, totals, strict=True):
                    read = v.load(builder.gep(row, [lane]))
                    builder.store(v.fma(splat, read, builder.load(total)), total)
            for lane, total in zip(lanes, totals, strict=True):
                v.store(builder.load(total), builder.gep(target, [lane]))
        return context.get_dummy_value()

    signature = types.void(change, weights, types.intp, inputs, types.intp, types.intp, vectors)
    return signature, codegen
