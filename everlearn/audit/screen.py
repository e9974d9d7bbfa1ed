"""A bar for those who wait."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from everlearn.audit.measure import Progress as Report


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Report]:
    """Give a function that shows how far an audit is, on a terminal; elsewhere nothing is shown."""
    console = console or Console(stderr=True)
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    with bar:
        task = bar.add_task("audit", total=None)
        yield lambda done, steps: bar.update(task, completed=done, total=steps)
