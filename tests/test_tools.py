"""The scripts that keep results: what they leave is what a report needs."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import math
import runpy
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from everlearn.report import read_report
from everlearn.results.summary import summarize
from everlearn.runs.loop import execute
from tests.runs.worker import tiny

TOOLS = Path(__file__).parents[1] / "tools"


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch):
    def call(name: str, *words: object) -> None:
        monkeypatch.setattr(sys, "argv", [name, *map(str, words)])
        runpy.run_path(str(TOOLS / f"{name}.py"), run_name="__main__")

    return call


def test_what_is_kept_of_a_run_says_the_same_as_the_run(tool, tmp_path: Path):
    run, kept = tmp_path / "runs" / "random-0", tmp_path / "results" / "random-0"
    execute(tiny("random"), run)
    (run / "videos").mkdir()
    (run / "videos" / "window-close-after.mp4").write_bytes(b"film")
    tool("keep_results", tmp_path / "runs", tmp_path / "results")
    assert sorted(str(file.relative_to(kept)) for file in kept.rglob("*") if file.is_file()) == [
        "config.json",
        "environment.json",
        "metrics.jsonl",
        "videos/window-close-after.mp4",
    ]
    reports = [read_report([place]).to_json()["studies"][0] for place in (run, kept)]
    for report in reports:
        del report["methods"][0]["runs"]  # where they are
    assert reports[0] == reports[1]


def test_tasks_of_kept_runs_are_run_alone(tool, tmp_path: Path):
    for agent in ("random", "scripted"):
        execute(tiny(agent), tmp_path / "runs" / f"{agent}-0")
    results, alone = tmp_path / "results", tmp_path / "alone"
    tool("keep_results", tmp_path / "runs", results)
    assert math.isnan(summarize(results / "scripted-0").forward_transfer)
    tool("single_tasks", results, alone, "scripted")
    tool("keep_results", alone, results)
    assert summarize(results / "scripted-0").transfer_by_task.keys() == {"button-press"}
    assert math.isnan(summarize(results / "random-0").forward_transfer), "it was not asked for"
    tool("single_tasks", results, alone, "scripted")  # runs of tasks alone are not runs to repeat
    assert [folder.name for folder in alone.iterdir()] == ["scripted-0"]


def test_the_bill_of_materials_lists_what_the_wheel_needs(tool, tmp_path: Path):
    wheel = tmp_path / "everlearn-9.9.9-py3-none-any.whl"
    about = (
        "Metadata-Version: 2.4\nName: everlearn\nVersion: 9.9.9\nLicense-Expression: MIT\n"
        "Provides-Extra: dev\nProvides-Extra: cluster\n"
        "Requires-Dist: numpy>=2.0\nRequires-Dist: gymnasium>=1.1\n"
        'Requires-Dist: fsspec; extra == "cluster"\nRequires-Dist: ruff; extra == "dev"\n'
        "Requires-Dist: nothing-like-it; python_version < '3'\n"
    )
    with ZipFile(wheel, "w") as archive:
        archive.writestr("everlearn-9.9.9.dist-info/METADATA", about)
    tool("bill_of_materials", wheel)
    bill = json.loads((tmp_path / "everlearn-9.9.9-py3-none-any.cdx.json").read_text())
    assert (bill["bomFormat"], bill["metadata"]["component"]["version"]) == ("CycloneDX", "9.9.9")
    (digest,) = bill["metadata"]["component"]["hashes"]
    assert digest["content"] == hashlib.sha256(wheel.read_bytes()).hexdigest()
    found = {part["name"].lower(): part["version"] for part in bill["components"]}
    assert {"numpy", "gymnasium", "fsspec", "cloudpickle"} <= found.keys(), "and what those need"
    assert not {"ruff", "nothing-like-it"} & found.keys()
    assert found["numpy"] == importlib.metadata.version("numpy")
    needs = {entry["ref"]: entry.get("dependsOn", []) for entry in bill["dependencies"]}
    assert f"pkg:pypi/numpy@{found['numpy']}" in needs[f"pkg:pypi/gymnasium@{found['gymnasium']}"]


GOOD = {"name": "numpy", "version": "2.0.0", "vulns": []}
HOLE = {"id": "PYSEC-1", "fix_versions": ["2.0.1"], "aliases": [], "description": ""}
BAD = {**GOOD, "name": "scipy", "vulns": [HOLE, {**HOLE, "id": "PYSEC-2", "fix_versions": []}]}
SKIPPED = {"name": "torch", "skip_reason": "Dependency not found on PyPI"}


@pytest.mark.parametrize(
    ("packages", "code", "said"),
    [
        ([GOOD], 0, "none of 1 packages has a known hole"),
        ([GOOD, BAD], 1, "scipy 2.0.0: PYSEC-2, fixed in no version yet"),
        ([GOOD, BAD, SKIPPED], 2, "1 of 3 packages are not in the lists"),
        ([SKIPPED] * 9, 2, "(torch, torch, torch, torch, torch and 4 more)"),
        ([], 2, "0 of 0 packages"),
    ],
)
def test_an_audit_passes_only_if_every_package_was_looked_up(packages, code, said):
    verdict = runpy.run_path(str(TOOLS / "audit_dependencies.py"))["verdict"]
    found, lines = verdict(json.dumps({"dependencies": packages, "fixes": []}), "")
    assert found == code
    assert said in "\n".join(lines)


@pytest.mark.parametrize("output", ["", "[]", "{"])
def test_an_audit_without_a_network_says_so_in_a_line(output):
    verdict = runpy.run_path(str(TOOLS / "audit_dependencies.py"))["verdict"]
    errors = "Traceback (most recent call last):\n  File x\nConnectionError: no route\n"
    code, (line,) = verdict(output, errors)
    assert code == 2
    assert line == "the lists of known holes could not be asked: ConnectionError: no route"


@pytest.mark.xdist_group("together")
def test_tests_of_a_group_run_in_one_process(request: pytest.FixtureRequest):
    """pytest-xdist groups by a suffix of the name; pytest 9.2 does not let it add one."""
    grouping = getattr(request.config.option, "loadgroup", False)
    assert request.node.nodeid.endswith("@together") == grouping
