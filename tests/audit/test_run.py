"""Audits of recorded runs: reading them, and the command."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from everlearn.audit import TransitionStream, audit_run, model_for, read_stream
from everlearn.cli import main
from everlearn.runs.folder import load_transitions
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.memory import states_along

SMALL = ["--tasks", "window-close,button-press", "--episodes-per-task", "2", "--max-steps", "30"]
SMALL += ["--evaluation.every", "0", "--evaluation.boundary-episodes", "0"]
SMALL += ["--evaluation.heldout", "0"]
SMALL += ["--threads", "1", "--quiet"]
OPTIONS = [
    *("model.features=5", "planner.candidates=10"),
    *("planner.elites=4", "planner.iterations=1"),
]
FEATURES, MISSPELT = "model.features", "model.feature"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "online"
    words = [word for option in OPTIONS for word in ("--option", option)]
    main(["run", "--agent", "oa", *SMALL, *words, "--out", str(folder)])
    return folder


@pytest.fixture(scope="module")
def scripted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "scripted"
    main(["run", "--agent", "scripted", *SMALL, "--out", str(folder)])
    return folder


def test_a_run_is_read_in_order_with_its_tasks(run: Path):
    stream = read_stream(run)
    arrays, facts = load_transitions(run, 3)
    assert stream.steps == 120
    assert stream.episodes == 4
    assert stream.marks == ((0, "window-close"), (60, "button-press"))
    assert facts["task"] == "button-press"
    np.testing.assert_array_equal(stream.observations[60:90], arrays["observations"][:-1])
    np.testing.assert_array_equal(stream.next_observations[60:90], arrays["observations"][1:])
    np.testing.assert_array_equal(stream.actions[60:90], arrays["actions"])
    short = read_stream(run, 45)
    assert (short.steps, short.episodes, short.marks) == (45, 2, ((0, "window-close"),))
    np.testing.assert_array_equal(short.actions, stream.actions[:45])


def test_memories_start_anew_with_every_episode(run: Path):
    stream, memory = read_stream(run), model_for(run).memory
    arrays, _ = load_transitions(run, 3)
    states = states_along(memory, arrays["observations"], arrays["actions"])
    np.testing.assert_array_equal(stream.memory_states(memory)[60:90], states)
    assert memory.size == 3 + 26  # commands and displacements


def test_the_audited_model_ends_as_the_agents_own(run: Path):
    # The run's agent learned these transitions itself; its file holds what came of it.
    from everlearn.runs.reload import load_run

    _, _, agent = load_run(run)
    wanted = agent.model.weights  # type: ignore[attr-defined]
    audit = audit_run(run)
    assert audit.last.online_norm == pytest.approx(float(np.linalg.norm(wanted)), rel=1e-6)
    assert audit.model["features"] == 5
    assert audit.model["memory"] == "motion"
    assert audit.last.leader_loss is not None


def test_the_command_writes_page_figures_and_numbers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    out = tmp_path / "audit"
    main(["audit", str(run), "--option", f"{FEATURES}=8", "--points", "12", "--out", str(out)])
    text = capsys.readouterr().out
    assert text.startswith("On these 120 transitions the regret ")
    for word in (
        "120 transitions of 4 episodes",
        "Assumption 1",
        "Assumption 3",
        "exact leader",
        "r_M",
    ):
        assert word in text
    assert (out / "audit.md").read_text().startswith(text.partition("\n->")[0][:200])
    values = json.loads((out / "audit.json").read_text())
    assert values["model"]["features"] == 8
    assert values["points"][-1]["step"] == 120
    for name in ("regret.png", "gap.png", "assumptions.png"):
        assert (out / name).read_bytes().startswith(b"\x89PNG")
        assert f"({name})" in (out / "audit.md").read_text()


def test_numbers_for_scripts_shuffled_and_without_the_leader(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    words = ["--json", "--shuffle", "--no-exact", "--steps", "50", "--threads", "1"]
    main(["audit", str(run), *words, "--out", str(tmp_path / "out")])
    values = json.loads(capsys.readouterr().out)
    assert values["shuffled"] is True
    assert values["steps"] == 50
    assert values["points"][-1]["leader_loss"] is None
    assert "Left out: the exact leader" in (tmp_path / "out" / "audit.md").read_text()


def test_transitions_of_another_agent_need_a_model(
    scripted: Path, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(InvalidInputError, match="--agent oa"):
        audit_run(scripted)
    main(["audit", str(scripted), "--agent", "oa-paper", "--option", f"{FEATURES}=4", "--json"])
    values = json.loads(capsys.readouterr().out)
    assert (values["model"]["ridge"], values["model"]["memory"]) == (0.005, "none")


def test_synthetic_streams_by_name(capsys: pytest.CaptureFixture[str]):
    main(["audit", "--synthetic", "signed", "--steps", "100", "--seed", "3"])
    text = capsys.readouterr().out
    assert "Assumption 2** (targets not negative, all bounded): failed" in text
    assert "Assumption 1** (features settle): held" in text


@pytest.mark.parametrize(
    ("words", "right"),
    [
        ([], "folder of a run"),
        (["nowhere"], "no config"),
        (["--synthetic", "idd"], "iid"),
        (["--synthetic", "iid", "--steps", "0"], "at least 1"),
        (["--synthetic", "iid", "--points", "0"], "at least 1"),
        (["--outt", "x"], "--out"),
    ],
)
def test_wrong_words_get_one_line(words: list[str], right: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        main(["audit", *words])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert right in said


def test_wrong_options_and_runs_without_transitions(run: Path, tmp_path: Path):
    with pytest.raises(KeyError, match=FEATURES):
        audit_run(run, options=[f"{MISSPELT}=3"])
    main(["run", "--agent", "random", *SMALL, "--no-record", "--out", str(tmp_path / "run")])
    with pytest.raises(InvalidInputError, match="recorded"):
        read_stream(tmp_path / "run")


def test_streams_that_do_not_fit_together_are_refused():
    obs, action = np.zeros((3, 2)), np.zeros((3, 1))
    with pytest.raises(InvalidInputError, match="equally many"):
        TransitionStream("odd", obs, action[:2], obs, np.ones(3, np.bool_))
    with pytest.raises(InvalidInputError, match="start"):
        TransitionStream("odd", obs, action, obs, np.zeros(3, np.bool_))
    with pytest.raises(InvalidInputError, match="no transitions"):
        TransitionStream.from_episodes("empty", [(obs[:1], action[:0])])
    with pytest.raises(InvalidInputError, match="steps is 0"):
        TransitionStream("fine", obs, action, obs, np.ones(3, np.bool_)).first(0)
