"""The world: one MuJoCo model composed from the parts that the `metaworld` package ships.

Nothing of those parts is copied. A short document includes them in the order that fixes the
joint, body and contact order (and with it every bit of a simulation); MjSpec then edits what
Continual Bench has differently: a round table without walls, a heavy window, a free block,
goal markers and one camera a task.
"""

from __future__ import annotations

import importlib.util
from functools import lru_cache
from pathlib import Path
from xml.sax.saxutils import quoteattr

import mujoco
import numpy as np

from everlearn.support.errors import MissingExtraError

# Assets first, then the bodies in the order of the world; names are the parts' file names.
_ASSETS = (
    "xyz_base_dependencies",
    "buttonbox_dependencies",
    "doorlock_dependencies",
    "window_dependencies",
    "faucet_dependencies",
    "plug_dependencies",
)

TABLE_RADIUS = 1.025
TABLE_HALF_HEIGHT = 0.027

# Where the parts stand. The peg and the block hang on free joints: theirs is the pose from
# which a reset lets them fall while the arm moves to its start, before they are put in place.
_BODIES = (
    # name, part, position, euler angles, has a free joint
    ("button1", "buttonbox", (-0.5, -0.5, 0.0), (-1.57, 0.0, 0.0), False),
    ("door", "doorlockB", (0.05, 0.9, 0.15), (0.0, 0.0, 0.0), False),
    ("window", "window_horiz", (-0.7, 0.2, 0.202), (0.0, 0.0, 1.57), False),
    ("faucet", "faucet", (0.6, -0.4, 0.0), (0.0, 0.0, 3.14), False),
    ("peg", "plug", (-0.252, 0.6, 0.131), (0.0, 0.0, 0.0), True),
    ("pegBox", "plug_wall", (0.0, -0.75, 0.0), (0.0, 0.0, 0.0), False),
)

_GOALS = (
    ("doorGoal", (-0.25, 0.45, 0.15)),
    ("faucetGoal", (0.7749999999999999, -0.4, 0.125)),
    ("pegGoal", (0.194, -0.75, 0.131)),
    ("blockGoal", (0.52, 0.33, 0.2)),
)

# name: position, quaternion, vertical field of view in degrees.
_FRONT = ((0.0, -1.5, 1.1), (0.9239556994702721, 0.3824994972760097, 0.0, 0.0), 60.0)
_CAMERAS = {
    "topview": ((0.0, 0.5, 2.0), (1.0, 0.0, 0.0, 0.0), 45.0),
    "corner": (
        (-1.1, -0.4, 0.6),
        (0.30520839440433395, -0.23085589745955107, -0.5573354386006607, 0.7368382451210597),
        45.0,
    ),
    "side": (
        (1.45, -0.9, 1.1),
        (-0.39503823089303436, 0.26266733956017996, -0.4349370357280407, 0.7653629464596412),
        60.0,
    ),
    "camera_door": (
        (0.9, -0.6, 1.1),
        (0.8360593297812555, 0.4763646523179895, 0.11504590261910372, 0.24666972939182108),
        60.0,
    ),
    "camera_window": (
        (0.0, 1.5, 1.1),
        (0.0007357706030224134, -0.00030459456652293164, 0.3824993759975958, 0.9239554065133336),
        60.0,
    ),
    "camera_button": _FRONT,
    "camera_peg": _FRONT,
    "camera_faucet": _FRONT,
    "camera_block": (
        (1.3, -0.6, 1.1),
        (0.7993633658215357, 0.46179147027664047, 0.22143142074861552, 0.3142212170867107),
        60.0,
    ),
}
_GRIPPER_VIEW = ((0.0, -0.1, 0.0), (-1.0, -1.3, 0.0, 0.0))

