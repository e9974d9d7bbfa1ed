"""The exceptions that everlearn raises on purpose.

Each one derives from the built-in exception that a caller would already expect, so
``except ValueError`` keeps working, and from `EverlearnError`, so that everything this
package refuses can be caught at once. Messages say what was given, what was expected and
what to do.
"""

import difflib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class EverlearnError(Exception):
    """Base class of every error that everlearn raises on purpose."""


class InvalidInputError(EverlearnError, ValueError):
    """A value of the wrong shape, type or range was given; nothing was changed."""


class UnknownNameError(EverlearnError, KeyError):
    """A task, agent, model or option was asked for under a name that nobody registered."""

    def __str__(self) -> str:
        # KeyError quotes its argument; a sentence reads better without quotes around it.
        return str(self.args[0]) if self.args else ""


class NotReadyError(EverlearnError, RuntimeError):
    """A call came in the wrong order, such as a step before the first reset."""


class DamagedFileError(EverlearnError, OSError):
    """A stored file is truncated, altered, of another kind or of an unknown version."""


class MemoryLimitError(EverlearnError, MemoryError):
    """Going on would need more memory than the caller allowed; nothing was changed."""


class MissingExtraError(EverlearnError, ImportError):
    """An optional dependency is not installed; the message names the extra that adds it."""


@contextmanager
def needs_extra(what: str, module: str, extra: str) -> Iterator[None]:
    """Say which extra to install where an import fails because `module` is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise MissingExtraError(f"{what} needs {module}; install everlearn[{extra}]") from error


def given(value: object) -> str:
    """Return a value as messages show it: short, whatever it is."""
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 256:
        return f"a whole number of {value.bit_length()} bits"  # Python refuses to write it out
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}..."


def unknown_name(what: str, name: object, known: Iterable[str], likely: Iterable[str] = ()) -> str:
    """Return the message about a name that is not known: the closest one first, then all.

    Parameters
    ----------
    what
        What it should be the name of, in the singular.
    name
        What was given.
    known
        All names.
    likely
        Names that are meant most probably, whatever their spelling.
    """
    names = list(known)
    hint = did_you_mean(name, names, likely)
    return f"unknown {what} {given(name)}.{hint} Known: {', '.join(names) or 'none'}"


def did_you_mean(name: object, known: Iterable[str], likely: Iterable[str] = ()) -> str:
    """Return " Did you mean 'x'?" for the known name closest to `name`, or an empty string."""
    typed, names = name[:100] if isinstance(name, str) else "", list(known)
    # Two letters swapped are one mistake, which a plain ratio of a short word overrates.
    swapped = (other for other in names if len(other) > 1 and sorted(other) == sorted(typed))
    close = [*likely, *difflib.get_close_matches(typed, names, n=1), *swapped]
    return f" Did you mean {close[0]!r}?" if close else ""
