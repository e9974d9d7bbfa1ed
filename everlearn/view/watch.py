"""A run that is watched: its training episodes on a page, and nothing to change them with."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.planning.episode import OnStep
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import Line, Notify
from everlearn.view.observer import Observer
from everlearn.view.page import Controls, Page
from everlearn.view.scene import Simulation

RATE, SHARE = 12.0, 0.02
"""Frames a second at the most, and processor time for them: a run has other things to do."""


class Watch(Listener):
    """Shows the training episodes of a run.

    Parameters
    ----------
    host, port
        Where the page is served.
    opened
        Called with the page once it is served.
    notify
        Told if the page fails; the run goes on without it.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 8080,
        opened: Callable[[Page], None] = lambda page: None,
        notify: Notify = lambda text: None,
    ) -> None:
        self._notify = notify
        self._host, self._port, self._opened = host, port, opened
        self.page: Page | None = None
        self._observer: Observer | None = None
        self._failed = False

    def episode(self, agent: Any, env: Any, task: str, number: int) -> OnStep | None:
        """Hear of a training episode; the page is served from the first one on."""
        if self._failed:
            return None
        if self._observer is None:
            simulation = Simulation.of(env)
            page = self.page = Page(simulation, Controls(), host=self._host, port=self._port)
            self._observer = Observer(
                simulation,
                EnvironmentFacts.of(env),
                page.frames.put,
                lambda: page.watched,
                RATE,
                SHARE,
                page.spent,
            )
            self._opened(page)
        self._observer.simulation = Simulation.of(env)
        self._observer.note = "training"
        self._observer.begin_episode(agent, task, number)
        return self._step

    def _step(self, obs: FloatArray, action: FloatArray, after: FloatArray, reward: float) -> None:
        """Show a step; a page that fails ends, and the run does not."""
        if self._observer is None:
            return
        try:
            if self.page is not None and self.page.failure is not None:
                raise self.page.failure
            self._observer(obs, action, after, reward)
        except Exception as error:
            self._notify(f"watching ends, the run goes on: {type(error).__name__}: {error}")
            self._observer, self._failed = None, True

    def line(self, line: Line) -> None:
        """Hear of a line of the metrics."""
        if self._observer is not None and line["kind"] == "episode":
            self._observer.end_episode(line["success"])

    def end(self) -> None:
        """Close the page."""
        if self.page is not None:
            self.page.close()
