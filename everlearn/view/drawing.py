"""What of a frame is drawn in 3D, by viser's scene: in a page, and in a file."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import FloatArray
from everlearn.view.frame import Frame, Lines, segments
from everlearn.view.scene import Simulation

LOW_RETURN, HIGH_RETURN = (40, 60, 160), (255, 200, 30)
PLAN, HAPPENED, PREDICTED = (20, 150, 60), (20, 20, 20), (215, 30, 30)
GOAL = (30, 180, 60)

MOVED = 1e-4
"""Metres, and change of a quaternion, from which on a body is drawn anew."""

VIEW = (0.55, -1.0, 0.85)
"""Where the camera is, from the middle of the scene and in units of its size."""


class Drawing:
    """A scene of viser that shows frames.

    Parameters
    ----------
    scene
        A viser scene.
    simulation
        What is in it.
    """

    def __init__(self, scene: Any, simulation: Simulation) -> None:
        self._scene = scene
        scene.set_up_direction("+z")
        scene.configure_default_lights(enabled=True, cast_shadow=False)
        moving = set(simulation.moving())
        self._bodies: dict[int, Any] = {}
        poses = simulation.rest()
        for number, shape in enumerate(simulation.shapes(without="blockGoal")):
            if shape.body not in self._bodies:
                self._bodies[shape.body] = scene.add_frame(
                    f"/bodies/{shape.body}",
                    show_axes=False,
                    position=poses[shape.body, :3],
                    wxyz=poses[shape.body, 3:],
                )
            scene.add_mesh_simple(
                f"/bodies/{shape.body}/{number}",
                shape.vertices,
                shape.faces,
                color=shape.colour,
                opacity=None if shape.opacity >= 1 else shape.opacity,
                flat_shading=True,
                side="double",
                cast_shadow=False,
                receive_shadow=False,
            )
        self._moving = [body for body in self._bodies if body in moving]
        self._poses = poses
        self._lines = {
            name: scene.add_line_segments(
                f"/{name}",
                np.zeros((1, 2, 3), np.float32),
                np.zeros((1, 2, 3), np.uint8),
                thickness=thickness,
                thickness_units="screen",
                visible=False,
            )
            for name, thickness in (
                ("imagined", 1.5),
                ("plan", 4.0),
                ("happened", 4.0),
                ("predicted", 3.0),
            )
        }
        self._imagined_shown = True
        self._goal: Any = None
        extent = simulation.model.stat.extent
        self.centre = tuple(simulation.model.stat.center) if extent < 5 else (0.0, 0.0, 0.1)
        size = min(float(extent), 1.3)
        self.camera = tuple(
            float(middle + size * part) for middle, part in zip(self.centre, VIEW, strict=True)
        )

    def add_goal(self, limits: Any) -> Any:
        """Add the goal of pick-place, which can be dragged, and return its handle."""
        self._goal = self._scene.add_transform_controls(
            "/goal",
            scale=0.18,
            disable_rotations=True,
            translation_limits=limits,
            depth_test=False,
            visible=False,
        )
        self._scene.add_icosphere("/goal/ball", radius=0.03, color=GOAL, opacity=0.6)
        self._last_goal: tuple[float, float, float] | None = None
        return self._goal

    def show_imagined(self, on: bool) -> None:
        """Show or hide what was imagined."""
        self._imagined_shown = on
        if not on:
            self._lines["imagined"].visible = False

    def show(self, frame: Frame) -> None:
        """Draw `frame`."""
        if frame.poses is not None:
            self._move(frame.poses)
        found = frame.imagined
        if self._imagined_shown:
            pieces = segments(found.paths)
            each = max(found.paths.shape[1] - 1, 1)
            self._draw("imagined", pieces, _by_return(found.merit).repeat(each, axis=0))
        self._draw("plan", segments(found.plan), PLAN)
        self._draw("happened", segments(frame.happened), HAPPENED)
        expected = segments(frame.predicted)
        if frame.predicted.shape == frame.happened.shape and len(expected):
            gaps = np.stack([frame.predicted, frame.happened], axis=2).reshape(-1, 2, 3)
            expected = np.concatenate([expected, gaps])
        self._draw("predicted", expected, PREDICTED)
        if self._goal is not None:
            self._show_goal(frame.goal)

    def _move(self, poses: FloatArray) -> None:
        for body in self._moving:
            old, new = self._poses[body], poses[body]
            if np.abs(new[:3] - old[:3]).max() > MOVED:
                self._bodies[body].position = new[:3]
                old[:3] = new[:3]
            if np.abs(new[3:] - old[3:]).max() > MOVED:
                self._bodies[body].wxyz = new[3:]
                old[3:] = new[3:]

    def _draw(self, name: str, pieces: Lines, colours: Any) -> None:
        line = self._lines[name]
        if line.visible != bool(len(pieces)):
            line.visible = bool(len(pieces))
        if not len(pieces):
            return
        wanted = np.broadcast_to(np.asarray(colours, np.uint8).reshape(-1, 1, 3), pieces.shape)
        line.points = pieces
        if not np.array_equal(line.colors, wanted):
            line.colors = wanted.copy()

    def _show_goal(self, goal: tuple[float, float, float] | None) -> None:
        self._goal.visible = goal is not None
        # What the user drags is where it is already.
        if goal is not None and goal != self._last_goal:
            if self._last_goal is None or math.dist(goal, self._goal.position) > 0.01:
                self._goal.position = goal
            self._last_goal = goal


def _by_return(merit: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    """Colours of imagined paths, ``[P, 3]``."""
    low, high = np.array(LOW_RETURN), np.array(HIGH_RETURN)
    return (low + merit[:, None] * (high - low)).astype(np.uint8)
