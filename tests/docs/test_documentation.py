"""What the documentation shows must run, and what it links to must exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import everlearn
from everlearn import run_episode
from everlearn.registry import Registry
from everlearn.support.threads import limited_threads

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "research").glob("*.md"),
        *(ROOT / "results").glob("*.md"),
    ]
)
README = ROOT / "README.md"
BLOCK = re.compile(r"^```python\n(.*?)^```", flags=re.M | re.S)
NEED_TORCH = ("deep-models", "strategies")
"""Pages about what needs the extra ``deep``."""
STEPS = 60
"""Steps of episodes whose length a page does not say."""

REGISTRIES: list[Registry[Any]] = [
    everlearn.AGENTS,
    everlearn.MEMORIES,
    everlearn.PLANNERS,
    everlearn.TASKS,
    everlearn.WORLDS,
]


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture
def registries() -> Iterator[None]:
    """Forget what a page registers."""
    known = [registry.names() for registry in REGISTRIES]
    yield
    for registry, names in zip(REGISTRIES, known, strict=True):
        for name in set(registry) - set(names):
            registry.unregister(name)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.usefixtures("registries")
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=name_of)
def test_python_blocks_run_to_the_end(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if page.stem in NEED_TORCH:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    if page != README:  # whose numbers are compared
        # An episode of full length shows no more of a page than its beginning.
        monkeypatch.setattr(everlearn, "run_episode", partial(run_episode, max_steps=STEPS))
    names: dict[str, Any] = {"__name__": "documentation"}
    with limited_threads(1):  # tests run side by side
        for number, block in enumerate(blocks(page), 1):
            exec(compile(block, f"{name_of(page)}, block {number}", "exec"), names)
    if page == README:
        check_printed(capsys.readouterr().out)


def check_printed(text: str) -> None:
    """Compare what README's first two blocks print with what README says of them."""
    *episodes, pendulum = text.splitlines()
    said = re.findall(r"^    (episode .*)$", README.read_text(encoding="utf-8"), flags=re.M)
    outcomes = re.compile(r"episode (\d+): (solved|not solved) in (\d+) steps")
    assert len(said) == len(episodes) == 3
    for lines in (said, episodes):
        matches = [outcomes.fullmatch(line) for line in lines]
        assert [match and match[1] for match in matches] == ["0", "1", "2"]
        # Which episodes are solved depends on the processor. An episode ends when it is.
        assert all(match and (match[2] == "solved") == (int(match[3]) < 500) for match in matches)
    assert re.fullmatch(r"return -\d+ after 200 steps", pendulum)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    missing = [link for link in links if "://" not in link and not (page.parent / link).exists()]
    assert not missing


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_headings_lead_somewhere(page: Path) -> None:
    missing = []
    for link, heading in re.findall(r"\]\(([^)#:]*)#([^)]+)\)", page.read_text(encoding="utf-8")):
        target = page.parent / link if link else page
        if target.suffix == ".md" and target.exists() and heading not in anchors(target):
            missing.append(f"{link}#{heading}")
    assert not missing


def anchors(page: Path) -> set[str]:
    """Return the names by which links reach the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), flags=re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}
