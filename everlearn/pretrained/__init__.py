"""Agents that were trained before and come with the package, weights only.

``index.json`` says of each how it was trained and how well it does; ``tools/build_pretrained.py``
makes it and the files beside it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from everlearn.planning.agent import OnlineAgent
from everlearn.registry import Registry
from everlearn.support.errors import NotReadyError

FOLDER = Path(__file__).parent
INDEX = "index.json"


@dataclass(frozen=True)
class Pretrained:
    """An agent that comes with the package.

    Attributes
    ----------
    name, summary
        What `everlearn play --agent` calls it, and what it is.
    world, tasks
        What it was trained in.
    file
        Name of its file in this folder.
    command, seed, commit
        What it was made with.
    score
        By task, success rate or mean return of evaluation at the end of training.
    """

    name: str
    summary: str
    world: str
    tasks: tuple[str, ...]
    file: str
    command: str
    seed: int
    commit: str
    score: dict[str, float]

    def load(self, threads: int | None = None) -> OnlineAgent:
        """Make the agent; it acts and cannot learn."""
        return OnlineAgent.from_export(FOLDER / self.file, threads=threads)


def _read() -> Registry[Pretrained]:
    found: Registry[Pretrained] = Registry("pretrained agent")
    index = FOLDER / INDEX
    if not index.exists():
        raise NotReadyError(
            f"there are no pretrained agents in {FOLDER}; run python tools/build_pretrained.py"
        )
    for entry in json.loads(index.read_text(encoding="utf-8")):
        found.register(entry["name"], Pretrained(**{**entry, "tasks": tuple(entry["tasks"])}))
    return found


def pretrained_agents() -> Registry[Pretrained]:
    """Return the agents that come with the package, by name."""
    return _read()
