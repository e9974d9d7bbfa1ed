"""The geoms of a compiled MuJoCo model as meshes, body by body."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import gymnasium
import mujoco
import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError, needs_extra

SHOWN_GROUPS = (0, 1, 2)
"""Groups of geoms that MuJoCo draws unless told otherwise; the others only collide."""

GOAL_SITE = 0.02
"""Least size of a site that is drawn: goals are that large, other marks smaller."""

PLANE = 2.0
"""Largest half width of a plane that is drawn."""


@dataclass(frozen=True, eq=False)
class Shape:
    """What is drawn of one body in one colour.

    Attributes
    ----------
    body
        Number of the body that carries it.
    vertices, faces
        In the frame of the body, ``[V, 3]`` and ``[F, 3]``.
    colour, opacity
        Red, green and blue from 0 to 255, and 0 to 1.
    """

    body: int
    vertices: npt.NDArray[np.float32]
    faces: npt.NDArray[np.uint32]
    colour: tuple[int, int, int]
    opacity: float


@dataclass(frozen=True, eq=False)
class Simulation:
    """A MuJoCo model and its state."""

    model: mujoco.MjModel
    data: mujoco.MjData

    @classmethod
    def of(cls, env: gymnasium.Env[Any, Any]) -> Simulation:
        """Find the simulation of an environment."""
        model, data = (getattr(env.unwrapped, name, None) for name in ("model", "data"))
        if not isinstance(model, mujoco.MjModel) or not isinstance(data, mujoco.MjData):
            raise InvalidInputError(
                f"{type(env.unwrapped).__name__} has no MuJoCo scene to show; the viewer needs an "
                "environment whose attributes model and data are an mujoco.MjModel and its MjData"
            )
        return cls(model, data)

    def poses(self) -> FloatArray:
        """Positions and quaternions of all bodies now, ``[B, 7]``."""
        return np.concatenate([self.data.xpos, self.data.xquat], axis=1)

    def rest(self) -> FloatArray:
        """Poses ``[B, 7]`` of all bodies where the model puts them; the simulation is not touched.

        Before its first reset a simulation does not know where its bodies are.
        """
        data = mujoco.MjData(self.model)
        mujoco.mj_kinematics(self.model, data)
        return Simulation(self.model, data).poses()

    def moving(self) -> list[int]:
        """Bodies that can move: those with a joint, a mocap body, and what hangs on them."""
        parents = self.model.body_parentid
        free = (self.model.body_dofnum > 0) | (self.model.body_mocapid >= 0)
        for body in range(1, self.model.nbody):
            free[body] |= free[parents[body]]
        return [int(body) for body in np.flatnonzero(free)]

    def shapes(self, without: str = "") -> list[Shape]:
        """Return what is drawn, one shape for each body and colour, but for a site's name."""
        model = self.model
        parts: dict[tuple[int, tuple[float, ...]], list[tuple[Any, Any]]] = {}
        for geom in range(model.ngeom):
            colour = self._colour(geom)
            if model.geom_group[geom] not in SHOWN_GROUPS or colour[3] == 0:
                continue
            mesh = self._mesh(geom)
            if mesh is not None:
                place = model.geom_pos[geom], model.geom_quat[geom]
                key = int(model.geom_bodyid[geom]), colour
                parts.setdefault(key, []).append((_placed(mesh[0], *place), mesh[1]))
        for site in range(model.nsite):
            large = model.site_size[site, 0] >= GOAL_SITE and model.site_rgba[site, 3] > 0
            if large and model.site(site).name != without:
                key = int(model.site_bodyid[site]), (*map(float, model.site_rgba[site][:3]), 0.5)
                vertices, faces = _ball(float(model.site_size[site, 0]))
                parts.setdefault(key, []).append((vertices + model.site_pos[site], faces))
        return [_joined(body, colour, meshes) for (body, colour), meshes in parts.items()]

    def _colour(self, geom: int) -> tuple[float, ...]:
        """Red, green, blue and opacity; a material gives it unless the geom has its own."""
        material = int(self.model.geom_matid[geom])
        rgba = self.model.geom_rgba[geom]
        plain = np.allclose(rgba, (0.5, 0.5, 0.5, 1.0))
        if material >= 0 and plain:
            rgba = self.model.mat_rgba[material] * self._texture(material)
        return tuple(round(float(part), 3) for part in rgba)

    def _texture(self, material: int) -> FloatArray:
        """Mean colour of a material's texture, which is not drawn itself."""
        model = self.model
        texture = int(model.mat_texid[material, mujoco.mjtTextureRole.mjTEXROLE_RGB])
        if texture < 0:
            return np.ones(4)
        start, channels = model.tex_adr[texture], model.tex_nchannel[texture]
        count = model.tex_height[texture] * model.tex_width[texture] * channels
        pixels = model.tex_data[start : start + count].reshape(-1, channels)
        return np.append(pixels[:, :3].mean(axis=0) / 255, 1.0)

    def _mesh(self, geom: int) -> tuple[Any, Any] | None:
        model = self.model
        if model.geom_type[geom] != mujoco.mjtGeom.mjGEOM_MESH:
            return _primitive(model.geom_type[geom], model.geom_size[geom])
        mesh = int(model.geom_dataid[geom])
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        start, faces = model.mesh_faceadr[mesh], model.mesh_facenum[mesh]
        return model.mesh_vert[first : first + count], model.mesh_face[start : start + faces]


