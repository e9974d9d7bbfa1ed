"""The page: a 3D scene, curves and controls, in any browser that can reach this process."""

from __future__ import annotations

import math
import queue
import threading
import time
import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlearn.continual_bench.goals import GOAL_HIGH, GOAL_LOW, within_reach
from everlearn.interfaces import FloatArray
from everlearn.support.errors import EverlearnError
from everlearn.view.commands import (
    Command,
    Learning,
    MoveGoal,
    Pause,
    Seek,
    SpeedLimit,
    Step,
    SwitchTask,
)
from everlearn.view.drawing import Drawing
from everlearn.view.frame import Frame, LatestFrame
from everlearn.view.scene import Simulation
from everlearn.view.server import start_server, stop_server

SPEEDS = {"as fast as it can": math.inf, "40 steps/s": 40.0, "10 steps/s": 10.0, "2 steps/s": 2.0}
"""Names of speeds, and steps a second at the most."""

CURVES_EVERY = 5
"""Frames between two drawings of the curves."""


@dataclass(frozen=True)
class Controls:
    """What the page lets its user do.

    Attributes
    ----------
    tasks
        Tasks to switch to; none for a page that only shows.
    pace
        Whether pause, step and speed are offered.
    learning
        Whether learning is on; None where it cannot be switched.
    episodes
        Numbers and names of the episodes of a recording.
    """

    tasks: Sequence[str] = ()
    pace: bool = False
    learning: bool | None = None
    episodes: dict[str, int] | None = None


