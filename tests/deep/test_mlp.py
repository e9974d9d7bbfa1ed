"""The deep world model: when it trains, when it stops, what it predicts, how it goes on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from everlearn.deep.mlp import network
from everlearn.deep.mlp.model import MLPWorldModel
from everlearn.deep.mlp.network import train_until_converged
from everlearn.deep.mlp.normaliser import RunningMoments
from everlearn.deep.strategies import (
    STRATEGIES,
    Coreset,
    FineTuning,
    PackNet,
    PerfectMemory,
    Strategy,
)
from everlearn.support.errors import EverlearnError, InvalidInputError
from tests.online.worlds import ACTIONS, OBSERVATIONS, memories, states_equal, walk


def small(strategy: Strategy | None = None, **options: Any) -> MLPWorldModel:
    settings: dict[str, Any] = {"hidden": 12, "layers": 2, "train_every": 50, "threads": 1}
    return MLPWorldModel(
        OBSERVATIONS, ACTIONS, strategy=strategy or PerfectMemory(), **(settings | options)
    )


def feed(model: MLPWorldModel, transitions: list) -> None:
    for transition in transitions:
        model.learn(*transition)


# When a training ends


@pytest.mark.parametrize(
    ("losses", "epochs", "best"),
    [
        # Before the first epoch, then after each; five in a row without improvement end it.
        ([9, 8, 7, 7, 7, 7, 7, 7, 1], 7, 7),
        ([9, 9, 9, 9, 9, 9, 1], 5, 9),
        ([9, 10, 10, 10, 10, 8, 9, 9, 9, 9, 7, 7, 8, 9, 10, 11, 1], 15, 7),
        ([np.nan, 5, 6, np.nan, 6, 6, 6, 1], 6, 5),
    ],
)
def test_training_stops_when_the_holdout_stops_improving(
    losses: list[float], epochs: int, best: float
) -> None:
    done, improved = [0], []

    def train_epoch() -> None:
        done[0] += 1

    found = train_until_converged(
        train_epoch,
        lambda: losses[done[0]],
        patience=5,
        on_improved=lambda: improved.append(done[0]),
    )
    assert found == (epochs, best)
    assert done[0] == epochs
    assert losses[improved[-1]] == best


def test_a_threshold_asks_for_more() -> None:
    done = [0]

    def train_epoch() -> None:
        done[0] += 1

    falling = [100 * 0.995 ** min(epoch, 20) for epoch in range(100)]
    epochs, _ = train_until_converged(
        train_epoch, lambda: falling[done[0]], patience=5, threshold=0.03
    )
    assert epochs == 5  # 2.5 % better after five epochs
    done[0] = 0
    epochs, _ = train_until_converged(
        train_epoch, lambda: falling[done[0]], patience=8, threshold=0.03
    )
    assert epochs == 7 + 7 + 8  # 3 % better after seven, then after seven more


def test_the_holdout_decides_and_is_not_trained_on(monkeypatch: pytest.MonkeyPatch) -> None:
    weights = []
    for wrong in (0.0, 100.0):
        monkeypatch.setattr(
            network,
            "train_until_converged",
            lambda train_epoch, holdout_loss, on_improved, **_: (
                [train_epoch() for _ in range(3)],
                on_improved(),
                (3, holdout_loss()),
            )[-1],
        )
        model = small(train_every=100)
        transitions = walk(99)
        feed(model, transitions)
        held = model.storage.column("held")[:, 0] > 0
        assert held.sum() == 4  # 5 % of 99
        model.storage._columns["changes"][: len(held)][held] += wrong
        model.train()
        weights.append(model.trainer.parameters[0].detach().numpy().copy())
        assert (model.last_training.holdout_loss > 100) == (wrong > 0)
    np.testing.assert_array_equal(*weights)


def test_the_best_weights_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    losses = iter([5.0, 3.0, 4.0, 4.0, 4.0, 4.0, 4.0])
    seen = []
    model = small(train_every=60)
    original = network.train_until_converged

    def scripted(train_epoch: Any, holdout_loss: Any, **settings: Any) -> Any:
        def loss() -> float:
            seen.append(model.trainer.parameters[0].detach().numpy().copy())
            return next(losses)

        return original(train_epoch, loss, **settings)

    monkeypatch.setattr(network, "train_until_converged", scripted)
    feed(model, walk(60))
    assert model.last_training.epochs == 6
    np.testing.assert_array_equal(model.trainer.parameters[0].detach().numpy(), seen[1])
    assert not np.array_equal(seen[1], seen[2])


# What it predicts


def test_before_the_first_training_nothing_changes() -> None:
    model = small()
    obs = np.array([0.1, -0.2, 0.3])
    np.testing.assert_array_equal(model.predict(obs, [0.5, 0.5]), obs.astype(np.float32))


def test_trains_every_so_many_steps_and_learns_the_world() -> None:
    model = small(hidden=40)
    trainings = []
    for transition in walk(1000):
        model.learn(*transition)
        trainings.append(model.trainings)
    assert trainings == [step // 50 for step in range(1, 1001)]
    obs, action, following, _ = (np.array(part) for part in zip(*walk(300, seed=9), strict=True))
    wrong = np.mean((model.predict(obs, action) - following) ** 2)
    assert wrong < 0.2 * np.mean((following - obs) ** 2)
    assert wrong < 3 * 0.01**2  # noise of the world: 0.01


@pytest.mark.parametrize("memory", memories(), ids=lambda memory: memory.name)
def test_predictions_are_those_of_the_network(memory: Any) -> None:
    transitions = walk(100, memory=memory)
    model = small(memory=memory, clip=False)
    feed(model, transitions)
    obs, action, _, states = (np.array(part) for part in zip(*transitions, strict=True))
    inputs = np.concatenate([obs, action, memory.features(states, obs)], axis=1)
    # Independent: moments of all transitions, the network in PyTorch.
    changes = np.array([following - before for before, _, following, _ in transitions])
    scaled = (inputs - inputs.mean(0)) / np.maximum(inputs.std(0), 0.01)
    with torch.no_grad():
        out = model.network(torch.tensor(scaled, dtype=torch.float32)).numpy()
    expected = obs + out * changes.std(0) + changes.mean(0)
    np.testing.assert_allclose(model.predict(obs, action, states), expected, atol=1e-5)


def test_normalises_over_what_was_seen_or_over_what_is_kept() -> None:
    def far(transitions: list) -> list:
        return [
            (obs + 0.4, action, after + 0.4, memory) for obs, action, after, memory in transitions
        ]

    first, second = walk(100, seed=1), far(walk(100, seed=2))
    centres = {}
    for over in ("seen", "kept"):
        model = small(FineTuning(), normalise_over=over)
        model.begin_task("first")
        feed(model, first)
        model.begin_task("second")
        feed(model, second)
        centres[over] = model.normalisers[0].centre[:3]
    kept = np.mean([obs for obs, *_ in second], axis=0)
    seen = np.mean([obs for obs, *_ in first + second], axis=0)
    np.testing.assert_allclose(centres["kept"], kept, atol=1e-6)
    np.testing.assert_allclose(centres["seen"], seen, atol=1e-6)


def test_moments_are_those_of_the_whole_stream() -> None:
    rows = np.random.default_rng(0).normal(5.0, 0.001, (500, 4))
    moments = RunningMoments(4)
    for first, last in ((0, 1), (1, 2), (2, 2), (2, 300), (300, 500)):
        moments.add(rows[first:last])
    np.testing.assert_allclose(moments.mean, rows.mean(0), rtol=1e-12)
    np.testing.assert_allclose(moments.deviation, rows.std(0), rtol=1e-9)


# Tasks


def test_packnet_keeps_an_old_tasks_predictions_to_the_bit() -> None:
    model = small(PackNet(expected_tasks=2), hidden=30)
    model.begin_task("first")
    feed(model, walk(200, seed=1))
    model.begin_task("second")
    obs, action = OBSERVATIONS.low * 0.3, np.zeros(2)
    plans = np.random.default_rng(0).uniform(-1, 1, (5, 6, 2))
    kept = model.for_task("first").rollout(obs, plans)
    feed(model, [(o * 0.5 + 0.4, a, n * 0.5 + 0.4, m) for o, a, n, m in walk(200, seed=2)])
    np.testing.assert_array_equal(model.for_task("first").rollout(obs, plans), kept)
    assert not np.array_equal(model.for_task("second").rollout(obs, plans), kept)
    np.testing.assert_array_equal(
        model.for_task("second").predict(obs, action), model.predict(obs, action)
    )


def test_at_a_boundary_data_are_dropped_or_not() -> None:
    for strategy, left in ((FineTuning(), 30), (Coreset(capacity=70), 70), (PerfectMemory(), 130)):
        model = small(strategy)
        model.begin_task("first")
        feed(model, walk(100))
        model.begin_task("first")  # the same again is no boundary
        assert len(model.storage) == min(100, getattr(strategy, "capacity", 100))
        model.begin_task("second")
        feed(model, walk(30))
        assert len(model.storage) == left


def test_a_coreset_is_perfect_memory_to_the_bit_until_it_is_full() -> None:
    whole, room, full = small(), small(Coreset(capacity=150)), small(Coreset(capacity=149))
    for model in (whole, room, full):
        feed(model, walk(150))
    weights = [
        [parameter.detach().numpy() for parameter in model.trainer.parameters]
        for model in (whole, room, full)
    ]
    for kept, same in zip(weights[0], weights[1], strict=True):
        np.testing.assert_array_equal(kept, same)
    assert not np.array_equal(weights[0][0], weights[2][0])


@pytest.mark.parametrize("name", STRATEGIES.names())
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_task_may_end_before_the_first_training(name: str, steps: int) -> None:
    model = small(STRATEGIES.get(name)())
    for task in ("first", "second"):
        model.begin_task(task)
        feed(model, walk(steps))
    assert np.isfinite(model.for_task("first").predict(np.zeros(3), np.zeros(2))).all()


# Going on


def test_same_seed_same_model() -> None:
    one, other, different = small(seed=3), small(seed=3), small(seed=4)
    for model in (one, other, different):
        feed(model, walk(120))
    assert states_equal(one.state(), other.state())
    assert not np.array_equal(
        one.trainer.parameters[0].detach(), different.trainer.parameters[0].detach()
    )


@pytest.mark.parametrize("name", STRATEGIES.names())
def test_goes_on_to_the_bit(name: str) -> None:
    model, other = small(STRATEGIES.get(name)()), small(STRATEGIES.get(name)())
    told = model.strategy.boundary_aware
    for task in ("first", "second"):
        if told:
            model.begin_task(task)
        feed(model, walk(70, seed=len(task)))
    other.restore(*model.state())
    assert states_equal(other.state(), model.state())
    for one in (model, other):
        feed(one, walk(70, seed=5))
        if told:
            one.begin_task("third")
        feed(one, walk(70, seed=6))
    assert model.trainings == other.trainings >= 4
    assert states_equal(other.state(), model.state())


@pytest.mark.parametrize(
    "other",
    [
        lambda: small(hidden=13),
        lambda: small(Coreset()),
        lambda: small(Coreset(capacity=5)),
        lambda: small(memory=memories()[1]),
        lambda: MLPWorldModel(ACTIONS, ACTIONS),
    ],
)
def test_a_foreign_state_changes_nothing(other: Any) -> None:
    model = small(Coreset(capacity=9))
    feed(model, walk(60))
    before = model.state()
    with pytest.raises(InvalidInputError):
        model.restore(*other().state())
    assert states_equal(model.state(), before)


@pytest.mark.parametrize("bad", [np.zeros(5, np.int64), np.zeros(4)])
def test_moments_of_another_kind_change_nothing(bad: np.ndarray) -> None:
    moments = RunningMoments(5)
    moments.add(np.arange(10.0).reshape(2, 5))
    arrays, meta = moments.state()
    for wrong in (({**arrays, "mean": bad}, meta), (arrays, {"count": -1})):
        with pytest.raises(InvalidInputError):
            moments.restore(*wrong)
    assert states_equal(moments.state(), (arrays, meta))


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 0},
        {"train_every": 1},
        {"learning_rate": 0.0},
        {"holdout": 1.0},
        {"improvement": -0.1},
        {"normalise_over": "all"},
        {"threads": 0},
        {"width": 3},
    ],
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(EverlearnError, match=next(iter(settings))):
        small(**settings)


def test_bad_input_changes_nothing() -> None:
    model = small()
    feed(model, walk(3))
    before = model.state()
    with pytest.raises(InvalidInputError):
        model.learn([0.0, 0.0, np.nan], [0.0, 0.0], [0.0, 0.0, 0.0])
    with pytest.raises(InvalidInputError):
        model.learn([0.0, 0.0, 0.0], [0.0, 5.0], [0.0, 0.0, 0.0])
    assert states_equal(model.state(), before)


def test_things_rest_unless_they_are_moved() -> None:
    model = small(still=[0.0, 10.0, 0.0], train_every=30)
    feed(model, walk(90, memory=model.memory))
    obs, action = np.zeros((4, 3)), np.linspace(-1, 1, 8).reshape(4, 2)
    change = model.predict(obs, action)
    assert change[:, [0, 2]].all()
    assert not change[:, 1].any()
    arrays, meta = model.state()
    with pytest.raises(InvalidInputError, match="smallest changes"):
        small(train_every=30).restore(arrays, meta)
