"""Frozen evaluation reads no reward; its variants; the fixed transitions and the error on them."""

import json

import numpy as np
import pytest

from everlearn.agents import make_agent
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.online.intervals import Interval
from everlearn.planning.episode import run_episode
from everlearn.runs.evaluate import Evaluator, model_coverage, model_error
from everlearn.runs.loop import execute
from everlearn.runs.presets import preset_config
from everlearn.runs.reload import evaluate_run, evaluate_variants
from everlearn.support.errors import InvalidInputError
from everlearn.worlds import world_named
from tests.runs.worker import tiny

TASK = "window-close"
PLANNER = {"candidates": 12, "elites": 3, "horizon": 4, "iterations": 2}
SMALL = {
    "oa": {"model": {"features": 10}, "planner": PLANNER, "escape.patience": 2},
    "oa-paper": {"model": {"features": 10}, "planner": PLANNER},
    "mlp-paper-coreset": {"model": {"hidden": 9, "layers": 2}, "planner": PLANNER},
    "sac-packnet": {"hidden": 9, "batch": 8, "warm_up": 3, "random_steps": 3},
}


class Unreadable(float):
    """A reward that may be passed on, and not looked at: every use of it fails."""

    def _refuse(self, *_):
        raise AssertionError("the reward was read")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __bool__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __abs__ = __neg__ = _refuse
    __array__ = _refuse
    __hash__ = float.__hash__


@pytest.mark.parametrize("name", SMALL)
def test_frozen_evaluation_reads_no_reward_of_the_environment(name, monkeypatch):
    world = world_named("continual-bench")
    agent = make_agent(name, world.make(TASK), 0, **SMALL[name])
    agent.begin_task(TASK, world.objective(TASK))
    run_episode(agent, world.make(TASK), seed=0, max_steps=12)
    evaluator = Evaluator(preset_config("smoke", name, max_steps=25))
    step, played, seen = ContinualBenchEnv.step, [], []

    def recorded(env, action):
        played[-1].append(np.array(action))
        return step(env, action)

    def without_rewards(env, action):
        obs, _, terminated, truncated, info = recorded(env, action)
        nothing = dict.fromkeys(info["rewards"], np.nan)
        return obs, np.nan, terminated, truncated, info | {"rewards": nothing}

    def watched(self, obs, action, next_obs, reward, terminated):
        seen.append(np.isnan(float.__float__(reward)))
        observe(self, obs, action, next_obs, Unreadable(reward), terminated)

    observe = type(agent).observe
    outcomes = []
    for instead in (recorded, without_rewards):
        monkeypatch.setattr(ContinualBenchEnv, "step", instead)
        played.append([])
        outcomes.append(evaluator.episode(agent, TASK, 4, 0))
        monkeypatch.setattr(type(agent), "observe", watched)
    evaluator.close()
    assert len(seen) == len(played[1]) > 10
    assert all(seen)
    np.testing.assert_array_equal(*played)
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0].bursts or 0) > 0 or name != "oa", "progress was judged"


def test_variants_of_a_finished_run_are_kept_beside_it(tmp_path):
    run = tmp_path / "run"
    execute(tiny("oa", options={"escape.patience": 1, "escape.progress": 100.0}), run)
    metrics = (run / "metrics.jsonl").read_bytes()
    found = evaluate_variants(run)
    assert found.keys() == {"without bursts"}
    _, as_it_is = evaluate_run(run, 1)
    for task, result in found["without bursts"].items():
        assert as_it_is[task]["bursts"] > 0
        assert "bursts" not in result
        assert 0 <= result["success_rate"] <= 1
    stored = json.loads((run / "variants.json").read_text())
    assert (stored["variants"], stored["episode"]) == (found, 6)
    assert (run / "metrics.jsonl").read_bytes() == metrics
    with pytest.raises(InvalidInputError, match="there already"):
        evaluate_variants(run)


def test_variants_need_an_agent_that_has_some(tmp_path):
    execute(tiny("random"), tmp_path)
    with pytest.raises(InvalidInputError, match="no other way to be evaluated"):
        evaluate_variants(tmp_path)


def test_a_policy_is_evaluated_with_samples_and_with_its_mean():
    pytest.importorskip("torch")
    world = world_named("continual-bench")
    env = world.make(TASK)
    agent = make_agent("sac-coreset", env, 0, **SMALL["sac-packnet"])
    agent.begin_task(TASK, None)
    obs, _ = env.reset(seed=0)
    assert agent.evaluation_variants == {"mean actions": {"actions": "mean"}}
    drawn = [agent.evaluation_copy(seed).act(obs, explore=False) for seed in (0, 1)]
    (variant,) = agent.evaluation_variants.values()
    middle = [agent.evaluation_copy(seed, **variant).act(obs, explore=False) for seed in (0, 1)]
    assert not np.array_equal(*drawn)
    np.testing.assert_array_equal(*middle)


class Counting:
    """A memory that counts the steps of an episode."""

    size = 1

    def start(self, obs):
        return np.zeros((len(obs), 1))

    def advance(self, state, obs, action, next_obs):
        return state + 1


