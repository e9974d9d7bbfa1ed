"""What `make dist` makes: the files that the package needs, and nothing else."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

import everlearn

pytestmark = pytest.mark.xdist_group("release")  # one process builds for all

ROOT = Path(__file__).parents[1]
LARGEST_WHEEL = 10_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Source distribution and wheel, made as `make dist` makes them."""
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def kept_in_git(folder: str) -> set[str]:
    listed = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files", folder], capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a checkout")
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_the_wheel_has_the_files_of_the_package_and_no_others(built: Path):
    (wheel,) = built.glob("*.whl")
    assert wheel.stat().st_size < LARGEST_WHEEL
    with ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
    assert names == kept_in_git("everlearn")
    assert "everlearn/py.typed" in names


def test_the_source_distribution_has_what_a_build_needs(built: Path):
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        files = [member.name for member in archive if member.isfile()]
    names = {name.split("/", 1)[1] for name in files}
    assert names >= {"README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "pyproject.toml"}
    assert {name for name in names if name.startswith("everlearn/")} == kept_in_git("everlearn")
    assert not [name for name in names if name.startswith(("tests/", "results/", "docs/"))]


def test_the_version_is_the_same_everywhere(built: Path):
    (wheel,) = built.glob("*.whl")
    with ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = HeaderParser().parsestr(archive.read(file).decode())
    assert about["Version"] == everlearn.__version__
    cited = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.findall(r"^version: (.*)$", cited, flags=re.M) == [everlearn.__version__]
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert re.findall(r"^## (\d.*)$", changes, flags=re.M)[0] == everlearn.__version__


def test_the_core_needs_no_torch_ray_or_documentation_tools(built: Path):
    (wheel,) = built.glob("*.whl")
    with ZipFile(wheel) as archive:
        (file,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        about = HeaderParser().parsestr(archive.read(file).decode())
    core = [line for line in about.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert core
    assert not [line for line in core if re.match(r"(torch|ray|mkdocs|imageio|dm_control)", line)]
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for extra in set(about.get_all("Provides-Extra", [])) - {"dev", "docs"}:
        assert f"| `{extra}` |" in readme, "README lists every extra"
