"""Errors of a user's own code reach the user: with their message, and without a parser's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.plugins.conftest import MODULE, everlearn_in

SMALL = ["--episodes-per-task", 1, "--evaluation.every", 0, "--evaluation.boundary-episodes", 1]
SMALL += ["--threads", 1, "--out", "run"]
PARSER = ("argparse", "command_line.py", "_parsed", "usage:")


def refused(folder: Path, *words: object, code: int = 2, **files: str) -> str:
    """Give a command in a folder with these modules, and return what it says on the side."""
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    said = everlearn_in(folder)(*words, code=code)
    assert said.stdout == ""
    assert not [word for word in PARSER if word in said.stderr]
    return said.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("width = 1 / 0", "ZeroDivisionError: division by zero"),
        ("import no_such_package", "No module named 'no_such_package'"),
        ("def broken(:", "(broken.py, line 1)"),
        ("raise SystemExit('not today')", "not today"),
        ("import everlearn\neverlearn.register_agent('oa', lambda env, seed: None)", "already"),
    ],
)
def test_a_module_that_cannot_be_imported(source: str, message: str, tmp_path: Path):
    said = refused(tmp_path, "run", "--import", "broken", *SMALL, broken=source)
    assert said.count("\n") == 1
    assert "module 'broken' of --import" in said
    assert message in said
    assert not (tmp_path / "run").exists()


def test_a_module_that_is_not_there(tmp_path: Path):
    said = refused(tmp_path, "list", "--import", "nowhere")
    assert said.count("\n") == 1
    assert "No module named 'nowhere'" in said


def changed(old: str, new: str) -> str:
    source = MODULE.read_text()
    assert old in source
    return source.replace(old, new)


MINE = ["run", "--import", "mine", "--agent", "mine", "--world", "mine", *SMALL]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("def evaluation_copy", "def no_copy", "has no 'evaluation_copy'"),
        ('    boundary_aware = True\n', "", "has no 'boundary_aware'"),
        ('{"success": solved}', "{}", "does not say info['success']"),
        (
            "self.goal = goal",
            "self.goal, self.action_space = goal, spaces.Box(-1, 1, (1 + int(goal > 0),))",
            "have different spaces",
        ),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_line(old: str, new: str, message: str, tmp_path: Path):
    said = refused(tmp_path, *MINE, "--quiet", mine=changed(old, new))
    assert said.splitlines()[-1].startswith("everlearn run: ")
    assert message in said.splitlines()[-1]
    assert "Traceback" not in said


def test_an_error_in_an_agent_shows_where_it_is(tmp_path: Path):
    source = changed("        self.steps += 1\n", "        self.steps += 1 / 0  # a mistake\n")
    said = refused(tmp_path, *MINE, code=1, mine=source)
    assert said.splitlines()[-1] == "ZeroDivisionError: division by zero"
    assert "self.steps += 1 / 0  # a mistake" in said


def test_an_option_of_an_agent_of_ones_own_is_checked(tmp_path: Path):
    said = refused(tmp_path, *MINE, "--option", "nose=1", mine=MODULE.read_text())
    assert "Did you mean 'noise'?" in said
    said = refused(tmp_path, *MINE, "--option", "noise=much")
    assert "noise=much: expected a number" in said
