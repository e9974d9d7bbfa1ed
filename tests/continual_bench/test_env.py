"""The environment as Gymnasium and its users expect it."""

from __future__ import annotations

import pickle
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

from everlearn.continual_bench import PAPER_TASKS, TASKS, observation, register_task
from everlearn.continual_bench.env import MAX_STEPS, ContinualBenchEnv
from everlearn.support.errors import InvalidInputError, NotReadyError, UnknownNameError

ID = "everlearn/ContinualBench-v0"


def rollout(env: ContinualBenchEnv, steps: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    return np.array([env.step(generator.uniform(-1, 1, 4))[0] for _ in range(steps)])


@pytest.mark.parametrize("task", PAPER_TASKS)
@pytest.mark.parametrize("reset_noise", [0.0, 0.02])
def test_checker_passes_without_a_warning(task: str, reset_noise: float):
    env = gymnasium.make(ID, task=task, reset_noise=reset_noise)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env.unwrapped, skip_render_check=True)


def test_same_seed_same_bits_and_other_seed_other_bits():
    first, second = (gymnasium.make(ID, reset_noise=0.03).unwrapped for _ in range(2))
    for task in PAPER_TASKS:
        starts = [env.reset(seed=7, options={"task": task})[0] for env in (first, second)]
        np.testing.assert_array_equal(*starts)
        np.testing.assert_array_equal(rollout(first, 20), rollout(second, 20))
        # The next episodes of one seed differ from each other, but not between environments.
        following = [env.reset()[0] for env in (first, second)]
        np.testing.assert_array_equal(*following)
        assert not np.array_equal(starts[0], following[0])
        other = second.reset(seed=8)[0]
        for what in ("HAND", "DOOR_HANDLE", "WINDOW_HANDLE", "FAUCET_HANDLE", "BLOCK_POSITION"):
            place = getattr(observation, what)
            assert not np.array_equal(starts[0][place], other[place]), what


def test_without_noise_the_seed_changes_nothing(env: ContinualBenchEnv):
    np.testing.assert_array_equal(env.reset(seed=1)[0], env.reset(seed=2)[0])


@pytest.mark.parametrize("seed", range(3))
def test_reset_noise_keeps_the_tasks_unsolved(seed: int):
    env = gymnasium.make(ID, reset_noise=0.1).unwrapped
    for task in PAPER_TASKS:
        obs, info = env.reset(seed=seed, options={"task": task})
        assert env.observation_space.contains(obs)
        assert not any(info["successes"].values())


def test_reset_forgets_the_gripper_of_the_last_episode(env: ContinualBenchEnv):
    env.reset()
    for _ in range(20):
        env.step(np.array([0.0, 0.0, 0.0, 1.0]))
    obs, _ = env.reset()
    assert obs[observation.OPENING_CHANGE] == 0.0


def test_success_ends_the_episode_only_when_asked():
    # The door's handle counts as open close to its goal: put the door there.
    for terminate in (True, False):
        env = gymnasium.make(ID, task="door-open", terminate_on_success=terminate).unwrapped
        env.reset()
        env.data.joint("doorjoint").qpos = -1.6
        _, reward, terminated, truncated, info = env.step(np.zeros(4))
        assert info["success"]
        assert reward == 10.0
        assert terminated is terminate
        assert not truncated


def test_truncates_at_the_limit_and_then_refuses(env: ContinualBenchEnv):
    env.reset(options={"task": "button-press"})
    for step in range(1, MAX_STEPS + 1):
        _, _, terminated, truncated, _ = env.step(np.zeros(4))
        assert truncated is (step == MAX_STEPS)
        assert not terminated
    with pytest.raises(NotReadyError, match="reset"):
        env.step(np.zeros(4))
    env.reset()
    env.step(np.zeros(4))


def test_actions_beyond_the_limits_are_clipped(env: ContinualBenchEnv):
    env.reset()
    wild = env.step(np.array([7.0, -3.0, 2.0, 5.0]))[0]
    env.reset()
    np.testing.assert_array_equal(wild, env.step(np.array([1.0, -1.0, 1.0, 1.0]))[0])


def test_declared_command_is_what_the_simulation_does(env: ContinualBenchEnv):
    command = env.commanded_position
    obs, _ = env.reset(options={"task": "pick-place"})
    place = env.data.mocap_pos[0].copy()
    # It is declared to start where the hand is seen: true within the arm's lag after a reset.
    assert np.abs(obs[list(command.observation_indices)] - place).max() < 0.015
    generator = np.random.default_rng(3)
    reached = False
    for _ in range(120):
        action = generator.uniform(-1.5, 1.0, 4)
        env.step(action)
        moves = command.scale * np.clip(action[list(command.action_indices)], -1, 1)
        place = np.clip(place + moves, command.low, command.high)
        np.testing.assert_allclose(env.data.mocap_pos[0], place, rtol=0, atol=1e-12)
        reached |= bool((place == command.low).any())
    assert reached, "the walk was meant to reach a bound"


