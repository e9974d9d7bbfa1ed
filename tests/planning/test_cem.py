from __future__ import annotations

import dataclasses
import json
import time
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.online.model import OnlineWorldModel
from everlearn.planning import PLANNERS, CEMConfig, CEMPlanner, Planner
from everlearn.support.errors import InvalidInputError
from tests.planning.models import LinearModel, point_mass, to_origin

START = np.array([0.7, -0.4, 0.0, 0.0])


def unit_box(size: int = 2) -> spaces.Box:
    return spaces.Box(-1.0, 1.0, (size,), np.float32)


def planner(seed: int = 0, space: spaces.Box | None = None, **settings: Any) -> CEMPlanner:
    return CEMPlanner(unit_box() if space is None else space, CEMConfig(**settings), seed)


# --- does it find what is best? ---


def lqr_optimum(
    model: LinearModel, Q: FloatArray, R: FloatArray, start: FloatArray, horizon: int
) -> float:
    """Least cost sum of x_t' Q x_t (t = 1..H) + u_t' R u_t, by the Riccati recursion."""
    A, B, P = model.A, model.B, np.zeros_like(Q)
    for _ in range(horizon):
        ahead = Q + P
        gain = np.linalg.solve(R + B.T @ ahead @ B, B.T @ ahead @ A)
        P = A.T @ ahead @ (A - B @ gain)
    return float(start @ P @ start)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("noise_beta", [0.0, 2.0])
def test_reaches_the_lqr_optimum(seed: int, noise_beta: float) -> None:
    model = point_mass(spaces.Box(-5.0, 5.0, (2,), np.float32))
    Q, R = np.diag([1.0, 2.0, 0.1, 0.2]), 0.05 * np.eye(2)

    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        states = np.einsum("ni,ij,nj->n", next_obs, Q, next_obs)
        return -states - np.einsum("ni,ij,nj->n", action, R, action)

    found = planner(
        seed,
        model.action_space,
        candidates=600,
        elites=40,
        iterations=60,
        deviation=0.3,
        noise_beta=noise_beta,
        momentum=0.3,
    ).plan(model, START, objective)
    optimum = lqr_optimum(model, Q, R, START, horizon=15)
    assert -found.value >= optimum * (1 - 1e-5)
    assert -found.value <= optimum * 1.02
    # The value is what the actions really cost, and not the planner's own arithmetic.
    state, cost = START, 0.0
    for action in found.actions.astype(np.float64):
        state = model.predict(state, action)
        cost += state @ Q @ state + action @ R @ action
    assert cost == pytest.approx(-found.value, rel=1e-5)


def test_point_mass_arrives() -> None:
    model, plans = point_mass(), planner(3)
    state = START
    for _ in range(80):
        state = model.predict(state, plans.plan(model, state, to_origin).action)
    assert np.linalg.norm(state[:2]) < 0.03
    assert np.linalg.norm(state[2:]) < 0.1


def test_more_iterations_find_more() -> None:
    values = [
        np.mean(
            [
                planner(seed, iterations=count).plan(point_mass(), START, to_origin).value
                for seed in range(10)
            ]
        )
        for count in (1, 3, 10)
    ]
    assert values == sorted(values)


# --- what it promises about its result ---


def test_the_plan_is_consistent() -> None:
    model = point_mass()
    found = planner(1).plan(model, START, to_origin)
    assert found.action.shape == (2,)
    assert found.actions.shape == (15, 2)
    assert found.elites.shape == (15, 15, 2)
    assert found.states.shape == (15, 16, 4)
    assert found.iterations_done == len(found.returns) == 3
    assert found.seconds > 0
    np.testing.assert_array_equal(found.action, found.actions[0])
    np.testing.assert_array_equal(found.actions, found.elites[0])
    assert found.value == found.elite_returns[0] == max(max(r) for r in found.returns)
    assert np.all(np.diff(found.elite_returns) <= 0)
    for actions, states, value in zip(found.elites, found.states, found.elite_returns, strict=True):
        again = model.rollout(START, actions[None])
        np.testing.assert_allclose(again[0], states, atol=1e-6)
        rewards = to_origin(again[0, :-1], actions, again[0, 1:])
        assert rewards.sum() == pytest.approx(value)


def test_model_and_objective_are_called_once_an_iteration_on_flat_arrays() -> None:
    model, shapes = point_mass(), []

    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        shapes.append((obs.shape, action.shape, next_obs.shape))
        return to_origin(obs, action, next_obs)

    planner().plan(model, START, objective)
    assert shapes == [((2250, 4), (2250, 2), (2250, 4))] * 3
    assert [r.shape for r in model.rollouts] == [(150, 15, 2)] * 3
    assert all(r.dtype == np.float32 for r in model.rollouts)


