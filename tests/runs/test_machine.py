"""What a run notes of the code it ran."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from everlearn.runs.machine import commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=nobody", "-c", "user.email=nobody@example.org")
    command = ["git", "-C", str(folder), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder of code in a checkout whose environments are not kept."""
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "code.py").write_text("one = 1\n")
    (tmp_path / ".gitignore").write_text(".venv/\n")
    git(tmp_path, "init")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return folder


def test_the_commit_of_the_code_is_known(package: Path) -> None:
    name = git(package, "rev-parse", "HEAD")
    found = commit(package)
    assert found is not None
    assert len(found) >= 7
    assert name.startswith(found)


@pytest.mark.parametrize("file", ["code.py", "more.py"])
def test_changed_and_added_files_show(package: Path, file: str) -> None:
    before = commit(package)
    (package / file).write_text("one = 2\n")
    assert commit(package) == f"{before}-changed"


def test_what_is_not_code_does_not_matter(package: Path) -> None:
    before = commit(package)
    (package.parent / "notes.md").write_text("so far so good\n")
    assert commit(package) == before


def test_an_installed_package_has_no_commit(package: Path, tmp_path_factory) -> None:
    installed = package.parent / ".venv" / "package"
    installed.mkdir(parents=True)
    (installed / "code.py").write_text("one = 1\n")
    assert commit(installed) is None
    assert commit(tmp_path_factory.mktemp("elsewhere")) is None


def test_without_git_nothing_is_known(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert commit(package) is None
