"""What an agent found about its world by counting, as plain data that files can hold.

`everlearn.planning.structure` counts, runs write it down, and reports read it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from everlearn.support.errors import InvalidInputError, given

MAX_FOUND, MAX_NAME = 10_000, 100
"""Most findings of a sort, and characters of a name, in a file that is read."""


@dataclass(frozen=True)
class RestingEntry:
    """An entry of the observation that most steps leave as it is.

    Attributes
    ----------
    entry, name
        Which.
    still
        Share of the steps in which it did not change.
    tolerance
        The smallest change in a step with which it moved; None if it never moved.
    """

    entry: int
    name: str
    still: float
    tolerance: float | None


@dataclass(frozen=True)
class Touch:
    """Where an entry that moves freely was whenever an object began to move.

    Attributes
    ----------
    entry, name
        Which entry.
    beside, beside_name
        The entry of the object that it is measured from; None where its own value is meant.
    offset
        Median of the entry minus `beside`, or of the entry itself where no entry of the object
        changes as it does.
    spread
        Half the width of the middle two thirds.
    share
        `spread` as a share of what it is over all steps.
    """

    entry: int
    name: str
    beside: int | None
    beside_name: str
    offset: float
    spread: float
    share: float

    def __str__(self) -> str:
        where = f" - {self.beside_name}" if self.beside is not None else ""
        return (
            f"{self.name}{where} was {self.offset:.3g} ± {self.spread:.2g} "
            f"({100 * self.share:.0f} % of the usual spread)"
        )


@dataclass(frozen=True)
class FoundObject:
    """Resting entries that move together.

    Attributes
    ----------
    entries, names
        Which.
    began
        How often it began to move.
    touches
        What was always near when it did, the closest first.
    """

    entries: tuple[int, ...]
    names: tuple[str, ...]
    began: int
    touches: tuple[Touch, ...]


@dataclass(frozen=True)
class Structure:
    """What an agent found about its world: what rests, what moves together, what touches it.

    Attributes
    ----------
    steps
        Transitions that were counted.
    resting
        Entries of the observation that most steps leave as they are, `MAX_FOUND` at most.
    objects
        Resting entries that move together.
    """

    steps: int = 0
    resting: tuple[RestingEntry, ...] = ()
    objects: tuple[FoundObject, ...] = ()

    def __str__(self) -> str:
        """Return a line for each finding."""
        lines = [f"{self.steps} steps: {_count(len(self.resting), 'entry', 'entries')} at rest, "]
        lines[0] += _count(len(self.objects), "object", "objects")
        for thing in self.objects:
            times = _count(thing.began, "time", "times")
            lines.append(f"object [{', '.join(thing.names)}] began to move {times}")
            lines += [f"  when {touch}" for touch in thing.touches]
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` reads."""
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, stored: Any) -> Structure:
        """Read what `to_json` returned, also after a trip through JSON; refuses anything else."""
        resting = tuple(
            RestingEntry(
                _whole(item["entry"]),
                _name(item["name"]),
                _share(item["still"]),
                None if item["tolerance"] is None else _number(item["tolerance"]),
            )
            for item in _items(stored["resting"])
        )
        objects = tuple(
            FoundObject(
                tuple(map(_whole, _items(item["entries"]))),
                tuple(map(_name, _items(item["names"]))),
                _whole(item["began"]),
                tuple(map(_touch, _items(item["touches"]))),
            )
            for item in _items(stored["objects"])
        )
        if any(len(thing.entries) != len(thing.names) for thing in objects):
            raise InvalidInputError("an object of a structure has not one name for each entry")
        return cls(_whole(stored["steps"]), resting, objects)


def is_entry_name(value: object) -> bool:
    """Whether an entry of an observation may be called so."""
    return isinstance(value, str) and len(value) <= MAX_NAME and value.isprintable()


def _touch(item: Mapping[str, Any]) -> Touch:
    beside = item["beside"]
    return Touch(
        _whole(item["entry"]),
        _name(item["name"]),
        None if beside is None else _whole(beside),
        _name(item["beside_name"]),
        _number(item["offset"]),
        _number(item["spread"]),
        _number(item["share"]),
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _items(value: object) -> list[Any] | tuple[Any, ...]:
    if not isinstance(value, (list, tuple)) or len(value) > MAX_FOUND:
        raise _unfit(value, f"a list of at most {MAX_FOUND}")
    return value


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= 2**53:
        raise _unfit(value, "a whole number from 0 on")
    return value


def _number(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not _usual(value):
        raise _unfit(value, "a number")
    return float(value)


def _usual(value: float) -> bool:
    return math.isfinite(value) and abs(value) <= 1e100


def _share(value: object) -> float:
    share = _number(value)
    if not 0 <= share <= 1:
        raise _unfit(value, "a share")
    return share


def _name(value: object) -> str:
    if not is_entry_name(value):
        raise _unfit(value, f"a name of at most {MAX_NAME} characters")
    return str(value)


def _unfit(value: object, expected: str) -> InvalidInputError:
    return InvalidInputError(f"a structure has {given(value)} where it should have {expected}")