def test_memory_is_handed_to_the_model() -> None:
    class Remembering(LinearModel):
        def rollout(
            self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
        ) -> FloatArray:
            assert memory is state
            return super().rollout(obs, actions)

    state = np.array([1.0, 2.0])
    plain = point_mass()
    planner().plan(
        Remembering(plain.A, plain.B, plain.action_space), START, to_origin, memory=state
    )


def test_deterministic_per_seed_and_different_between_seeds() -> None:
    one, same, other = planner(7), planner(7), planner(8)
    for _ in range(3):
        first = one.plan(point_mass(), START, to_origin)
        np.testing.assert_array_equal(
            first.elites, same.plan(point_mass(), START, to_origin).elites
        )
        assert np.any(first.elites != other.plan(point_mass(), START, to_origin).elites)


def test_spawn_is_fresh_and_independent() -> None:
    parent = planner(7, horizon=5)
    parent.plan(point_mass(), START, to_origin)
    before = parent.state()
    child = parent.spawn(9)
    assert child.config == parent.config
    expected = planner(9, horizon=5).plan(point_mass(), START, to_origin)
    np.testing.assert_array_equal(
        child.plan(point_mass(), START, to_origin).elites, expected.elites
    )
    assert_same_state(parent.state(), before)


def test_discount_weighs_later_rewards_less() -> None:
    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        return np.ones(len(obs))

    found = planner(discount=0.5, horizon=3).plan(point_mass(), START, objective)
    assert found.value == pytest.approx(1.75)


def test_final_weight_counts_where_a_plan_ends() -> None:
    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        return np.ones(len(obs))

    found = planner(discount=0.5, horizon=3, final_weight=4.0).plan(point_mass(), START, objective)
    assert found.value == pytest.approx(1.0 + 0.5 + 0.25 * 5)


# --- bounds ---


@pytest.mark.parametrize(
    ("low", "high"),
    [([-1.0, -1.0], [1.0, 1.0]), ([-0.1, 2.0], [0.3, 50.0]), ([0.0, -3.0], [0.0, 0.1])],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_actions_stay_in_the_space(low: list[float], high: list[float], dtype: type) -> None:
    space = spaces.Box(np.array(low, dtype), np.array(high, dtype), dtype=dtype)
    model = point_mass(space)
    plans = planner(0, space, deviation=5.0)
    for _ in range(3):
        found = plans.plan(model, START, to_origin)
        assert np.all(found.action.astype(np.float64) >= space.low)
        assert np.all(found.action.astype(np.float64) <= space.high)
        for actions in model.rollouts:
            assert np.all(actions.astype(np.float64) >= space.low)
            assert np.all(actions.astype(np.float64) <= space.high)


def test_other_bounds_are_the_same_problem_scaled() -> None:
    """Bounds [2, 6] with the action's effect scaled back must give the same imagination."""
    plain = point_mass()
    wide = spaces.Box(2.0, 6.0, (2,), np.float32)

    class Scaled(LinearModel):
        def predict(self, obs: FloatArray, action: FloatArray) -> FloatArray:
            return super().predict(obs, (action - 4.0) / 2.0)

    one = planner(5).plan(plain, START, to_origin)
    two = planner(5, wide).plan(Scaled(plain.A, plain.B, wide), START, to_origin)
    np.testing.assert_allclose((two.actions - 4.0) / 2.0, one.actions, atol=1e-5)
    assert two.value == pytest.approx(one.value, rel=1e-5)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Box(-np.inf, np.inf, (2,)),
        spaces.Box(-1, 1, (2, 2)),
        spaces.Box(-1, 1, (0,)),
        spaces.Discrete(3),
    ],
)
def test_spaces_it_cannot_plan_in(space: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"bounds|Box"):
        CEMPlanner(space)


# --- memory of plans: a case made by hand ---


def test_mean_and_elites_are_shifted_between_decisions() -> None:
    model = point_mass()
    plans = planner(2, horizon=4, candidates=20, elites=10, kept_elites=0.3, momentum=0.0)
    first = plans.plan(model, START, to_origin)
    mean = plans.state()[0]["mean"]
    np.testing.assert_allclose(mean[:-1], first.elites.mean(axis=0)[1:], rtol=1e-6)
    np.testing.assert_array_equal(mean[-1], 0.0)
    model.rollouts.clear()
    plans.plan(model, START, to_origin)
    np.testing.assert_array_equal(model.rollouts[0][:3, :-1], first.elites[:3, 1:])
    # The last action of a shifted elite is new, and the later iterations roll out none.
    assert np.all(model.rollouts[0][:3, -1] != first.elites[:3, -1])
    for actions in model.rollouts[1:]:
        assert np.all(actions[:3, :-1] != first.elites[:3, 1:])


