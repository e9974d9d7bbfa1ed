"""Who is told what happens in a run: the screen, TensorBoard, Weights & Biases."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everlearn.runs.config import RunConfig
from everlearn.runs.metrics_file import EVENTS, Line
from everlearn.support.errors import MissingExtraError

if TYPE_CHECKING:
    from everlearn.interfaces import Agent
    from everlearn.planning.episode import OnStep


class Listener:
    """Hears everything and does nothing; subclasses say what they care for."""

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        """Hear of the start; `lines` were written before, by a run that is resumed."""

    def episode(self, agent: Agent, env: Any, task: str, number: int) -> OnStep | None:
        """Hear of a training episode that begins; what is returned is called after each step."""
        return None

    def line(self, line: Line) -> None:
        """Hear of a line of the metrics."""

    def evaluated(self, task: str, score: float) -> None:
        """Hear of an evaluation episode."""

    def saved(self, snapshot: str) -> None:
        """Hear of a snapshot, by its name, once it and the metrics before it are on the disk."""

    def message(self, text: str) -> None:
        """Hear what the user should know."""

    def end(self) -> None:
        """Hear of the end, whatever the reason."""


class Listeners:
    """Passes everything on to several."""

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = tuple(listeners)

    @contextmanager
    def during(self, config: RunConfig, folder: Path, lines: list[Line]) -> Iterator[None]:
        """Tell them of the start and, in any case, of the end."""
        begun = []
        try:
            for listener in self._listeners:
                listener.begin(config, folder, lines)
                begun.append(listener)
            yield
        finally:
            for listener in begun:
                listener.end()

    def episode(self, agent: Agent, env: Any, task: str, number: int) -> list[OnStep]:
        """Pass on a training episode that begins; returns what is to be called after each step."""
        asked = [listener.episode(agent, env, task, number) for listener in self._listeners]
        return [on_step for on_step in asked if on_step is not None]

    def line(self, line: Line) -> None:
        """Pass on a line."""
        for listener in self._listeners:
            listener.line(line)

    def evaluated(self, task: str, score: float) -> None:
        """Pass on an evaluation episode."""
        for listener in self._listeners:
            listener.evaluated(task, score)

    def saved(self, snapshot: str) -> None:
        """Pass on a snapshot's name."""
        for listener in self._listeners:
            listener.saved(snapshot)

    def message(self, text: str) -> None:
        """Pass on a message."""
        for listener in self._listeners:
            listener.message(text)


def listeners_for(config: RunConfig) -> list[Listener]:
    """Make the listeners that a config asks for; refuses those that are not installed."""
    found: list[Listener] = []
    if config.tensorboard:
        _need("tensorboard", "the TensorBoard events")
        found.append(TensorBoard())
    if config.wandb:
        _need("wandb", "Weights & Biases")
        found.append(WeightsAndBiases())
    return found


def scalars(line: Line) -> dict[str, float]:
    """Numbers of a line under names like ``eval/success_rate/door-open``."""
    return {
        f"{line['kind']}/{name}/{line['task']}": float(value)
        for name, value in line.items()
        if name not in ("kind", "episode", "step", "task") and value is not None
    }


class TensorBoard(Listener):
    """Writes events beside the metrics; they are made from the metrics, never read back."""

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        """Write the events of earlier lines anew: some of the old ones may have been cut off."""
        if (folder / EVENTS).is_dir():
            shutil.rmtree(folder / EVENTS)
        summary: Any = importlib.import_module("tensorboard.summary")
        self._writer = summary.Writer(str(folder / EVENTS))
        for line in lines:
            self.line(line)

    def line(self, line: Line) -> None:
        """Write a line's numbers at its step."""
        for name, value in scalars(line).items():
            self._writer.add_scalar(name, value, line["step"])

    def end(self) -> None:
        """Bring everything to the disk."""
        self._writer.close()


class WeightsAndBiases(Listener):
    """Sends the metrics to Weights & Biases, as one run however often it is resumed."""

    def begin(self, config: RunConfig, folder: Path, lines: list[Line]) -> None:
        """Open the run; lines that were sent before are not sent again."""
        wandb: Any = importlib.import_module("wandb")
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        self._run = wandb.init(
            project="everlearn",
            name=folder.name,
            id=name,
            resume="allow",
            dir=str(folder),
            config=json.loads(config.to_json()),
        )

    def line(self, line: Line) -> None:
        """Send a line's numbers."""
        self._run.log({**scalars(line), "episode": line["episode"], "step": line["step"]})

    def end(self) -> None:
        """Close the run."""
        self._run.finish()


def _need(package: str, what: str) -> None:
    if importlib.util.find_spec(package) is None:
        raise MissingExtraError(
            f"{what} need the package {package}, which is not installed: pip install {package}, "
            f"or run without --{package}"
        )
