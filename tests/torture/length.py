"""How long the suite is: ``make torture LENGTH=0.01`` does a hundredth of everything."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LENGTH = float(os.environ.get("TORTURE_LENGTH", "1"))


def often(count: int, least: int = 1) -> int:
    """How often to do what the whole suite does `count` times."""
    return max(least, round(count * LENGTH))


def some(things: Sequence[T]) -> list[T]:
    """Return as many of the things as the suite is long, evenly spread."""
    count = min(len(things), often(len(things)))
    return [things[number * len(things) // count] for number in range(count)]
