"""Strips of pictures: an episode of a learned agent from its start to its end, for each task.

Their names say how the episode ended: ``door-open-after-solved-63.png``.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from everlearn.support.files import is_file, read_file

LARGEST_STRIP = 4_000_000
"""Bytes of a strip that is put into the page."""

_STRIP = re.compile(r"(?P<task>.+?)-after-(?P<how>solved|failed)-(?P<steps>[0-9]{1,7})\.png")


@dataclass(frozen=True)
class Strip:
    """Pictures of an episode, side by side in one file.

    Attributes
    ----------
    path, task
        Its file, and which task it is of.
    solved, steps
        How the episode ended, and after how many steps.
    source
        Whose it is: the folder that it was found in.
    """

    path: Path
    task: str
    solved: bool
    steps: int
    source: str

    @property
    def words(self) -> str:
        """How the episode ended."""
        unit = "step" if self.steps == 1 else "steps"
        return f"{'solved' if self.solved else 'not solved'} in {self.steps} {unit}"


def strip_name(task: str, solved: bool, steps: int) -> str:
    """Name of the file of a strip."""
    return f"{task}-after-{'solved' if solved else 'failed'}-{steps}.png"


def find_strips(folders: Iterable[Path], tasks: Iterable[str]) -> list[Strip]:
    """Return the strips at or below folders whose names begin with a task's, in its order."""
    order = {task: number for number, task in enumerate(tasks)}
    strips: dict[Path, Strip] = {}
    for folder in folders:
        for path in sorted(folder.rglob("*.png")):
            match = _STRIP.fullmatch(path.name)
            if match and match["task"] in order and is_file(path):
                solved, steps = match["how"] == "solved", int(match["steps"])
                # In a folder `videos` of a run, or in one of a method.
                holder = path.parent if path.parent.name != "videos" else path.parents[1]
                strips[path.resolve()] = Strip(path, match["task"], solved, steps, holder.name)
    return sorted(strips.values(), key=lambda strip: (order[strip.task], strip.source))


def strips_section(strips: Sequence[Strip]) -> str:
    """Return the part of a page that shows strips; nothing where there are none."""
    figures = []
    for strip in strips:
        task = escape(strip.task)
        try:
            content = base64.b64encode(read_file(strip.path, LARGEST_STRIP)).decode()
        except OSError:  # too large, or not readable
            where = escape(str(strip.path))
            shown = f"<p>Not in this page: <code>{where}</code></p>"
        else:
            shown = (
                f'<div class="picture" tabindex="0"><img alt="Pictures of an episode of {task}, '
                f'from its start to its end; {strip.words}" '
                f'src="data:image/png;base64,{content}"></div>'
            )
        words = f"{task}: {strip.words} <small>{escape(strip.source)}</small>"
        figures.append(f"<figure>{shown}<figcaption>{words}</figcaption></figure>")
    if not figures:
        return ""
    return (
        "<h3>Episodes in pictures</h3><p>An episode of each task after learning, from its start on "
        f"the left to its end on the right.</p>{''.join(figures)}"
    )
