"""What agents find by counting, in worlds whose structure is known."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

from everlearn.agents import OnlineAgent, make_agent, run_episode
from everlearn.continual_bench import observation
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.planning.structure import MOST_ENTRIES, ONSETS, SAMPLE, StructureCounter
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.structure import Structure

PLANNER: dict[str, Any] = {"candidates": 12, "elites": 4, "horizon": 4, "iterations": 2}
SMALL: dict[str, Any] = {"model.features": 20, "planner": PLANNER}
NAMES = ("hand x", "hand y", "cup x", "cup y", "clock", "lever", "lamp", "wall")
CUP, LEVER, REST = (2, 3), (5, 6), {2, 3, 5, 6, 7}
GRIP = np.array([-0.2, 0.1])  # of the hand from the cup that it drags
HANDLE = np.array([0.6, -0.5])  # where the hand turns the lever, whose lamp follows
TURN, FADE = 0.02, 0.013
TREMBLE = 1e-9


def world(episodes: int, seed: int = 0) -> list[FloatArray]:
    """Episodes of a hand that drags a cup about and turns a lever, as rows of observations."""
    generator = np.random.default_rng(seed)
    played = []
    for number in range(episodes):
        obs = np.zeros(8)
        obs[:4] = generator.uniform(-0.7, 0.7, 4)
        obs[7] = 0.25
        rows, wander = [obs], generator.uniform(-1, 1, 2)
        busy = 0
        for step in range(120):
            after = obs.copy()
            goal = (obs[[*CUP]] + GRIP if number % 2 else HANDLE) if step >= 30 else wander
            way = goal - obs[:2]
            arrived = step >= 30 and np.linalg.norm(way) < 0.03
            if arrived and not busy and step < 80:
                busy = 12
            move = np.clip(0.3 * way, -0.06, 0.06) + generator.normal(0, 0.004, 2)
            if busy:
                busy -= 1
                if number % 2:
                    move = np.array([0.03, -0.02])
                    after[[*CUP]] += move
                else:
                    after[5] += TURN
                    after[6] -= FADE * (1 + busy)
            after[:2] += move
            after[4] = np.sin(0.7 * step + number)
            after[[2, 3, 5, 6]] += generator.normal(0, TREMBLE, 4)
            rows.append(after)
            obs = after
        played.append(np.array(rows))
    return played


def counted(episodes: list[FloatArray], bounds: float = 1.0) -> StructureCounter:
    counter = StructureCounter(np.full(8, -bounds), np.full(8, bounds))
    for rows in episodes:
        for obs, after in itertools.pairwise(rows):
            counter.observe(obs, after)
    return counter


@pytest.mark.parametrize("bounds", [1.0, np.inf, 3e38])
def test_finds_what_rests_what_moves_together_and_where_it_is_touched(bounds: float) -> None:
    found = counted(world(80), bounds).structure(NAMES)
    assert found.steps == 80 * 120
    assert {one.entry for one in found.resting} == REST
    assert [thing.entries for thing in found.objects] == [CUP, LEVER]
    cup, lever = found.objects
    assert 35 <= cup.began <= 60
    assert cup.names == ("cup x", "cup y")
    by_entry = {touch.entry: touch for touch in cup.touches}
    assert set(by_entry) == {0, 1}
    for entry, beside, offset in ((0, 2, GRIP[0]), (1, 3, GRIP[1])):
        touch = by_entry[entry]
        assert touch.beside == beside
        assert abs(touch.offset - offset) < 0.015
        assert touch.spread < 0.03
        assert touch.share < 0.2
    by_entry = {touch.entry: touch for touch in lever.touches}
    assert set(by_entry) == {0, 1}
    for entry, place in enumerate(HANDLE):
        assert by_entry[entry].beside is None
        assert abs(by_entry[entry].offset - place) < 0.03  # within reach


def test_the_tolerance_is_the_smallest_motion_and_no_tremble() -> None:
    found = {one.entry: one for one in counted(world(40)).structure().resting}
    assert abs(found[5].tolerance - TURN) < 10 * TREMBLE
    assert abs(found[6].tolerance - FADE) < 10 * TREMBLE
    assert found[7].tolerance is None
    assert found[7].still == 1.0
    assert found[7].name == "7"


def test_a_hand_elsewhere_is_not_said_to_touch() -> None:
    generator = np.random.default_rng(0)
    episodes = world(80)
    for rows in episodes:
        rows[:, :2] = generator.uniform(-1, 1, (len(rows), 2))
    assert all(not thing.touches for thing in counted(episodes).structure().objects)


def test_what_falls_into_place_after_a_reset_is_not_touched() -> None:
    episodes = []
    for rows in world(60):
        still = rows.copy()
        still[:, [2, 3, 5, 6]] = still[0, [2, 3, 5, 6]]
        still[0, 2] += 0.1  # falls in the first steps
        still[1, 2] += 0.05
        episodes.append(still)
    assert counted(episodes).structure().objects == ()


def test_nothing_rests_in_a_world_of_one_swinging_thing() -> None:
    env = gymnasium.make("Pendulum-v1")
    agent = OnlineAgent.for_env(env, **{**SMALL, "value.landmarks": 0})
    run_episode(agent, env, seed=0, max_steps=120)
    found = agent.structure
    assert (found.resting, found.objects) == ((), ())
    assert found.steps == agent.steps > 50
    assert str(found) == f"{agent.steps} steps: 0 entries at rest, 0 objects"


def test_memory_is_bounded() -> None:
    counter = counted(world(30))
    sizes = {name: array.nbytes for name, array in counter.state()[0].items()}
    for rows in world(60, seed=1):
        for obs, after in itertools.pairwise(rows):
            counter.observe(obs, after)
    assert {name: array.nbytes for name, array in counter.state()[0].items()} == sizes
    assert counter.state()[0]["sample"].shape == (SAMPLE, 8)
    assert counter.state()[0]["onsets"].shape == (8, ONSETS, 8)


def test_of_many_entries_only_rest_is_counted() -> None:
    many = MOST_ENTRIES + 1
    counter = StructureCounter(np.full(many, -1.0), np.full(many, 1.0))
    obs = np.zeros(many)
    for step in range(200):
        after = obs.copy()
        after[0] = np.sin(step)
        counter.observe(obs, after)
        obs = after
    assert len(counter.structure().resting) == many - 1
    assert sum(array.nbytes for array in counter.state()[0].values()) < 200 * many


def test_numbers_beyond_all_measure_are_left_out() -> None:
    episodes = world(60)
    for rows in episodes:
        rows[:, 4] *= 1e308
    found = counted(episodes, np.inf).structure(NAMES)
    assert [thing.entries for thing in found.objects] == [CUP, LEVER]
    assert all(touch.entry != 4 for thing in found.objects for touch in thing.touches)
    assert Structure.from_json(json.loads(json.dumps(found.to_json()))) == found


def test_the_sample_covers_all_steps_evenly() -> None:
    counter = StructureCounter(np.array([-np.inf]), np.array([np.inf]))
    for step in range(5000):
        counter.observe(np.array([step]), np.array([step + 1.0]))
    arrays, meta = counter.state()
    kept = arrays["sample"][: meta["kept"], 0]
    assert SAMPLE / 2 <= len(kept) <= SAMPLE
    assert kept[0] == 0
    assert set(np.diff(kept)) == {32.0}
    assert kept[-1] > 5000 - 2 * 32


def scripted(tasks: tuple[str, ...], episodes: int) -> StructureCounter:
    """Count what happens while scripts play tasks in turn, with noise and other openings."""
    counter = StructureCounter(observation.LOW, observation.HIGH)
    generator = np.random.default_rng(0)
    for number in range(episodes):
        for task in tasks:
            env, script = ContinualBenchEnv(task), ScriptedController(task, 0.3, number)
            obs, _ = env.reset(seed=number)
            over = False
            while not over:
                action = script.act(obs)
                if task != "pick-place":
                    action[3] = generator.uniform(-1, 1)
                after, _, terminated, truncated, _ = env.step(action)
                counter.observe(obs, after)
                obs, over = after, terminated or truncated
            env.close()
    return counter


def test_finds_the_objects_of_continual_bench() -> None:
    found = scripted(("pick-place", "button-press", "door-open"), 14).structure(observation.NAMES)
    resting = {one.entry for one in found.resting}
    assert resting >= set(range(4, 23))
    assert not resting & {0, 1, 2}
    things = {thing.entries: thing for thing in found.objects}
    button, door, block = (6,), (7, 8, 10), (20, 21, 22)
    assert {button, door, block} <= things.keys()
    for entries in (button, door, block):
        touched = {touch.name for touch in things[entries].touches}
        assert {"hand x", "hand y", "hand z"} & touched, found
        assert things[entries].began >= 12
    words = str(found)
    assert "object [door x, door y, door angle] began to move" in words
    assert "  when hand x was" in words


# --- the agent ---

STEPS = 130


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of an agent that has lived for some steps."""
    path = tmp_path_factory.mktemp("lived") / "agent"
    env = ContinualBenchEnv("button-press")
    agent = make_agent("oa", env, 0, **SMALL)
    agent.begin_task("button-press", env.objective())
    run_episode(agent, env, seed=0, max_steps=STEPS)
    assert agent.structure.steps == STEPS
    agent.save(path)
    return path


