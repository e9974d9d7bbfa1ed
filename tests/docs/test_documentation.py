"""What the documentation shows must run, and what it links to must exist."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from everlearn.agents import run_episode
from everlearn.continual_bench import PAPER_TASKS, TASKS

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), flags=re.M | re.S)


def test_the_readme_runs_from_top_to_bottom(capsys: pytest.CaptureFixture[str]):
    # Shortened to a few steps of one episode; nothing else is changed.
    names: dict[str, Any] = {}
    try:
        for block in blocks(ROOT / "README.md"):
            code = block.replace("range(10)", "range(1)")
            code = code.replace("import OnlineAgent, run_episode", "import OnlineAgent")
            names.setdefault("run_episode", partial(run_episode, max_steps=3))
            exec(compile(code, "README.md", "exec"), names)
    finally:
        for name in set(TASKS) - set(PAPER_TASKS):
            TASKS.unregister(name)
    assert "pick-place" in capsys.readouterr().out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text())
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing
