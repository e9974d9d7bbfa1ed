"""Counts what the suite put the package through, and prints it at the end."""

from __future__ import annotations

from collections import Counter

import pytest

_TALLY: Counter[str] = Counter()


@pytest.fixture
def tally() -> Counter[str]:
    """Add to it what was survived, detected or refused; a failing test adds nothing."""
    return _TALLY


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _TALLY:
        terminalreporter.section("reliability")
        for name, count in sorted(_TALLY.items()):
            terminalreporter.line(f"{count:>9,}  {name}")
