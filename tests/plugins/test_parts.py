"""A planner, a memory and a strategy from outside the package, in the agents that are there."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from everlearn.runs.config import RunConfig
from tests.plugins.conftest import everlearn_in
from tests.runs.worker import outcome

pytest.importorskip("torch")

SMALL = ["--tasks", "button-press", "--episodes-per-task", 2, "--max-steps", 12]
SMALL += ["--evaluation.every", 1, "--evaluation.episodes", 2, "--evaluation.heldout", 30]
SMALL += ["--evaluation.boundary-episodes", 2, "--threads", 2, "--evaluators", 2]

CASES = {
    "planner and memory": (
        "components.py",
        "oa",
        ["model.features=8", "planner=shooting", "planner.horizon=3", "memory=clock",
         "memory.period=9"],
    ),
    "strategy": (
        "strategy.py",
        "mlp-finetune",
        ["model.strategy=half", "model.strategy.rows=8", "model.hidden=8", "model.layers=2",
         "model.train_every=7", "planner.candidates=9", "planner.elites=3",
         "planner.iterations=1", "planner.horizon=3"],
    ),
}  # fmt: skip
"""Two parts in one run, as processes take their time to start; only the last needs torch."""


@pytest.mark.parametrize("part", CASES)
def test_a_part_from_outside_runs_and_resumes_to_the_bit(part: str, tmp_path: Path):
    file, agent, options = CASES[part]
    shutil.copy(Path(__file__).with_name(file), tmp_path / "my_parts.py")
    everlearn = everlearn_in(tmp_path)
    words = ["run", "--import", "my_parts", "--agent", agent, *SMALL]
    words += [word for option in options for word in ("--option", option)]
    said = everlearn(*words, "--out", "run")
    assert "process less" not in said.stderr, "evaluators know the part too"
    stored = RunConfig.read(tmp_path / "run" / "config.json")
    for option in options:
        path, _, value = option.partition("=")
        assert str(stored.resolved[path]).removesuffix(".0") == value
    # The last episode and evaluation again, from the snapshot before them.
    expected = outcome(tmp_path / "run")
    newest = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert newest.name == "000002-2-evaluated"
    (newest / "agent").write_bytes(b"damaged")
    assert "cannot be used" in everlearn(*words, "--out", "run").stderr
    assert outcome(tmp_path / "run") == expected


def test_lists_show_its_settings_and_wrong_ones_are_named(tmp_path: Path):
    shutil.copy(Path(__file__).with_name("components.py"), tmp_path / "my_parts.py")
    everlearn = everlearn_in(tmp_path, EVERLEARN_IMPORT="my_parts")
    said = everlearn("list", "oa").stdout
    assert "planner = cem  ('cem' or 'shooting')" in said
    assert "'clock'" in said
    # Nothing else is said on the command line: the module of the variable is known all the same.
    said = everlearn("run", "--option", "planner=shooting", "--option", "planner.horizn=3", code=2)
    assert "Did you mean 'planner.horizon'?" in said.stderr
