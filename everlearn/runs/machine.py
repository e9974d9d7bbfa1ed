"""What the bits of a run depend on beside its config: code, versions, processor, threads."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from everlearn.runs.config import RunConfig

PACKAGE = Path(__file__).parents[1]
PACKAGES = ("everlearn", "numpy", "numba", "scipy", "mujoco", "metaworld", "gymnasium", "torch")


def environment_facts(config: RunConfig) -> dict[str, Any]:
    """Return what the bits of a run depend on beside its config."""
    versions = {}
    for package in PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return {
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "processor": processor(),
        "linear_algebra": linear_algebra(),
        "threads": config.threads,
        "commit": commit(PACKAGE),
        "versions": versions,
    }


def commit(folder: Path) -> str | None:
    """Return the commit that a folder's files are from, ``-changed`` if they differ from it.

    None where they are not kept in git, as those of an installed package are not.
    """
    # A folder within a checkout need not belong to it: think of a virtual environment.
    if not _git(folder, "ls-files", "."):
        return None
    name = _git(folder, "rev-parse", "--short=10", "HEAD")
    changes = _git(folder, "status", "--porcelain", ".")
    if name is None or changes is None:
        return None
    return f"{name}-changed" if changes else name


def _git(folder: Path, *words: str) -> str | None:
    """Return what git says of a folder; None where there is no git, or it has nothing to say."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout.strip()


def processor() -> str:
    """Return the name of this machine's processor."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # only Linux has that file
    return platform.processor() or platform.machine()


def linear_algebra() -> list[str]:
    """Return the libraries that solve and factorise, each with the processor it is tuned for.

    That one is the library's choice: an older one takes a new processor for one it knows, and
    variables such as ``OPENBLAS_CORETYPE`` decide otherwise. Sums then come in another order.
    """
    found = {
        " ".join(str(pool[name]) for name in ("internal_api", "version", "architecture"))
        for pool in threadpool_info()
        if pool["user_api"] == "blas" and pool.get("architecture")
    }
    return sorted(found)
