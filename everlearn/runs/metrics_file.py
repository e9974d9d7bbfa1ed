"""Lines of the metrics: what each kind holds, and reading them without trusting them."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any

from everlearn.support.errors import DamagedFileError

Line = dict[str, Any]

MAX_WHOLE = 2**53
"""Above it, whole numbers are no longer exact everywhere that JSON is read."""


def _whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MAX_WHOLE


def _number(value: object) -> bool:
    if value is None:  # what a line does not know
        return True
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return number and math.isfinite(value)  # type: ignore[arg-type]


def _rate(value: object) -> bool:
    return value is not None and _number(value) and 0 <= value <= 1  # type: ignore[operator]


def _word(value: object) -> bool:
    return isinstance(value, str)


def _flag(value: object) -> bool:
    return isinstance(value, bool)


_PLACE: dict[str, Callable[[object], bool]] = {"episode": _whole, "step": _whole, "task": _word}
_REQUIRED: dict[str, dict[str, Callable[[object], bool]]] = {
    "episode": {**_PLACE, "success": _flag, "length": _whole},
    "eval": {**_PLACE, "success_rate": _rate},
    "model": _PLACE,
}
KINDS = tuple(_REQUIRED)


def parse_lines(content: bytes, source: str) -> tuple[list[Line], list[int]]:
    """Read metrics; what follows the last end of a line is left out.

    Parameters
    ----------
    content
        Of the file.
    source
        Its name, for messages.

    Returns
    -------
    lines, ends
        The lines, and for each the number of bytes up to its end.

    Raises
    ------
    DamagedFileError
        A line is not what was written; the message names it.
    """
    lines: list[Line] = []
    ends: list[int] = []
    start = 0
    while (end := content.find(b"\n", start)) >= 0:
        line = _parsed(content[start:end])
        if line is None:
            raise DamagedFileError(
                f"line {len(lines) + 1} of {source} is damaged: "
                f"{content[start : min(end, start + 60)]!r}; restore the file from a copy, or "
                "start over with --fresh. Nothing was changed"
            )
        start = end + 1
        lines.append(line)
        ends.append(start)
    return lines, ends


def _parsed(text: bytes) -> Line | None:
    """Return a line, or None if it is none that a run writes."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):  # no JSON, or nested deeper than any line
        return None
    if not isinstance(line, dict) or not isinstance(line.get("kind"), str):
        return None
    required = _REQUIRED.get(line["kind"])
    if required is None or not all(name in line for name in required):
        return None
    for name, value in line.items():
        fits = required.get(name) or (_word if name == "kind" else _number)
        if not fits(value):
            return None
    return line
