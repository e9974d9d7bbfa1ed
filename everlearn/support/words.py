"""Words in messages: which name was meant, and text of others that a terminal can show."""

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


def printable(text: str) -> str:
    """Return a text with everything that a terminal would obey, or could not show, spelled out.

    Names and settings come from files that others wrote: an escape sequence in one could move the
    cursor, rename the window or write over the line above. Ends of lines stay.
    """
    if text.isprintable():
        return text
    return "".join(
        sign if sign.isprintable() or sign == "\n" else sign.encode("unicode_escape").decode()
        for sign in text
    )
