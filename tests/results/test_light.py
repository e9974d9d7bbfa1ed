"""What reading runs must not load: results are read where nothing else is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.report.synthetic import config_of, write_run

HEAVY = {
    *("gymnasium", "mujoco", "metaworld", "numba", "torch", "scipy", "matplotlib", "ray"),
    *("everlearn.agents", "everlearn.interfaces", "everlearn.continual_bench", "everlearn.online"),
    *("everlearn.planning", "everlearn.deep", "everlearn.world_model", "everlearn.sweeps"),
}

IMPORT = "import everlearn.results, everlearn.report"
REPORT = """
from everlearn.report import read_report, write_report
from everlearn.report import summary_lines
summary_lines(read_report([sys.argv[1]]))
"""
COMMAND = "from everlearn.cli import main; main(['report', sys.argv[1], '--json'])"
WRITE = "from everlearn.cli import main; main(['report', sys.argv[1], '--out', sys.argv[2]])"


def loaded(code: str, *words: object) -> set[str]:
    """Modules that a new process has loaded after some code."""
    program = f"import json, sys\n{code}\nprint(json.dumps(sorted(sys.modules)))"
    command = [sys.executable, "-c", program, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("run"), config_of("oa", 0, "smoke"))


@pytest.mark.parametrize("code", [IMPORT, REPORT, COMMAND], ids=["import", "report", "command"])
def test_reading_loads_neither_simulator_nor_compiler(code: str, run: Path):
    modules = loaded(code, run)
    assert not modules & HEAVY


def test_only_drawing_loads_matplotlib(run: Path, tmp_path: Path):
    modules = loaded(WRITE, run, tmp_path)
    assert modules & HEAVY == {"matplotlib"}
    ours = {name for name in modules if name.partition(".")[0] == "everlearn"}
    assert len(ours) <= 30, "packages included"
    assert (tmp_path / "index.html").exists()