# Relative pose of the weld between the mocap body and the hand: no offset in translation, a
# unit quaternion with the published component order, and torque scale one.
WELD_DATA = (0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


def assets_folder() -> Path:
    """Return the folder of `metaworld`'s assets, found without importing the package."""
    spec = importlib.util.find_spec("metaworld")
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(
            "the scene is built from parts of the package 'metaworld', which is not installed; "
            "run: pip install metaworld"
        )
    folder = Path(spec.submodule_search_locations[0]) / "assets"
    if not (folder / "scene" / "basic_scene.xml").is_file():
        raise MissingExtraError(
            f"the installed 'metaworld' has no scene parts in {folder}; reinstall it with "
            "pip install --force-reinstall metaworld"
        )
    return folder


def _document(folder: Path) -> str:
    """Return the document that includes the parts, with absolute names so it needs no file."""

    def include(*names: str) -> str:
        return f"<include file={quoteattr(str(folder.joinpath(*names)))}/>"

    def body(
        name: str, part: str, position: tuple, euler: tuple, free: bool
    ) -> str:  # one line of the world
        place = f'pos="{" ".join(map(str, position))}" euler="{" ".join(map(str, euler))}"'
        joint = '<joint type="free"/>' if free else ""
        inside = include("objects", "assets", f"{part}.xml")
        return f'<body name="{name}" {place}>{joint}{inside}</body>'

    # Meshes and textures are named relative to the folder of Meta-World's own scenes.
    base = quoteattr(str(folder / "sawyer_xyz"))
    return "".join(
        (
            f'<mujoco model="continual_bench"><compiler meshdir={base} texturedir={base}/>',
            include("scene", "basic_scene.xml"),
            *(include("objects", "assets", f"{name}.xml") for name in _ASSETS),
            "<worldbody>",
            include("objects", "assets", "xyz_base.xml"),
            *(body(*row) for row in _BODIES),
            "</worldbody></mujoco>",
        )
    )


def build_spec() -> mujoco.MjSpec:
    """Compose the scene and return it as an editable specification."""
    spec = mujoco.MjSpec.from_string(_document(assets_folder()))
    _replace_table(spec)
    _edit_parts(spec)
    _add_block(spec)
    _add_goals_and_cameras(spec)
    _add_control(spec)
    return spec


def _replace_table(spec: mujoco.MjSpec) -> None:
    spec.detach_body(spec.body("RetainingWall"))
    table = spec.body("tablelink")
    table.pos = (0.0, 0.0, 0.0)
    top, drawn_legs, support = table.geoms
    top.type = mujoco.mjtGeom.mjGEOM_CYLINDER
    top.size = (TABLE_RADIUS, TABLE_HALF_HEIGHT, 0.0)
    drawn_legs.delete()
    for geom in (top, support):
        geom.contype = geom.conaffinity = 1


def _edit_parts(spec: mujoco.MjSpec) -> None:
    for name, height in (("buttonStart", -0.1935), ("buttonHole", -0.1)):
        spec.body("button1").add_site(
            name=name, pos=(0.0, height, 0.0), size=(0.005,) * 3, rgba=(0, 0.8, 0, 1)
        )
    spec.joint("window_slide").damping = 500.0
    spec.site("handleCloseStart").name = "windowHandleCloseStart"
    spec.site("handleStartClose").name = "faucetHandleStartClose"


def _add_block(spec: mujoco.MjSpec) -> None:
    block = spec.worldbody.add_body(
        name="block",
        pos=(0.0, 0.6, 0.02),
        ipos=(0.0, 0.0, 0.0),
        mass=0.01,
        # So heavy to turn that it never tips: the published world has it like this.
        inertia=(1e5, 1e5, 1e5),
        explicitinertial=True,
    )
    block.add_joint(name="blockjoint", type=mujoco.mjtJoint.mjJNT_FREE)
    block.add_geom(
        name="blockGeom",
        type=mujoco.mjtGeom.mjGEOM_BOX,
        size=(0.02, 0.02, 0.02),
        friction=(2.0, 0.1, 0.002),
        solimp=(0.99, 0.99, 0.01, 0.5, 2.0),
        solref=(0.01, 1.0),
        condim=3,
        rgba=(0.8, 0.1, 0.1, 1.0),
    )


def _add_goals_and_cameras(spec: mujoco.MjSpec) -> None:
    for name, position in _GOALS:
        spec.worldbody.add_site(
            name=name, pos=position, size=(0.02,) * 3, rgba=(0.0, 0.8, 0.0, 1.0)
        )
    for camera in list(spec.worldbody.cameras):
        camera.delete()
    for name, (position, quaternion, fovy) in _CAMERAS.items():
        spec.worldbody.add_camera(name=name, pos=position, quat=quaternion, fovy=fovy)
    view = spec.camera("gripperPOV")
    view.pos, view.quat = _GRIPPER_VIEW


def _add_control(spec: mujoco.MjSpec) -> None:
    for joint in ("r_close", "l_close"):
        actuator = spec.add_actuator(
            trntype=mujoco.mjtTrn.mjTRN_JOINT,
            target=joint,
            ctrllimited=True,
            ctrlrange=(-1.0, 1.0),
            gaintype=mujoco.mjtGain.mjGAIN_FIXED,
            biastype=mujoco.mjtBias.mjBIAS_AFFINE,
        )
        actuator.gainprm[0] = 400.0
        actuator.biasprm[1] = -400.0
    spec.add_equality(
        type=mujoco.mjtEq.mjEQ_WELD,
        objtype=mujoco.mjtObj.mjOBJ_BODY,
        name1="mocap",
        name2="hand",
        solref=(0.02, 1.0),
    )


@lru_cache(maxsize=1)
def _template() -> mujoco.MjModel:
    model = build_spec().compile()
    model.eq_data[0] = np.asarray(WELD_DATA)
    return model


def build_model() -> mujoco.MjModel:
    """Return a model of the world, ready to simulate.

    Compiling takes a second (43 meshes), so a process does it once and hands out copies.
    """
    model: mujoco.MjModel = _template().__copy__()
    return model