def _primitive(kind: int, size: FloatArray) -> tuple[Any, Any] | None:
    """Vertices and faces of a geom that is no mesh; None for what is not drawn."""
    with needs_extra("the viewer", "trimesh", "view"):
        from trimesh import creation
    x, y, z = (float(length) for length in size)
    kinds = mujoco.mjtGeom
    if kind == kinds.mjGEOM_PLANE:
        extents = [2 * min(length or PLANE, PLANE) for length in (x, y)]
        made = creation.box((*extents, 0.002))
    elif kind == kinds.mjGEOM_BOX:
        made = creation.box((2 * x, 2 * y, 2 * z))
    elif kind == kinds.mjGEOM_CYLINDER:
        made = creation.cylinder(x, 2 * y, sections=48 if x > 0.5 else 24)
    elif kind == kinds.mjGEOM_CAPSULE:
        made = creation.capsule(2 * y, x, count=(12, 12))
        made.apply_translation(-made.bounds.mean(axis=0))  # where it begins depends on versions
    elif kind in (kinds.mjGEOM_SPHERE, kinds.mjGEOM_ELLIPSOID):
        vertices, faces = _ball(1.0)
        return vertices * ((x, y, z) if kind == kinds.mjGEOM_ELLIPSOID else (x, x, x)), faces
    else:
        return None
    return made.vertices, made.faces


def _ball(radius: float) -> tuple[Any, Any]:
    from trimesh import creation

    made = creation.icosphere(2, radius)
    return made.vertices, made.faces


def _placed(vertices: Any, position: FloatArray, quaternion: FloatArray) -> FloatArray:
    """Turn and move `vertices`."""
    turn = np.empty(9)
    mujoco.mju_quat2Mat(turn, np.asarray(quaternion, np.float64))
    return np.asarray(vertices @ turn.reshape(3, 3).T + position)


def _joined(body: int, colour: tuple[float, ...], meshes: list[tuple[Any, Any]]) -> Shape:
    starts = np.cumsum([0, *(len(vertices) for vertices, _ in meshes)])
    faces = [part + start for (_, part), start in zip(meshes, starts[:-1], strict=True)]
    red, green, blue = (round(255 * part) for part in colour[:3])
    return Shape(
        body,
        np.concatenate([vertices for vertices, _ in meshes]).astype(np.float32),
        np.concatenate(faces).astype(np.uint32),
        (red, green, blue),
        colour[3],
    )
