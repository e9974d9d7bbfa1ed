"""Values that nobody should give to anything."""

from __future__ import annotations

import datetime
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

POISON = [np.nan, np.inf, -np.inf, 1e300, -1e300]

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.integers(300, 400).map(lambda digits: 10**digits),
    st.floats(),
    st.complex_numbers(),
    st.text(max_size=20),
    st.binary(max_size=20),
    st.dates(),
    st.sampled_from([object, object(), print, ..., NotImplemented, range(3), np.float32]),
)

NESTED: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda inside: st.one_of(
        st.lists(inside, max_size=4),
        st.lists(inside, max_size=4).map(tuple),
        st.dictionaries(st.text(max_size=5), inside, max_size=3),
    ),
    max_leaves=8,
)

DTYPES = st.one_of(
    arrays.scalar_dtypes(),
    st.sampled_from([np.dtype(object), np.dtype([("x", "f8"), ("y", "i4")]), np.dtype("V3")]),
)


@st.composite
def odd_arrays(draw: Any) -> Any:
    """Arrays of any type and shape."""
    dtype = draw(DTYPES)
    shape = draw(arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    if dtype.kind in "OV":
        return np.zeros(shape, dtype)
    return draw(arrays.arrays(dtype, shape))


@st.composite
def poisoned(draw: Any, shape: tuple[int, ...]) -> Any:
    """Arrays of the right shape with a number in them that cannot be."""
    array = np.zeros(shape)
    if array.size:
        array.ravel()[draw(st.integers(0, array.size - 1))] = draw(st.sampled_from(POISON))
    return draw(st.sampled_from([array, array.tolist(), np.ma.masked_array(array)]))


def anything(*shape: int) -> st.SearchStrategy[Any]:
    """Something that is bad almost always; of this shape, if it is an array at all."""
    near = [(*shape, 1), shape[:-1], tuple(n + 1 for n in shape)]
    return st.one_of(
        NESTED,
        odd_arrays(),
        poisoned(shape),
        st.sampled_from([np.zeros(one) for one in near]),
        st.sampled_from([np.array([datetime.date(2020, 1, 1)]), np.array(["a"]), np.array(None)]),
    )