class Drift:
    """Imagines that every step adds `speed`; remembers what it was asked."""

    def __init__(self, speed, memory=None):
        self.speed, self.asked = speed, []
        if memory is not None:
            self.memory = memory

    def rollout(self, obs, actions, memory=None):
        self.asked.append((obs.shape, actions.shape, memory))
        steps = np.arange(actions.shape[1] + 1)
        return obs[:, None, :] + self.speed * steps[None, :, None]


def straight(lengths):
    return [(np.arange(n + 1.0)[:, None], np.arange(n)[:, None] * 1.0) for n in lengths]


def test_error_by_hand():
    fixed = straight([4, 2])
    assert model_error(Drift(1.0), fixed, 1) == 0
    # A model that stands still is 1 off after one step and 3 off after three.
    assert model_error(Drift(0.0), fixed, 1) == 1
    assert model_error(Drift(0.0), fixed, 3) == 9
    assert model_error(Drift(0.0), fixed, 5) is None


def test_windows_never_cross_episodes_and_carry_the_memory():
    model = Drift(1.0, Counting())
    model_error(model, straight([4, 2, 3]), 2)
    (obs, actions, memory), = model.asked  # fmt: skip
    assert obs == (3 + 1 + 2, 1)
    assert actions == (6, 2, 1)
    np.testing.assert_array_equal(memory[:, 0], [0, 1, 2, 0, 0, 1])


@pytest.mark.parametrize("task", ["door-open", "faucet-close"])
def test_sets_are_the_same_every_time_and_larger_ones_go_on(task):
    heldout = world_named("continual-bench").heldout_episodes
    small, again, large = heldout(task, 40), heldout(task, 40), heldout(task, 250)
    assert sum(len(actions) for _, actions in small) == 40
    assert sum(len(actions) for _, actions in large) == 250
    assert len(large) > 1
    for one, two in ((small, again), (small, large)):
        np.testing.assert_array_equal(one[0][1][:40], two[0][1][:40])
        np.testing.assert_array_equal(one[0][0][:41], two[0][0][:41])
    assert not np.array_equal(large[0][1][:10], large[1][1][:10])


def test_tasks_without_a_script_have_no_set():
    assert world_named("continual-bench").heldout_episodes("reach-up", 10) == []


@pytest.mark.parametrize(("preset", "starts"), [("paper", 1), ("paper-noise", 3)])
def test_starts_are_spread_in_evaluation_as_the_preset_says(preset, starts, monkeypatch):
    reset, seen = ContinualBenchEnv.reset, set()

    def recorded(env, **words):
        obs, info = reset(env, **words)
        seen.add(tuple(obs.tolist()))
        return obs, info

    monkeypatch.setattr(ContinualBenchEnv, "reset", recorded)
    agent = make_agent("random", world_named("continual-bench").make(TASK))
    evaluator = Evaluator(preset_config(preset, "random", max_steps=1))
    for episode in range(3):
        evaluator.episode(agent, TASK, 0, episode)
    evaluator.close()
    assert len(seen) == starts


class Bounded:
    """A model that predicts no change, with bounds of one from there on; the last number rests."""

    memory = None

    def rollout(self, obs, actions, memory=None, interval=None):
        states = np.repeat(obs[:, None], actions.shape[1] + 1, axis=1)
        width = np.where(np.arange(obs.shape[1]) < obs.shape[1] - 1, 1.0, 0.0)
        return Interval(states, states - width, states + width)


def test_coverage_counts_what_lies_within_bounds_that_are_open():
    # One step ahead the first number moves by 0.6, 0.6, 1.4; two steps ahead by 1.2 and 2.0.
    observations = np.array([[0, 0], [0.6, 0], [1.2, 0], [2.6, 0]], float)
    episodes = [(observations, np.zeros((3, 1)))]
    assert model_coverage(Bounded(), episodes, 0.9, 1) == pytest.approx(2 / 3)
    assert model_coverage(Bounded(), episodes, 0.9, 2) == 0
    assert model_coverage(Bounded(), episodes, 0.9, 4) is None, "no episode is as long"
    at_rest = [(observations[:, 1:], np.zeros((3, 1)))]
    assert model_coverage(Bounded(), at_rest, 0.9, 1) is None


def test_model_lines_say_what_bounds_hold_if_the_model_gives_any():
    world = world_named("continual-bench")
    config = preset_config("smoke", "oa", {"model.features": 10})
    for intervals in (True, False):
        options = SMALL["oa"] | {"model.intervals": intervals}
        agent = make_agent("oa", world.make(TASK), 0, **options)
        evaluator = Evaluator(config)
        for observations, actions in world.heldout_episodes(TASK, 100):
            for i, action in enumerate(actions):
                agent.model.learn(observations[i], np.clip(action, -1, 1), observations[i + 1])
        (line,) = evaluator.model_lines(agent, (TASK,))
        evaluator.close()
        covered = {name: value for name, value in line.items() if name.startswith("coverage_")}
        if not intervals:
            assert not covered
            continue
        assert set(covered) == {
            f"coverage_{share}_{ahead}"
            for share in (50, 80, 90, 95)
            for ahead in ("one_step", "15_steps")
        }
        for ahead in ("one_step", "15_steps"):
            rising = [covered[f"coverage_{share}_{ahead}"] for share in (50, 80, 90, 95)]
            assert rising == sorted(rising)
            assert 0 <= rising[0] < rising[-1] <= 1
