"""Videos of tasks before and after learning: found beside runs, or filmed from a snapshot.

The simulator is imported when filming is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from everlearn.results.methods import Study, slug
from everlearn.runs.metrics_file import CHECKPOINTS, Notify, snapshot_names
from everlearn.runs.schedule import agent_seed, seen_tasks
from everlearn.support.files import is_file

if TYPE_CHECKING:
    from everlearn.interfaces import Agent

BEFORE, AFTER = "before", "after"
SIZE = 240
"""Pixels: small enough for a page that holds a dozen of them."""

LARGEST = 4_000_000
"""Bytes of a video that is put into the page; of a larger one the page says where it is."""

FOLDER = "videos"
"""Of a run or report, for its videos."""

_NAME = re.compile(r"(?P<task>.+?)(?:-(?P<when>before|after))?\.mp4")


@dataclass(frozen=True)
class Video:
    """A video of a task.

    Attributes
    ----------
    path
        Its file.
    task, when
        Which, and whether before or after learning; empty where the name does not say.
    source
        Whose it is: the folder that it was found in.
    """

    path: Path
    task: str
    when: str
    source: str


def find_videos(folders: Iterable[Path], tasks: Iterable[str]) -> list[Video]:
    """Return videos at or below folders whose names begin with a task's.

    Names are like ``door-open-before.mp4``, ``door-open-after.mp4`` or ``door-open.mp4``.
    """
    known = list(tasks)
    videos: dict[Path, Video] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.mp4")):
            match = _NAME.fullmatch(path.name)
            if match and match["task"] in known and is_file(path):
                source = path.parent.name if path.parent.name != FOLDER else path.parents[1].name
                videos[path.resolve()] = Video(path, match["task"], match["when"] or "", source)
    order = {task: number for number, task in enumerate(known)}
    return sorted(
        videos.values(), key=lambda video: (order[video.task], video.source, video.when != BEFORE)
    )


def make_videos(study: Study, out: Path, notify: Notify) -> list[Path]:
    """Film every task before and after learning, of one run a method that has a snapshot.

    Before: an agent of the same settings that has seen nothing. Both play with learning off.
    Files that are there already are kept: filming takes a minute a task.

    Returns
    -------
    list
        Folders with the videos.
    """
    from everlearn.continual_bench.video import check_path
    from everlearn.runs.loop import make
    from everlearn.runs.reload import load_run
    from everlearn.support.threads import limited_threads

    if study.protocol.world != "continual-bench":
        notify(f"no videos of {study.protocol.world}: only continual-bench can be filmed")
        return []
    check_path("any.mp4")
    folders = []
    for method in study.methods:
        run = next((run for run in method.runs if snapshot_names(run.folder / CHECKPOINTS)), None)
        if run is None:
            notify(f"no videos of {method.label}: none of its runs has a snapshot")
            continue
        folder = out / FOLDER / slug(method.label)
        config, state, learned = load_run(run.folder, notify)
        environments, untaught, _ = make(config)
        with closing(environments), limited_threads(config.threads):
            for task in seen_tasks(config, state.episode):
                for when, agent in ((BEFORE, untaught), (AFTER, learned)):
                    path = folder / f"{task}-{when}.mp4"
                    if not path.exists():
                        copy = agent.evaluation_copy(agent_seed(config))
                        film(copy, task, path, config.max_steps)
                        notify(f"filmed {path}")
        folders.append(folder)
    return folders


def film(agent: Agent, task: str, path: Path, max_steps: int, every: int = 4) -> bool:
    """Film one episode of a task, a frame in `every` steps, and return whether it succeeded."""
    from everlearn.agents import run_episode
    from everlearn.continual_bench import TASKS
    from everlearn.continual_bench.env import ContinualBenchEnv
    from everlearn.continual_bench.video import Film

    agent.begin_task(task, TASKS.get(task).objective())
    with closing(ContinualBenchEnv(task, render_mode="rgb_array", width=SIZE, height=SIZE)) as env:
        env.reset()
        camera = Film(env, every)
        episode = run_episode(agent, env, explore=False, max_steps=max_steps, on_step=camera)
        camera.write(path)
    return bool(episode.info["success"])
