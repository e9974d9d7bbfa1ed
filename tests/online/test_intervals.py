"""Intervals of the online model: against batch solutions, and streams whose quantiles are known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.online import OnlineWorldModel
from everlearn.online.intervals import BLOCK, Interval, unknown
from everlearn.online.kernels.intervals import BINS, count_scores
from everlearn.support.errors import InvalidInputError, NotReadyError
from tests.online import worlds
from tests.online.worlds import ACTIONS, OBSERVATIONS, Array, memories, states_equal, walk

NORMAL = {0.5: 0.6745, 0.8: 1.2816, 0.9: 1.6449, 0.95: 1.96}
"""Half the width of an interval of a normal distribution, in standard deviations."""


def small_model(**options: Any) -> OnlineWorldModel:
    return worlds.small_model(**({"intervals": True} | options))


def taught(transitions: list[tuple[Array, ...]], **options: Any) -> OnlineWorldModel:
    model = small_model(**options)
    for obs, action, after, memory in transitions:
        model.learn(obs, action, after, memory)
    return model


def noisy(steps: int, seed: int) -> list[tuple[Array, ...]]:
    """Unconnected transitions of which nothing can be predicted; noisier where obs[0] > 0.

    The last number rests.
    """
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(steps):
        obs, action = rng.uniform(-0.8, 0.8, 3), rng.uniform(-1, 1, 2)
        noise = deviation(obs[0]) * rng.normal(size=3) * (1, 1, 0)
        out.append((obs, action, obs + noise, np.zeros(0)))
    return out


def deviation(place: float) -> float:
    return 0.04 if place > 0 else 0.01


def stacked(transitions: list[tuple[Array, ...]]) -> list[Array]:
    return [np.array(part) for part in zip(*transitions, strict=True)]


def dense(model: OnlineWorldModel, obs: Array, action: Array) -> Array:
    cells, values = model.encode(obs, action)
    phi = np.zeros(model.encoding.cells)
    phi[cells] += values.astype(np.float64)
    return phi


@pytest.mark.parametrize("update", ["active", "exact"])
def test_what_is_unknown_is_the_variance_of_a_batch_solution(update: str) -> None:
    model = small_model(update=update, precision="float64")
    transitions = walk(40)
    new, _, _, _ = transitions[-1]
    action = np.array([0.3, -0.2])
    gram = model.config.ridge * np.eye(model.encoding.cells)
    for number in range(31):
        # The diagonal is enough for the same input again and again; the inverse for all others.
        obs, taken, after, _ = transitions[number if update == "exact" else 0]
        phi = dense(model, obs, taken)
        expected = phi @ np.linalg.solve(gram, phi)
        cells, values = model.encode(obs, taken)
        assert unknown(model, cells, values) == pytest.approx(min(expected, 15.0), rel=1e-6)
        model.learn(obs, taken, after)
        if update == "exact":
            assert model.learner.unknown_before == pytest.approx(expected, rel=1e-6)
        gram += np.outer(phi, phi)
    if update == "exact":
        phi = dense(model, new, action)
        assert unknown(model, *model.encode(new, action)) == pytest.approx(
            phi @ np.linalg.solve(gram, phi), rel=1e-6
        )


def test_bounds_are_the_quantiles_of_the_noise_where_it_is() -> None:
    model = taught(noisy(6000, 0), features=15, ridge=20.0)
    obs, action, after, _ = stacked(noisy(4000, 1))
    true = np.array([deviation(place) for place in obs[:, 0]])
    sides = {"quiet": obs[:, 0] < -0.2, "loud": obs[:, 0] > 0.2}
    for share, half in NORMAL.items():
        found = model.predict(obs, action, interval=share)
        covered = found.covers(after)
        width = (found.high - found.low)[:, :2] / 2
        for side, rows in sides.items():
            # Some cells see both sides; without places it would be 0.9 and 0.3 in place of 0.5.
            assert covered[rows, :2].mean() == pytest.approx(share, abs=0.08), (side, share)
            ratio = width[rows].mean(axis=1) / (half * true[rows])
            assert np.median(ratio) == pytest.approx(1, abs=0.25), (side, share)
        assert (found.high[:, 2] == found.low[:, 2]).all(), "what rests needs no room"
        assert covered[:, 2].all()


def test_bounds_hold_15_steps_ahead_and_grow_on_the_way() -> None:
    model = taught(walk(8000), features=15, solve_every=500)
    obs, action, _, _ = stacked(walk(3000, seed=5))
    starts, size = np.arange(0, len(obs) - 16), 15
    plans = np.stack([action[start : start + size] for start in starts])
    for share in (0.5, 0.9):
        found = model.rollout(obs[starts], plans, interval=share)
        for horizon in (1, 4, 6, 15):  # six is between two that are counted
            ahead = Interval(*(part[:, horizon] for part in found))
            covered = ahead.covers(obs[starts + horizon]).mean()
            assert covered == pytest.approx(share, abs=0.08), (horizon, share)
        width = (found.high - found.low).mean(axis=(0, 2))
        assert width[0] == 0
        assert width[15] > width[4] > width[1] > 0


def test_errors_of_transitions_that_were_learned_do_not_count() -> None:
    """One transition, over and over: once learned it is predicted well, which is no evidence."""
    model = small_model(ridge=1e-3)
    rng = np.random.default_rng(0)
    obs, action = np.zeros(3), np.zeros(2)
    for _ in range(4 + 8 + 16 + 32 + 64 + 20 * BLOCK):
        model.learn(obs, action, obs + 0.1 * rng.normal(size=3))
    found = model.predict(obs, action, interval=0.9)
    assert (found.high - found.low) / 2 == pytest.approx(0.1 * NORMAL[0.9], rel=0.15)


def test_without_interval_everything_is_as_it_was() -> None:
    transitions = walk(300)
    with_errors, without = taught(transitions), taught(transitions, intervals=False)
    obs, action, _, _ = stacked(transitions[:20])
    plain = without.predict(obs, action)
    assert isinstance(plain, np.ndarray)
    assert with_errors.weights.tobytes() == without.weights.tobytes()
    assert with_errors.predict(obs, action).tobytes() == plain.tobytes()
    found = with_errors.predict(obs, action, interval=0.8)
    assert found.mean.tobytes() == plain.tobytes()
    assert (found.low <= found.mean).all()
    assert (found.mean <= found.high).all()
    single = with_errors.predict(obs[3], action[3], interval=0.8)
    for one, many in zip(single, found, strict=True):
        assert one.shape == (3,)
        assert one == pytest.approx(many[3], abs=1e-6)
    plans = np.tile(action[:, None], (1, 5, 1))
    assert with_errors.rollout(obs, plans, interval=0.8).mean.tobytes() == (
        without.rollout(obs, plans).tobytes()
    )


@pytest.mark.parametrize("memory", memories(), ids=lambda memory: memory.name)
def test_every_memory_goes_with_intervals(memory: Any) -> None:
    model = small_model(memory=memory, warm_up=20)
    for transition in walk(400, memory=memory):
        model.learn(*transition)
    obs, action, _, states = stacked(walk(30, seed=1, memory=memory))
    plans = np.tile(action[:, None], (1, 6, 1))
    found = model.rollout(obs, plans, states, interval=0.9)
    assert found.low.shape == (30, 7, 3)
    assert (found.low[:, 1:] < found.high[:, 1:]).any(axis=(0, 1)).all()


def test_a_place_where_nothing_was_seen_is_unknown() -> None:
    rng = np.random.default_rng(0)
    model = small_model(features=40, ridge=0.5)
    for _ in range(800):
        obs = np.append(rng.uniform(-0.8, -0.2), rng.uniform(-0.5, 0.5, 2))
        model.learn(obs, np.zeros(2), obs + rng.normal(0, 0.02, 3))
    near = unknown(model, *model.encode(np.array([-0.5, 0, 0]), np.zeros(2)))
    far = unknown(model, *model.encode(np.array([0.9, 0.9, 0.9]), np.ones(2)))
    assert far > 3 * near


def test_recent_errors_weigh_more() -> None:
    rng = np.random.default_rng(0)
    model = small_model(features=15, ridge=50.0)
    for noise in (0.1, 0.01):
        for _ in range(6000):
            obs = rng.uniform(-0.5, 0.5, 3)
            model.learn(obs, np.zeros(2), obs + rng.normal(0, noise, 3))
    found = model.predict(np.zeros(3), np.zeros(2), interval=0.9)
    half = (found.high - found.low) / 2
    assert (half < 2 * 0.01 * NORMAL[0.9]).all(), "ten times as much before"
    assert (half > 0.5 * 0.01 * NORMAL[0.9]).all()


def test_where_no_path_is_long_enough_bounds_still_grow() -> None:
    model = taught(noisy(600, 0), clip=False)  # no transition goes on from another
    found = model.rollout(np.zeros(3), np.zeros((1, 15, 2)), interval=0.9)
    width = (found.high - found.low)[0, :, :2]
    assert (width[1] > 0).all()
    assert (width[15] > 2 * width[1]).all()


def test_scores_that_are_no_numbers_count_as_largest() -> None:
    counts = np.zeros((2, 1, BINS), np.float32)
    odd = np.array([[np.nan], [np.inf], [1.0], [1.0], [1e300], [0.0]])
    scales = np.array([[1.0], [1.0], [0.0], [np.nan], [1e-300], [0.0]])
    for number, (error, scale) in enumerate(zip(odd, scales, strict=True)):
        count_scores(counts, np.array([0]), 400.0, error[None], scale[None])
        assert counts[0, 0].argmax() == (0 if number == 5 else BINS - 1)
        assert np.isfinite(counts).all()
        counts[0] = 0
    assert not counts[1].any(), "nothing is written elsewhere"


# Keeping -----------------------------------------------------------------------------------


@pytest.mark.parametrize("update", ["active", "exact"])
@pytest.mark.parametrize("steps", [3, 60, 300])
def test_intervals_are_restored_to_the_bit(update: str, steps: int, tmp_path: Path) -> None:
    transitions = walk(steps + 200)
    model = taught(transitions[:steps], update=update)
    model.save(tmp_path / "model")
    other = OnlineWorldModel.load(tmp_path / "model")
    assert states_equal(model.state(), other.state())
    for transition in transitions[steps:]:
        model.learn(*transition[:3])
        other.learn(*transition[:3])
    assert states_equal(model.state(), other.state())
    obs, action, _, _ = stacked(transitions)
    first, second = (one.predict(obs, action, interval=0.7) for one in (model, other))
    for one, two in zip(first, second, strict=True):
        assert one.tobytes() == two.tobytes()


def test_files_from_before_there_were_intervals_load() -> None:
    transitions = walk(300)
    model = taught(transitions[:200])
    arrays, meta = model.state()
    arrays = {name: part for name, part in arrays.items() if not name.startswith("intervals/")}
    del meta["intervals"], meta["config"]["intervals"]
    assert worlds.small_model().config.intervals is False, "what such a file stands for"
    old = small_model()
    old.restore(arrays, meta)
    obs, action, _, _ = stacked(transitions)
    assert old.predict(obs, action).tobytes() == model.predict(obs, action).tobytes()
    with pytest.raises(NotReadyError, match="intervals need errors"):
        old.predict(obs, action, interval=0.9)
    for transition in transitions[200:]:
        old.learn(*transition[:3])
    assert (old.predict(obs, action, interval=0.9).high > old.predict(obs, action)).any()


def test_the_setting_may_differ_from_that_of_the_file() -> None:
    model = taught(walk(200))
    without = small_model(intervals=False)
    without.restore(*model.state())
    assert without.weights.tobytes() == model.weights.tobytes()
    model.restore(*without.state())
    assert not model.gives_intervals


@pytest.mark.parametrize("update", ["active", "exact"])
def test_an_exported_model_still_gives_intervals(update: str) -> None:
    transitions = walk(600)
    model = taught(transitions, update=update)
    exported = small_model(update=update)
    exported.freeze()
    exported.restore(*model.exported_state())
    obs, action, _, _ = stacked(transitions[-100:])
    one, two = (each.predict(obs, action, interval=0.9) for each in (model, exported))
    assert one.mean.tobytes() == two.mean.tobytes()
    # Without the inverse, the diagonal of the statistics says what is unknown.
    close = 0.3 if update == "exact" else 0.01
    assert two.high - two.low == pytest.approx(one.high - one.low, rel=close)
    names = [name for name in exported.exported_state()[0] if name.startswith("intervals/")]
    assert "intervals/counts" in names
    assert "intervals/weights" not in names, "only learning needs them"


def test_damaged_intervals_are_refused_and_change_nothing() -> None:
    model, other = taught(walk(300)), taught(walk(50, seed=3))
    before = other.state()
    arrays, meta = model.state()
    counts, squares = arrays["intervals/counts"], arrays["intervals/squares"]
    damaged: list[tuple[dict[str, Any], dict[str, Any]]] = [
        ({"intervals/counts": counts[:-1]}, {}),
        ({"intervals/counts": -counts - 1}, {}),
        ({"intervals/squares": np.full_like(squares, np.nan)}, {}),
        ({"intervals/places": arrays["intervals/places"] + 10**8}, {}),
        ({"intervals/places": arrays["intervals/places"][::-1].copy()}, {}),
        ({"intervals/rows": arrays["intervals/rows"] + 10**6}, {}),
        ({"intervals/odd": counts}, {}),
        ({}, {"scored": -1}),
        ({}, {"block": 10**9}),
        ({}, {"reach": "far"}),
    ]
    for odd_arrays, odd_facts in damaged:
        odd = {**meta, "intervals": {**meta["intervals"], **odd_facts}}
        with pytest.raises(InvalidInputError):
            other.restore({**arrays, **odd_arrays}, odd)
        assert states_equal(other.state(), before)


# With what else a model can do ---------------------------------------------------------------


@pytest.mark.parametrize("options", [{"worlds": 2}, {"worlds": 2, "update": "exact"}])
def test_a_model_that_forgets_gives_intervals(options: dict[str, Any]) -> None:
    transitions = walk(4000)
    model = taught(transitions, **options)
    obs, action, after, _ = stacked(walk(300, seed=4))
    assert model.predict(obs, action, interval=0.9).covers(after).mean() > 0.8


@pytest.mark.parametrize("options", [{"refit": 512}, {"warm_up": 40}])
def test_scales_that_are_fitted_go_with_intervals(options: dict[str, Any]) -> None:
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    model = OnlineWorldModel(
        space, ACTIONS, features=9, bins=5, threads=1, intervals=True, **options
    )
    for number, (obs, action, after, _) in enumerate(walk(4000)):
        scale = 1 if number < 100 else 20  # so that the scale must be fitted again
        model.learn(scale * obs, action, scale * after)
    obs, action, after, _ = stacked(walk(300, seed=4))
    covered = model.predict(20 * obs, action, interval=0.9).covers(20 * after).mean()
    assert covered == pytest.approx(0.9, abs=0.07)


def test_what_is_not_read_has_bounds_and_novelty_has_none() -> None:
    space = spaces.Box(-1, 1, (5,), np.float64)
    model = OnlineWorldModel(
        space,
        ACTIONS,
        features=9,
        bins=5,
        threads=1,
        unread=2,
        novelty=True,
        ridge=0.05,
        intervals=True,
    )
    rng = np.random.default_rng(0)
    for obs, action, after, _ in walk(3000):
        reward = action[0] + rng.normal(0, 0.1)
        model.learn(np.append(obs, [0, 0]), action, np.append(after, [reward, 0]))
    obs, action, _, _ = walk(1, seed=4)[0]
    plans = np.tile(action, (1, 10, 1))
    found = model.rollout(np.append(obs, [0, 0]), plans, interval=0.9)
    width = (found.high - found.low)[0, :, 3:]
    assert width[1, 0] / 2 == pytest.approx(0.1 * NORMAL[0.9], rel=0.5)
    assert width[10, 0] > 1.5 * width[1, 0], "rewards are summed up"
    assert (width[:, 1] == 0).all()


def test_batches_are_learned_without_counting() -> None:
    obs, action, after, _ = stacked(walk(400))
    model = small_model()
    model.learn_batch(obs, action, after)
    with pytest.raises(NotReadyError, match="one by one"):
        model.predict(obs, action, interval=0.9)


# What is refused ---------------------------------------------------------------------------


def test_intervals_before_anything_was_learned_are_refused() -> None:
    model = small_model()
    obs, action = np.zeros(3), np.zeros(2)
    with pytest.raises(NotReadyError, match="has learned 0 transitions"):
        model.predict(obs, action, interval=0.9)
    with pytest.raises(NotReadyError, match="has learned 0 transitions"):
        model.rollout(obs, np.zeros((1, 15, 2)), interval=0.9)
    with pytest.raises(NotReadyError, match="intervals=True"):
        small_model(intervals=False).predict(obs, action, interval=0.9)


@pytest.mark.parametrize("interval", [0, 1, 1.5, -0.1, float("nan"), True, "0.9", 90])
def test_a_share_that_is_none_is_refused(interval: Any) -> None:
    model = taught(walk(20))
    with pytest.raises(InvalidInputError, match="above 0 and below 1"):
        model.predict(np.zeros(3), np.zeros(2), interval=interval)
    with pytest.raises(InvalidInputError, match="above 0 and below 1"):
        model.rollout(np.zeros(3), np.zeros((1, 2, 2)), interval=interval)


def test_bounds_stay_inside_the_space_if_predictions_do() -> None:
    transitions = noisy(600, 0)
    inside, free = taught(transitions), taught(transitions, clip=False)
    edge, action = np.array([0.99, -0.99, 0.0]), np.zeros(2)
    found = inside.predict(edge, action, interval=0.95)
    assert found.high[0] <= OBSERVATIONS.high[0]
    assert found.low[1] >= OBSERVATIONS.low[1]
    assert free.predict(edge, action, interval=0.95).high[0] > OBSERVATIONS.high[0]
