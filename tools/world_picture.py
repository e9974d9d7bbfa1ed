"""Draw the picture of the world that the README shows: ``python tools/world_picture.py``."""

from pathlib import Path

import imageio.v3 as iio
import mujoco

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.rendering import Camera

OUT = Path(__file__).parents[1] / "docs" / "images" / "world.jpg"

env = ContinualBenchEnv("button-press")
env.reset()
view = mujoco.MjvCamera()
view.lookat[:] = 0.0, 0.0, 0.1
view.distance, view.azimuth, view.elevation = 2.6, 100.0, -40.0
camera = Camera(env.model, 960, 560)
iio.imwrite(OUT, camera.frame(env.data, view), quality=88)
