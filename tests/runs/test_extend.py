"""Runs that go on after their end, and folders of which only the metrics are left."""

import contextlib
import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.runs import metrics_file, snapshots
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import read_lines
from everlearn.support.errors import InvalidInputError
from tests.runs.test_resume import Messages
from tests.runs.worker import finish, outcome, start, tiny

RESULTS = Path(__file__).parents[2] / "results"
ONE, TWO = ("window-close",), ("window-close", "button-press")
EVEN = EvaluationSchedule(2, 1, 1, heldout=30)
"""With two episodes a task, all evaluations are alike, inside a task and at its end."""


def contents(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def in_order(lines):
    """Lines of the same time in one order: an extended run evaluates the next task later."""
    return sorted(lines, key=lambda line: (line["episode"], line["kind"] != "episode", str(line)))


@pytest.mark.parametrize("agent", ["oa", "sac-packnet"])
def test_more_tasks_in_two_parts_are_one_run(agent, tmp_path):
    whole, folder = tiny(agent, tasks=TWO), tmp_path / "run"
    execute(whole, tmp_path / "whole")
    execute(tiny(agent, tasks=ONE), folder)
    before = contents(folder)
    assert execute(whole, folder, extend=True).finished
    found, expected = outcome(folder), outcome(tmp_path / "whole")
    assert in_order(found.pop("lines")) == in_order(expected.pop("lines"))
    assert found == expected, "agents and transitions, to the bit"
    after = contents(folder)
    assert after["metrics.jsonl"].startswith(before["metrics.jsonl"])
    assert after["config.json.1"] == before["config.json"]
    assert RunConfig.read(folder / "config.json").tasks == TWO
    for name in before:
        if name.startswith("transitions"):
            assert after[name] == before[name]


def test_more_episodes_in_three_parts_are_one_run_line_by_line(tmp_path):
    def config(episodes):
        return tiny("oa", tasks=ONE, episodes_per_task=episodes, evaluation=EVEN)

    execute(config(6), tmp_path / "whole")
    for episodes in (2, 4, 6):
        assert execute(config(episodes), tmp_path / "run", extend=True).finished
        lines, _ = read_lines(tmp_path / "run" / "metrics.jsonl")
        evaluated = [line["episode"] for line in lines if line["kind"] == "eval"]
        assert evaluated == list(range(0, episodes + 1, 2))
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    kept = [tmp_path / "run" / f"config.json.{number}" for number in (1, 2)]
    assert [RunConfig.read(file).episodes for file in kept] == [2, 4]


def test_what_was_measured_at_the_old_end_stays(tmp_path):
    folder, uneven = tmp_path / "run", EvaluationSchedule(3, 1, 2, heldout=0)
    execute(tiny(tasks=ONE, episodes_per_task=2, evaluation=uneven), folder)
    before = (folder / "metrics.jsonl").read_bytes()
    execute(tiny(tasks=ONE, episodes_per_task=4, evaluation=uneven), folder, extend=True)
    assert (folder / "metrics.jsonl").read_bytes().startswith(before)
    lines, _ = read_lines(folder / "metrics.jsonl")
    assert [(line["episode"], line["episodes"]) for line in lines if line["kind"] == "eval"] == [
        (0, 2), (2, 2), (3, 1), (4, 2),
    ]  # fmt: skip


def test_an_extended_run_that_is_killed_resumes_as_any_other(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(tasks=ONE), folder)
    stopped = start(tiny(tasks=TWO), tmp_path / "whole")
    assert finish(stopped) == 0
    for count in (4, 25):  # changes of the disk: before the first line, and after it
        copy = Path(shutil.copytree(folder, tmp_path / str(count)))
        finish(start(tiny(tasks=TWO), copy, crash_at=count, extend=True))
        begun = RunConfig.read(copy / "config.json").tasks == TWO
        assert execute(tiny(tasks=TWO), copy, extend=not begun).finished
        found, expected = outcome(copy), outcome(tmp_path / "whole")
        assert in_order(found["lines"]) == in_order(expected["lines"])


def test_without_extend_the_error_says_how(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(tasks=ONE), folder)
    before = contents(folder)
    for longer in (tiny(tasks=TWO), tiny(tasks=ONE, episodes_per_task=9)):
        with pytest.raises(InvalidInputError, match="--extend to go on from its end"):
            execute(longer, folder)
    assert contents(folder) == before


@pytest.mark.parametrize(
    "other",
    [
        tiny(tasks=ONE),
        tiny(tasks=("button-press", "window-close", "button-press")),
        tiny(tasks=TWO, episodes_per_task=5),
        tiny(tasks=TWO, episodes_per_task=2),
        tiny(tasks=(*TWO, "door-open"), seed=1),
        tiny("scripted", tasks=(*TWO, "door-open")),
    ],
    ids=["shorter", "other order", "moved switches", "fewer", "other seed", "other agent"],
)
def test_what_is_no_extension_is_refused(other, tmp_path):
    folder = tmp_path / "run"
    execute(tiny(tasks=TWO), folder)
    before = contents(folder)
    with pytest.raises(InvalidInputError, match="other settings"):
        execute(other, folder, extend=True)
    assert contents(folder) == before


# Folders without snapshots --------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    """A run of which config, metrics and machine are left, as results are kept."""
    folder = tmp_path / "run"
    execute(tiny(), folder)
    for name in ("checkpoints", "transitions"):
        shutil.rmtree(folder / name)
    facts = json.loads((folder / "environment.json").read_text())
    (folder / "environment.json").write_text(json.dumps({**facts, "processor": "abacus"}))
    return folder


def test_complete_metrics_are_a_finished_run_and_left_untouched(kept):
    before = contents(kept)
    result = execute(tiny(), kept)
    assert (result.finished, result.state.episode) == (True, 6)
    assert contents(kept) == before
    with pytest.raises(InvalidInputError, match="no snapshot from which"):
        execute(tiny(tasks=(*TWO, "door-open")), kept, extend=True)
    assert contents(kept) == before


@pytest.mark.parametrize("left", ["one line", "all but the last evaluation"])
def test_incomplete_metrics_without_snapshots_are_refused(left, kept):
    file = kept / "metrics.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(lines[0] if left == "one line" else b"".join(lines[:-2]))
    before = file.read_bytes()
    with pytest.raises(InvalidInputError, match=r"no snapshot that could continue.*--fresh"):
        execute(tiny(), kept)
    assert file.read_bytes() == before
    assert execute(tiny(), kept, fresh=True).finished
    assert (kept / "metrics.jsonl.1").read_bytes() == before
    execute(tiny(seed=1), kept, fresh=True)
    assert (kept / "metrics.jsonl.2").exists()
    assert RunConfig.read(kept / "config.json.2").seed == 0


def test_a_config_of_an_older_version_is_not_lost(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    values = json.loads((folder / "config.json").read_text())
    new = ("resolved", "told", "given", "measure", "imports", "world")
    old = {name: value for name, value in values.items() if name not in new} | {"version": 1}
    old["checkpoint_seconds"] = old.pop("snapshot_seconds")
    (folder / "config.json").write_text(json.dumps(old))
    messages = Messages()
    assert execute(tiny(), folder, listeners=[messages]).finished
    assert json.loads((folder / "config.json.1").read_text()) == old
    assert json.loads((folder / "config.json").read_text())["version"] == 2


def test_a_longer_config_may_change_what_no_bit_depends_on(tmp_path):
    execute(tiny(tasks=ONE), tmp_path / "run")
    slower = dataclasses.replace(tiny(tasks=TWO), snapshot_seconds=1e6)
    assert execute(slower, tmp_path / "run", extend=True).finished


def test_the_command_of_a_kept_result_changes_nothing(tmp_path):
    copy = Path(shutil.copytree(RESULTS / "archive" / "paper" / "oa-100", tmp_path / "b"))
    before = contents(copy)
    # This version may refuse settings of an older one; either way nothing is written.
    with contextlib.suppress(SystemExit):
        main(["run", "--config", str(copy / "config.json"), "--out", str(copy), "--quiet"])
    assert contents(copy) == before


def test_a_sweep_over_kept_results_changes_nothing(tmp_path):
    for name in ("random-100", "random-101"):
        shutil.copytree(RESULTS / "quick" / name, tmp_path / name)
    before = contents(tmp_path / "random-100") | contents(tmp_path / "random-101")
    words = ["--agents", "random", "--seeds", "100,101", "--preset", "quick", "--quiet"]
    main(["sweep", *words, "--out", str(tmp_path)])
    assert contents(tmp_path / "random-100") | contents(tmp_path / "random-101") == before


def test_lines_that_a_resumed_run_cuts_off_are_kept(tmp_path):
    folder = tmp_path / "run"
    execute(tiny(), folder)
    expected = (folder / "metrics.jsonl").read_bytes()
    first, second = metrics_file.snapshot_names(folder / "checkpoints")
    shutil.rmtree(folder / "checkpoints" / second)
    offset = snapshots.read_snapshot(folder / "checkpoints" / first).offset
    assert 0 < offset < len(expected)
    with (folder / "metrics.jsonl").open("ab") as file:
        file.write(b'{"kind":"epi')  # as a crash leaves it
    assert execute(tiny(), folder).finished
    kept = (folder / "metrics.cut.jsonl").read_bytes()
    assert kept == expected[offset:] + b'{"kind":"epi\n'
    assert (folder / "metrics.jsonl").read_bytes()[:offset] == expected[:offset]
