"""An agent that gets nowhere moves elsewhere, and only then."""

from __future__ import annotations

import json

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.planning.escape import Escape, EscapeConfig
from everlearn.support.errors import InvalidInputError

SPACE = spaces.Box(-1.0, 1.0, (4,), np.float64)
PLANNED = np.array([0.1, 0.2, 0.3, 0.4])


def make(patience: int = 5, seed: int = 0) -> Escape:
    return Escape(SPACE, EscapeConfig(patience, burst=8), (0, 1, 2), seed)


def acts(one: Escape, rewards: list[float]) -> list[bool]:
    """Whether each step was moved away from its plan."""
    moved = []
    for reward in rewards:
        action = one.adjusted(PLANNED)
        moved.append(not np.array_equal(action, PLANNED))
        assert action[3] == PLANNED[3]
        one.observe(reward)
    return moved


def test_rising_rewards_are_never_disturbed() -> None:
    assert not any(acts(make(), [0.01 * step for step in range(300)]))


def test_a_burst_follows_five_steps_without_progress_and_ends() -> None:
    moved = acts(make(), [1.0] * 40)
    # The first reward is progress, five more are not.
    assert moved[:6] == [False] * 6
    length = moved[6:].index(False)
    assert 4 <= length <= 8
    again = 6 + length
    # After it everything counts anew: one reward sets the mark, five more are waited for.
    assert moved[again : again + 6] == [False] * 6
    assert moved[again + 6]


def test_one_direction_a_burst_within_the_bounds() -> None:
    one = make(patience=1)
    one.observe(0.0)
    one.observe(0.0)
    first = one.adjusted(PLANNED)
    one.observe(0.0)
    np.testing.assert_array_equal(one.adjusted(PLANNED), first)
    assert (np.abs(first) <= 1).all()


def test_a_burst_goes_from_where_the_hand_is_not_from_where_it_was_told_to_be() -> None:
    free, pressing = make(patience=1), make(patience=1)
    ahead = np.array([0.0, 13.0, -2.0])
    for one, lag in ((free, None), (pressing, ahead)):
        one.observe(0.0)
        one.observe(0.0, lag)
    way = [np.zeros(3), np.zeros(3)]
    for number, one in enumerate((free, pressing)):
        while True:
            action = one.adjusted(PLANNED)
            if np.array_equal(action, PLANNED):
                break
            assert (np.abs(action) <= 1).all()
            way[number] += action[:3]
            one.observe(0.0)
    np.testing.assert_allclose(way[1], way[0] - ahead, atol=1e-9)
    assert way[1][1] < -4


def test_what_counts_as_progress_can_be_said() -> None:
    for progress, expected in ((0.02, True), (0.005, False)):
        one = Escape(SPACE, EscapeConfig(5, progress, 8), (0, 1, 2))
        assert any(acts(one, [0.01 * (step // 3) for step in range(300)])) is expected
        assert one.spawn(1).config == one.config


def test_a_patience_of_zero_never_moves() -> None:
    assert not any(acts(make(patience=0), [0.0] * 200))


def test_a_new_episode_starts_counting_anew() -> None:
    one = make()
    acts(one, [0.0] * 8)
    assert one.bursts == 1
    one.begin_episode()
    assert one.bursts == 0
    assert not any(acts(one, [0.0] * 6))


def test_state_goes_through_json_and_back() -> None:
    one, rewards = make(), [0.0] * 37
    acts(one, rewards)
    other = make(seed=9)
    other.restore(json.loads(json.dumps(one.state())))
    for _ in range(60):
        np.testing.assert_array_equal(one.adjusted(PLANNED), other.adjusted(PLANNED))
        one.observe(0.0)
        other.observe(0.0)
    assert one.state() == other.state()


def test_a_bad_state_changes_nothing() -> None:
    one = make()
    acts(one, [0.0] * 10)
    before = one.state()
    for bad in ({}, {**before, "direction": [0.0]}, {**before, "generator": 3}):
        with pytest.raises(InvalidInputError, match="stored"):
            one.restore(bad)
    assert one.state() == before


@pytest.mark.parametrize("settings", [(-1, 8), (5, 0), (2.5, 8)])
def test_bad_settings_are_refused(settings: tuple[int, int]) -> None:
    with pytest.raises(InvalidInputError, match="whole number"):
        EscapeConfig(patience=settings[0], burst=settings[1])
