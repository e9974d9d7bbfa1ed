"""What the bits of a run depend on beside its config: code, versions, processor, threads."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from everlearn.runs.config import RunConfig

PACKAGE = Path(__file__).parents[1]
COMPILER_SETTINGS = (
    *("OPT", "LOOP_VECTORIZE", "SLP_VECTORIZE", "ENABLE_AVX", "USING_SVML", "DISABLE_JIT"),
    *("BOUNDSCHECK", "DEBUGINFO_DEFAULT"),
)
"""Settings of numba that change what it computes, in its last bits at least."""

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
        "compiler": compiler(),
        "mathematics": mathematics(),
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


def compiler() -> dict[str, Any]:
    """Return what decides which machine code numba makes of the kernels.

    ``NUMBA_CPU_NAME`` compiles for another processor, and ``NUMBA_OPT`` and others decide which
    sums become sums of vectors.
    """
    named = numba.config.CPU_NAME
    features = numba.config.CPU_FEATURES
    if features is None:
        features = llvm.get_host_cpu_features().flatten() if named is None else "of the processor"
    return {
        "processor": named or llvm.get_host_cpu_name(),
        "features": features,
        **{name.lower(): str(getattr(numba.config, name, None)) for name in COMPILER_SETTINGS},
    }


def mathematics() -> str:
    """Return the version of the C library, and the capabilities that its functions choose by.

    ``GLIBC_TUNABLES`` can hide some of them: logarithms and sines then have other last bits.
    """
    name, version = platform.libc_ver()
    return " ".join(filter(None, [name, version, _active_capabilities()]))


def _active_capabilities() -> str:
    """Ask the loader of this process what it sees; its variables decide for both alike."""
    try:
        maps = Path("/proc/self/maps").read_text(encoding="utf-8")
        loader = re.search(r"/\S*/ld-[^/\s]*\.so\S*", maps)
        if loader is None:
            return os.environ.get("GLIBC_TUNABLES", "")
        done = subprocess.run(
            [loader[0], "--list-diagnostics"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):  # not Linux, or a loader without that option
        return os.environ.get("GLIBC_TUNABLES", "")
    active = re.findall(r"^\S*cpu_features\S*active\S*=0x(\w+)$", done.stdout, re.M)
    return "-".join(active)


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
