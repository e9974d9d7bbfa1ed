"""Films and pictures of tasks before and after learning, from snapshots; loads the simulator."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import numpy.typing as npt

from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.rendering import Film, check_path
from everlearn.interfaces import Agent
from everlearn.planning.episode import run_episode
from everlearn.report.build import VIDEOS
from everlearn.report.pictures import find_strips, strip_name
from everlearn.results.methods import Study, slug
from everlearn.runs.config import seen_tasks
from everlearn.runs.loop import make
from everlearn.runs.metrics_file import CHECKPOINTS, Notify, snapshot_names
from everlearn.runs.reload import load_run
from everlearn.runs.schedule import agent_seed
from everlearn.support.files import replacing
from everlearn.support.threads import limited_threads

BEFORE, AFTER = "before", "after"
SIZE = 240
"""Pixels: small enough for a page that holds a dozen of them."""

PICTURES, GAP = 6, 4
"""Frames of a strip, and pixels between two of them."""


def make_videos(study: Study, out: Path, notify: Notify, films: bool = True) -> list[Path]:
    """Show every task, of one run a method that has a snapshot: as films and strips of pictures.

    Films before learning show an agent of the same settings that has seen nothing; strips are of
    what was learned. Both play with learning off. Files that are there already are kept: filming
    takes a minute a task.

    Parameters
    ----------
    study
        Whose methods are shown.
    out
        Folder of the report.
    notify
        Who is told what happens.
    films
        Whether to film; otherwise only strips are made.

    Returns
    -------
    list
        Folders with the files.
    """
    what = "videos" if films else "pictures"
    if study.protocol.world != "continual-bench":
        notify(f"no {what} of {study.protocol.world}: only continual-bench can be filmed")
        return []
    if films:
        check_path("any.mp4")
    folders = []
    for method in study.methods:
        run = next((run for run in method.runs if snapshot_names(run.folder / CHECKPOINTS)), None)
        if run is None:
            notify(f"no {what} of {method.label}: none of its runs has a snapshot")
            continue
        folder = out / VIDEOS / slug(method.label)
        config, state, learned = load_run(run.folder, notify)
        environments, untaught, _ = make(config)
        with closing(environments), limited_threads(config.threads):
            for task in seen_tasks(config, state.episode):
                for when, agent in ((BEFORE, untaught), (AFTER, learned)):
                    path = folder / f"{task}-{when}.mp4" if films else None
                    strips = folder if when == AFTER else None
                    if strips is not None and find_strips([folder], [task]):
                        strips = None
                    if path is not None and path.exists():
                        path = None
                    if path is not None or strips is not None:
                        copy = agent.evaluation_copy(agent_seed(config))
                        for written in film(copy, task, path, config.max_steps, strips=strips):
                            notify(f"filmed {written}")
        folders.append(folder)
    return folders


def film(
    agent: Agent,
    task: str,
    path: Path | None,
    max_steps: int,
    every: int = 4,
    strips: Path | None = None,
) -> list[Path]:
    """Play one episode of a task, and write a film of it, a strip of pictures, or both.

    Parameters
    ----------
    agent, task, max_steps
        Who plays what, for how long at most.
    path
        The film's file; None writes none.
    every
        Steps between frames.
    strips
        Folder of the strip; None writes none.

    Returns
    -------
    list
        The files written.
    """
    agent.begin_task(task, TASKS.get(task).objective())
    with closing(ContinualBenchEnv(task, render_mode="rgb_array", width=SIZE, height=SIZE)) as env:
        env.reset()
        camera = Film(env, every)
        episode = run_episode(agent, env, explore=False, max_steps=max_steps, on_step=camera)
        written = [] if path is None else [camera.write(path)]
        end = env.render()
    if strips is not None and end is not None:
        strips.mkdir(parents=True, exist_ok=True)
        name = strip_name(task, bool(episode.info["success"]), episode.length)
        write_strip(strips / name, [*camera.frames, end])
        written.append(strips / name)
    return written


def write_strip(path: Path, frames: Sequence[npt.NDArray[np.uint8]]) -> None:
    """Write `PICTURES` of the frames side by side, the first and the last among them."""
    from PIL import Image  # which matplotlib brings along

    chosen = np.linspace(0, len(frames) - 1, PICTURES).round().astype(int)
    gap = np.full((frames[0].shape[0], GAP, 3), 255, np.uint8)
    parts = [part for number in chosen for part in (gap, frames[number])][1:]
    with replacing(path) as file:
        Image.fromarray(np.concatenate(parts, axis=1)).save(file, "PNG", optimize=True)
