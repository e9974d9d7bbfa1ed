"""A life: tasks that undo each other in one endless episode, and a world that changes in it."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from everlearn.continual_bench import observation, rewards
from everlearn.continual_bench.changes import CHANGES, Change
from everlearn.continual_bench.life import ContinualLifeEnv
from everlearn.continual_bench.life_tasks import LIFE_SCRIPTS, LIFE_TASKS, OBJECTS
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.support.errors import InvalidInputError, NotReadyError, UnknownNameError

VISITS = 21
"""Visits of the life of seed 0 in which each task comes at least once."""

BLOCK, PEG = slice(20, 23), slice(13, 16)
"""Where block and peg are among the joint positions."""


class Visit(NamedTuple):
    task: str
    steps: int
    solved: bool
    solved_at_start: bool
    start: np.ndarray
    end: np.ndarray
    lost: tuple[str, ...]


def live(env: ContinualLifeEnv, visits: int, seed: int = 0) -> list[Visit]:
    """Play the scripts, and put back what is lost between two visits."""
    obs, info = env.reset(seed=seed)
    found = []
    while len(found) < visits:
        task, steps, start, solved = info["task"], 0, obs, info["success"]
        controller = ScriptedController(task, scripts=LIFE_SCRIPTS)
        while not info["visit_over"]:
            obs, _, terminated, truncated, info = env.step(controller.act(obs))
            assert not terminated
            assert not truncated
            steps += 1
        found.append(Visit(task, steps, info["success"], solved, start, obs, info["lost"]))
        for name in info["lost"]:
            env.put_back(name)
        obs, info = env.look()
    return found


@pytest.fixture(scope="module")
def life() -> tuple[list[Visit], ContinualLifeEnv]:
    env = ContinualLifeEnv()
    return live(env, VISITS), env


def test_checker_passes_without_a_warning():
    env = gymnasium.make("everlearn/ContinualLife-v0", reset_noise=0.01)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


def test_scripts_solve_every_task_from_where_the_last_one_ended(life: Any):
    visits, env = life
    assert {visit.task for visit in visits} == set(LIFE_TASKS)
    assert [visit.task for visit in visits if not visit.solved] == []
    assert not any(visit.solved_at_start for visit in visits)
    assert max(visit.steps for visit in visits) < env.visit_steps
    assert env.visit == VISITS
    assert env.age == sum(visit.steps for visit in visits)


def test_nothing_is_reset_between_visits_but_what_is_put_back(life: Any):
    visits, env = life
    assert env.put_backs == sum(len(visit.lost) for visit in visits)
    for visit, following in itertools.pairwise(visits):
        kept = np.ones(observation.SIZE, bool)
        for name in visit.lost:
            kept[{"block": observation.BLOCK_POSITION, "peg": observation.PEG_END}[name]] = False
        # Observations lag the joints by a physics step, and a put-back reads them anew.
        lag = 5e-3 if visit.lost else 0.0
        np.testing.assert_allclose(visit.end[kept], following.start[kept], rtol=0, atol=lag)


def test_what_an_object_is_asked_for_depends_on_how_it_stands_and_none_comes_twice(life: Any):
    visits, _ = life
    object_of = {task: name for name, tasks in OBJECTS.items() for task in tasks}
    names = [object_of[visit.task] for visit in visits]
    assert all(one != other for one, other in itertools.pairwise(names))
    for visit, name in zip(visits, names, strict=True):
        if len(OBJECTS[name]) == 2:
            first, second = OBJECTS[name]
            undone = rewards.succeeded(LIFE_TASKS.get(second).kind, visit.start)
            assert visit.task == (first if undone else second)


def test_the_seed_draws_the_objects_and_nothing_else_does():
    def first(seed: int, action: float) -> list[str]:
        env = ContinualLifeEnv(visit_steps=2)
        _, info = env.reset(seed=seed)
        tasks = [info["task"]]
        while len(tasks) < 6:
            *_, info = env.step(np.full(4, action))
            if info["visit_over"]:
                tasks.append(info["next_task"])
        return tasks

    assert first(0, 0.0) == first(0, 0.3)
    assert len({tuple(first(seed, 0.0)) for seed in range(4)}) == 4


def test_a_life_goes_on_from_its_state_to_the_bit():
    changes = (Change("delay", 3), Change("stiff-door", 0, 30, ramp=20), Change("drift", 10, 40))
    actions = np.random.default_rng(0).uniform(-1, 1, (60, 4))
    whole, other = (ContinualLifeEnv(visit_steps=7, changes=changes) for _ in range(2))
    whole.reset(seed=3)
    for action in actions[:25]:
        whole.step(action)
    other.reset(seed=9)
    other.restore(*whole.state())
    for action in actions[25:]:
        (obs, reward, *_, info), (same, again, *_, facts) = whole.step(action), other.step(action)
        np.testing.assert_array_equal(obs, same)
        assert reward == again
        assert info == facts


def test_a_state_of_something_else_is_refused():
    env = ContinualLifeEnv()
    env.reset(seed=0)
    arrays, meta = env.state()
    with pytest.raises(InvalidInputError, match="age"):
        env.restore(arrays, {name: value for name, value in meta.items() if name != "age"})
    with pytest.raises(InvalidInputError, match="visit"):
        env.set_state(dataclasses.replace(env.get_state(), visit=-1))


def move(env: ContinualLifeEnv, joints: slice, place: tuple[float, float, float]) -> Any:
    """Put something elsewhere by force, and let it come to rest; the info of the last step."""
    env.data.qpos[joints] = place
    *_, info = env.step(np.zeros(4))
    for _ in range(25):
        if info["visit_over"]:
            break
        *_, info = env.step(np.zeros(4))
    return info


def test_a_block_off_the_table_is_lost_until_it_is_put_back_and_counted():
    env = ContinualLifeEnv(("block", "button"))
    env.reset(seed=0, options={"task": "pick-place"})
    info = move(env, BLOCK, (0.62, 0.62, 0.02))
    assert info["lost"] == ("block",)
    assert info["visit_over"]
    assert not info["success"]
    assert info["next_task"] == "button-press"
    env.end_visit()
    assert env.task == "button-press", "nothing is asked of what is lost"
    obs = env.put_back("block")
    np.testing.assert_allclose(obs[observation.BLOCK_POSITION], (0.5, 0.2, 0.02), atol=1e-3)
    assert (env.put_backs, env.lost) == (1, ())
    env.end_visit()
    assert env.task == "pick-place"
    with pytest.raises(InvalidInputError, match="not lost"):
        env.put_back("block")


@pytest.mark.parametrize("place", [(0.3, -0.86, 0.05), (1.2, 0.0, -0.5)])
def test_a_peg_beyond_the_workspace_is_lost(place: tuple[float, float, float]):
    env = ContinualLifeEnv(("peg", "button"))
    env.reset(seed=0, options={"task": "peg-unplug"})
    assert move(env, PEG, place)["lost"] == ("peg",)
    obs = env.put_back("peg")
    np.testing.assert_allclose(obs[observation.PEG_END], rewards.PEG_START, atol=2e-3)


def test_a_peg_far_from_its_wall_is_seen_where_it_is():
    env = ContinualLifeEnv(("peg", "button"))
    env.reset(seed=0, options={"task": "peg-unplug"})
    env.data.qpos[PEG] = (-0.5, 0.1, 0.05)
    obs, *_ = env.step(np.zeros(4))
    assert obs[observation.PEG_END][0] < -0.4


# Rewards -----------------------------------------------------------------------------------


@pytest.mark.parametrize("task", LIFE_TASKS)
def test_rewards_are_finite_batched_and_ten_only_where_solved(task: str, life: Any):
    visits, _env = life
    objective = LIFE_TASKS.get(task).objective()
    generator = np.random.default_rng(1)
    wild = generator.normal(0, 5, (200, observation.SIZE))
    assert np.isfinite(objective(wild, np.zeros((200, 4)), wild)).all()
    obs = np.stack([visit.end for visit in visits])
    actions = np.zeros((len(obs), 4))
    values, solved = objective(obs, actions, obs), objective.succeeded(obs, actions, obs)
    assert values.max() <= 10.0 + 1e-9
    assert (solved[values >= 10.0]).all()
    assert solved[[visit.task == task for visit in visits]].all()


@pytest.mark.parametrize("task", ["window-open", "faucet-open", "door-close", "block-return"])
def test_the_environment_and_the_planner_agree_on_success(task: str, life: Any):
    visits, _ = life
    for visit in visits:
        flags = LIFE_TASKS.get(task).success(None, None, visit.end[None])
        assert flags[0] == rewards.succeeded(LIFE_TASKS.get(task).kind, visit.end)


# Changes -----------------------------------------------------------------------------------


def steps(env: ContinualLifeEnv, count: int, action: tuple[float, ...]) -> np.ndarray:
    env.reset(seed=0)
    return np.array([env.step(np.array(action))[0] for _ in range(count)])


def test_a_change_comes_and_goes_at_once_or_in_a_ramp():
    assert [Change("delay", 2, 4).strength(step) for step in range(6)] == [0, 0, 1, 1, 0, 0]
    ramp = Change("delay", 2, 6, ramp=2)
    assert [ramp.strength(step) for step in range(9)] == [0, 0, 0.5, 1, 1, 1, 0.5, 0, 0]
    assert Change("delay", 1).strength(10**6) == 1


@pytest.mark.parametrize("name", CHANGES)
def test_before_and_without_a_change_bits_are_the_same(name: str):
    action = (0.4, 0.6, -0.1, 1.0)
    plain = steps(ContinualLifeEnv(), 30, action)
    changing = ContinualLifeEnv(changes=[Change(name, 20, 25)])
    np.testing.assert_array_equal(steps(changing, 20, action), plain[:20])
    ordinary = ContinualLifeEnv()
    for _ in range(10):
        changing.step(np.zeros(4))
    for part in ("dof_damping", "body_mass", "geom_friction"):
        found, expected = getattr(changing.model, part), getattr(ordinary.model, part)
        np.testing.assert_array_equal(found, expected)


def test_what_each_change_does():
    def parts(name: str) -> tuple[float, float, float]:
        env = ContinualLifeEnv(changes=[Change(name)])
        steps(env, 1, (0.0, 0.0, 0.0, 0.0))
        model = env.model
        return (
            float(model.joint("doorjoint").damping[0]),
            float(model.body("block").mass[0]),
            float(model.geom("blockGeom").friction[0]),
        )

    damping, mass, friction = parts("drift")
    assert parts("stiff-door") == (pytest.approx(150 * damping), mass, friction)
    assert parts("heavy-block") == (damping, pytest.approx(100 * mass), friction)
    assert parts("slippery-fingers") == (damping, mass, pytest.approx(0.02 * friction))
    still = (0.0, 0.0, 0.0, 0.0)
    drifted = steps(ContinualLifeEnv(changes=[Change("drift")]), 40, still)
    assert drifted[-1, 0] - drifted[0, 0] > 0.04
    late, ordinary = (
        steps(ContinualLifeEnv(changes=changes), 12, (1.0, 0.0, 0.0, 0.0))
        for changes in ([Change("delay")], [])
    )
    # The hand is where it was a step before, up to what it does while the arm settles.
    assert np.abs(late[2:, 0] - ordinary[1:-1, 0]).max() < 0.003
    assert np.abs(late[2:, 0] - ordinary[2:, 0]).max() > 0.004


def test_bad_input_is_refused_with_what_is_known():
    with pytest.raises(UnknownNameError, match="faucet"):
        ContinualLifeEnv(("door", "lamp"))
    with pytest.raises(InvalidInputError, match="two at least"):
        ContinualLifeEnv(("door",))
    with pytest.raises(InvalidInputError, match="list of names"):
        ContinualLifeEnv("door")
    with pytest.raises(UnknownNameError, match="stiff-door"):
        Change("stiff-dor")
    with pytest.raises(InvalidInputError, match="end later"):
        Change("delay", 5, 5)
    env = ContinualLifeEnv(("door", "window"))
    with pytest.raises(NotReadyError, match="reset"):
        env.step(np.zeros(4))
    with pytest.raises(UnknownNameError, match="peg"):
        env.reset(options={"task": "peg-unplug"})