def test_momentum_mixes_old_and_new() -> None:
    settings: dict[str, Any] = {"iterations": 1, "kept_elites": 0.0, "deviation": 0.5}
    plain, slow = planner(4, momentum=0.0, **settings), planner(4, momentum=0.25, **settings)
    plain.plan(point_mass(), START, to_origin)
    slow.plan(point_mass(), START, to_origin)
    fit, mixed = plain.state()[0]["mean"], slow.state()[0]["mean"]
    np.testing.assert_allclose(mixed, 0.75 * fit, atol=1e-6)  # the old mean is 0


def test_deviation_is_fitted_within_and_renewed_between_decisions() -> None:
    model = point_mass()
    plans = planner(4, deviation=0.1, kept_elites=0.0, candidates=2000, elites=20, iterations=2)
    for _ in range(2):
        model.rollouts.clear()
        plans.plan(model, START / 10, to_origin)
        first, second = (actions[:, 0, 0].std() for actions in model.rollouts)
        assert first == pytest.approx(0.1, rel=0.1)
        assert second < 0.8 * first


def test_kept_elites_never_lose_the_best() -> None:
    plans = planner(6, iterations=6)
    found = plans.plan(point_mass(), START, to_origin)
    assert found.elite_returns[0] == max(max(r) for r in found.returns)
    forgetful = planner(6, iterations=6, kept_elites=0.0).plan(point_mass(), START, to_origin)
    assert forgetful.value == max(max(r) for r in forgetful.returns)


def test_among_equals_the_plan_at_hand_is_kept() -> None:
    def indifferent(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        return np.zeros(len(obs))

    plans = planner(6)
    first = plans.plan(point_mass(), START, indifferent)
    second = plans.plan(point_mass(), START, indifferent)
    np.testing.assert_array_equal(second.actions[:-1], first.actions[1:])


def test_reset_forgets_plans_but_not_the_generator() -> None:
    plans = planner(2)
    start = plans.state()
    plans.plan(point_mass(), START, to_origin)
    plans.reset()
    arrays, meta = plans.state()
    for name, array in start[0].items():
        np.testing.assert_array_equal(arrays[name], array)
    assert meta["generator"] != start[1]["generator"]


# --- deadline ---


class Slow(LinearModel):
    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        time.sleep(0.02)
        return super().rollout(obs, actions)


@pytest.mark.parametrize(("deadline_ms", "done"), [(0.0, 1), (30.0, 1), (1e6, 4), (None, 4)])
def test_deadline(deadline_ms: float | None, done: int) -> None:
    plain = point_mass()
    slow = Slow(plain.A, plain.B, plain.action_space)
    plans = planner(1, iterations=4)
    found = plans.plan(slow, START, to_origin, deadline_ms=deadline_ms)
    assert found.iterations_done == len(found.returns) == done
    expected = planner(1, iterations=done).plan(plain, START, to_origin)
    np.testing.assert_array_equal(found.actions, expected.actions)


# --- refusals change nothing ---


def assert_same_state(
    one: tuple[dict[str, Any], dict[str, Any]], two: tuple[dict[str, Any], dict[str, Any]]
) -> None:
    assert one[1] == two[1]
    assert one[0].keys() == two[0].keys()
    for name in one[0]:
        np.testing.assert_array_equal(one[0][name], two[0][name])


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        (lambda o, a, n: np.zeros((len(o), 1)), r"\(2250, 1\).*\(2250,\)"),
        (lambda o, a, n: np.zeros(len(o) - 1), r"\(2249,\).*\(2250,\)"),
        (lambda o, a, n: 1.0, r"\(\).*\(2250,\)"),
        (lambda o, a, n: np.zeros(len(o), complex), "complex"),
        (lambda o, a, n: np.full(len(o), np.nan), "no finite return"),
        (lambda o, a, n: np.full(len(o), np.inf), "no finite return"),
    ],
)
def test_bad_objectives(objective: Any, message: str) -> None:
    plans = planner(1)
    plans.plan(point_mass(), START, to_origin)
    before = plans.state()
    with pytest.raises(InvalidInputError, match=message):
        plans.plan(point_mass(), START, objective)
    assert_same_state(plans.state(), before)


