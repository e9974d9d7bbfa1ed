"""Pictures of the world: frames without a screen, a window on one, and videos.

MuJoCo's own renderer picks its graphics library while `mujoco` is imported; this one picks it
when the first frame is asked for, so that a machine without a screen needs no setting.
"""

from __future__ import annotations

import atexit
import ctypes.util
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import mujoco
import numpy as np

from everlearn.interfaces import FloatArray
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from everlearn.continual_bench.env import ContinualBenchEnv

_ADVICE = (
    "Install a software renderer (Debian: apt-get install libegl1 libgl1-mesa-dri, or "
    "libosmesa6 with MUJOCO_GL=osmesa)"
)
_LIBRARIES = {"egl": "EGL", "osmesa": "OSMesa"}

SUFFIXES = (".mp4", ".gif")
FRAMES_PER_SECOND = 20


def graphics_library() -> str:
    """Name the library that can draw without a screen here: ``"egl"`` or ``"osmesa"``.

    ``MUJOCO_GL`` decides if it is set to one of the two.
    """
    asked = os.environ.get("MUJOCO_GL", "").lower()
    candidates = [asked] if asked in _LIBRARIES else list(_LIBRARIES)
    for name in candidates:
        if ctypes.util.find_library(_LIBRARIES[name]):
            return name
    raise MissingExtraError(
        f"no library to draw with was found (looked for {', '.join(candidates)}). {_ADVICE}"
    )


def _context(width: int, height: int) -> Any:
    name = graphics_library()
    # PyOpenGL binds to one platform at its first import, whichever is named here by then.
    os.environ.setdefault("PYOPENGL_PLATFORM", name)
    try:
        if name == "egl":
            from mujoco.egl import GLContext
        else:
            from mujoco.osmesa import GLContext
        return GLContext(width, height)
    except (ImportError, RuntimeError, AttributeError, OSError) as error:
        raise MissingExtraError(f"drawing with {name} failed: {error}. {_ADVICE}") from error


def _close(reference: weakref.ref[Camera] | weakref.ref[Viewer]) -> None:
    drawn = reference()
    if drawn is not None:
        drawn.close()


def _camera_id(model: mujoco.MjModel, name: str) -> int:
    identity = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_CAMERA, name)
    if identity < 0:
        known = ", ".join(model.camera(i).name for i in range(model.ncam))
        raise UnknownNameError(f"unknown camera {name!r}; known: {known}")
    return int(identity)


def _fixed_view(model: mujoco.MjModel, name: str) -> mujoco.MjvCamera:
    view = mujoco.MjvCamera()
    view.type = mujoco.mjtCamera.mjCAMERA_FIXED
    view.fixedcamid = _camera_id(model, name)
    return view


