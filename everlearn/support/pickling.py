"""Pickles of what can save itself: the file that it writes, and how to make it anew.

For `multiprocessing`, which pickles what it sends to another process. No file is ever read as a
pickle.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def reduced(
    saved: Any, make: Callable[[], Any], beside: Mapping[str, Any]
) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return what ``__reduce__`` of an object with `save` and `load` must return.

    Parameters
    ----------
    saved
        The object.
    make
        Makes another one like it that knows nothing; must be picklable itself.
    beside
        Attributes that its file does not hold.
    """
    with tempfile.TemporaryDirectory(prefix="everlearn-") as folder:
        file = Path(folder) / "state"
        saved.save(file)
        return _remade, (make, file.read_bytes(), dict(beside))


def _remade(make: Callable[[], Any], content: bytes, beside: Mapping[str, Any]) -> Any:
    made = make()
    with tempfile.TemporaryDirectory(prefix="everlearn-") as folder:
        file = Path(folder) / "state"
        file.write_bytes(content)
        made.load(file)
    vars(made).update(beside)
    return made


def shallow_copy(original: Any) -> Any:
    """Return another object with the same attributes, whatever ``__reduce__`` would make of it."""
    other = object.__new__(type(original))
    vars(other).update(vars(original))
    return other