def lived(file: Path) -> tuple[ContinualBenchEnv, OnlineAgent]:
    """That agent, and an environment for it."""
    env, agent = ContinualBenchEnv("button-press"), OnlineAgent.from_file(file)
    agent.begin_task("button-press", env.objective())
    return env, agent


def test_counting_changes_no_action(monkeypatch: pytest.MonkeyPatch) -> None:
    def actions() -> list[bytes]:
        env = ContinualBenchEnv("button-press")
        agent = make_agent("oa", env, 0, **SMALL)
        agent.begin_task("button-press", env.objective())
        taken: list[bytes] = []
        run_episode(
            agent,
            env,
            seed=0,
            max_steps=60,
            on_step=lambda obs, action, after, reward: taken.append(action.tobytes()),
        )
        return taken

    counted = actions()
    monkeypatch.setattr(StructureCounter, "observe", lambda self, obs, after: None)
    assert actions() == counted


def test_names_come_from_the_environment_and_only_for_people(file: Path) -> None:
    env, agent = lived(file)
    assert {one.name for one in agent.structure.resting} >= {"block x", "door angle"}
    assert "structure" not in agent.given
    assert "observation_names" not in agent.given

    for wrong in (("hand x",), "x" * 26, ("\x1b[2J",) * 26, ("x" * 101,) * 26):
        env.observation_names = wrong
        with pytest.raises(InvalidInputError, match="observation_names"):
            EnvironmentFacts.of(env)
    env.observation_names = observation.NAMES
    stacked = gymnasium.wrappers.FrameStackObservation(env, 2)
    assert EnvironmentFacts.of(env).observation_names == observation.NAMES
    assert EnvironmentFacts.of(stacked).observation_names is None, "its entries are others"