@pytest.mark.parametrize(
    "action",
    [
        np.array([0.0, np.nan, 0.0, 0.0]),
        np.array([0.0, 0.0, 0.0, np.inf]),
        np.zeros(3),
        np.zeros((1, 4)),
        np.float64(0.0),
        np.array(["a", "b", "c", "d"]),
        np.zeros(4, dtype=complex),
        np.array([None] * 4),
        np.zeros(4, dtype=bool),
        None,
    ],
    ids=["nan", "inf", "short", "batch", "scalar", "text", "complex", "object", "bool", "none"],
)
def test_bad_actions_are_refused_and_change_nothing(env: ContinualBenchEnv, action: object):
    env.reset(options={"task": "window-close"})
    rollout(env, 5)
    before = env.get_state()
    with pytest.raises(InvalidInputError, match="action"):
        env.step(action)
    after = env.get_state()
    np.testing.assert_array_equal(before.physics, after.physics)
    assert after.steps == before.steps
    env.step(np.zeros(4))


def test_step_before_reset():
    env = ContinualBenchEnv()
    with pytest.raises(NotReadyError, match="reset"):
        env.step(np.zeros(4))
    env.reset()
    env.step(np.zeros(4))


def test_unknown_names_are_refused_and_name_the_known_ones(env: ContinualBenchEnv):
    with pytest.raises(UnknownNameError, match="button-press"):
        gymnasium.make(ID, task="button-pres")
    env.reset(options={"task": "door-open"})
    with pytest.raises(UnknownNameError, match="pick-place"):
        env.reset(options={"task": "juggle"})
    with pytest.raises(InvalidInputError, match="colour"):
        env.reset(options={"colour": "red"})
    assert env.task == "door-open"
    env.step(np.zeros(4))


def test_bad_settings_are_refused():
    with pytest.raises(InvalidInputError, match=r"render mode 'ascii'.*rgb_array"):
        ContinualBenchEnv(render_mode="ascii")
    for noise in (-0.1, 0.5, float("nan")):
        with pytest.raises(InvalidInputError, match="reset_noise"):
            ContinualBenchEnv(reset_noise=noise)
    with pytest.raises(InvalidInputError, match=r"width is 0.*16 to 4096"):
        ContinualBenchEnv(width=0)
    env = ContinualBenchEnv()
    env.reset()
    with pytest.raises(NotReadyError, match="rgb_array"):
        env.render()


# -- saving and restoring -----------------------------------------------------------------


def in_contact() -> tuple[ContinualBenchEnv, np.ndarray]:
    """Return an environment with the fingers pressing on the window's handle, and its actions."""
    golden = np.load(Path(__file__).parents[1] / "data" / "golden" / "window_scripted.npz")
    env = ContinualBenchEnv("window-close", terminate_on_success=False, reset_noise=0.0)
    env.reset(seed=5)
    for action in golden["actions"][:80]:
        env.step(action)
    assert env.data.ncon > 5
    return env, golden["actions"][80:]


CONTINUE = """
import pickle, sys
import numpy as np
from everlearn.continual_bench.env import ContinualBenchEnv
state, actions = pickle.load(open(sys.argv[1], "rb"))
env = ContinualBenchEnv("pick-place", terminate_on_success=False)
env.set_state(state)
steps = [env.step(action) for action in actions]
pickle.dump([(obs, reward, info) for obs, reward, _, _, info in steps], open(sys.argv[2], "wb"))
"""


def test_a_state_continues_to_the_bit_in_a_fresh_process(tmp_path: Path):
    env, actions = in_contact()
    (tmp_path / "state").write_bytes(pickle.dumps((env.get_state(), actions)))
    arguments = [str(tmp_path / "state"), str(tmp_path / "steps")]
    subprocess.run([sys.executable, "-c", CONTINUE, *arguments], check=True)
    elsewhere = pickle.loads((tmp_path / "steps").read_bytes())
    for action, (obs, reward, info) in zip(actions, elsewhere, strict=True):
        here = env.step(action)
        np.testing.assert_array_equal(here[0], obs)
        assert here[1] == reward
        assert here[4] == info


def test_a_state_restores_everything_else_too(env: ContinualBenchEnv):
    source, actions = in_contact()
    state = source.get_state()
    env.reset(options={"task": "peg-unplug"})
    rollout(env, 30)
    env.set_state(state)
    assert env.task == "window-close"
    np.testing.assert_array_equal(env.start, source.start)
    for step, action in enumerate(actions, start=81):
        np.testing.assert_array_equal(source.step(action)[0], env.step(action)[0])
        assert env.get_state().steps == step  # and saving is looking, not touching
    # The generator goes along: noisy resets are the same afterwards.
    noisy = [ContinualBenchEnv(reset_noise=0.05) for _ in range(2)]
    noisy[0].reset(seed=11)
    noisy[1].set_state(noisy[0].get_state())
    np.testing.assert_array_equal(noisy[0].reset()[0], noisy[1].reset()[0])


