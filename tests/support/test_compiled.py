"""Compiled kernels where nothing can be written, and where what was written is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

MODULE = """
from everlearn.support.compiled import njit

@njit(cache=True)
def twice(x):
    return 2 * x
"""
CALL = "import kernel; print(kernel.twice(21), kernel.twice._cache.__class__.__name__)"

NOWHERE = """
import numba.core.caching as caching

def refused(self):
    raise PermissionError("read-only")

caching._SourceFileBackedLocatorMixin.get_source_stamp  # it is where numba has it
original = caching._CacheLocator.ensure_cache_path
def only_chosen(self):
    if not isinstance(self, caching.UserProvidedCacheLocator):
        refused(self)
    original(self)
caching._CacheLocator.ensure_cache_path = only_chosen
"""
"""Neither the package nor a home can be written, as in many containers; root may write anywhere."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernel.py").write_text(MODULE)
    return tmp_path


def called(folder: Path, before: str = "", **variables: str) -> tuple[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    searched = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", before + CALL],
        cwd=folder,
        env={**kept, "PYTHONPATH": searched, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_without_a_folder_of_numbas_a_private_temporary_one_is_taken(folder: Path) -> None:
    temporary = folder / "temporary"
    temporary.mkdir()
    for _ in range(2):
        printed, said = called(folder, NOWHERE, TMPDIR=str(temporary))
        assert printed == "42 KernelCache"
        assert said.count("stores compiled kernels in") == 1
    (kept,) = temporary.iterdir()
    assert kept.stat().st_mode & 0o777 == 0o700, "machine code is loaded from it"
    assert list(kept.rglob("*.nbc"))


def test_a_temporary_folder_that_others_can_write_is_not_taken(folder: Path) -> None:
    temporary = folder / "temporary"
    (temporary / f"everlearn-kernels-{os.getuid()}").mkdir(parents=True)
    (temporary / f"everlearn-kernels-{os.getuid()}").chmod(0o777)
    printed, said = called(folder, NOWHERE, TMPDIR=str(temporary))
    assert printed == "42 NullCache"
    assert "every process compiles them" in said


def test_half_a_file_is_thrown_away_and_made_again(folder: Path) -> None:
    cache = folder / "cache"
    assert called(folder, NUMBA_CACHE_DIR=str(cache)) == ("42 KernelCache", "")
    for ending, left in product(("nbi", "nbc"), (0, 40)):
        (damaged,) = cache.rglob(f"*.{ending}")
        damaged.write_bytes(damaged.read_bytes()[:left])
        printed, said = called(folder, NUMBA_CACHE_DIR=str(cache))
        assert printed == "42 KernelCache"
        assert said.count("holds damaged files") == 1, (ending, left)
        assert called(folder, NUMBA_CACHE_DIR=str(cache)) == ("42 KernelCache", ""), "repaired"


def test_a_full_disk_costs_the_cache_and_nothing_else(folder: Path) -> None:
    full = """
import errno, os
import numba.core.caching as caching

def refused(self, *rest):
    raise OSError(errno.ENOSPC, "No space left on device")

caching.IndexDataCacheFile._save_index = refused
"""
    printed, said = called(folder, full, NUMBA_CACHE_DIR=str(folder / "cache"))
    assert printed == "42 KernelCache"
    assert said.count("No space left on device") == 1
