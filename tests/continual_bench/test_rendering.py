"""Frames and videos; the pictures themselves need a software renderer on the machine."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from everlearn.continual_bench import PAPER_TASKS, rendering
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.rendering import film_episode, write_video
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.support.errors import InvalidInputError, MissingExtraError, UnknownNameError

try:
    rendering.graphics_library()
    NO_GRAPHICS = ""
except MissingExtraError as error:
    NO_GRAPHICS = str(error)

needs_graphics = pytest.mark.skipif(bool(NO_GRAPHICS), reason=NO_GRAPHICS or "graphics found")


@needs_graphics
def test_a_frame_from_each_task():
    env = ContinualBenchEnv(render_mode="rgb_array", width=160, height=120)
    frames = []
    for task in PAPER_TASKS:
        env.reset(options={"task": task})
        frame = env.render()
        assert frame.shape == (120, 160, 3)
        assert frame.dtype == np.uint8
        assert frame.std() > 20  # a picture, not a blank
        np.testing.assert_array_equal(frame, env.render())
        frames.append(frame)
    # button-press and faucet-close share the start of the hand and the camera; no others do.
    assert len({frame.tobytes() for frame in frames}) == 5
    env.close()
    env.close()


@needs_graphics
def test_frames_follow_the_simulation_and_leave_it_alone():
    drawn, plain = (
        ContinualBenchEnv("pick-place", render_mode=mode, width=160, height=120)
        for mode in ("rgb_array", None)
    )
    for env in (drawn, plain):
        env.reset()
    first = drawn.render()
    for _ in range(10):
        action = np.array([1.0, 0.0, 0.0, 1.0])
        np.testing.assert_array_equal(drawn.step(action)[0], plain.step(action)[0])
        drawn.render()
    assert np.abs(drawn.render().astype(int) - first).max() > 50
    drawn.close()


@needs_graphics
@pytest.mark.parametrize("suffix", [".mp4", ".gif"])
def test_a_video_of_a_solved_task(tmp_path: Path, suffix: str):
    iio = pytest.importorskip("imageio.v3", reason="the extra 'video' is not installed")
    if suffix == ".mp4":
        pytest.importorskip("imageio_ffmpeg", reason="the extra 'video' is not installed")
    env = ContinualBenchEnv("peg-unplug", render_mode="rgb_array", width=64, height=48)
    path = tmp_path / "deep" / f"peg{suffix}"
    success, steps = film_episode(env, ScriptedController("peg-unplug").act, path, every=8)
    env.close()
    assert success
    stored = iio.imread(path)
    assert stored.shape[1:] == (48, 64, 3)
    # The start, every eighth step, and the end eight times (a gif merges equal frames).
    assert len(stored) in (1 + steps // 8 + 8, 1 + steps // 8 + 1)


@needs_graphics
def test_unknown_camera():
    env = ContinualBenchEnv()
    camera = rendering.Camera(env.model, 32, 32)
    with pytest.raises(UnknownNameError, match="camera_door"):
        camera.frame(env.data, "camera_roof")
    camera.close()


def test_bad_videos_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(InvalidInputError, match=r"\.mp4 or \.gif"):
        write_video(tmp_path / "film.avi", [np.zeros((8, 8, 3), np.uint8)], 20)
    with pytest.raises(InvalidInputError, match="at least one frame"):
        write_video(tmp_path / "film.gif", [], 20)
    policy = ScriptedController("pick-place").act
    with pytest.raises(InvalidInputError, match="at least 1"):
        film_episode(ContinualBenchEnv(), policy, tmp_path / "film.gif", every=0)
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    with pytest.raises(MissingExtraError, match=r"everlearn\[video\]"):
        write_video(tmp_path / "film.mp4", [np.zeros((8, 8, 3), np.uint8)], 20)


def test_without_a_graphics_library_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: None)
    with pytest.raises(MissingExtraError, match="libegl1"):
        rendering.graphics_library()
    env = ContinualBenchEnv(render_mode="rgb_array")
    env.reset()
    with pytest.raises(MissingExtraError, match="libegl1"):
        env.render()
    env.step(np.zeros(4))


def test_the_library_asked_for_wins(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("ctypes.util.find_library", lambda name: name)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert rendering.graphics_library() == "egl"
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert rendering.graphics_library() == "osmesa"
    # A setting for screens says nothing about drawing without one.
    monkeypatch.setenv("MUJOCO_GL", "glfw")
    assert rendering.graphics_library() == "egl"


VIEWER = """
import numpy as np
from everlearn.continual_bench.env import ContinualBenchEnv
shown, plain = (ContinualBenchEnv("door-open", render_mode=mode) for mode in ("human", None))
for task in ("door-open", "window-close"):
    for env in (shown, plain):
        env.reset(options={"task": task})
    for _ in range(5):
        action = np.array([1.0, 0.0, 0.0, 1.0])
        np.testing.assert_array_equal(shown.step(action)[0], plain.step(action)[0])
    assert shown._viewer._window.is_running()
shown.close()
shown.reset()
"""


CHECKER = """
import warnings
import gymnasium, everlearn
from gymnasium.utils.env_checker import check_env
warnings.simplefilter("error")
check_env(gymnasium.make("everlearn/ContinualBench-v0").unwrapped)
"""


@pytest.mark.skipif(not shutil.which("xvfb-run"), reason="no virtual screen (Debian: xvfb)")
@pytest.mark.parametrize("code", [VIEWER, CHECKER], ids=["viewer", "checker"])
def test_on_a_screen(code: str):
    """The viewer leaves the episode alone; Gymnasium's checker passes in every render mode."""
    screen = ["xvfb-run", "-a", "-s", "-screen 0 320x240x24"]
    subprocess.run([*screen, sys.executable, "-c", code], check=True, timeout=120)


def test_the_viewer_without_a_screen_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("glfw.init", lambda: False)
    env = ContinualBenchEnv(render_mode="human")
    with pytest.raises(MissingExtraError, match="screen"):
        env.reset()