class Page:
    """Serves one page, and brings it the latest frame from a thread of its own.

    Parameters
    ----------
    simulation
        What is shown.
    controls
        What its user can do; `commands` has what they did.
    host, port
        Where it listens; on this machine only unless `host` is an address of the machine.

    Attributes
    ----------
    visits
        How often the page was opened.
    failure
        Why it shows nothing any more, if it failed.
    """

    def __init__(
        self,
        simulation: Simulation,
        controls: Controls,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
    ) -> None:
        self.commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
        self.frames = LatestFrame()
        self.failure: BaseException | None = None
        self._current_task = ""
        self._current_step = 0
        self._server = start_server(host, port)
        self._host = "localhost" if host == "127.0.0.1" else host
        self._drawing = Drawing(self._server.scene, simulation)
        self._server.initial_camera.position = self._drawing.camera
        self._server.initial_camera.look_at = self._drawing.centre
        self._build(controls)
        self._shown = 0
        self.visits = 0
        self._server.on_client_connect(self._visited)
        self._thread = threading.Thread(target=self._serve, name="everlearn page", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Address of the page."""
        return f"http://{self._host}:{self._server.get_port()}"

    @property
    def watched(self) -> bool:
        """Whether anybody has the page open."""
        return bool(self._server._connected_clients)

    def _visited(self, _: object) -> None:
        self.visits += 1

    def spent(self) -> float:
        """Processor time, in seconds, of the threads that serve the page; 0 where none is told."""
        if not hasattr(time, "pthread_getcpuclockid"):  # not on Windows
            return 0.0
        total = 0.0
        for thread in (self._thread, self._server._websock_server._server_thread):
            if thread.ident is not None and thread.is_alive():
                total += time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
        return total

    def open_browser(self) -> bool:
        """Open the page in the user's browser, if there is one."""
        return webbrowser.open(self.url)

    def close(self) -> None:
        """Stop serving."""
        self.frames.close()
        self._thread.join(10.0)
        stop_server(self._server)

    def next_command(self, timeout: float | None = 0.0) -> Command | None:
        """Return what the user did next, or None if that is nothing within `timeout` seconds."""
        try:
            if not timeout:
                return self.commands.get_nowait()
            return self.commands.get(timeout=timeout)
        except queue.Empty:
            return None

    # Frames ----------------------------------------------------------------------------

    def _serve(self) -> None:
        try:
            while (frame := self.frames.take()) is not None:
                self.show(frame)
        except Exception as error:
            # Whoever runs the control loop reads it there; that loop must not end for a page.
            self.failure = error
            raise

    def show(self, frame: Frame) -> None:
        """Bring `frame` to everybody who has the page open."""
        with self._server.atomic():
            self._drawing.show(frame)
            if frame.status:
                self._status.content = frame.status
            if frame.task:
                self._show_task(frame.task)
            self._shown += 1
            if frame.curves and self._shown % CURVES_EVERY == 1:
                for name, points in frame.curves.items():
                    self._draw_curve(name, *points)

    def _show_task(self, task: str) -> None:
        if task != self._current_task:
            self._current_task = task
            if self._task is not None:
                self._task.value = task

    def _draw_curve(self, name: str, x: FloatArray, y: FloatArray) -> None:
        if len(x) < 2:
            return
        data = (np.asarray(x, np.float64), np.asarray(y, np.float64))
        if name in self._curves:
            self._curves[name].data = data
            return
        line = {"label": name, "stroke": "#1f5fa8", "width": 2, "points": {"show": False}}
        with self._curve_folder:
            self._curves[name] = self._server.gui.add_uplot(
                data,
                ({"label": "step"}, line),
                title=name,
                scales={"x": {"time": False}},
                legend={"show": False},
                aspect=2.4,
            )

    # Controls --------------------------------------------------------------------------

    def _build(self, controls: Controls) -> None:
        gui = self._server.gui
        gui.configure_theme(show_share_button=False, show_logo=False, control_width="medium")
        self._status = gui.add_markdown("waiting for the first step")
        self._task: Any = None
        if controls.pace:
            self._build_pace(gui, controls)
        if controls.tasks:
            self._task = gui.add_dropdown("task", tuple(controls.tasks))
            self._on(self._task, self._switched)
        if controls.learning is not None:
            learning = gui.add_checkbox("learning", controls.learning)
            self._on(learning, lambda: Learning(bool(learning.value)))
        if "pick-place" in controls.tasks:
            self._build_goal()
        if controls.episodes:
            self._build_timeline(gui, controls.episodes)
        paths = gui.add_checkbox("imagined paths", True)
        paths.on_update(lambda _: self._drawing.show_imagined(bool(paths.value)))
        self._curve_folder = gui.add_folder("curves", expand_by_default=True)
        self._curves: dict[str, Any] = {}
        with gui.add_folder("what the lines are", expand_by_default=False):
            gui.add_markdown(LEGEND)

    def _build_pace(self, gui: Any, controls: Controls) -> None:
        pause = gui.add_button("pause")
        paused = threading.Event()

        def toggle() -> Command:
            paused.clear() if paused.is_set() else paused.set()
            pause.label = "go on" if paused.is_set() else "pause"
            return Pause(paused.is_set())

        def one() -> Command:
            paused.set()
            pause.label = "go on"
            return Step()

        self._on(pause, toggle, button=True)
        self._on(gui.add_button("one step"), one, button=True)
        speed = gui.add_dropdown("speed", tuple(SPEEDS))
        self._on(speed, lambda: SpeedLimit(SPEEDS[str(speed.value)]))

    def _build_goal(self) -> None:
        limits = tuple(zip(GOAL_LOW, GOAL_HIGH, strict=True))
        handle = self._drawing.add_goal(limits)
        self._on(handle, lambda: MoveGoal(within_reach(np.asarray(handle.position))))

    def _build_timeline(self, gui: Any, episodes: dict[str, int]) -> None:
        episode = gui.add_dropdown("episode", tuple(episodes))
        self._on(episode, lambda: Seek(episode=episodes[str(episode.value)]))
        self._timeline = gui.add_slider("step", 0, 1, 1, 0)
        self._on(self._timeline, self._sought)

    # viser tells of what this process sets as well: only what differs came from the user.

    def _switched(self) -> Command | None:
        task = str(self._task.value)
        return None if task == self._current_task else SwitchTask(task)

    def _sought(self) -> Command | None:
        step = int(self._timeline.value)
        return None if step == self._current_step else Seek(step=step)

    def set_timeline(self, step: int, last: int) -> None:
        """Move the time line of a recording."""
        self._current_step = step
        self._timeline.max = max(last, 1)
        self._timeline.value = step

    def _on(self, control: Any, command: Any, button: bool = False) -> None:
        """Queue what `command` returns when `control` is used; what is not valid is ignored."""

        def used(_: object) -> None:
            try:
                made = command()
            except (EverlearnError, KeyError, TypeError, ValueError):
                return  # only a page that is not this one can send it
            if made is not None:
                self.commands.put(made)

        (control.on_click if button else control.on_update)(used)


LEGEND = """
- thin lines: where the planner's best candidates expect hand and objects to go; yellow ones
  promise the highest return, blue ones the lowest
- green: the plan that is executed
- black: where hand and objects went in the last steps
- red: where the model expects them to go with the same actions
"""
