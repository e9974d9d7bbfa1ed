"""Films of tasks before and after learning, from the snapshots of runs; loads the simulator."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.rendering import Film, check_path
from everlearn.interfaces import Agent
from everlearn.planning.episode import run_episode
from everlearn.report.build import VIDEOS
from everlearn.results.methods import Study, slug
from everlearn.runs.config import seen_tasks
from everlearn.runs.loop import make
from everlearn.runs.metrics_file import CHECKPOINTS, Notify, snapshot_names
from everlearn.runs.reload import load_run
from everlearn.runs.schedule import agent_seed
from everlearn.support.threads import limited_threads

BEFORE, AFTER = "before", "after"
SIZE = 240
"""Pixels: small enough for a page that holds a dozen of them."""


def make_videos(study: Study, out: Path, notify: Notify) -> list[Path]:
    """Film every task before and after learning, of one run a method that has a snapshot.

    Before: an agent of the same settings that has seen nothing. Both play with learning off.
    Files that are there already are kept: filming takes a minute a task.

    Returns
    -------
    list
        Folders with the videos.
    """
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
        folder = out / VIDEOS / slug(method.label)
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
    agent.begin_task(task, TASKS.get(task).objective())
    with closing(ContinualBenchEnv(task, render_mode="rgb_array", width=SIZE, height=SIZE)) as env:
        env.reset()
        camera = Film(env, every)
        episode = run_episode(agent, env, explore=False, max_steps=max_steps, on_step=camera)
        camera.write(path)
    return bool(episode.info["success"])
