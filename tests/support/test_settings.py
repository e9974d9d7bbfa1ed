"""Settings as a tree: paths, types, parts, and messages that help."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

import pytest

from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError, UnknownNameError
from everlearn.support.settings import (
    options_of,
    parse_options,
    part,
    summaries_of,
    values_of,
    with_options,
)

SEARCHES: Registry[type] = Registry("search")


@dataclass(frozen=True)
class Random:
    tries: int = 10
    """How many.

    Further lines are not in the list.
    """

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise InvalidInputError(f"tries is {self.tries}")


@dataclass(frozen=True)
class Gradient:
    rate: float = 0.1
    """Size of a step, over
    two lines."""
    steps: int | None = None


SEARCHES.register("random", Random)
SEARCHES.register("gradient", Gradient)


@dataclass(frozen=True)
class Pair:
    low: int = 0
    high: int = 1

    def __post_init__(self) -> None:
        if self.low >= self.high:
            raise InvalidInputError(f"low {self.low} is not below high {self.high}")


@dataclass(frozen=True)
class Settings:
    search: Random | Gradient = part(SEARCHES, Random())
    """Which search."""
    bounds: Pair = field(default_factory=Pair)
    mode: Literal["fast", "exact"] = "fast"
    verbose: bool = False


def test_all_options_have_paths_types_and_summaries():
    options = options_of(Settings())
    assert list(options) == [
        *("search", "search.tries", "bounds.low", "bounds.high", "mode", "verbose")
    ]
    assert options["search"].value == "random"
    assert options["search"].summary == "Which search."
    assert options["search.tries"].summary == "How many."
    assert summaries_of(Gradient)["rate"] == "Size of a step, over two lines."


def test_values_make_an_equal_config():
    changed = with_options(Settings(), {"search": "gradient", "search.rate": 1, "bounds.high": 9})
    assert changed == Settings(Gradient(rate=1.0), Pair(0, 9))
    assert with_options(Settings(), values_of(changed)) == changed
    assert isinstance(changed.search.rate, float)


def test_a_part_of_another_sort_starts_from_its_own_defaults_whatever_the_order():
    for options in (
        {"search.rate": 0.5, "search": "gradient"},
        {"search": "gradient", "search.rate": 0.5},
    ):
        assert with_options(Settings(), options).search == Gradient(rate=0.5)
    kept = with_options(Settings(Random(3)), {"search": "random"})
    assert kept.search == Random(3)  # the same sort: nothing to start anew


def test_settings_that_only_fit_together_are_checked_together():
    assert with_options(Settings(), {"bounds.low": 5, "bounds.high": 6}).bounds == Pair(5, 6)
    with pytest.raises(InvalidInputError, match="low 5 is not below"):
        with_options(Settings(), {"bounds.low": 5})


def test_words_are_read_as_the_type_of_the_option():
    words = [
        "search=gradient",
        "search.rate=1e-3",
        "search.steps=none",
        "verbose=true",
        "mode=exact",
    ]
    assert parse_options(Settings(), words) == {
        "search": "gradient",
        "search.rate": 1e-3,
        "search.steps": None,
        "verbose": True,
        "mode": "exact",
    }


@pytest.mark.parametrize(
    ("word", "error", "message"),
    [
        ("tries=3", UnknownNameError, r"unknown option 'tries'.*Did you mean 'search.tries'"),
        ("search.trise=3", UnknownNameError, r"Did you mean 'search.tries'"),
        ("search=randon", UnknownNameError, r"unknown search 'randon'.*Did you mean 'random'"),
        ("search.tries=many", InvalidInputError, r"search.tries=many: expected a whole number"),
        ("search.tries=1.5", InvalidInputError, "expected a whole number"),
        ("mode=slow", InvalidInputError, "expected 'fast' or 'exact'"),
        ("verbose", InvalidInputError, "write it as name=value"),
        ("search.rate=1", UnknownNameError, "unknown option 'search.rate'"),
    ],
)
def test_wrong_words_are_answered_with_what_is_right(word, error, message):
    with pytest.raises(error, match=message):
        parse_options(Settings(), [word])


@pytest.mark.parametrize(
    "options",
    [{"search.tries": True}, {"search.tries": "3"}, {"verbose": 1}, {"search": 3}, {"mode": "x"}],
)
def test_values_of_another_type_are_refused(options):
    with pytest.raises((InvalidInputError, UnknownNameError)):
        with_options(Settings(), options)


def test_a_config_refuses_by_its_own_rules():
    with pytest.raises(InvalidInputError, match="tries is 0"):
        with_options(Settings(), {"search.tries": 0})
