"""Runs in worlds that are never reset: an episode begins where the last one ended.

Such a world has an attribute ``endless`` that is true, and a method ``goal(task)`` that names one
of the things to do in a task of the world. Its environments begin another life at a
reset with a seed, and the next episode of the same life at one without. They say in
``info["task"]`` what the episode is about, and have `objective`, `state` and `restore`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from everlearn.interfaces import Agent, State, World
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError
from everlearn.support.files import check_file, exists, reading

KIND, VERSION = "everlearn-endless-world", 1
FILE = "world"
"""Name of the world's state in a snapshot."""

FACTS = ("put_backs", "visit")
"""Numbers of ``info`` that the line of an episode repeats."""


def is_endless(world: World) -> bool:
    """Whether an episode of `world` begins where the last one ended."""
    return bool(getattr(world, "endless", False))


def begin_any(world: World, agent: Agent, task: str) -> None:
    """Begin a task, or any of the goals of an endless one: its environment says the next later."""
    name = world.goal(task) if is_endless(world) else task  # type: ignore[attr-defined]
    agent.begin_task(name, world.objective(task))


def beginning(
    world: World, agent: Agent, env: Any, first: bool
) -> Callable[[dict[str, Any]], None] | None:
    """Return what `run_episode` calls at the beginning of an episode; None is the usual.

    An agent in an endless world is given the objective of each episode, but its own episode
    begins only once: what it remembers of plans and commands goes on.
    """
    return partial(_begin, agent, env, first) if is_endless(world) else None


def _begin(agent: Agent, env: Any, first: bool, info: dict[str, Any]) -> None:
    agent.begin_task(info["task"], env.objective())
    if first:
        agent.begin_episode()


def facts_of(world: World, info: dict[str, Any]) -> dict[str, Any]:
    """Return what the line of an episode says of an endless world."""
    if not is_endless(world):
        return {}
    return {"goal": info["task"], **{name: info[name] for name in FACTS if name in info}}


def save_world(folder: Path, state: State) -> None:
    """Write the state of a world into the folder of a snapshot."""
    save_archive(folder / FILE, KIND, VERSION, *state)


def restore_world(folder: Path, env: Any) -> None:
    """Put a world where the snapshot in a folder has it."""
    if not exists(folder / FILE):
        raise DamagedFileError(f"{folder} has no {FILE}, in which the life would go on")
    check_file(folder / FILE)
    arrays, meta = load_archive(folder / FILE, KIND, VERSION)
    with reading(folder / FILE, "state of a world"):
        env.restore(arrays, meta)