def test_an_objective_that_raises_leaves_the_planner_as_it_was() -> None:
    def broken(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        raise ZeroDivisionError("mine")

    plans = planner(1)
    before = plans.state()
    with pytest.raises(ZeroDivisionError, match="mine"):
        plans.plan(point_mass(), START, broken)
    assert_same_state(plans.state(), before)


@pytest.mark.parametrize("worst", [np.nan, -np.inf, np.inf])
def test_candidates_of_non_finite_return_are_never_chosen(worst: float) -> None:
    def objective(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        rewards = to_origin(obs, action, next_obs)
        rewards[action[:, 0] > 0.0] = worst
        return rewards

    found = planner(2, noise_beta=4.0).plan(point_mass(), START, objective)
    assert np.all(found.elites[:, :, 0] <= 0.0)
    assert np.all(np.isfinite(found.elite_returns))
    assert np.isneginf(found.returns[0]).any()


def test_a_failed_decision_changes_nothing() -> None:
    plans = planner(1)
    before = plans.state()
    with pytest.raises(InvalidInputError, match="observation"):
        plans.plan(point_mass(), np.array([0.0, np.nan, 0.0, 0.0]), to_origin)
    assert_same_state(plans.state(), before)


@pytest.mark.parametrize("obs", [np.array([0.0, np.nan, 0.0]), np.zeros((1, 3)), np.zeros(4), "x"])
def test_the_model_refuses_bad_observations(obs: Any) -> None:
    space = spaces.Box(-1.0, 1.0, (3,))
    model = OnlineWorldModel(space, spaces.Box(-1.0, 1.0, (2,)), features=8, threads=1)
    plans = planner(1)
    before = plans.state()
    with pytest.raises(InvalidInputError, match="obs must"):
        plans.plan(model, obs, lambda obs, action, next_obs: obs[:, 0])
    assert_same_state(plans.state(), before)


@pytest.mark.parametrize("deadline_ms", [-1.0, float("nan")])
def test_bad_deadline(deadline_ms: float) -> None:
    with pytest.raises(InvalidInputError, match="deadline_ms"):
        planner().plan(point_mass(), START, to_origin, deadline_ms=deadline_ms)


def test_a_model_of_the_wrong_shape_is_named() -> None:
    class Short(LinearModel):
        def rollout(
            self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
        ) -> FloatArray:
            return super().rollout(obs, actions)[:, 1:]

    plain = point_mass()
    with pytest.raises(InvalidInputError, match="rollout"):
        planner().plan(Short(plain.A, plain.B, plain.action_space), START, to_origin)


@pytest.mark.parametrize(
    "settings",
    [
        {"candidates": 0},
        {"horizon": 1.5},
        {"iterations": True},
        {"elites": 151},
        *({"noise_beta": beta} for beta in (-0.1, float("nan"), float("inf"), "pink", True, None)),
        {"deviation": -0.1},
        {"kept_elites": 1.1},
        {"momentum": -0.1},
        {"discount": 1.01},
        {"final_weight": -1.0},
    ],
)
def test_bad_settings(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings)).removeprefix("noise_")):
        CEMConfig(**settings)


# --- state ---


def test_state_and_restore_continue_to_the_bit() -> None:
    one = planner(11)
    for _ in range(3):
        one.plan(point_mass(), START, to_origin)
    arrays, meta = one.state()
    other = planner(99)
    other.restore(
        {name: array.copy() for name, array in arrays.items()}, json.loads(json.dumps(meta))
    )
    for _ in range(3):
        first = one.plan(point_mass(), START, to_origin)
        second = other.plan(point_mass(), START, to_origin)
        np.testing.assert_array_equal(first.elites, second.elites)
        assert first.value == second.value


def test_restore_refuses_what_does_not_fit() -> None:
    arrays, meta = planner(1).state()
    plans = planner(2)
    before = plans.state()
    elites = np.zeros((5, 14, 2), np.float32)
    for wrong_arrays, wrong_meta in (
        (arrays, planner(1, horizon=7).state()[1]),
        (arrays, {**meta, "generator": {"bit_generator": "Dice"}}),
        (arrays, {"config": meta["config"]}),
        ({"mean": arrays["mean"]}, meta),
        ({**arrays, "mean": arrays["mean"][1:]}, meta),
        ({**arrays, "mean": arrays["mean"].astype(np.float64)}, meta),
        ({**arrays, "elites": elites}, meta),
    ):
        with pytest.raises(InvalidInputError):
            plans.restore(wrong_arrays, wrong_meta)
        assert_same_state(plans.state(), before)


def test_registry() -> None:
    plans = PLANNERS.get("cem")(horizon=3).build(unit_box(), 5)
    assert isinstance(plans, Planner)
    assert plans.plan(point_mass(), START, to_origin).actions.shape == (3, 2)


def test_config_defaults_are_those_of_the_paper() -> None:
    values = dataclasses.asdict(CEMConfig())
    assert (values["candidates"], values["horizon"], values["iterations"]) == (150, 15, 3)
    assert values["elites"] / values["candidates"] == 0.1
