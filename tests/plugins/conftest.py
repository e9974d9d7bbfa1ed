"""Commands in processes of their own, with and without a user's modules."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

MODULE = Path(__file__).with_name("mine.py")
Everlearn = Callable[..., "subprocess.CompletedProcess[str]"]


def everlearn_in(folder: Path, **variables: str) -> Everlearn:
    """Return a function that gives a command in `folder`, with these variables set."""
    usual = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "EVERLEARN_IMPORT")}
    here = str(Path(__file__).parents[2])  # the package, wherever the command runs
    path = os.pathsep.join([here, *filter(None, [variables.pop("PYTHONPATH", "")])])

    def everlearn(*words: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-m", "everlearn"]
            + [str(word) for word in words],
            cwd=folder,
            env={**usual, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **variables},
            capture_output=True,
            text=True,
            timeout=500,
        )
        assert done.returncode == code, f"{words} ended with {done.returncode}: {done.stderr}"
        return done

    return everlearn


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed a package with a plugin."""
    place = tmp_path_factory.mktemp("package")
    wheel = place / "my_package-1.0-py3-none-any.whl"
    info = "my_package-1.0.dist-info"
    files = {
        "my_package/__init__.py": "",
        "my_package/parts.py": MODULE.read_text(),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: by hand\nRoot-Is-Purelib: true\n"
        "Tag: py3-none-any\n",
        f"{info}/entry_points.txt": "[everlearn.plugins]\nmine = my_package.parts\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(wheel, "w") as package:
        for name, text in files.items():
            package.writestr(name, text)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*command, "--target", str(place / "site"), str(wheel)], check=True)
    return place / "site"
