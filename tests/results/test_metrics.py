"""The metrics against tables worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlearn.results import metrics
from everlearn.support.errors import InvalidInputError

NAN = math.nan

# Two tasks of 10 episodes each, evaluated at 5, 10, 15, 20; the second is unseen until 15.
TIMES = [5, 10, 15, 20]
P = [[0.4, NAN], [0.8, NAN], [0.6, 0.2], [0.5, 1.0]]
PERIODS = [(0, 0, 10), (1, 10, 20)]


def test_average_performance_leaves_unseen_tasks_out():
    # 0.4 | 0.8 | (0.6 + 0.2) / 2 | (0.5 + 1.0) / 2
    np.testing.assert_allclose(metrics.average_performance(P), [0.4, 0.8, 0.4, 0.75])


def test_average_performance_of_one_task_ties_and_nothing():
    np.testing.assert_allclose(metrics.average_performance([[0.0], [1.0], [1.0]]), [0, 1, 1])
    np.testing.assert_allclose(metrics.average_performance([[0.3, 0.3, 0.3]]), [0.3])
    assert np.isnan(metrics.average_performance([[NAN, NAN]])).all()
    assert len(metrics.average_performance(np.zeros((0, 2)))) == 0


def test_regret_online():
    success = [False, True, True, False]
    assert metrics.regret_online(success) == 0.5
    # The two failures took 500 steps each, the successes 100 and 400: 1000 / 1500.
    assert metrics.regret_online(success, [500, 100, 400, 500]) == pytest.approx(2 / 3)
    np.testing.assert_allclose(metrics.regret_curve(success), [1, 1 / 2, 1 / 3, 1 / 2])
    assert metrics.regret_online([True, True]) == 0
    assert metrics.regret_online([False]) == 1
    assert math.isnan(metrics.regret_online([]))


def test_regret_eval_by_hand():
    # Task 0: 0.4 up to 5 (5 * 0.6 = 3), then from 0.6 to 0.2 missed (5 * 0.4 = 2).
    # Task 1: 0.2 up to 15 (5 * 0.8 = 4), then from 0.8 to 0 missed (5 * 0.4 = 2). 11 / 20.
    assert metrics.regret_eval(TIMES, P, PERIODS) == pytest.approx(11 / 20)


def test_regret_eval_by_steps_weighs_long_periods_more():
    # The same shapes, 100 steps long and 1000: 100 * 0.6 + 100 * 0.4 + 1000 * 0.8 + 1000 * 0.4.
    steps, periods = [100, 200, 1200, 2200], [(0, 0, 200), (1, 200, 2200)]
    assert metrics.regret_eval(steps, P, periods) == pytest.approx(1300 / 2200)


def test_regret_eval_of_one_task_and_of_a_task_that_comes_again():
    assert metrics.regret_eval([4], [[0.25]], [(0, 0, 4)]) == 0.75
    # Task 0, task 1, task 0 again: the switch at 4 gives task 0 its value 0.5 there.
    p = [[1.0, NAN], [0.5, 0.0], [1.0, 0.0]]
    periods = [(0, 0, 2), (1, 2, 4), (0, 4, 6)]
    assert metrics.regret_eval([2, 4, 6], p, periods) == pytest.approx((0 + 2 + 0.5) / 6)


def test_regret_eval_starts_with_what_was_measured():
    # The tables above, and both tasks evaluated before their first episode: 0.0 and 0.6.
    times = [0, *TIMES]
    p = [[0.0, NAN], P[0], [0.8, 0.6], *P[2:]]
    # Task 0: 1 to 0.6 missed, 0.6 to 0.2: 5 * 0.8 + 5 * 0.4. Task 1: 0.4 to 0.8, 0.8 to 0.
    assert metrics.regret_eval(times, p, PERIODS) == pytest.approx((4 + 2 + 3 + 2) / 20)
    steps, periods = [0, 100, 200, 1200, 2200], [(0, 0, 200), (1, 200, 2200)]
    expected = (100 * 0.8 + 100 * 0.4 + 1000 * 0.6 + 1000 * 0.4) / 2200
    assert metrics.regret_eval(steps, p, periods) == pytest.approx(expected)


def test_returns_have_means_and_forgetting_but_no_regret():
    returns = [[-300.0, NAN], [-100.0, NAN], [-150.0, 900.0], [-200.0, 950.0]]
    np.testing.assert_allclose(metrics.mean_of_seen(returns), [-300, -100, 375, 375])
    assert metrics.forgetting(TIMES, returns, PERIODS) == 50
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        metrics.regret_eval(TIMES, returns, PERIODS)


def test_regret_eval_of_the_oracle_and_of_the_hopeless():
    assert metrics.regret_eval(TIMES, np.ones((4, 2)), PERIODS) == 0
    assert metrics.regret_eval(TIMES, np.zeros((4, 2)), PERIODS) == 1


def test_regret_eval_without_evaluations_is_unknown():
    assert math.isnan(metrics.regret_eval([], np.zeros((0, 1)), [(0, 0, 4)]))
    assert math.isnan(metrics.regret_eval([2], [[1.0, NAN]], [(0, 0, 2), (1, 2, 4)]))
    assert math.isnan(metrics.regret_eval([], np.zeros((0, 1)), []))


def test_forgetting():
    # Task 0 had 0.8 after its period and has 0.5 at the end; the last task cannot forget.
    assert metrics.forgetting(TIMES, P, PERIODS) == pytest.approx((0.3 + 0.0) / 2)
    assert metrics.forgetting_by_task(TIMES, P, PERIODS) == pytest.approx({0: 0.3, 1: 0.0})


def test_forgetting_of_ties_gains_one_task_and_repeats():
    assert metrics.forgetting([1, 2], [[0.5, NAN], [0.5, 0.5]], [(0, 0, 1), (1, 1, 2)]) == 0
    assert metrics.forgetting([1, 2], [[0.2, NAN], [0.8, 0.0]], [(0, 0, 1), (1, 1, 2)]) == (
        pytest.approx(-0.3)
    )
    assert metrics.forgetting([4], [[0.7]], [(0, 0, 4)]) == 0
    # A task that comes again counts from the end of its last period: 0.9 - 0.6, and 0.
    p = [[1.0, NAN], [0.4, 0.3], [0.9, 0.3], [0.6, 0.5]]
    periods = [(0, 0, 1), (1, 1, 2), (0, 2, 3), (1, 3, 4)]
    assert metrics.forgetting([1, 2, 3, 4], p, periods) == pytest.approx(0.15)
    assert math.isnan(metrics.forgetting([2], [[0.5, 0.5]], [(0, 0, 1), (1, 1, 2)]))
    assert math.isnan(metrics.forgetting([], np.zeros((0, 1)), []))


def test_forward_transfer_looks_at_the_first_tenth():
    success = [True, False, True] + [True] * 27
    alone = [False, False, True]
    assert metrics.forward_transfer(success, alone, budget=30) == pytest.approx(1 / 3)
    assert metrics.forward_transfer(alone, success, budget=30) == pytest.approx(-1 / 3)
    assert metrics.forward_transfer(success, success, budget=30) == 0
    assert metrics.forward_transfer([True], [False], budget=4) == 1
    assert math.isnan(metrics.forward_transfer([True], [False], budget=100))
    assert [metrics.first_episodes(n) for n in (1, 10, 11, 30, 100)] == [1, 1, 2, 3, 10]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: metrics.average_performance([0.5]),
        lambda: metrics.average_performance([[1.5]]),
        lambda: metrics.regret_online([[True]]),
        lambda: metrics.regret_online([True], [0]),
        lambda: metrics.regret_online([True], [1, 2]),
        lambda: metrics.regret_eval([2, 1], [[0.5], [0.5]], [(0, 0, 2)]),
        lambda: metrics.forgetting([1, 2], [[0.5]], [(0, 0, 2)]),
    ],
)
def test_nonsense_is_refused(wrong):
    with pytest.raises(InvalidInputError):
        wrong()


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_regret_eval_stays_in_range(rates):
    times = np.arange(1, len(rates) + 1)
    value = metrics.regret_eval(times, np.array(rates)[:, None], [(0, 0, len(rates))])
    assert -1e-12 <= value <= 1 + 1e-12
