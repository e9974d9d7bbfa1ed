"""Runs of every kind and their report, made once for all tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlearn.report import Report, read_report, write_report
from tests.report.synthetic import write_everything


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_everything(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="session")
def report(runs: Path) -> Report:
    return read_report([runs])


@pytest.fixture(scope="session")
def written(report: Report, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the report on all runs."""
    return write_report(report, tmp_path_factory.mktemp("report")).parent
