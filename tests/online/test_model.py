"""The model's contract: purity, refusals, limits, saving and restoring."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gymnasium import spaces

from everlearn import world_model
from everlearn.interfaces import WorldModel
from everlearn.online import OnlineModelConfig, OnlineWorldModel
from everlearn.online.model import MAX_BLOCK, block_size
from everlearn.online.snapshot import KIND
from everlearn.support.archive import save_archive
from everlearn.support.errors import (
    DamagedFileError,
    EverlearnError,
    InvalidInputError,
    MemoryLimitError,
    MissingExtraError,
    UnknownNameError,
)
from everlearn.support.settings import options_of
from everlearn.world_model import MODELS
from tests.online.worlds import ACTIONS, OBSERVATIONS, memories, small_model, states_equal, walk

each_memory = pytest.mark.parametrize("memory", memories(), ids=lambda m: m.name)


def trained(steps: int = 40, **options: Any) -> OnlineWorldModel:
    model = small_model(**options)
    for transition in walk(steps, memory=model.memory):
        model.learn(*transition)
    return model


def test_it_is_a_world_model_and_predicts_before_learning() -> None:
    model = small_model()
    assert isinstance(model, WorldModel)
    obs = np.array([0.1, -0.2, 0.3])
    np.testing.assert_array_equal(model.predict(obs, np.zeros(2)), obs.astype(np.float32))
    assert model.utilization == 0
    model.solve()
    assert not model.residual().any()


def test_prediction_is_pure_and_batched() -> None:
    model = trained()
    before = model.state()
    rng = np.random.default_rng(0)
    obs, action = rng.uniform(-1, 1, (33, 3)), rng.uniform(-1, 1, (33, 2))
    together = model.predict(obs, action)
    model.rollout(obs[0], rng.uniform(-1, 1, (5, 4, 2)))
    model.encode(obs, action)
    model.residual()
    assert states_equal(before, model.state())
    for n in range(33):
        np.testing.assert_allclose(model.predict(obs[n], action[n]), together[n], atol=1e-6)
    np.testing.assert_array_equal(
        model.predict(obs[0], action), model.rollout(obs[0], action[:, None])[:, 1]
    )
    with pytest.raises(ValueError, match="read-only"):
        model.weights[0] = 1


def test_predictions_learn_the_world() -> None:
    model = trained(600, features=40, ridge=0.05)
    test = walk(100, seed=9)
    wrong = [model.predict(o, a) - n for o, a, n, _ in test]
    still = [o - n for o, _, n, _ in test]
    assert np.square(wrong).mean() < 0.3 * np.square(still).mean()


def test_predictions_are_clipped_unless_told_not_to() -> None:
    for clip in (True, False):
        model = small_model(clip=clip)
        obs = np.full(3, 0.95)
        for _ in range(5):
            model.learn(obs, np.ones(2), obs + 0.5)
        assert (model.predict(obs, np.ones(2)).max() > 1) != clip


@each_memory
def test_small_changes_of_what_rests_are_none_and_others_as_they_were(memory: Any) -> None:
    free = trained(memory=memory)
    obs, action = np.random.default_rng(3).uniform(-0.5, 0.5, (2, 50, 3))
    change = free.predict(obs, action[:, :2]) - obs
    still = np.array([np.median(np.abs(change[:, 0])), 0.0, 10.0])
    resting = trained(memory=memory, still=still)
    predicted = resting.predict(obs, action[:, :2]) - obs
    moves = np.abs(change) >= still
    assert 20 <= moves[:, 0].sum() <= 30
    assert moves[:, 1].all()
    assert not moves[:, 2].any()
    np.testing.assert_allclose(predicted, np.where(moves, change, 0), atol=1e-6)
    # Along a plan too, where a memory sees what was imagined: one step at a time is the same.
    plan = action[None, :5, :2]
    states = resting.rollout(obs[0], plan)[0]
    carried = memory.start(obs[:1])
    for step in range(5):
        now = states[step].astype(float)
        after = resting.predict(now, plan[0, step], memory=carried[0])
        np.testing.assert_allclose(after, states[step + 1], atol=1e-5)
        carried = memory.advance(carried, now[None], plan[:, step], states[step + 1 :][:1])


def test_what_rests_is_checked_and_saved(tmp_path: Path) -> None:
    for still in ([0.1], [0.1, 0.1, -0.1], [0.1, np.nan, 0.1]):
        with pytest.raises(InvalidInputError, match="still"):
            small_model(still=still)
    model = trained(still=[0.1, 0.0, 0.2])
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    np.testing.assert_array_equal(loaded.still, [0.1, 0.0, 0.2])
    with pytest.raises(InvalidInputError, match="smallest changes"):
        trained().restore(*model.state())


def test_a_state_from_before_there_was_a_setting_fits_its_default() -> None:
    arrays, meta = trained().state()
    old = {name: value for name, value in meta["config"].items() if name != "local_reach"}
    model = small_model()
    model.restore(arrays, meta | {"config": old})
    assert states_equal(model.state(), (arrays, meta))
    with pytest.raises(InvalidInputError, match="local_reach"):
        small_model(local_reach=1.0).restore(arrays, meta | {"config": old})


def test_files_of_the_first_version_are_refused_in_words(tmp_path: Path) -> None:
    arrays, meta = trained().state()
    del meta["version"]
    save_archive(tmp_path / "old", KIND, 1, arrays, meta)
    with pytest.raises(EverlearnError, match=r"version 1 .* reads version 2"):
        OnlineWorldModel.load(tmp_path / "old")
    with pytest.raises(InvalidInputError, match=r"version 1 .* train again"):
        small_model().restore(arrays, meta)


def test_overflow_reaches_the_caller_as_numbers_not_as_a_crash() -> None:
    model = trained(clip=False)
    model.learner.weights[:] = 1e38
    states = model.rollout(np.zeros(3), np.zeros((5, 30, 2)))
    assert not np.isfinite(states[:, -1]).all()


GOOD = (np.zeros(3), np.zeros(2), np.zeros(3))
BAD = [
    ((np.array([0, np.nan, 0]), GOOD[1], GOOD[2]), "finite"),
    ((GOOD[0], np.array([np.inf, 0]), GOOD[2]), "finite"),
    ((GOOD[0], GOOD[1], np.array([0, 0, -np.inf])), "finite"),
    ((np.zeros(4), GOOD[1], GOOD[2]), "shape"),
    ((np.zeros((2, 3)), GOOD[1], GOOD[2]), "shape"),
    ((GOOD[0], 0.0, GOOD[2]), "shape"),
    (("abc", GOOD[1], GOOD[2]), "numbers"),
    ((GOOD[0], GOOD[1], None), "shape|finite|numbers"),
    ((GOOD[0], np.array([0, 1.5]), GOOD[2]), "outside the action space"),
    ((np.array([0, 50.0, 0]), GOOD[1], GOOD[2]), "far outside"),
    ((GOOD[0], GOOD[1], GOOD[2], np.zeros(7)), "memory"),
    ((GOOD[0], GOOD[1], GOOD[2], np.array([np.nan, 0])), "memory"),
]


@pytest.mark.parametrize(("arguments", "why"), BAD)
def test_bad_input_changes_nothing_and_says_why(arguments: Any, why: str) -> None:
    model = trained(memory=memories()[1])
    before = model.state()
    with pytest.raises(InvalidInputError, match=why):
        model.learn(*arguments)
    batch = [np.asarray(part)[None] if not isinstance(part, str) else part for part in arguments]
    with pytest.raises(InvalidInputError):
        model.learn_batch(*batch[:2], batch[2], *arguments[3:])
    assert states_equal(before, model.state())


def test_bad_plans_are_refused() -> None:
    model = trained()
    with pytest.raises(InvalidInputError, match=r"\[N, H, 2\]"):
        model.rollout(np.zeros(3), np.zeros((4, 2)))
    with pytest.raises(InvalidInputError, match="4; got 3"):
        model.rollout(np.zeros((3, 3)), np.zeros((4, 5, 2)))
    with pytest.raises(InvalidInputError, match="equally many"):
        model.predict(np.zeros((3, 3)), np.zeros((4, 2)))


def test_observations_somewhat_outside_and_actions_a_hair_outside_are_taken() -> None:
    model = trained()
    model.learn(np.array([1.3, 0, 0]), np.array([1 + 1e-9, 0]), np.array([1.2, 0, 0]))
    assert model.steps == 41


def test_the_memory_limit_is_refused_before_it_is_passed() -> None:
    free = trained(60)
    statistics = free.learner.statistics
    fixed = free.learner._fixed_bytes()
    limit = (fixed + statistics.bytes_of(statistics.used - 3)) / 1e9
    model = small_model(max_memory_gb=limit)
    data = walk(60)
    steps = 0

    def learn_all() -> None:
        nonlocal before, steps
        for transition in data:
            before = model.state()
            model.learn(*transition)
            steps += 1

    before = model.state()
    with pytest.raises(MemoryLimitError, match="max_memory_gb"):
        learn_all()
    assert states_equal(before, model.state())
    assert 0 < steps < 60
    obs, action, following, _ = (np.array(part) for part in zip(*data, strict=True))
    with pytest.raises(MemoryLimitError):
        model.learn_batch(obs, action, following)
    with pytest.raises(MemoryLimitError, match="solving"):
        model.solve()
    assert states_equal(before, model.state())
    with pytest.raises(MemoryLimitError, match="alone"):
        small_model(max_memory_gb=1e-6)


@pytest.mark.parametrize("precision", ["float32", "float64"])
@each_memory
def test_saving_and_restoring_is_exact_and_goes_on_exactly(
    memory: Any, precision: Any, tmp_path: Path
) -> None:
    options: dict[str, Any] = {"memory": memory, "precision": precision}
    model = trained(**options)
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    assert states_equal(model.state(), loaded.state())
    restored = trained(7, **options)
    restored.restore(*model.state())
    assert states_equal(model.state(), restored.state())
    for transition in walk(30, seed=4, memory=memory):
        for each in (model, loaded, restored):
            each.learn(*transition)
    assert states_equal(model.state(), loaded.state())
    assert states_equal(model.state(), restored.state())
    plans = np.random.default_rng(0).uniform(-1, 1, (6, 5, 2))
    np.testing.assert_array_equal(
        model.rollout(np.zeros(3), plans), loaded.rollout(np.zeros(3), plans)
    )


def test_a_warm_up_is_saved_too(tmp_path: Path) -> None:
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    model = OnlineWorldModel(space, ACTIONS, features=5, bins=4, warm_up=15, threads=1)
    data = walk(30)
    for transition in data[:10]:
        model.learn(*transition)
    model.save(tmp_path / "model")
    loaded = OnlineWorldModel.load(tmp_path / "model")
    assert loaded.warming_up
    for transition in data[10:]:
        model.learn(*transition)
        loaded.learn(*transition)
    assert states_equal(model.state(), loaded.state())
    assert loaded.steps == 30


def test_a_state_of_another_model_is_refused() -> None:
    model = trained()
    before = model.state()
    for other in (small_model(bins=6), small_model(seed=3), small_model(memory=memories()[1])):
        with pytest.raises(InvalidInputError, match="saved with"):
            model.restore(*other.state())
    elsewhere = OnlineWorldModel(spaces.Box(-2, 1, (3,), np.float64), ACTIONS, model.config)
    with pytest.raises(InvalidInputError, match="other spaces"):
        model.restore(*elsewhere.state())
    assert states_equal(before, model.state())


def test_loading_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(DamagedFileError):
        OnlineWorldModel.load(tmp_path / "junk")


def test_options_are_checked_and_named() -> None:
    with pytest.raises(
        UnknownNameError, match=r"unknown option .ridges.\. Did you mean .ridge.\? Known: "
    ):
        small_model(ridges=1)
    for name, value in (
        ("ridge", 0.0),
        ("ridge", float("nan")),
        ("precision", "float16"),
        ("warm_up", 1),
        ("threads", 0),
        ("seed", -1),
        ("unread", 3),
        ("max_memory_gb", -1.0),
    ):
        with pytest.raises(InvalidInputError, match=name):
            small_model(**{name: value})
    config = OnlineModelConfig(features=3, bins=4)
    assert OnlineWorldModel(OBSERVATIONS, ACTIONS, config, ridge=2.0).config.ridge == 2.0


def test_a_config_is_registered_described_and_builds_the_model() -> None:
    assert MODELS.names() == ("online", "mlp")
    kind = MODELS.get("online")
    assert kind is OnlineModelConfig
    options = options_of(kind())
    assert all(option.summary for option in options.values())
    assert not {"seed", "threads"} & set(options)
    model = kind(features=3, bins=4).build(OBSERVATIONS, ACTIONS, seed=2, threads=1)
    assert isinstance(model, OnlineWorldModel)
    assert (model.config.features, model.seed) == (3, 2)


def test_without_torch_the_deep_model_names_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> Any:
        raise ModuleNotFoundError(f"no {name}", name="torch")

    monkeypatch.setattr(world_model, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"everlearn\[deep\]"):
        world_model._mlp()


def test_unchecked_methods_do_the_same_with_what_was_checked() -> None:
    memory = memories()[3]
    checked, unchecked = small_model(memory=memory), small_model(memory=memory)
    for obs, action, following, state in walk(40, memory=memory):
        checked.learn(obs, action, following, state)
        unchecked.learn_unchecked(obs, action, following, state)
    anew = walk(1)[0][:3]
    checked.learn(*anew)
    unchecked.learn_unchecked(*anew)
    assert states_equal(checked.state(), unchecked.state())
    plans = np.random.default_rng(0).uniform(-1, 1, (6, 5, 2)).astype(np.float32)
    for start in (None, state):
        np.testing.assert_array_equal(
            checked.rollout(obs, plans, start), unchecked.rollout_unchecked(obs, plans, start)
        )


def test_what_was_learned_unchecked_in_a_warm_up_is_a_copy() -> None:
    space = spaces.Box(-np.inf, np.inf, (3,), np.float64)
    model = OnlineWorldModel(space, ACTIONS, features=5, bins=4, warm_up=3, threads=1)
    buffer = np.zeros(3)
    for n in range(2):
        buffer[:] = n
        model.learn_unchecked(buffer, np.zeros(2), buffer)
    kept = np.concatenate([part[0] for part in model.pending])
    assert kept[:, 0].tolist() == [0.0, 1.0]


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    one, two = trained(threads=1), trained(threads=2)
    np.testing.assert_array_equal(one.weights, two.weights)
    plans = np.random.default_rng(0).uniform(-1, 1, (50, 5, 2))
    np.testing.assert_array_equal(one.rollout(np.zeros(3), plans), two.rollout(np.zeros(3), plans))


def test_compilation_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        small_model()
    assert "compiled" in caplog.text


def test_threads_get_equal_blocks_of_candidates() -> None:
    for candidates in (1, 7, 96, 150, 200, 224, 225, 1000):
        for threads in (1, 2, 3, 8):
            block = block_size(candidates, threads)
            blocks = -(-candidates // block)
            longest = -(-blocks // threads) * block  # threads take blocks in turn
            assert 1 <= block <= MAX_BLOCK
            # A thread does no more than its share, but for what is left of a block or two.
            assert longest <= -(-candidates // threads) + blocks


def test_blocks_do_not_change_what_is_imagined(monkeypatch: pytest.MonkeyPatch) -> None:
    model = trained(features=12)
    rng = np.random.default_rng(3)
    obs, actions = rng.uniform(-1, 1, 3), rng.uniform(-1, 1, (45, 6, 2))
    expected = model.rollout(obs, actions)
    assert np.ptp(expected[:, -1]) > 0.01
    for most in (1, 5, 16, 17, 44):
        monkeypatch.setattr("everlearn.online.model.MAX_BLOCK", most)
        np.testing.assert_array_equal(model.rollout(obs, actions), expected)