def test_an_evaluation_copy_counts_nothing(file: Path) -> None:
    env, agent = lived(file)
    before = agent.structure
    run_episode(agent.evaluation_copy(0), env, seed=1, max_steps=20)
    assert agent.structure == before


def test_it_is_saved_and_goes_on_to_the_bit(file: Path, tmp_path: Path) -> None:
    env, agent = lived(file)
    run_episode(agent, env, seed=2, max_steps=20)
    agent.save(tmp_path / "agent")
    other = make_agent("oa", env, 0, **SMALL)
    other.begin_task("button-press", env.objective())
    other.load(tmp_path / "agent")
    assert other.structure == agent.structure
    for one in (agent, other):
        run_episode(one, env, seed=3, max_steps=40)
    mine, theirs = agent._counter.state(), other._counter.state()
    assert mine[1] == theirs[1]
    assert mine[1]["steps"] == STEPS + 60
    for name, array in mine[0].items():
        assert array.tobytes() == theirs[0][name].tobytes(), name
    assert agent.structure == other.structure


def test_a_file_without_it_loads_and_counts_from_nothing(file: Path, tmp_path: Path) -> None:
    env, agent = lived(file)
    arrays, meta = load_archive(file, "everlearn-planning-agent", 1)
    del meta["agent"]["structure"]
    arrays = {name: array for name, array in arrays.items() if "structure/" not in name}
    save_archive(tmp_path / "old", "everlearn-planning-agent", 1, arrays, meta)
    agent.load(tmp_path / "old")
    assert agent.structure == Structure()
    assert agent.steps == STEPS
    run_episode(agent, env, seed=0, max_steps=5)
    assert agent.structure.steps == 5


@pytest.mark.parametrize("change", ["shape", "place", "meta"])
def test_a_damaged_state_changes_nothing(file: Path, tmp_path: Path, change: str) -> None:
    _, agent = lived(file)
    arrays, meta = load_archive(file, "everlearn-planning-agent", 1)
    if change == "shape":
        arrays["structure/onsets"] = arrays["structure/onsets"][:, :2].copy()
    elif change == "place":
        arrays["structure/object"] = arrays["structure/object"] + 100
    else:
        meta["agent"]["structure"]["kept"] = 10**6
    save_archive(tmp_path / "bad", "everlearn-planning-agent", 1, arrays, meta)
    before = agent._counter.state()
    with pytest.raises((DamagedFileError, InvalidInputError)):
        agent.load(tmp_path / "bad")
    assert agent._counter.state()[1] == before[1]
    assert agent.structure.steps == STEPS


def test_an_exported_agent_keeps_what_was_found(file: Path, tmp_path: Path) -> None:
    _, agent = lived(file)
    agent.export(tmp_path / "exported")
    other = OnlineAgent.from_export(tmp_path / "exported")
    assert other.structure == agent.structure
    assert other.structure.resting


def test_it_is_json_and_back() -> None:
    found = counted(world(40)).structure(NAMES)
    assert found.objects
    assert Structure.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    "damage",
    [
        {"steps": -1},
        {"steps": True},
        {"resting": 3},
        {"resting": [{"entry": 1, "name": "\x1b[2J", "still": 1.0, "tolerance": None}]},
        {"resting": [{"entry": 1, "name": "x", "still": 2.0, "tolerance": None}]},
        {"resting": [{"entry": 1, "name": "x", "still": 1.0, "tolerance": float("nan")}]},
        {"objects": [{"entries": [1, 2], "names": ["x"], "began": 3, "touches": []}]},
    ],
)
def test_what_is_no_structure_is_refused(damage: dict[str, Any]) -> None:
    stored = {"steps": 1, "resting": [], "objects": []} | damage
    with pytest.raises(InvalidInputError):
        Structure.from_json(stored)