class Camera:
    """Draws frames of one model into memory, no screen needed.

    Parameters
    ----------
    model
        The model to draw.
    width, height
        Size of a frame in pixels.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int) -> None:
        check_whole("width", width, 1)
        check_whole("height", height, 1)
        self.model, self.width, self.height = model, width, height
        self._closed = False
        self._gl = _context(width, height)
        self._gl.make_current()
        model.vis.global_.offwidth = max(width, model.vis.global_.offwidth)
        model.vis.global_.offheight = max(height, model.vis.global_.offheight)
        self._scene = mujoco.MjvScene(model, maxgeom=1000)
        self._options = mujoco.MjvOption()
        self._mjr = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_100)
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN, self._mjr)
        self._viewport = mujoco.MjrRect(0, 0, width, height)
        # A forgotten camera must go before the library shuts itself down at exit: registered
        # later, called earlier.
        atexit.register(_close, weakref.ref(self))

    def frame(self, data: mujoco.MjData, camera: str | mujoco.MjvCamera) -> np.ndarray:
        """Return the picture from `camera` as ``[height, width, 3]`` bytes.

        Parameters
        ----------
        data
            The simulation to draw.
        camera
            Name of a camera of the scene, or a view of one's own.
        """
        view = _fixed_view(self.model, camera) if isinstance(camera, str) else camera
        self._gl.make_current()
        mujoco.mjv_updateScene(
            self.model,
            data,
            self._options,
            None,
            view,
            mujoco.mjtCatBit.mjCAT_ALL,
            self._scene,
        )
        mujoco.mjr_render(self._viewport, self._scene, self._mjr)
        pixels = np.empty((self.height, self.width, 3), dtype=np.uint8)
        mujoco.mjr_readPixels(pixels, None, self._viewport, self._mjr)
        return np.flipud(pixels).copy()  # OpenGL counts rows from below

    def close(self) -> None:
        """Free the graphics memory; a closed camera cannot draw any more."""
        if not self._closed:
            self._closed = True
            self._mjr.free()
            self._gl.free()


def _check_screen() -> None:
    # MuJoCo's viewer ends the process when it finds no screen, so look before it does.
    import glfw

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", glfw.GLFWError)
        found = glfw.init()
    if not found:
        raise MissingExtraError(
            "the viewer needs a screen and none was found (is DISPLAY set?). Without one, use "
            'render_mode="rgb_array" or record a video'
        )


class Viewer:
    """MuJoCo's interactive window on a simulation.

    It shows a copy of the simulation: opening the window runs a forward pass, and a mouse can
    push bodies, neither of which may reach the episode.
    """

    def __init__(self, model: mujoco.MjModel, camera: str) -> None:
        _check_screen()
        import mujoco.viewer

        self._model = model
        self._data = mujoco.MjData(model)
        before = set(threading.enumerate())
        self._window = mujoco.viewer.launch_passive(
            model, self._data, show_left_ui=False, show_right_ui=False
        )
        self._threads = set(threading.enumerate()) - before
        self._window.cam.type = mujoco.mjtCamera.mjCAMERA_FIXED
        self._window.cam.fixedcamid = _camera_id(model, camera)
        self._camera = camera
        atexit.register(_close, weakref.ref(self))

    def show(self, data: mujoco.MjData, camera: str) -> None:
        """Draw the simulation as it is now; does nothing once the window was closed."""
        if not self._window.is_running():
            return
        with self._window.lock():
            self._data.qpos[:] = data.qpos
            self._data.mocap_pos[:] = data.mocap_pos
            mujoco.mj_forward(self._model, self._data)
            if camera != self._camera:  # else leave the view where the user turned it
                self._window.cam.type = mujoco.mjtCamera.mjCAMERA_FIXED
                self._window.cam.fixedcamid = _camera_id(self._model, camera)
                self._camera = camera
        self._window.sync()

    def close(self) -> None:
        """Close the window and wait until it is gone."""
        self._window.close()
        # The process must not end, nor another window open, while the old one is torn down.
        for thread in self._threads:
            thread.join(timeout=10.0)


def check_path(path: str | Path) -> Path:
    """Return `path` if a video can be written under that name, and say why not otherwise."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise InvalidInputError(
            f"a video's name ends in {' or '.join(SUFFIXES)}, got {path.name!r}"
        )
    try:
        import imageio.v3  # noqa: F401

        if path.suffix.lower() == ".mp4":
            import imageio_ffmpeg  # noqa: F401
    except ImportError as error:
        raise MissingExtraError(
            f"writing {path.suffix} needs the extra 'video': pip install 'everlearn[video]'"
        ) from error
    return path


def write_video(path: str | Path, frames: Iterable[np.ndarray], fps: int) -> Path:
    """Write frames ``[height, width, 3]`` to an mp4 or gif file and return its path."""
    path = check_path(path)
    pictures = list(frames)
    if not pictures:
        raise InvalidInputError("a video needs at least one frame, got none")
    import imageio.v3 as iio

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix.lower() == ".gif":
        iio.imwrite(path, pictures, duration=1000.0 / fps, loop=0)
    else:
        # Codecs want even sizes; block size 2 asks for no more than that.
        iio.imwrite(path, np.stack(pictures), fps=fps, macro_block_size=2)
    return path


class Film:
    """Collects the frames of an episode; call it after every step.

    Parameters
    ----------
    env
        An environment with ``render_mode="rgb_array"``, just reset.
    every
        Steps between frames; 4 of them are 0.05 s, real time at 20 frames a second.
    """

    def __init__(self, env: ContinualBenchEnv, every: int = 4) -> None:
        check_whole("every", every, 1)
        self._env = env
        self._every = every
        self._steps = 0
        self.frames = [self._draw()]

    def __call__(self, *_: object) -> None:
        """Count a step, and draw it if it is its turn."""
        self._steps += 1
        if self._steps % self._every == 0:
            self.frames.append(self._draw())

    def write(self, path: str | Path, linger: int = 8) -> Path:
        """Write the film, its last picture shown `linger` times so that the end can be seen."""
        return write_video(path, [*self.frames, *[self._draw()] * linger], FRAMES_PER_SECOND)

    def _draw(self) -> np.ndarray:
        frame = self._env.render()
        if frame is None:
            raise InvalidInputError('filming needs an environment with render_mode="rgb_array"')
        return frame


def film_episode(
    env: ContinualBenchEnv,
    policy: Callable[[FloatArray], FloatArray],
    path: str | Path,
    *,
    seed: int | None = None,
    every: int = 4,
) -> tuple[bool, int]:
    """Play one episode of the environment's task, write its video, return success and steps."""
    check_path(path)
    obs, info = env.reset(seed=seed)
    film = Film(env, every)
    steps, ended = 0, False
    while not ended:
        obs, _, terminated, truncated, info = env.step(policy(obs))
        film()
        steps += 1
        ended = terminated or truncated
    film.write(path)
    return bool(info["success"]), steps
