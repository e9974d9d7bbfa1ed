"""The documentation site: it builds without warnings, its links work, and all of it is local."""

from __future__ import annotations

import os
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.xdist_group("site")  # one process builds for all

ROOT = Path(__file__).parents[2]
LOADED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("video", "src")}
"""What a browser fetches by itself, by element and attribute."""


class Links(HTMLParser):
    """Collects the names in a page, where its links lead, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value is None:
                continue
            if name in ("id", "name"):
                self.names.add(value)
            if (tag, name) == ("a", "href"):
                self.links.append(value)
            elif (tag, name) in LOADED:
                self.loaded.append(value)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocs")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = {**os.environ, "NO_MKDOCS_2_WARNING": "true"}
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=quiet)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Links]:
    return {page: Links(page.read_text(encoding="utf-8")) for page in site.rglob("*.html")}


def test_every_link_leads_to_a_file_and_to_a_name_in_it(pages: dict[Path, Links]) -> None:
    broken = []
    for page, found in pages.items():
        if page.name == "404.html":  # its links are for the root of a server
            continue
        for link in [*found.links, *found.loaded]:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if target.is_dir():
                target /= "index.html"
            if not target.is_file() or (
                parts.fragment
                and target in pages
                and unquote(parts.fragment) not in pages[target].names
            ):
                broken.append(f"{page.name}: {link}")
    assert not broken


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Links]) -> None:
    for page, found in pages.items():
        foreign = [link for link in found.loaded if urlsplit(link).netloc]
        assert not foreign, page
        # The theme would fetch a library of diagrams for these.
        assert 'class="mermaid"' not in page.read_text(encoding="utf-8")
    for style in site.rglob("*.css"):
        text = style.read_text(encoding="utf-8")
        assert "@import" not in text, style
        assert "url(http" not in text.replace('"', "").replace("'", ""), style


def test_the_reference_shows_what_docstrings_say(site: Path) -> None:
    text = (site / "reference" / "agent.html").read_text(encoding="utf-8")
    for name in ("for_env", "evaluation_copy", "from_file", "run_episode", "make_agent"):
        assert name in text
    assert "The objective: rewards" in text
