"""What goes to a screen or a log: shown if possible, and never a reason for anything to fail.

A log may be on a disk that is full, the reader of a pipe may have left, and a terminal may have
been closed. A run goes on without them.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from rich.console import Console


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


class Forgiving:
    """A stream for text that falls silent when it can no longer be written.

    Parameters
    ----------
    stream
        Where to; None, as Python has it for a closed descriptor, shows nothing.
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, if that is possible."""
        if self._stream is not None:
            try:
                self._stream.write(text)
            except UnicodeEncodeError as error:  # a terminal that does not know a sign
                self._stream.write(text.encode(error.encoding, "backslashreplace").decode())
            except (OSError, ValueError):  # full, closed, or nobody reads any more
                self._fall_silent()
        return len(text)

    def flush(self) -> None:
        """Write what is buffered, if that is possible."""
        if self._stream is not None:
            try:
                self._stream.flush()
            except (OSError, ValueError):
                self._fall_silent()

    def isatty(self) -> bool:
        """Whether it is a terminal."""
        try:
            return self._stream is not None and self._stream.isatty()
        except ValueError:  # closed
            return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def _fall_silent(self) -> None:
        """Let what the stream still holds, which Python writes at its end, go nowhere."""
        stream, self._stream = self._stream, None
        try:
            descriptor = stream.fileno() if stream is not None else -1
        except (OSError, ValueError):  # closed, or no file at all
            return
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, descriptor)
        os.close(nowhere)


def error_console() -> Console:
    """Return a console on standard error that cannot fail."""
    from rich.console import Console  # not needed to read results

    return Console(file=Forgiving(sys.stderr))  # type: ignore[arg-type]


def show(text: str) -> None:
    """Print a line for the user on standard output, whatever is in it."""
    print(printable(text))  # noqa: T201


def warn(text: str) -> None:
    """Print a line for the user on standard error, if somebody reads that."""
    stream = Forgiving(sys.stderr)
    stream.write(f"{printable(text)}\n")
    stream.flush()


def silence_output() -> None:
    """Let what standard output still holds go nowhere, if it cannot be written."""
    Forgiving(sys.stdout).flush()


def open_standard_streams() -> None:
    """Give closed standard descriptors something to lead to.

    Otherwise the next file that is opened becomes standard output or standard error, and what a
    library prints ends up in it.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            opened = os.open(os.devnull, os.O_RDWR)  # takes the lowest free one
            os.set_inheritable(opened, True)  # as processes that this one starts expect it
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
