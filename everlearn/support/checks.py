"""Checks of single values, for everything that takes them from outside."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.support.errors import EverlearnError, InvalidInputError, MemoryLimitError, given


def as_numbers(value: object, name: str, *, flags: bool = False) -> npt.NDArray[Any]:
    """Return `value` as an array of real numbers, or say that it is none.

    Parameters
    ----------
    value
        Whatever was given.
    name
        What it is, for the message.
    flags
        Whether truth values will do.
    """
    try:
        array = np.asarray(value)
    except (TypeError, ValueError, OverflowError) as error:  # rows of different lengths
        raise InvalidInputError(f"{name} must be numbers; got {_kind(value)}: {error}") from error
    if array.dtype.kind not in ("biuf" if flags else "iuf"):
        raise InvalidInputError(f"{name} must be numbers; got {_kind(value)} of {array.dtype}")
    return array


def check_whole(name: str, value: object, low: int, high: int | None = None) -> None:
    """Refuse anything but a whole number in the range."""
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):  # type: ignore[operator]
        limits = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidInputError(f"{name} is {given(value)}; expected a whole number {limits}")


def check_number(name: str, value: object, low: float, high: float) -> None:
    """Refuse anything but a number in the range, whose ends are in it."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # type: ignore[operator]
        raise InvalidInputError(
            f"{name} is {given(value)}; expected a number from {low:g} to {high:g}"
        )


def check_positive(name: str, value: object) -> None:
    """Refuse anything but a finite number above 0."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0 < value < math.inf:  # type: ignore[operator]
        raise InvalidInputError(f"{name} must be a positive number; got {given(value)}")


@contextmanager
def sizes_that_fit(what: str) -> Iterator[None]:
    """Within, settings of `what` that need more memory than there is end in a sentence."""
    try:
        yield
    except EverlearnError:
        raise
    except (MemoryError, RuntimeError) as error:
        # PyTorch has no error of its own for it.
        if isinstance(error, RuntimeError) and "allocate" not in str(error):
            raise
        raise MemoryLimitError(
            f"{what} needs more memory than there is ({error}); use smaller settings"
        ) from error


def _kind(value: object) -> str:
    return type(value).__name__
