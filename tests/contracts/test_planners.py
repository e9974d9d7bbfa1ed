"""What every registered planner must keep: its bounds, its seed, its state, and its word."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from everlearn.interfaces import Planner
from everlearn.planning import PLANNERS
from everlearn.support.settings import options_of
from tests.planning.models import point_mass, to_origin

MODEL = point_mass()
START = np.array([0.5, -0.5, 0.0, 0.0])


@pytest.fixture(params=PLANNERS.names())
def config(request: pytest.FixtureRequest) -> Any:
    return PLANNERS.get(request.param)()


def made(config: Any, seed: int = 0) -> Planner:
    planner = config.build(MODEL.action_space, seed)
    assert isinstance(planner, Planner)
    return planner


def actions(planner: Planner, count: int = 3) -> np.ndarray:
    """Act on a few plans in the world that the model knows."""
    obs, chosen = START, []
    for _ in range(count):
        chosen.append(planner.plan(MODEL, obs, to_origin).action)
        obs = MODEL.predict(obs[None], chosen[-1][None])[0]
    return np.array(chosen)


def test_settings_say_what_they_are(config: Any) -> None:
    for path, option in options_of(config).items():
        assert option.summary, path


def test_a_plan_is_what_it_says(config: Any) -> None:
    plan = made(config).plan(MODEL, START, to_origin)
    assert MODEL.action_space.contains(plan.action)
    np.testing.assert_array_equal(plan.action, plan.actions[0])
    states = MODEL.rollout(START, plan.elites)
    np.testing.assert_allclose(plan.states, states, atol=1e-6)
    assert np.all(np.diff(plan.elite_returns) <= 0), "best first"
    still = MODEL.rollout(START, np.zeros((1, *plan.actions.shape)))[0, 1:]
    planned = MODEL.rollout(START, plan.actions[None])[0, 1:]
    assert to_origin(still, still, planned).sum() > to_origin(still, still, still).sum()


def test_equal_seeds_give_equal_plans(config: Any) -> None:
    first, again, other = (actions(made(config, seed)) for seed in (3, 3, 4))
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_a_restored_planner_goes_on_to_the_bit(config: Any) -> None:
    planner, other = made(config, 1), made(config, 2)
    actions(planner)
    arrays, meta = planner.state()
    other.restore(arrays, meta)
    np.testing.assert_array_equal(actions(planner), actions(other))


def test_another_one_of_it_shares_nothing(config: Any) -> None:
    planner, alone = made(config, 1), made(config, 1)
    np.testing.assert_array_equal(actions(planner), actions(alone))
    copies = [planner.spawn(7), planner.spawn(7)]
    np.testing.assert_array_equal(actions(copies[0]), actions(copies[1]))
    np.testing.assert_array_equal(actions(planner), actions(alone))
