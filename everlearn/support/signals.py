"""Stopping on request: the first signal is noted, the second does what it always does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any


@dataclass
class Stop:
    """Which signal asked to stop, if one did."""

    number: int | None = None


@contextmanager
def stop_on_signals() -> Iterator[Stop]:
    """Note the first SIGTERM or SIGINT; from then on they do what they did before."""
    stop = Stop()
    before: dict[int, Any] = {}

    def give_back() -> None:
        while before:
            signal.signal(*before.popitem())

    def note(number: int, frame: FrameType | None) -> None:
        stop.number = number
        give_back()

    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT):
            before[number] = signal.signal(number, note)
    try:
        yield stop
    finally:
        give_back()
