"""What a run notes of the code it ran, and of the machine that ran it."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import llvmlite.binding as llvm
import numba
import pytest

from everlearn.runs.listeners import Listener
from everlearn.runs.loop import execute
from everlearn.runs.machine import commit
from tests.torture.test_hostile_folders import CONFIG, ROOT

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


# What the bits depend on ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value"), [("CPU_NAME", "generic"), ("CPU_FEATURES", "+sse2"), ("OPT", 0)]
)
def test_other_machine_code_is_announced(
    setting: str, value: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    texts: list[str] = []

    class Hears(Listener):
        def message(self, text: str) -> None:
            texts.append(text)

    execute(CONFIG, tmp_path / "run", listeners=[Hears()])
    assert execute(CONFIG, tmp_path / "run", listeners=[Hears()]).finished
    assert not [text for text in texts if "differ" in text]
    monkeypatch.setattr(numba.config, setting, value)
    execute(CONFIG, tmp_path / "run", listeners=[Hears()])
    (said,) = [text for text in texts if "differ" in text]
    assert "(compiler)" in said
    stored = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert stored["compiler"]["processor"] == llvm.get_host_cpu_name()
    assert stored["resumed_with"][0]["compiler"] != stored["compiler"]


@pytest.mark.skipif(
    platform.libc_ver()[0] != "glibc" or platform.machine() != "x86_64",
    reason="hides capabilities of x86 from glibc",
)
def test_other_capabilities_of_the_c_library_are_noticed() -> None:
    code = "from everlearn.runs.machine import mathematics; print(mathematics())"

    def found(**variables: str) -> str:
        command = [sys.executable, "-c", code]
        environment = {**os.environ, **variables}
        return subprocess.run(
            command, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert found().startswith("glibc 2.")
    assert found() == found()
    assert found() != found(GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA")


def test_a_run_of_an_older_version_says_no_more_than_it_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    execute(CONFIG, tmp_path / "run")
    file = tmp_path / "run" / "environment.json"
    known = json.loads(file.read_text())
    file.write_text(json.dumps({name: known[name] for name in ("python", "resumed_with")}))
    texts: list[str] = []

    class Hears(Listener):
        def message(self, text: str) -> None:
            texts.append(text)

    execute(CONFIG, tmp_path / "run", listeners=[Hears()])
    assert not [text for text in texts if "differ" in text]
