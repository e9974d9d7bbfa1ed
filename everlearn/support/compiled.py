"""Compiled kernels: numba's `njit` with a cache of machine code that never stands in the way.

Compiling all kernels takes about a minute, so numba stores the result: beside the source, or in a
cache folder of the user. In a container or on a cluster neither may be writable, a disk may be
full, and a process that was killed may have left half a file. Kernels are then compiled again, and
stored in a temporary folder or not at all.
"""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import FunctionCache

from everlearn.support.files import is_folder

logger = logging.getLogger(__name__)

Function = Callable[..., Any]


def njit(function: Function | None = None, *, cache: bool = False, **options: Any) -> Any:
    """Compile a function; options are those of `numba.njit`."""
    if function is None:
        return lambda decorated: njit(decorated, cache=cache, **options)
    kernel = numba.njit(function, **options)
    if cache and hasattr(kernel, "enable_caching"):  # not where compiling is switched off
        _enable_cache(kernel)
    return kernel


def _enable_cache(kernel: Any) -> None:
    """Store what is compiled where that is possible."""
    try:
        kernel._cache = KernelCache(kernel.py_func)
        return
    except (OSError, RuntimeError):  # numba has found no folder that it can write
        pass
    folder = _temporary_folder()
    if folder is None:
        _say_once(
            "cannot store compiled kernels anywhere: every process compiles them, for about a "
            "minute. Set NUMBA_CACHE_DIR to a folder that can be written"
        )
        return
    _say_once(
        f"stores compiled kernels in {folder}, as neither the package nor a cache folder of the "
        "user can be written. Set NUMBA_CACHE_DIR to choose another folder"
    )
    numba.config.CACHE_DIR = str(folder)
    kernel._cache = KernelCache(kernel.py_func)


class KernelCache(FunctionCache):
    """A cache that is a convenience: what cannot be loaded or stored is compiled again."""

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return what is stored; None, so that it is compiled, if there is nothing that works."""
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged file may raise anything
            _say_once(f"compiles kernels again, as {self.cache_path} holds damaged files ({error})")
            try:
                self.flush()
            except OSError:  # it cannot be repaired, so it is not asked again
                self.disable()
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Store what was compiled, if that is possible."""
        try:
            super().save_overload(sig, data)
        except Exception as error:  # a full disk, or an index that another process has damaged
            _say_once(
                f"cannot store compiled kernels in {self.cache_path} ({error}); every process "
                "compiles them"
            )


def _temporary_folder() -> Path | None:
    """Return a folder for compiled kernels that nobody else can write to; None if there is none.

    Machine code is loaded from it: a folder that another user has made is not taken.
    """
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir()) / f"everlearn-kernels-{user}"
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
        with tempfile.TemporaryFile(dir=folder):
            pass  # it can be written
    except OSError:
        return None
    private = status.st_uid == user and not status.st_mode & 0o022
    return folder if is_folder(folder) and private else None


_said: set[str] = set()


def _say_once(text: str) -> None:
    """Warn of the cache; once will do, as what is wrong with one kernel is wrong with all."""
    if not _said:
        _said.add(text)
        logger.warning("everlearn %s", text)
