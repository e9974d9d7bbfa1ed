"""What `import everlearn` loads, and what it adds to Gymnasium."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import everlearn
from tests.report.synthetic import config_of, write_run

MUST_NOT = ("gymnasium", "numba", "mujoco", "torch", "matplotlib", "scipy", "numpy", "metaworld")
SIMULATION = ("gymnasium", "numba", "mujoco", "torch", "metaworld", "ray")


def run(code: str) -> str:
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


def test_importing_everlearn_loads_nothing_heavy():
    code = f"import sys, everlearn; print([m for m in {MUST_NOT!r} if m in sys.modules])"
    assert run(code) == "[]"


@pytest.mark.parametrize("module", ["everlearn.results.summary", "everlearn.report"])
def test_reading_results_loads_no_simulator(module: str):
    code = f"import sys, {module}; print([m for m in {SIMULATION!r} if m in sys.modules])"
    assert run(code) == "[]"


PARTS_THAT_RUN = (
    *("agents", "baselines", "interfaces", "registry", "audit", "continual_bench", "deep"),
    *("online", "planning", "sweeps", "world_model", "worlds"),
    *("runs.loop", "runs.folder", "runs.evaluate", "runs.schedule", "support.archive"),
)


@pytest.mark.parametrize("output", ["--json", "--out"])
def test_the_report_command_loads_nothing_that_runs(output: str, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", config_of("oa", 0, "smoke"))
    words = ["report", str(run), output, *([str(tmp_path / "out")] * (output == "--out"))]
    code = (
        "import sys; from everlearn.cli import main; main(sys.argv[1:]);"
        f"parts = [f'everlearn.{{part}}' for part in {PARTS_THAT_RUN!r}];"
        f"print([m for m in [*parts, *{SIMULATION!r}, 'scipy'] if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("order", ["everlearn, gymnasium", "gymnasium, everlearn"])
def test_the_environment_is_registered_whichever_comes_first(order: str):
    code = f"import {order}; print(gymnasium.spec('everlearn/ContinualBench-v0').id)"
    assert run(code) == "everlearn/ContinualBench-v0"


def test_a_watched_package_looks_as_it_always_does():
    code = (
        "import everlearn, gymnasium, importlib, sys;"
        "assert gymnasium.__spec__.loader is gymnasium.__loader__;"
        "assert type(gymnasium.__loader__).__name__ == 'SourceFileLoader';"
        "assert 'exec_module' not in vars(gymnasium.__loader__);"
        "assert not [f for f in sys.meta_path if type(f).__module__ == 'everlearn'];"
        "importlib.reload(gymnasium); print('fine')"
    )
    assert run(code) == "fine"


def test_public_names_are_there_and_listed():
    code = (
        "import everlearn;"
        "names = [n for n in everlearn.__all__ if n != 'STRATEGIES'];"
        "assert all(getattr(everlearn, n) is not None for n in names);"
        "assert set(everlearn.__all__) <= set(dir(everlearn)); print('fine')"
    )
    assert run(code) == "fine"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        everlearn.nothing  # noqa: B018
