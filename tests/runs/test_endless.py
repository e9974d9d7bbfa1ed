"""Runs in a world without resets: one life, whose visits are the episodes."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from everlearn.continual_bench.life_tasks import OBJECTS
from everlearn.runs.config import RunConfig
from everlearn.runs.folder import load_transitions
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import read_lines
from everlearn.runs.presets import preset_config
from everlearn.support.errors import InvalidInputError
from everlearn.worlds import world_named
from tests.runs.worker import outcome

SMALL = {"planner.candidates": 30, "planner.elites": 10, "planner.iterations": 2}
VISITS = 6


def config(agent: str = "oa", **settings: object) -> RunConfig:
    options = {"model.features": 30, **SMALL} if agent == "oa" else {}
    values = {"episodes_per_task": VISITS, "max_steps": 12, "threads": 1, **settings}
    return preset_config("life", agent, options, **values)


def test_a_visit_begins_where_the_last_one_ended(tmp_path: Path):
    execute(config("random"), tmp_path)
    lines, _ = read_lines(tmp_path / "metrics.jsonl")
    assert [line["visit"] for line in lines] == list(range(VISITS))
    assert {line["task"] for line in lines} == {"life"}
    assert all(line["length"] == 12 for line in lines), "cut by max_steps, which ends the visit"
    goals = [line["goal"] for line in lines]
    assert set(goals) <= {task for tasks in OBJECTS.values() for task in tasks}
    assert len(set(goals)) > 1
    stored = [load_transitions(tmp_path, visit + 1)[0] for visit in range(VISITS)]
    for visit, following in itertools.pairwise(stored):
        ended, begun = visit["observations"][-1], following["observations"][0]
        np.testing.assert_array_equal(ended, begun)


@pytest.mark.parametrize("agent", ["oa", "scripted"])
def test_a_life_in_two_parts_is_one_life_to_the_bit(agent: str, tmp_path: Path):
    execute(config(agent), tmp_path / "whole")
    execute(config(agent, episodes_per_task=VISITS // 2), tmp_path / "parts")
    assert execute(config(agent), tmp_path / "parts", extend=True).finished
    found, expected = (last(tmp_path / name) for name in ("parts", "whole"))
    assert found == expected


def last(run: Path) -> dict[str, object]:
    """Return lines, transitions and the last snapshot of a run."""
    found = outcome(run)
    *earlier, newest = found.pop("snapshots")
    for name in earlier:
        del found[f"{name}/agent"], found[f"{name}/state"]
    return {**found, "world": (run / "checkpoints" / newest / "world").read_bytes()}


def test_a_snapshot_without_its_life_is_not_gone_on_from(tmp_path: Path):
    execute(config("random"), tmp_path / "whole")
    execute(config("random", episodes_per_task=2), tmp_path / "run")
    (tmp_path / "run" / "checkpoints" / "000002-2-evaluated" / "world").unlink()
    execute(config("random"), tmp_path / "run", extend=True)
    assert last(tmp_path / "run") == last(tmp_path / "whole")
    assert list((tmp_path / "run" / "checkpoints").glob("damaged-*"))


def test_the_world_says_what_it_cannot_do(tmp_path: Path):
    env = world_named("continual-life").make("life")
    env.reset(seed=0)
    with pytest.raises(InvalidInputError, match="another life"):
        env.reset(options={"task": "door-open"})
    first, _ = env.reset(seed=1)
    again, _ = env.reset(seed=1)
    np.testing.assert_array_equal(first, again)
