"""The command line: what it does, and how it says no."""

from __future__ import annotations

import inspect
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from everlearn import cli
from everlearn.planning.presets import GAPS, OA_PAPER


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as end:
        cli.main(words)
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1, "one line"
    return said


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_every_command_has_help_with_an_example(command: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main([command, "--help"])
    assert end.value.code == 0
    assert f"Example: everlearn {command}" in capsys.readouterr().out


def test_overview_names_every_command(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        cli.main(["--help"])
    assert end.value.code == 0
    said = capsys.readouterr().out
    assert all(f"  {command} " in said for command in cli.COMMANDS)


def test_wrong_words_name_the_right_ones(capsys: pytest.CaptureFixture[str]):
    assert "video" in refused(capsys, "vidoe")
    assert "--noise" in refused(capsys, "video", "--task", "door-open", "--nosie", "1")
    assert "--task" in refused(capsys, "video")
    assert "'abc'" in refused(capsys, "video", "--task", "door-open", "--seed", "abc")
    assert "button-press" in refused(capsys, "video", "--task", "buton-press")
    assert ".mp4 or .gif" in refused(capsys, "video", "--task", "door-open", "--out", "x.avi")


def test_errors_of_a_command_are_told_in_a_line(capsys: pytest.CaptureFixture[str]):
    assert "noise" in refused(capsys, "video", "--task", "door-open", "--noise", "-1")


def test_list_names_tasks_and_agents(capsys: pytest.CaptureFixture[str]):
    cli.main(["list"])
    said = capsys.readouterr().out
    assert "pick-place" in said
    assert "oa-paper" in said


def test_list_says_how_the_papers_agent_fills_the_gaps_of_the_paper(
    capsys: pytest.CaptureFixture[str],
):
    cli.main(["list", "oa-paper"])
    said = capsys.readouterr().out
    assert "the paper, gaps filled" in said
    page = (Path(__file__).parents[1] / "docs" / "agent.md").read_text()
    for gap, choice in GAPS:
        assert f"- {gap}: {choice}" in said
        assert f"| {gap} | {choice} |" in page
    model, planner = OA_PAPER.model, OA_PAPER.planner
    assert (model.observation_gain, model.action_gain, model.clip) == (3.0, 1.5, True)
    assert (planner.noise_beta, planner.deviation, planner.kept_elites) == (2.0, 0.5, 0.3)
    assert planner.momentum == 0.1
    cli.main(["list", "mlp-paper-si"])
    assert "everlearn list oa-paper" in capsys.readouterr().out


def test_a_reader_that_has_seen_enough_is_no_error():
    process = subprocess.Popen(
        [sys.executable, "-m", "everlearn", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    _, said = process.communicate(timeout=120)
    assert said == b""
    assert process.returncode == 128 + 13, "as other programs end that nobody listens to"


def test_version_as_a_module():
    command = [sys.executable, "-m", "everlearn", "--version"]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    assert run.stdout.startswith("everlearn 0.")


def test_speed_without_the_source_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(cli, "__file__", str(tmp_path / "everlearn" / "cli.py"))
    assert "checkout" in refused(capsys, "speed")


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_examples_of_help_are_commands(command: str):
    """Every option in them is there, and has a value that fits."""
    text = " ".join((inspect.getdoc(cli.COMMANDS[command]) or "").split())
    words = shlex.split(text.partition("Example: ")[2].rstrip("."))
    assert words[:2] == ["everlearn", command]
    assert callable(cli._parsed(command, words[2:]))


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_help_shows_real_defaults_and_a_line_for_every_option(
    command: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    said = capsys.readouterr().out
    assert "None" not in said
    assert "==SUPPRESS==" not in said
    for name in ("options:", "show this help"):
        assert name in said
    listed = said.partition("options:")[2]
    for entry in re.split(r"\n  (?=-)", listed)[1:]:
        flags, _, text = re.sub(r"\s*\n\s+", "  ", entry).partition("  ")
        assert text.strip(), f"{flags} of {command} says nothing"


def test_bare_run_says_what_it_would_do(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        cli.main(["run", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: 100)" in said
    assert "faucet-close)" in said.replace("- ", "-")
    # With a preset or a world its defaults are theirs.
    with pytest.raises(SystemExit):
        cli.main(["run", "--preset", "quick", "--world", "gym:Pendulum-v1", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    assert "(default: 10)" in said
    assert "(default: 200)" in said
    assert "(default: Pendulum-v1)" in said


@pytest.mark.parametrize("name", ["oa", "oa-paper", "mlp-coreset", "sac-packnet", "scripted"])
def test_every_option_of_an_agent_has_a_type_and_a_line(
    name: str, capsys: pytest.CaptureFixture[str]
):
    if "-" in name and name != "oa-paper":
        pytest.importorskip("torch")
    cli.main(["list", name])
    title, *said = capsys.readouterr().out.splitlines()
    first = next(number for number, line in enumerate(said) if not line.startswith(" "))
    count, *lines = said[first:]  # what it is in detail stands before
    assert re.fullmatch(rf"{name}: \w.+", title)
    options, helps = lines[::2], lines[1::2]
    assert count.startswith(f"{len(options)} options")
    for option, text in zip(options, helps, strict=True):
        assert re.fullmatch(r"  [a-z_.]+ = \S+  \(.+\)", option), option
        assert re.fullmatch(r"      \w.*\w.*", text), text
        assert "typing" not in option
        assert "<class" not in option


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "--seed", "abc"], "--seed: expected a whole number, got 'abc'"),
        (["run", "--agent", "ao"], "Did you mean 'oa'?"),
        (["run", "--option", "planer.horizon=3"], "Did you mean 'planner.horizon'?"),
        (["run", "--option", "planner.horizon=far"], "expected a whole number"),
        (["run", "--world", "gim:Pendulum-v1"], "Did you mean 'gym'?"),
        (["run", "--preset"], "--preset"),
        (["run", "--agent"], "--agent"),
        (["run", "extra"], "'extra'"),
        (["run", "--evaluation.evry", "3"], "Did you mean '--evaluation.every'?"),
        (["list", "ao"], "Did you mean 'oa'?"),
        (["sweep", "--agents", "ao", "--seeds", "0", "--out", "x"], "Did you mean 'oa'?"),
        (["sweep", "--agents", "oa", "--out", "x"], "--seeds"),
        (["eval"], "RUN"),
        (["report"], "--compare"),
    ],
)
def test_mistakes_get_one_line_and_exit_code_2(
    words: list[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
):
    monkeypatch.chdir(tmp_path)
    said = refused(capsys, *words)
    assert message in said
    assert "usage:" not in said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []


def test_options_are_those_of_the_world(capsys: pytest.CaptureFixture[str]):
    values = {}
    for world in ("continual-bench", "gym:Pendulum-v1"):
        cli.main(["list", "oa", "--world", world])
        lines = capsys.readouterr().out.splitlines()
        values[world] = [line.split("(")[0].strip() for line in lines if "update =" in line]
    assert values["continual-bench"] == ["model.update = active"]
    assert values["gym:Pendulum-v1"] == ["model.update = exact"]
