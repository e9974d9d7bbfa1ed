"""Vector instructions of the online update."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from everlearn.world_model.vectors import LANES, Vectors


@intrinsic
def subtract_run(
    typingctx: Any,
    out: Any,
    matrix: Any,
    rows: Any,
    columns: Any,
    first: Any,
    last: Any,
    weights: Any,
    vectors: Any,
) -> Any:
    """``out[n] -= sum_j matrix[rows[n], columns[j]] * weights[columns[j]]``, j in a run.

    The run is summed in the type of the weights, in registers, then subtracted in float64.
    `rows` and `vectors` are tuples: their lengths are known when this is compiled.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        out_, matrix_, rows_, columns_, first_, last_, weights_, _ = args
        v = Vectors(context, builder, weights.dtype)
        index = first_.type
        zero = ir.Constant(index, 0)
        lanes = [ir.Constant(index, n * LANES) for n in range(len(vectors))]
        sources = [
            v.pointer(matrix, matrix_, [row, zero]) for row in cgutils.unpack_tuple(builder, rows_)
        ]
        table = v.pointer(weights, weights_, [zero, zero])
        width = ir.Constant(index, len(vectors) * LANES)
        totals = [
            [cgutils.alloca_once_value(builder, v.constant(0.0)) for _ in lanes] for _ in sources
        ]
        for total in (one for row in totals for one in row):
            builder.store(v.constant(0.0), total)
        place = v.pointer(columns, columns_, [zero])
        with cgutils.for_range(builder, last_, start=first_) as loop:
            column = builder.load(builder.gep(place, [loop.index]))
            source = builder.gep(table, [builder.mul(column, width)])
            loaded = [v.load(builder.gep(source, [lane])) for lane in lanes]
            for row, line in zip(sources, totals, strict=True):
                splat = v.splat(builder.load(builder.gep(row, [column])))
                for value, total in zip(loaded, line, strict=True):
                    builder.store(v.fma(splat, value, builder.load(total)), total)
        wide = ir.VectorType(ir.DoubleType(), LANES)
        for n, line in enumerate(totals):
            for lane, total in zip(lanes, line, strict=True):
                target = v.pointer(out, out_, [ir.Constant(index, n), lane])
                value = builder.load(total)
                value = value if v.double else builder.fpext(value, wide)
                v.store(builder.fsub(v.load(target, wide), value), target)
        return context.get_dummy_value()

    signature = types.void(out, matrix, rows, columns, types.intp, types.intp, weights, vectors)
    return signature, codegen


@intrinsic
def accumulate_row(
    typingctx: Any,
    products: Any,
    row: Any,
    following: Any,
    cells: Any,
    values: Any,
    value: Any,
    gathered: Any,
) -> Any:
    """``products[row, cells] += value * values``, and the sums into `gathered`, in order.

    Corners come in pairs of neighbouring cells, so two numbers go at a time. Rows are far
    apart in memory: the cells of row `following` are called up while this one is worked on.
    """

    def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        products_, row_, following_, cells_, values_, value_, gathered_ = args
        v = Vectors(context, builder, products.dtype)
        index = row_.type
        zero, one = ir.Constant(index, 0), ir.Constant(index, 1)
        pair = ir.VectorType(v.scalar, 2)
        size = v.scalar
        line = v.pointer(products, products_, [row_, zero])
        coming = v.pointer(products, products_, [following_, zero])
        places = v.pointer(cells, cells_, [zero])
        factors = v.pointer(values, values_, [zero])
        target = v.pointer(gathered, gathered_, [zero])
        splat = ir.Constant(pair, ir.Undefined)
        for n in range(2):
            splat = builder.insert_element(splat, value_, ir.Constant(ir.IntType(32), n))
        byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag]),
            "llvm.prefetch.p0",
        )
        muladd = cgutils.get_or_insert_function(
            builder.module,
            ir.FunctionType(pair, [pair] * 3),
            f"llvm.fmuladd.v2f{64 if str(size) == 'double' else 32}",
        )
        count = builder.lshr(v.shape(cells, cells_, 0), one)
        with cgutils.for_range(builder, count) as loop:
            k = builder.shl(loop.index, one)
            cell = builder.load(builder.gep(places, [k]))
            place = builder.gep(line, [cell])
            added = v.load(builder.gep(factors, [k]), pair)
            total = builder.call(muladd, [splat, added, v.load(place, pair)])
            v.store(total, place)
            v.store(total, builder.gep(target, [k]))
            ahead = builder.bitcast(builder.gep(coming, [cell]), byte)
            # For writing, into the nearest cache, data.
            builder.call(prefetch, [ahead] + [ir.Constant(flag, n) for n in (1, 3, 1)])
        return context.get_dummy_value()

    signature = types.void(
        products, types.intp, types.intp, cells, values, products.dtype, gathered
    )
    return signature, codegen
