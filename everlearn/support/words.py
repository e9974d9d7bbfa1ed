"""Words in messages: which name was meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def did_you_mean(word: object, known: Iterable[str]) -> str:
    """Return " Did you mean 'x'?" for the known name closest to `word`, or an empty string."""
    given = word[:100] if isinstance(word, str) else ""
    # Two letters swapped are one mistake, which a plain ratio of a short word overrates.
    names = list(known)
    close = difflib.get_close_matches(given, names, n=1)
    if not close:
        close = [name for name in names if len(name) > 1 and sorted(name) == sorted(given)][:1]
    return f" Did you mean {close[0]!r}?" if close else ""
