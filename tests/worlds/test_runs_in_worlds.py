"""Runs outside Continual Bench: returns, learned rewards, resumed to the bit."""

from __future__ import annotations

import dataclasses
import json
import signal
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import read_lines
from everlearn.runs.reload import evaluate_run, load_run
from everlearn.support.errors import InvalidInputError
from tests.runs.worker import finish, outcome, start, tiny

WORLDS = {"gym:Pendulum-v1": "Pendulum-v1", "dm_control:cartpole-swingup": "cartpole-swingup"}


def config(world: str, agent: str, **settings) -> RunConfig:
    return tiny(
        agent,
        world=world,
        tasks=(WORLDS[world],),
        episodes_per_task=3,
        max_steps=30,
        evaluation=EvaluationSchedule(2, 1, 2, heldout=30),
        **settings,
    )


@pytest.fixture(params=list(WORLDS))
def world(request: pytest.FixtureRequest) -> str:
    if request.param.startswith("dm_control"):
        pytest.importorskip("dm_control")
    return request.param


@pytest.mark.parametrize("agent", ["random", "oa", "sac-finetune"])
def test_returns_are_measured_and_a_kill_costs_no_bit(agent: str, world: str, tmp_path: Path):
    if agent.startswith("sac"):
        pytest.importorskip("torch", reason="the extra 'deep' is not installed")
    run = config(world, agent)
    assert execute(run, tmp_path / "whole").finished
    lines, _ = read_lines(tmp_path / "whole" / "metrics.jsonl")
    episodes = [line for line in lines if line["kind"] == "episode"]
    assert [line["success"] for line in episodes] == [None] * 3
    assert [line["length"] for line in episodes] == [30] * 3
    evaluations = [line for line in lines if line["kind"] == "eval"]
    assert [(line["episode"], line["episodes"]) for line in evaluations] == [(0, 2), (2, 1), (3, 2)]
    assert all("success_rate" not in line for line in evaluations)
    assert len({line["mean_return"] for line in evaluations}) == 3
    assert not [line for line in lines if line["kind"] == "model"], "there is no script to follow"

    done, results = evaluate_run(tmp_path / "whole", 2)
    assert (done, results[WORLDS[world]]["mean_return"]) == (3, evaluations[-1]["mean_return"])

    folder = tmp_path / "run"
    assert finish(start(run, folder, crash_at=45)) == -signal.SIGKILL
    assert execute(run, folder).finished
    assert outcome(folder) == outcome(tmp_path / "whole")


def test_a_planner_without_an_objective_learns_the_reward(world: str, tmp_path: Path):
    execute(config(world, "oa"), tmp_path / "run")
    stored, _, agent = load_run(tmp_path / "run")
    assert (stored.measure, stored.told, stored.given) == ("return", (), ())
    assert agent.learns_reward
    assert stored.resolved["memory"] == "none", "nothing is declared of such a world"


def test_an_agent_that_cannot_learn_the_reward_says_so(tmp_path: Path):
    pytest.importorskip("torch", reason="the extra 'deep' is not installed")
    with pytest.raises(InvalidInputError, match="cannot learn the reward"):
        execute(config("gym:Pendulum-v1", "mlp-finetune"), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_processes_evaluate_returns_as_one_does(tmp_path: Path):
    one = config("gym:Pendulum-v1", "oa", evaluators=1)
    execute(one, tmp_path / "one")
    execute(dataclasses.replace(one, evaluators=2), tmp_path / "two")
    assert outcome(tmp_path / "one") == outcome(tmp_path / "two")


def test_the_commands_know_worlds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = str(tmp_path / "run")
    words = ["run", "--world", "gym:Pendulum-v1", "--agent", "random", "--episodes-per-task", "2"]
    words += ["--evaluation.every", "1", "--evaluation.episodes", "1", "--threads", "1"]
    words += ["--evaluation.boundary-episodes", "1", "--out", out]
    main(words)
    said = capsys.readouterr()
    assert "random in gym:Pendulum-v1: 1 x 2 episodes of up to 200 steps" in said.err
    assert "return -" in said.err
    assert "success" not in said.err + said.out
    main(words)
    assert "resuming after episode 2" in capsys.readouterr().err
    main(["eval", out, "--episodes", "1"])
    assert "mean return -" in capsys.readouterr().out
    main(["eval", out, "--episodes", "1", "--json"])
    assert set(json.loads(capsys.readouterr().out)["results"]["Pendulum-v1"]) == {
        "mean_return", "episodes",
    }  # fmt: skip
    main(["list", "--runs", str(tmp_path)])
    assert "run: random, seed 0, finished" in capsys.readouterr().out
    main(["report", out, "--out", str(tmp_path / "report")])
    assert "return" in capsys.readouterr().out
    assert (tmp_path / "report" / "index.html").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--world", "gym:Pendulm-v1"], "Did you mean 'Pendulum-v1'?"),
        (["--world", "gym:CartPole-v1"], "choose an environment with continuous actions"),
        (["--world", "gym:Pendulum-v1", "--reset-noise", "0.1"], "leave it at 0"),
        (["--world", "gym:Pendulum-v1", "--tasks", "door-open"], "it has: Pendulum-v1"),
        (["--world", "gym:Pendulum-v1", "--agent", "scripted"], "script"),
        (["--world", "gym:Pendulum-v1", "--agent", "mlp-si"], "cannot learn the reward"),
    ],
)
def test_what_cannot_run_there_is_refused_in_a_line(
    words: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    if "mlp-si" in words:
        pytest.importorskip("torch", reason="the extra 'deep' is not installed")
    with pytest.raises(SystemExit) as end:
        main(["run", *words, "--quiet", "--out", str(tmp_path / "run")])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert message in said
