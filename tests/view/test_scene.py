"""The scene against MuJoCo's placement of geoms, and frames against plans worked out by hand."""

from __future__ import annotations

import threading
import time

import mujoco
import numpy as np
import pytest

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.interfaces import Bodies, Plan
from everlearn.support.errors import InvalidInputError
from everlearn.view.frame import Frame, LatestFrame, imagined, segments
from everlearn.view.scene import SHOWN_GROUPS, Simulation

pytest.importorskip("trimesh")


@pytest.fixture(scope="module")
def env() -> ContinualBenchEnv:
    made = ContinualBenchEnv("door-open")
    made.reset()
    for _ in range(5):
        made.step(np.array([1.0, 0.5, -0.5, 0.2]))
    return made


def test_meshes_lie_where_mujoco_places_their_geoms(env: ContinualBenchEnv) -> None:
    simulation = Simulation.of(env)
    model, data, poses = env.model, env.data, simulation.poses()
    drawn: dict[int, list[np.ndarray]] = {}
    for shape in simulation.shapes():
        turn = np.empty(9)
        mujoco.mju_quat2Mat(turn, poses[shape.body, 3:])
        world = shape.vertices @ turn.reshape(3, 3).T + poses[shape.body, :3]
        drawn.setdefault(shape.body, []).append(world)
    checked = 0
    for geom in range(model.ngeom):
        mesh = model.geom_dataid[geom]
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            continue
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        # The frame of the geom in the world is MuJoCo's own result, in the simulation's data.
        expected = (
            model.mesh_vert[first : first + count] @ data.geom_xmat[geom].reshape(3, 3).T
            + data.geom_xpos[geom]
        )
        points = np.concatenate(drawn[int(model.geom_bodyid[geom])])
        away = np.linalg.norm(points - expected[0], axis=1).min()
        assert away < 1e-4, model.geom(geom).name
        checked += 1
    assert checked > 30


def test_only_what_mujoco_draws_is_drawn_and_the_colours_are_its_own(
    env: ContinualBenchEnv,
) -> None:
    simulation = Simulation.of(env)
    model = env.model
    shapes = simulation.shapes(without="blockGoal")
    visible = {
        int(model.geom_bodyid[geom])
        for geom in range(model.ngeom)
        if model.geom_group[geom] in SHOWN_GROUPS and model.geom_rgba[geom, 3] > 0
    }
    assert {shape.body for shape in shapes} == visible | {0}
    block = next(shape for shape in shapes if shape.body == model.body("block").id)
    assert block.colour == (204, 26, 26)
    assert np.abs(block.vertices).max() == pytest.approx(0.02)
    names = {model.body(body).name for body in simulation.moving()}
    assert {"hand", "door_link", "block", "button", "leftpad"} <= names
    assert not {"world", "tablelink", "doorlockB", "buttonbox"} & names


def test_poses_before_the_first_reset_are_known() -> None:
    fresh = ContinualBenchEnv("door-open")
    simulation = Simulation.of(fresh)
    rest = simulation.rest()
    table = fresh.model.body("doorlockB").id
    fresh.reset()
    np.testing.assert_allclose(rest[table], simulation.poses()[table], atol=1e-9)


def test_an_environment_without_a_scene_is_refused() -> None:
    import gymnasium

    with pytest.raises(InvalidInputError, match="no MuJoCo scene"):
        Simulation.of(gymnasium.make("Pendulum-v1"))


def plan_of(states: np.ndarray, returns: list[float]) -> Plan:
    actions = np.zeros((len(states), states.shape[1] - 1, 1), np.float32)
    best = int(np.argmax(returns))
    return Plan(
        action=actions[0, 0],
        actions=actions[best],
        value=max(returns),
        returns=(np.array(returns),),
        elites=actions,
        elite_returns=np.array(returns),
        states=states,
        iterations_done=1,
        seconds=0.0,
    )


def test_imagined_paths_are_those_of_hand_and_of_objects_that_move() -> None:
    bodies = Bodies((0, 1, 2), (0.0, 0.0, -0.1), (3,), ((4, 5, 6), (7, 8, 9)))
    states = np.zeros((2, 3, 10))
    states[:, :, 0] = [[0.0, 0.1, 0.2], [0.0, 0.3, 0.6]]
    states[1, :, 4] = [0.0, 0.0, 0.05]  # only in the second elite, and only the first object
    found = imagined(plan_of(states, [5.0, 2.0]), bodies)
    # The worst first; its hand and its object, then the hand of the best.
    np.testing.assert_allclose(found.merit, [0.0, 0.0, 1.0])
    np.testing.assert_allclose(found.paths[0], [[0, 0, -0.1], [0.3, 0, -0.1], [0.6, 0, -0.1]])
    np.testing.assert_allclose(found.paths[1, -1], [0.05, 0, 0])
    np.testing.assert_allclose(found.plan, [found.paths[2]])
    pieces = segments(found.paths)
    assert pieces.shape == (6, 2, 3)
    np.testing.assert_array_equal(pieces[1], [found.paths[0, 1], found.paths[0, 2]])
    assert len(imagined(None, bodies).paths) == len(imagined(plan_of(states, [1, 0]), None).paths)


def test_a_slow_page_drops_frames_and_keeps_nobody_waiting() -> None:
    slot = LatestFrame()
    seen: list[str] = []

    def slow() -> None:
        while (frame := slot.take()) is not None:
            seen.append(frame.status)
            time.sleep(0.02)

    page = threading.Thread(target=slow)
    page.start()
    began = time.perf_counter()
    for number in range(1000):
        slot.put(Frame(status=str(number)))
    # A thousand frames that waited for the page would take 20 s.
    assert time.perf_counter() - began < 2.0
    until = time.monotonic() + 5
    while (not seen or seen[-1] != "999") and time.monotonic() < until:
        time.sleep(0.01)
    slot.close()
    page.join(5)
    assert not page.is_alive()
    assert seen[-1] == "999", "the newest one is shown"
    assert slot.dropped + len(seen) == 1000
