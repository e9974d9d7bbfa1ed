"""The command line: what it does, and how it says no."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from everlearn import cli


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
