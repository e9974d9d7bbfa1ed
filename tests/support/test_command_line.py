"""Command lines made from dataclasses."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from everlearn.support.command_line import (
    UsageError,
    flattened,
    internal,
    parse,
    positional,
    repeated,
)


@dataclass(frozen=True)
class Inner:
    every: int = 5
    """Steps between."""


@dataclass(frozen=True)
class Settings:
    seed: int = 0
    """Seed of everything."""
    tasks: tuple[str, ...] = ("a", "b")
    """Names."""
    check: Inner = field(default_factory=Inner)
    record: bool = True
    """Keep it."""
    threads: int | None = None
    """How many; all if not given."""
    secret: str = internal("kept")


@dataclass(frozen=True)
class Command:
    """Do it.

    Example: do it now
    """

    folder: Path = positional()
    """Where."""
    settings: Settings = flattened(Settings)
    import_: tuple[str, ...] = repeated()
    """A module."""
    mode: Literal["fast", "slow"] = "fast"
    pair: tuple[Path, Path] | None = None
    quiet: bool = False


def read(*words: str, defaults: Command | None = None) -> Command:
    return parse(Command, "do it", words, defaults)


def test_options_are_the_fields():
    command = read(
        *("here", "--seed", "3", "--tasks", "c,d", "--check.every", "7", "--no-record"),
        *("--import", "x", "--import", "y", "--mode", "slow", "--pair", "p", "q", "--quiet"),
    )
    assert command == Command(
        Path("here"),
        Settings(3, ("c", "d"), Inner(7), False),
        ("x", "y"),
        "slow",
        (Path("p"), Path("q")),
        True,
    )


def test_what_is_not_given_stays_as_it_is():
    assert read("here") == Command(Path("here"))
    base = Command(Path(), Settings(9, secret="changed"), ("x",))
    assert read("here", "--import", "y", defaults=base) == Command(
        Path("here"), Settings(9, secret="changed"), ("x", "y")
    )


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("here", "--seed", "abc"), "--seed: expected a whole number, got 'abc'"),
        (("here", "--sede", "3"), "unknown option '--sede'. Did you mean '--seed'"),
        (("here", "--see", "3"), "unknown option '--see'"),
        ((), "required: FOLDER"),
        (("here", "there"), "unexpected argument 'there'"),
        (("here", "--mode", "medium"), "invalid choice: 'medium'"),
        (("here", "--secret", "x"), "unknown option '--secret'"),
        (("here", "--seed"), "--seed: expected one argument"),
    ],
)
def test_mistakes_are_named(words, message):
    with pytest.raises(UsageError, match=message):
        read(*words)


def test_help_shows_the_defaults_in_force(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as end:
        read("--help", defaults=Command(Path(), Settings(7)))
    text = " ".join(capsys.readouterr().out.split())
    assert end.value.code == 0
    assert "Seed of everything. (default: 7)" in text
    assert "Names. (default: a,b)" in text
    assert "--check.every EVERY Steps between. (default: 5)" in text
    assert "How many; all if not given." in text
    assert "None" not in text
    assert "secret" not in text


def test_a_zero_is_a_default_too(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        read("--help")
    assert "(default: 0)" in capsys.readouterr().out
