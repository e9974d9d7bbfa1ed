"""Inputs that scale themselves, rows of few inputs, and imagination within what was seen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn import OnlineWorldModel
from everlearn.online import relearning
from everlearn.support.errors import InvalidInputError

UNBOUNDED = spaces.Box(-np.inf, np.inf, (2,), np.float64)
ACTIONS = spaces.Box(-1.0, 1.0, (1,), np.float64)
SETTINGS: dict[str, Any] = {"features": 12, "bins": 5, "ridge": 1.0, "update": "exact"}
LINEAR: dict[str, Any] = {**SETTINGS, "refit": 1000, "linear": True, "linear_observations": True}


def walk(count: int, growth: float = 0.05) -> list[Any]:
    """Transitions whose first entry ranges ever further."""
    rng = np.random.default_rng(0)
    steps = []
    for n in range(count):
        obs = rng.normal(0.0, [1 + growth * n, 5.0])
        action = rng.uniform(-1, 1, 1)
        steps.append((obs, action, obs + np.array([0.1 * obs[1], action[0]])))
    return steps


def test_after_a_refit_the_model_is_one_that_always_had_the_scale() -> None:
    steps = walk(64, growth=1.0)
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    for step in steps:
        model.learn(*step)
    assert not model.warming_up
    scaling = model.inputs.scaling
    raw = np.array([obs for obs, _, _ in steps])
    # Two standard deviations of all 64 are where the gain is: the last doubling was just now.
    np.testing.assert_allclose(scaling.centre[:2], raw.mean(axis=0))
    np.testing.assert_allclose(scaling.multiplier[:2], 3.0 / (2 * raw.std(axis=0)))
    other = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    other.inputs.scaling.centre, other.inputs.scaling.multiplier = (
        scaling.centre,
        scaling.multiplier,
    )
    other.inputs.scaling.frozen = True
    other.learn_batch(*(np.array(part) for part in zip(*steps, strict=True)))
    np.testing.assert_allclose(model.weights, other.weights, atol=1e-6)


def test_it_learns_from_the_first_transition_on() -> None:
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    model.learn(*walk(1)[0])
    assert model.steps == 1
    assert np.abs(model.weights).max() > 0


def test_the_scale_stays_after_the_last_refit_and_nothing_is_kept() -> None:
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=32)
    steps = walk(100)
    for step in steps[:32]:
        model.learn(*step)
    multiplier = model.inputs.scaling.multiplier.copy()
    for step in steps[32:]:
        model.learn(*step)
    np.testing.assert_array_equal(model.inputs.scaling.multiplier, multiplier)
    assert not model.pending
    assert model.steps == 100


def test_it_goes_on_from_a_file_to_the_bit(tmp_path: Path) -> None:
    steps = walk(70)
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000, seen_range=0.5)
    for step in steps[:50]:
        model.learn(*step)
    model.save(tmp_path / "model")
    other = OnlineWorldModel.load(tmp_path / "model")
    for step in steps[50:]:
        model.learn(*step)
        other.learn(*step)
    np.testing.assert_array_equal(model.weights, other.weights)
    plan = np.ones((1, 50, 1))
    np.testing.assert_array_equal(
        model.rollout(np.zeros(2), plan), other.rollout(np.zeros(2), plan)
    )


def slowly(monkeypatch: pytest.MonkeyPatch, steps: int) -> OnlineWorldModel:
    """Return a model after `steps` of a walk, which takes in two old transitions a step."""
    monkeypatch.setattr(relearning, "WORK", 0)
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    for step in walk(steps, growth=1.0):
        model.learn(*step)
    return model


def test_a_new_scale_waits_until_all_is_learned_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    model = slowly(monkeypatch, 63)
    steps = walk(200, growth=1.0)
    assert model.relearning is None
    scale = model.inputs.scaling.multiplier.copy()
    waits = 0
    for step in steps[63:]:
        before = 0 if model.relearning is None else model.relearning.done
        model.learn(*step)
        if model.relearning is None:
            break
        waits += 1
        # Two a step and no more: the loop never stands still. The old scale serves until then.
        assert model.relearning.done - before == 2
        np.testing.assert_array_equal(model.inputs.scaling.multiplier, scale)
        assert model.steps == 63 + waits
    # The first of these steps leaves 62 to catch up with, and each one gains one on the loop.
    assert waits == 62
    assert (model.inputs.scaling.multiplier != scale).any()
    assert model.steps == 63 + waits + 1
    other = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    other.inputs.scaling.take(model.inputs.scaling.centre, model.inputs.scaling.multiplier)
    other.inputs.scaling.frozen = True
    learned = steps[: model.steps]
    other.learn_batch(*(np.array(part) for part in zip(*learned, strict=True)))
    np.testing.assert_allclose(model.weights, other.weights, atol=1e-6)


def test_how_much_a_step_learns_again_depends_on_the_cells_in_use() -> None:
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS)
    one = relearning.Relearning(model.fresh_learner(), np.zeros(3), np.ones(3))
    # A fresh learner uses none yet, and soon as many as the one that it replaces.
    assert one.quota(2000) == int(relearning.WORK / 2000**2) == 5
    assert one.quota(100_000) == relearning.LEAST
    one.learner.admit(np.arange(200))
    assert one.quota(10) == int(relearning.WORK / 200**2)


def test_it_goes_on_in_the_middle_of_that_to_the_bit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = slowly(monkeypatch, 80)
    assert model.relearning is not None
    model.save(tmp_path / "model")
    other = OnlineWorldModel.load(tmp_path / "model")
    for step in walk(127, growth=1.0)[80:]:
        model.learn(*step)
        other.learn(*step)
    assert model.relearning is None
    np.testing.assert_array_equal(model.weights, other.weights)
    np.testing.assert_array_equal(model.inputs.scaling.centre, other.inputs.scaling.centre)


@pytest.mark.parametrize(
    "change",
    [
        lambda arrays, facts: facts.update(relearned={**facts["relearned"], "done": 81}),
        lambda arrays, facts: facts.update(relearned={**facts["relearned"], "done": -1}),
        lambda arrays, facts: facts.update(relearned=[]),
        lambda arrays, facts: facts.update(relearned=None),
        lambda arrays, facts: arrays.update({"relearned/centre": np.zeros(2)}),
        lambda arrays, facts: arrays.update({"relearned/centre": np.full(3, np.nan)}),
        lambda arrays, facts: arrays.pop("relearned/weights"),
    ],
)
def test_what_cannot_have_been_learned_again_is_refused(
    monkeypatch: pytest.MonkeyPatch, change: Any
) -> None:
    model = slowly(monkeypatch, 80)
    before = model.weights.copy()
    arrays, facts = model.state()
    change(arrays, facts)
    with pytest.raises(InvalidInputError):
        model.restore(arrays, facts)
    np.testing.assert_array_equal(model.weights, before)


def test_a_batch_is_learned_with_the_scale_that_it_gives() -> None:
    steps = walk(64, growth=1.0)
    batch = [np.array(part) for part in zip(*steps, strict=True)]
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **SETTINGS, refit=1000)
    model.learn_batch(*batch)
    raw = batch[0]
    np.testing.assert_allclose(model.inputs.scaling.centre[:2], raw.mean(axis=0))
    assert model.steps == 64
    assert model.relearning is None


def test_imagination_stays_near_what_was_seen() -> None:
    steps = [(np.full(2, x), np.ones(1), np.full(2, x + 1.0)) for x in np.arange(10.0)]
    states = {}
    for room in (None, 0.5):
        model = OnlineWorldModel(UNBOUNDED, ACTIONS, **LINEAR, seen_range=room)
        for step in steps:
            model.learn(*step)
        states[room] = model.rollout(np.full(2, 9.0), np.ones((1, 40, 1)))[0, -1]
    assert (states[None] > 20).all()
    # Seen: 0 to 10, and half of that more.
    np.testing.assert_allclose(states[0.5], 15.0)


def test_rows_mix_as_many_inputs_as_they_are_told_to() -> None:
    space = spaces.Box(-1.0, 1.0, (6,), np.float64)
    model = OnlineWorldModel(space, ACTIONS, features=40, bins=4, row_inputs=3, unread=2)
    rows = model.encoding.projection[:, : model.encoding.inputs] != 0
    assert (rows.sum(axis=1) == 3).all()
    assert not rows[:, 4:6].any()  # what is not read
    assert rows[:, [0, 1, 2, 3, 6]].any(axis=0).all()
    few = OnlineWorldModel(UNBOUNDED, ACTIONS, features=4, bins=4, row_inputs=9)
    assert (few.encoding.projection != 0).sum(axis=1).max() == 3  # there are no more


@pytest.mark.parametrize(
    "options",
    [{"linear_observations": True}, {"row_inputs": 2, "local_grids": 0.5}, {"update": "never"}],
)
def test_settings_that_do_not_go_together_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        OnlineWorldModel(UNBOUNDED, ACTIONS, **options)


def test_what_moves_for_the_first_time_is_scaled_at_once() -> None:
    """A target that stays for an episode looks constant, and jumps with the next one."""
    rng = np.random.default_rng(0)
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, **LINEAR, linear_gain=7.0)
    for episode in range(6):
        target = rng.uniform(-1, 1)
        for _ in range(50):
            obs = np.array([target + 1e-4 * rng.normal(), rng.normal()])
            action = rng.uniform(-1, 1, 1)
            model.learn(obs, action, obs + np.array([0.0, 0.1 * action[0]]))
            scaled = (obs - model.inputs.scaling.centre[:2]) * model.inputs.scaling.multiplier[:2]
            assert np.abs(scaled).max() < 2 * 3 * 3.0 + 1e-9, episode
    assert np.isfinite(model.weights).all()
    predicted = model.predict(np.array([0.2, 0.0]), np.ones(1))
    np.testing.assert_allclose(predicted, [0.2, 0.1], atol=0.02)


def test_what_hardly_moved_at_first_does_not_ruin_what_is_learned(monkeypatch):
    # The first transitions differ by millionths: a scale fitted to them makes later ones enormous,
    # and while another is learned, float32 would be lost to them.
    monkeypatch.setattr("everlearn.online.relearning.WORK", 0)
    rng = np.random.default_rng(0)
    obs = rng.uniform(-1.0, 1.0, (200, UNBOUNDED.shape[0]))
    obs[:30] = -1.0 + 1e-6 * obs[:30]
    action = rng.uniform(-1.0, 1.0, (200, ACTIONS.shape[0]))
    after = obs + 0.1 * np.sin(obs)
    options = {"features": 100, "bins": 5, "row_inputs": 2, "ridge": 5.0, "update": "exact"}
    linear = {"linear": True, "linear_observations": True, "linear_gain": 7.0, "degree": 3}
    model = OnlineWorldModel(UNBOUNDED, ACTIONS, refit=80, **options, **linear)
    for count, one in enumerate(zip(obs, action, after, strict=True), 1):
        model.learn(*one)
        assert model.steps == count
    assert model.inputs.scaling.frozen
    # The same from a model that had the last scale from the start.
    other = OnlineWorldModel(UNBOUNDED, ACTIONS, refit=80, **options, **linear)
    other.inputs.scaling.take(model.inputs.scaling.centre, model.inputs.scaling.multiplier)
    other.inputs.scaling.frozen = True
    other.learn_batch(obs, action, after)
    largest = np.abs(other.weights).max()
    np.testing.assert_allclose(model.weights, other.weights, atol=1e-3 * largest)
