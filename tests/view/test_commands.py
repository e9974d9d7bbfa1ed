"""The commands `view` and `play`, and the agents that come with the package."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from everlearn import cli
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.pretrained import FOLDER, INDEX, pretrained_agents
from everlearn.support.errors import NotReadyError, UnknownNameError
from everlearn.view import start

LARGEST = 2_000_000
TUNING_SEEDS = range(10)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as ended:
        cli.main(list(words))
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    return said


@pytest.mark.parametrize("name", pretrained_agents().names())
def test_shipped_agents_act_and_do_not_learn(name: str) -> None:
    chosen = pretrained_agents().get(name)
    assert (FOLDER / chosen.file).stat().st_size < LARGEST
    assert chosen.seed in TUNING_SEEDS
    assert f"--seed {chosen.seed}" in chosen.command
    assert set(chosen.score) == set(chosen.tasks)
    agent = chosen.load()
    if chosen.world != "continual-bench":
        return
    env = ContinualBenchEnv(chosen.tasks[0])
    agent.begin_task(chosen.tasks[0], env.objective())
    obs, _ = env.reset(seed=0)
    action = agent.evaluation_copy(0).act(obs, explore=False)
    assert env.action_space.contains(action.astype(np.float64))
    with pytest.raises(NotReadyError, match="exported"):
        agent.observe(obs, action, obs, 0.0, False)


def test_the_index_names_every_file_and_no_other() -> None:
    named = {entry["file"] for entry in json.loads((FOLDER / INDEX).read_text())}
    assert named == {path.name for path in FOLDER.glob("*.agent")}
    with pytest.raises(UnknownNameError, match="pretrained agent"):
        pretrained_agents().get("nobody")


def test_play_in_text_says_how_episodes_end(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["play", "button-press", "--text", "--episodes", "1", "--threads", "1"])
    said = capsys.readouterr().out
    assert said.startswith("button-press, episode 1: solved, ")


def test_without_the_extra_play_is_in_text_and_view_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(start, "NEEDED", ("a_package_that_is_not_there",))
    said = refused(capsys, "view", "--no-browser")
    assert "everlearn[view]" in said
    played: list[tuple[object, ...]] = []
    monkeypatch.setattr(start, "play_in_text", lambda *given: played.append(given[:4]))
    cli.main(["play", "door-open"])
    assert played == [("continual-bench", None, "door-open", 3)]
    assert "everlearn[view]" in capsys.readouterr().out


def test_wrong_words_get_one_line(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--export writes a stored run" in refused(capsys, "view", "--export", "x.html")
    assert "either the folder" in refused(capsys, "view", str(tmp_path), "--task", "door-open")
    assert "neither a pretrained agent" in refused(capsys, "play", "--agent", "x", "--text")
    assert "unknown task" in refused(capsys, "play", "door-opne", "--text")
    said = refused(
        capsys, "play", "--agent", "continual-bench", "--world", "gym:Reacher-v5", "--text"
    )
    assert "lives in 'continual-bench'" in said
