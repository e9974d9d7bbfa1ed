"""The README shows what the stored runs say, not what they once said."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "readme_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_of_the_readme_is_that_of_the_runs(tool: ModuleType):
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    _, begin, rest = text.partition(tool.BEGIN)
    shown, end, _ = rest.partition(tool.END)
    assert begin
    assert end
    assert begin + shown + end == tool.section(), "run python tools/readme_results.py"
    assert (ROOT / tool.FIGURE).read_bytes().startswith(b"\x89PNG")
