"""Names for things: one small table for each kind of component."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Generic, TypeVar

from everlearn.support.errors import InvalidInputError, UnknownNameError, given

T = TypeVar("T")

NAME = re.compile(r"\w[\w.-]*")


class Registry(Generic[T]):
    """An ordered table from names to components of one kind.

    Parameters
    ----------
    kind
        What is registered, in the singular, for messages ("task", "agent").
    """

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._items: dict[str, T] = {}

    def register(self, name: str, item: T, *, replace: bool = False) -> T:
        """Store `item` under `name` and return it; a name is taken only once unless `replace`."""
        # Names become parts of paths and of tables.
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInputError(
                f"{self.kind} name {given(name)} must be a non-empty word of letters, "
                "digits, '.', '-' and '_' that begins with a letter or digit"
            )
        if name in self._items and not replace:
            raise InvalidInputError(
                f"{self.kind} {name!r} is already registered; pass replace=True to override it"
            )
        self._items[name] = item
        return item

    def unregister(self, name: str) -> None:
        """Forget `name`; raises `UnknownNameError` if it was never registered."""
        self.get(name)
        del self._items[name]

    def get(self, name: str) -> T:
        """Return what is registered under `name`, or say which names there are."""
        try:
            return self._items[name]
        except (KeyError, TypeError):
            raise UnknownNameError(self._unknown(name)) from None

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._items)

    def _unknown(self, name: object) -> str:
        known = ", ".join(self._items) or "none registered"
        word = name[:100] if isinstance(name, str) else ""
        close = difflib.get_close_matches(word, list(self._items), n=1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        return f"unknown {self.kind} {given(name)}; known: {known}.{hint}"

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)
