"""Episodes as videos."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.interfaces import FloatArray
from everlearn.support.errors import InvalidInputError, MissingExtraError

SUFFIXES = (".mp4", ".gif")
FRAMES_PER_SECOND = 20


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
        if every < 1:
            raise InvalidInputError(f"a frame every {every} steps makes no sense; use 1 or more")
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
