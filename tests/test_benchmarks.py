"""Benchmarks are not run by the tests, but those of everlearn's own parts can be imported."""

from __future__ import annotations

import dataclasses
import importlib
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"
FOREIGN = {"mbrl_side"}
"""Run by another Python, with other packages."""


@pytest.mark.parametrize("name", sorted({path.stem for path in FOLDER.glob("*.py")} - FOREIGN))
def test_a_benchmark_can_be_imported(name: str):
    if name in ("deep", "sac", "update_cost"):
        pytest.importorskip("torch")
    importlib.import_module(f"benchmarks.{name}")


def test_the_loop_is_measured_inside_a_run(monkeypatch: pytest.MonkeyPatch):
    from benchmarks import runner

    small = {"model.features": 10, "planner.candidates": 20, "planner.elites": 5}
    config = dataclasses.replace(runner.CONFIG, max_steps=10, options=small, threads=1)
    monkeypatch.setattr(runner, "CONFIG", config)
    (row,) = runner.measure()
    assert 0 < row.reference_seconds < row.ours_seconds
