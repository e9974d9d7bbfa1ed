"""Counts what the suite put the package through, prints it at the end, and stores it if asked to.

``make torture`` names the file in ``TORTURE_RESULTS``; the table in docs/reliability.md is made
from it.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

import pytest

from everlearn import __version__
from everlearn.runs.machine import PACKAGE, commit, processor
from tests.torture.length import LENGTH

_TALLY: Counter[str] = Counter()
_BEGAN = time.monotonic()


@pytest.fixture
def tally() -> Counter[str]:
    """Add to it what was survived, detected or refused; a failing test adds nothing."""
    return _TALLY


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if _TALLY:
        terminalreporter.section("reliability")
        for name, count in sorted(_TALLY.items()):
            terminalreporter.line(f"{count:>9,}  {name}")
    if file := os.environ.get("TORTURE_RESULTS"):
        ends = {
            end: len(terminalreporter.stats.get(end, []))
            for end in ("passed", "failed", "error", "skipped", "deselected")
        }
        Path(file).write_text(
            json.dumps(
                {
                    "version": __version__,
                    "commit": commit(PACKAGE),
                    "processor": processor(),
                    "length": LENGTH,
                    "selected": f"-m {config.option.markexpr!r} -k {config.option.keyword!r}",
                    "minutes": round((time.monotonic() - _BEGAN) / 60, 1),
                    "tests": ends,
                    "counts": dict(sorted(_TALLY.items())),
                },
                indent=2,
            )
            + "\n"
        )
