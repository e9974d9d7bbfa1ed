"""What the server that tests fork their runs from has loaded: much of the start of a run.

It has computed nothing, so that no run inherits threads of compiled kernels.
"""

from __future__ import annotations

import contextlib
import importlib

from numba.core.registry import cpu_target

from everlearn.continual_bench import scene

cpu_target.target_context.refresh()
scene.build_model()
with contextlib.suppress(ImportError):  # without the extra ``deep``
    importlib.import_module("torch._dynamo")  # the first optimizer of a process imports it
