"""What the bits of a run depend on beside its config: versions, processor, kernels, threads."""

from __future__ import annotations

import importlib.metadata
import platform
from pathlib import Path
from typing import Any

from threadpoolctl import threadpool_info  # type: ignore[import-untyped]

from everlearn.experiment.config import RunConfig

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
        "versions": versions,
    }


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
