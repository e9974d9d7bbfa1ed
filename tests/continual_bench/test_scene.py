"""The composed model against the figures measured on the published one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import mujoco
import numpy as np
import pytest

from everlearn.continual_bench import observation
from everlearn.continual_bench.scene import assets_folder, build_model
from everlearn.support.errors import MissingExtraError

FACTS = json.loads((Path(__file__).parents[1] / "data" / "facts.json").read_text())


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return build_model()


def check(
    model: mujoco.MjModel, kind: str, prefix: str, fields: dict[str, str], **tolerance: float
):
    for fact in FACTS[kind]:
        i = fact["id"]
        for ours, theirs in fields.items():
            value = getattr(model, f"{prefix}_{ours}")[i]
            np.testing.assert_allclose(
                value, fact[theirs], rtol=0, atol=tolerance.get(ours, 0.0), err_msg=f"{kind} {i}"
            )


def names(model: mujoco.MjModel, kind: mujoco.mjtObj, count: int) -> list[str]:
    return [mujoco.mj_id2name(model, kind, i) or "" for i in range(count)]


def test_sizes(model: mujoco.MjModel):
    drawn_only = {"nmesh", "ntex", "nmat", "total_mass", "subtree_mass_world"}
    for size, value in FACTS["model"].items():
        if size not in drawn_only:
            assert getattr(model, size) == value, size
    assert model.body_mass.sum() == pytest.approx(FACTS["model"]["total_mass"], abs=1e-9)


def test_names_and_their_order(model: mujoco.MjModel):
    for kind, fact in (
        (mujoco.mjtObj.mjOBJ_BODY, "bodies"),
        (mujoco.mjtObj.mjOBJ_JOINT, "joints"),
        (mujoco.mjtObj.mjOBJ_GEOM, "geoms"),
        (mujoco.mjtObj.mjOBJ_SITE, "sites"),
        (mujoco.mjtObj.mjOBJ_CAMERA, "cameras"),
    ):
        ours = names(model, kind, len(FACTS[fact]))
        assert ours == [entry["name"] for entry in FACTS[fact]]


def test_bodies_geoms_sites_cameras(model: mujoco.MjModel):
    same = {"mass": "mass", "inertia": "inertia", "pos": "pos_after_reset", "quat": "quat"}
    check(model, "bodies", "body", same)
    shape = ("size", "pos", "contype", "conaffinity", "condim", "friction", "margin")
    contact = ("solref", "solimp", "group")
    check(model, "geoms", "geom", {name: name for name in shape + contact})
    types = [mujoco.mjtGeom(int(kind)).name for kind in model.geom_type]
    assert types == [geom["type"] for geom in FACTS["geoms"]]
    check(model, "sites", "site", {"pos": "pos_after_reset"})
    view = {"pos": "pos", "quat": "quat", "fovy": "fovy", "mode": "mode"}
    check(model, "cameras", "cam", view, quat=1e-12)


def test_joints_actuators_weld_and_options(model: mujoco.MjModel):
    shape = ("axis", "range", "limited", "stiffness", "solref", "solimp", "margin")
    check(model, "joints", "jnt", {name: name for name in shape})
    for joint in FACTS["joints"]:
        for field in ("damping", "armature", "frictionloss"):
            assert getattr(model, f"dof_{field}")[joint["dofadr"]] == joint[field]
    drive = ("gainprm", "biasprm", "ctrlrange", "ctrllimited", "gaintype", "biastype", "gear")
    check(model, "actuators", "actuator", {name: name for name in drive})
    weld = FACTS["equality"][0]
    np.testing.assert_array_equal(model.eq_data[0], weld["eq_data_effective"])
    np.testing.assert_array_equal(model.eq_solref[0], weld["solref"])
    np.testing.assert_array_equal(model.qpos0, FACTS["qpos0"])
    for name, value in FACTS["opt"].items():
        if hasattr(model.opt, name) and not isinstance(value, str):
            np.testing.assert_array_equal(getattr(model.opt, name), value, err_msg=name)


def test_observation_bounds():
    np.testing.assert_array_equal(observation.LOW, FACTS["observation"]["low"])
    np.testing.assert_array_equal(observation.HIGH, FACTS["observation"]["high"])


def test_models_are_independent_copies():
    first, second = build_model(), build_model()
    first.body_mass[1] = 1.0
    assert second.body_mass[1] == FACTS["bodies"][1]["mass"]


def test_metaworld_itself_is_never_imported():
    code = (
        "import sys, everlearn.continual_bench.scene as scene; scene.build_model(); "
        "sys.exit(any(name.split('.')[0] == 'metaworld' for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_missing_parts_are_explained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    assert assets_folder().is_dir()
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match="pip install metaworld"):
        assets_folder()
    (tmp_path / "metaworld").mkdir()

    class Spec:
        submodule_search_locations = (str(tmp_path / "metaworld"),)

    monkeypatch.setattr("importlib.util.find_spec", lambda name: Spec)
    with pytest.raises(MissingExtraError, match="reinstall"):
        assets_folder()
