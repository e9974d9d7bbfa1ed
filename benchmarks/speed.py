"""All speed measurements in one run, as a table or as JSON."""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import environment, model, planner, runner, sweep
from benchmarks.common import Row
from everlearn.runs.config import RunConfig
from everlearn.runs.machine import environment_facts


def _deep() -> list[Row]:
    if importlib.util.find_spec("torch") is None:
        print("the deep model is skipped: torch is not installed (everlearn[deep] adds it)")
        return []
    rows: list[Row] = importlib.import_module("benchmarks.deep").measure()
    return rows


PARTS: dict[str, Callable[[], list[Row]]] = {
    "environment": environment.measure,
    "model": model.measure,
    "planner": planner.measure,
    "agent": planner.measure_agent,
    "deep": _deep,
    "runner": runner.measure,
    "sweep": sweep.measure,
}


def describe_machine() -> dict[str, Any]:
    """Return what the times depend on: processor, load, commit and versions."""
    facts = environment_facts(RunConfig())
    named = {name: facts[name] for name in ("python", "system", "processor", "commit", "versions")}
    return {**named, "processors": os.cpu_count(), "load": round(os.getloadavg()[0], 2)}


def main(as_json: bool = False) -> bool:
    """Measure everything and print it; return whether every bar was reached."""
    console = Console(stderr=True)
    machine = describe_machine()  # before the benchmarks are a load of their own
    rows: list[Row] = []
    # What the benchmarks say on the way is not part of the result.
    with redirect_stdout(sys.stderr):
        for name, measure in PARTS.items():
            console.print(f"measuring {name} ...")
            rows.extend(measure())
        loop = planner.closed_loop()
    if as_json:
        measured = {"machine": machine, "rows": [row.as_dict() for row in rows], "loop": loop}
        print(json.dumps(measured, indent=2))
    else:
        # Rows are wide; what goes to a file should not be folded to a narrow screen.
        Console(width=None if console.is_terminal else 160).print(_table(rows))
        for name, value in loop.items():
            print(f"{name}: {value}")
    return all(row.met is not False for row in rows)


def _table(rows: list[Row]) -> Table:
    table = Table("what", "ours", "ms", "reference", "ms", "times faster", "asked for", "limit")
    for row in rows:
        bar = "" if row.at_least is None else f"{row.at_least:g} {'yes' if row.met else 'MISSED'}"
        table.add_row(
            row.name,
            row.ours,
            f"{1e3 * row.ours_seconds:.3f}",
            row.reference,
            f"{1e3 * row.reference_seconds:.3f}",
            f"{row.ratio:.2f}",
            bar,
            row.limit,
        )
    return table
