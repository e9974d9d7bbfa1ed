"""Vectors of `LANES` numbers for intrinsics of numba, in either precision.

The compiler cannot prove that the arrays of the inner loops do not overlap, and so leaves
them scalar or half as wide as the processor. Intrinsics built with these say what is meant in
LLVM's own vector types; where a processor has shorter vectors LLVM splits them. Indices are
trusted, as everywhere in compiled code.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba.core import cgutils

from everlearn.interfaces import FloatArray

LANES = 16
"""Numbers in one vector; a cache line of float32."""

_LOG2_E = 1.4426950408889634
_LN_2 = 0.6931471805599453

SATURATION = {"float": 15.0, "double": 30.0}
"""Arguments at which the logistic function is taken as constant, inside (0, 1)."""

SERIES = {"float": 7, "double": 13}
"""Terms of the exponential series; what is left is below the precision's rounding."""


class Vectors:
    """Loads, stores and arithmetic on vectors, for one intrinsic's builder."""

    def __init__(self, context: Any, builder: Any, dtype: Any) -> None:
        self.context, self.builder = context, builder
        self.scalar = context.get_data_type(dtype)
        self.vector = ir.VectorType(self.scalar, LANES)
        self.double = str(self.scalar) == "double"
        self.integer = ir.IntType(64 if self.double else 32)

    def field(self, named: Any, value: Any, name: str) -> tuple[Any, Any]:
        """Type and value of a field of a named tuple."""
        position = named.fields.index(name)
        return named.types[position], self.builder.extract_value(value, position)

    def pointer(self, arrty: Any, array: Any, indices: list[Any]) -> Any:
        """Address of an element."""
        array = self.context.make_array(arrty)(self.context, self.builder, array)
        return cgutils.get_item_pointer(self.context, self.builder, arrty, array, indices)

    def shape(self, arrty: Any, array: Any, axis: int) -> Any:
        """Length of an array along an axis."""
        array = self.context.make_array(arrty)(self.context, self.builder, array)
        return self.builder.extract_value(array.shape, axis)

    def load(self, pointer: Any, of: Any = None) -> Any:
        """Read a vector, by default of the array's type."""
        vector = self.vector if of is None else of
        pointer = self.builder.bitcast(pointer, vector.as_pointer())
        return self.builder.load(pointer, align=4)

    def store(self, value: Any, pointer: Any) -> None:
        """Write a vector."""
        pointer = self.builder.bitcast(pointer, value.type.as_pointer())
        self.builder.store(value, pointer, align=4)

    def splat(self, scalar: Any) -> Any:
        """Return a vector of one number in all lanes."""
        empty = ir.Constant(ir.VectorType(scalar.type, LANES), ir.Undefined)
        one = self.builder.insert_element(empty, scalar, ir.Constant(ir.IntType(32), 0))
        mask = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return self.builder.shuffle_vector(one, empty, mask)

    def constant(self, value: float) -> Any:
        """Return a vector of one known number."""
        return ir.Constant(self.vector, [value] * LANES)

    def integers(self, value: int) -> Any:
        """Return a vector of one known integer."""
        return ir.Constant(ir.VectorType(self.integer, LANES), [value] * LANES)

    def call(self, name: str, *arguments: Any) -> Any:
        """Call LLVM's function of that name for vectors."""
        kind = ir.FunctionType(self.vector, [self.vector] * len(arguments))
        name = f"llvm.{name}.v{LANES}f{64 if self.double else 32}"
        function = cgutils.get_or_insert_function(self.builder.module, kind, name)
        return self.builder.call(function, arguments)

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Multiply and add in one instruction, where there is one."""
        return self.call("fmuladd", a, b, c)

    def clamp(self, a: Any, bound: float) -> Any:
        """Keep to ``[-bound, bound]``; NaN becomes the bound."""
        # Ordered comparisons are false for NaN, which therefore becomes the bound: it must
        # not become an index.
        low, high = self.constant(-bound), self.constant(bound)
        a = self.builder.select(self.builder.fcmp_ordered(">", a, low), a, low)
        return self.builder.select(self.builder.fcmp_ordered("<", a, high), a, high)

    def logistic(self, x: Any) -> Any:
        """1 / (1 + exp(-x)), with exp(-x) = 2^k exp(f), |f| <= ln(2) / 2."""
        builder, name = self.builder, "double" if self.double else "float"
        x = self.clamp(x, SATURATION[name])
        k = self.call("floor", self.fma(x, self.constant(-_LOG2_E), self.constant(0.5)))
        f = self.fma(k, self.constant(-_LN_2), builder.fneg(x))
        terms = [1.0]
        for n in range(1, SERIES[name] + 1):
            terms.append(terms[-1] / n)
        p = self.constant(terms[-1])
        for term in reversed(terms[:-1]):
            p = self.fma(p, f, self.constant(term))
        # The bits of 2^k are its exponent field alone.
        bias, shift = (1023, 52) if self.double else (127, 23)
        bits = builder.fptosi(k, ir.VectorType(self.integer, LANES))
        bits = builder.shl(builder.add(bits, self.integers(bias)), self.integers(shift))
        power = builder.bitcast(bits, self.vector)
        one = self.constant(1.0)
        return builder.fdiv(one, self.fma(p, power, one))


def padded(count: int, multiple: int) -> int:
    """`count` rounded up to a multiple."""
    return -(-count // multiple) * multiple


def aligned_zeros(shape: tuple[int, int], dtype: npt.DTypeLike) -> FloatArray:
    """Zeros that start on a cache line, so that vectors of weights do not straddle two."""
    line = 64
    item = np.dtype(dtype).itemsize
    buffer = np.zeros(shape[0] * shape[1] + line // item, dtype)
    skip = -buffer.ctypes.data % line // item
    return buffer[skip : skip + shape[0] * shape[1]].reshape(shape)
