"""Names for components, and the doors through which users add their own.

A component is anything that commands know by name: an agent, a world, a planner, a model, a
memory, a strategy, a preset. Each sort has one `Registry`. A package of yours adds to them when it
is imported: by ``--import my_module`` on the command line, by the environment variable
``EVERLEARN_IMPORT=my_module,other``, or by the entry-point group ``everlearn.plugins`` of an
installed package.
"""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Generic, TypeVar

from everlearn.support.errors import InvalidInputError, UnknownNameError, given, unknown_name

T = TypeVar("T")

NAME = re.compile(r"\w[\w.-]*")

PLUGINS = "everlearn.plugins"
"""Entry-point group whose modules are imported before a command runs."""

IMPORT_VARIABLE = "EVERLEARN_IMPORT"
"""Environment variable with further modules to import, separated by commas."""

_imported: dict[str, None] = {}
"""Modules that `load_plugins` was asked for by name, in order."""


class Registry(Generic[T]):
    """An ordered table from names to components of one sort.

    Parameters
    ----------
    sort
        What is registered, in the singular, for messages ("task", "agent").

    Examples
    --------
    >>> colours = Registry("colour")
    >>> _ = colours.register("red", (255, 0, 0))
    >>> colours.get("red")
    (255, 0, 0)
    """

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self._items: dict[str, T | _Lazy[T]] = {}

    def register(self, name: str, item: T, *, replace: bool = False) -> T:
        """Store `item` under `name` and return it; a name is taken only once unless `replace`."""
        self._store(name, item, replace)
        return item

    def register_lazy(self, name: str, load: Callable[[], T]) -> None:
        """Store what `load` returns, which is called when `name` is first asked for."""
        self._store(name, _Lazy(load), replace=False)

    def unregister(self, name: str) -> None:
        """Remove `name`; raises `UnknownNameError` if it was never registered."""
        if name not in self._items:
            raise UnknownNameError(self.unknown(name))
        del self._items[name]

    def get(self, name: str) -> T:
        """Return what is registered under `name`, or say which names there are."""
        try:
            item = self._items[name]
        except (KeyError, TypeError):
            raise UnknownNameError(self.unknown(name)) from None
        if isinstance(item, _Lazy):
            loaded: T = item.load()
            self._items[name] = loaded
            return loaded
        return item

    def name_of(self, item: object) -> str:
        """Return the name under which `item` itself is registered."""
        # What is loaded already first: a lazy component may need an extra that is missing.
        for name, stored in sorted(
            self._items.items(), key=lambda pair: isinstance(pair[1], _Lazy)
        ):
            if stored is item or (isinstance(stored, _Lazy) and self.get(name) is item):
                return name
        raise UnknownNameError(f"{given(item)} is not registered as a {self.sort}")

    def names(self) -> tuple[str, ...]:
        """All names, in the order of registration."""
        return tuple(self._items)

    def unknown(self, name: object) -> str:
        """Return the message about a name that nobody registered."""
        return unknown_name(self.sort, name, self._items)

    def _store(self, name: str, item: T | _Lazy[T], replace: bool) -> None:
        # Names become parts of paths and of tables.
        if not isinstance(name, str) or not NAME.fullmatch(name):
            raise InvalidInputError(
                f"{self.sort} name {given(name)} must be a non-empty word of letters, "
                "digits, '.', '-' and '_' that begins with a letter or digit"
            )
        if name in self._items and not replace:
            raise InvalidInputError(
                f"{self.sort} {name!r} is already registered; pass replace=True to override it"
            )
        self._items[name] = item

    def __contains__(self, name: object) -> bool:
        return name in self._items

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


@dataclass(frozen=True)
class _Lazy(Generic[T]):
    """A component that is made when it is asked for."""

    load: Callable[[], T]


def load_plugins(modules: Iterable[str] = ()) -> None:
    """Import `modules`, those of ``EVERLEARN_IMPORT``, and all installed plugins.

    A module is looked for in the working folder too. Each is imported once; the processes of an
    evaluation or a sweep call this with the same modules.

    Raises
    ------
    InvalidInputError
        A module cannot be found, or raises when it is imported; the message says which and why.
    """
    variable = os.environ.get(IMPORT_VARIABLE, "")
    named = [*modules, *(word.strip() for word in variable.split(",") if word.strip())]
    for name in dict.fromkeys(named):
        _import(name, f"module {name!r} of --import or {IMPORT_VARIABLE}")
        _imported[name] = None
    for plugin in entry_points(group=PLUGINS):
        _import(plugin.module, f"plugin {plugin.name!r} ({plugin.value})")


def imported_modules() -> tuple[str, ...]:
    """Modules that the user asked this process to import; its own processes import them too."""
    return tuple(_imported)


def require_imported(modules: Iterable[str], source: str) -> None:
    """Refuse what a stored config names and this process has not imported.

    Importing a module runs its code, and a config may come from anybody. So the user decides, with
    ``--import``, ``EVERLEARN_IMPORT``, an installed plugin, or ``import`` in a program.
    """
    missing = [name for name in dict.fromkeys(modules) if name not in sys.modules]
    if missing:
        raise InvalidInputError(
            f"{source} was made with modules that are not imported here: {', '.join(missing)}. "
            "Importing a module runs its code, so everlearn imports none that only a config names. "
            f"If you trust the code, add {' '.join(f'--import {name}' for name in missing)}"
        )


def _import(name: str, what: str) -> None:
    here = str(Path.cwd())
    if here not in sys.path and "" not in sys.path:
        sys.path.append(here)  # last, so that nothing installed is hidden by it
    try:
        importlib.import_module(name)
    except (Exception, SystemExit) as error:  # whatever a user's module raises, the user is told
        raise InvalidInputError(
            f"{what} cannot be imported: {type(error).__name__}: {error}"
        ) from error
