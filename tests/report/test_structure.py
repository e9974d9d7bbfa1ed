"""What the report says of what agents found; names in files may be anything."""

from __future__ import annotations

import json
from html import escape
from pathlib import Path
from typing import Any

import pytest

from everlearn.report import read_report, write_report
from everlearn.report.page import page
from everlearn.support.structure import FoundObject, RestingEntry, Structure, Touch
from tests.report.synthetic import config_of, write_run

TOUCHES = (
    Touch(1, "hand y", 21, "block y", -0.0031, 0.029, 0.29),
    Touch(0, "hand x", None, "", 0.512, 0.019, 0.12),
)
FOUND = Structure(
    700,
    (RestingEntry(20, "block x", 0.9, 0.0016), RestingEntry(30, "wall", 1.0, None)),
    (
        FoundObject((6,), ("button z",), 4, ()),
        FoundObject((20, 21), ("block x", "block y"), 110, TOUCHES),
    ),
)


def noted(run: Path, found: Structure | dict[str, Any] = FOUND) -> Path:
    stored = found.to_json() if isinstance(found, Structure) else found
    (run / "structure.json").write_text(json.dumps({"episode": 10, **stored}))
    return run


def test_a_table_shows_objects_and_touches_of_the_longest_life(tmp_path: Path):
    noted(write_run(tmp_path / "a", config_of("oa", 100, "smoke")), Structure(3))
    noted(write_run(tmp_path / "b", config_of("oa", 101, "smoke")))
    write_run(tmp_path / "c", config_of("mlp-si", 100, "smoke"))
    still = Structure(9, FOUND.resting)
    noted(write_run(tmp_path / "d", config_of("mlp-coreset", 100, "smoke")), still)
    report = read_report([tmp_path])
    table = report.studies[0].tables["structure"]
    rows = [row for row in table.rows if row[0].startswith("oa")]
    assert rows == [
        ("oa, seed 101", "block x, block y", "110", "hand x", "0.512", "± 0.019", "12 %"),
        ("oa, seed 101", "", "", "hand y - block y", "-0.0031", "± 0.029", "29 %"),
        ("oa, seed 101", "button z", "4", "-", "-", "-", "-"),
    ]
    (row,) = (row for row in table.rows if row[0].startswith("mlp"))
    assert row == ("mlp-coreset, seed 100", "none; 2 entries at rest", *"-----")
    out = write_report(report, tmp_path / "out")
    text = out.read_text()
    assert "<h3>What the agent found</h3>" in text
    assert "<td>hand y - block y</td><td>-0.0031</td><td>± 0.029</td><td>29 %</td>" in text
    assert "hand y - block y" in (out.parent / "tables" / "structure.md").read_text()


def test_nothing_is_shown_where_no_run_says_it(tmp_path: Path):
    write_run(tmp_path / "run", config_of("oa", 100))
    report = read_report([tmp_path])
    assert "structure" not in report.studies[0].tables
    assert "What the agent found" not in page(report, [[]], [[]])


def test_names_are_escaped(tmp_path: Path):
    hostile = '</td><script>window.stolen = 1</script><img src=x onerror="alert(1)">'
    touch = Touch(1, hostile, 2, hostile, 0.0, 0.1, 0.2)
    found = Structure(5, (), (FoundObject((2,), (hostile,), 12, (touch,)),))
    noted(write_run(tmp_path / "run", config_of("oa", 100)), found)
    text = page(read_report([tmp_path]), [[]], [[]])
    assert escape(hostile) in text
    assert "<script>window.stolen" not in text
    assert "<img src=x" not in text


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        "{}",
        json.dumps({"steps": 1, "resting": [], "objects": 3}),
        json.dumps({"steps": 1, "resting": [], "objects": [{"entries": "x"}]}),
        json.dumps({"steps": 1, "resting": [{"entry": 0, "name": "\x1b[2J"}], "objects": []}),
        json.dumps({"steps": 1, "resting": [3], "objects": []}),
    ],
)
def test_a_damaged_file_leaves_the_run_out(content: str, tmp_path: Path):
    write_run(tmp_path / "odd", config_of("oa", 100), episodes=1)
    (tmp_path / "odd" / "structure.json").write_text(content)
    write_run(tmp_path / "whole", config_of("oa", 101), episodes=1)
    report = read_report([tmp_path])
    assert len(report.left_out) == 1
    assert "structure.json" in report.left_out[0]


def test_a_link_in_its_place_leaves_the_run_out(tmp_path: Path):
    (tmp_path / "secret").write_text(json.dumps({"episode": 1, **FOUND.to_json()}))
    write_run(tmp_path / "runs" / "odd", config_of("oa", 100), episodes=1)
    (tmp_path / "runs" / "odd" / "structure.json").symlink_to(tmp_path / "secret")
    write_run(tmp_path / "runs" / "whole", config_of("oa", 101), episodes=1)
    assert "symbolic link" in read_report([tmp_path / "runs"]).left_out[0]