def test_an_ended_episode_stays_ended_when_restored():
    env = ContinualBenchEnv("door-open")
    env.reset()
    env.data.joint("doorjoint").qpos = -1.6
    assert env.step(np.zeros(4))[2]
    other = ContinualBenchEnv()
    other.set_state(env.get_state())
    with pytest.raises(NotReadyError):
        other.step(np.zeros(4))


def test_bad_states_are_refused_and_change_nothing(env: ContinualBenchEnv):
    env.reset()
    rollout(env, 3)
    state = env.get_state()
    for bad in (
        replace(state, physics=state.physics[:-1]),
        replace(state, physics=np.full_like(state.physics, np.nan)),
        replace(state, generator='{"bit_generator": "nothing"}'),
        replace(state, generator="not json"),
        replace(state, observation=state.observation[:-1]),
    ):
        with pytest.raises(InvalidInputError):
            env.set_state(bad)
        np.testing.assert_array_equal(env.get_state().physics, state.physics)
    with pytest.raises(UnknownNameError):
        env.set_state(replace(state, task="juggle"))


# -- many at once -------------------------------------------------------------------------


@pytest.mark.parametrize("vectorization_mode", ["sync", "async"])
def test_vector_environments(vectorization_mode: str, env: ContinualBenchEnv):
    vector = gymnasium.make_vec(
        ID,
        num_envs=2,
        vectorization_mode=vectorization_mode,
        task="faucet-close",
        reset_noise=0.01,
    )
    obs, _ = vector.reset(seed=3)
    assert obs.shape == (2, 26)
    assert not np.array_equal(obs[0], obs[1])
    single = ContinualBenchEnv("faucet-close", reset_noise=0.01)
    np.testing.assert_array_equal(single.reset(seed=3)[0], obs[0])
    generator = np.random.default_rng(0)
    for _ in range(5):
        actions = generator.uniform(-1, 1, (2, 4))
        obs, reward, _, _, info = vector.step(actions)
        alone = single.step(actions[0])
        np.testing.assert_array_equal(alone[0], obs[0])
        assert alone[1] == reward[0]
        assert not info["success"].any()
    vector.close()


# -- a task of one's own ------------------------------------------------------------------


@pytest.fixture
def reach_up():
    def reward(obs, action, next_obs):
        return next_obs[:, 2] - obs[:, 2] + 0.0 * action[:, 0]

    def success(obs, action, next_obs):
        return next_obs[:, 2] > 0.3

    yield register_task("reach-up", reward, success, hand=(0.1, -0.3, 0.2), camera="topview")
    TASKS.unregister("reach-up")


def test_own_task_works_like_a_built_in_one(reach_up):
    env = gymnasium.make(ID, task="reach-up").unwrapped
    obs, info = env.reset()
    assert np.abs(obs[:3] - [0.1, -0.3, 0.2]).max() < 0.015
    assert set(info["rewards"]) == set(TASKS)
    assert set(TASKS) >= {*PAPER_TASKS, "reach-up"}
    terminated = steps = 0
    while not terminated:
        previous = obs
        obs, reward, terminated, truncated, info = env.step(np.array([0.0, 0.0, 1.0, 0.0]))
        assert reward == pytest.approx(obs[2] - previous[2], abs=1e-15)
        assert not truncated
        steps += 1
    assert obs[2] > 0.3
    assert info["success"]
    assert steps < 40
    batch = np.random.default_rng(0).uniform(size=(50, 26))
    planned = env.objective()(batch, np.zeros((50, 4)), batch + 0.5)
    np.testing.assert_allclose(planned, 0.5)
    # It is scored in the background of every other task, too.
    env.reset(options={"task": "pick-place"})
    assert "reach-up" in env.step(np.zeros(4))[4]["successes"]


def test_own_tasks_are_checked(reach_up):
    def fine(obs, action, next_obs):
        return next_obs[:, 0]

    for name, match in (("pick-place", "built-in"), ("reach-up", "already"), ("", "non-empty")):
        with pytest.raises(InvalidInputError, match=match):
            register_task(name, fine, fine)
    with pytest.raises(InvalidInputError, match="workspace"):
        register_task("far", fine, fine, hand=(3.0, 0.0, 0.2))
    with pytest.raises(InvalidInputError, match="functions"):
        register_task("constant", 1.0, fine)  # type: ignore[arg-type]
    with pytest.raises(UnknownNameError):
        register_task("new", fine, fine, like="juggle")
    register_task("scalar", lambda *_: 1.0, fine)
    try:
        env = ContinualBenchEnv("scalar")
        with pytest.raises(InvalidInputError, match="shape \\(1,\\)"):
            env.reset()
    finally:
        TASKS.unregister("scalar")
    env.reset(options={"task": "pick-place"})
