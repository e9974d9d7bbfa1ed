"""A stored run, seen again: its recorded episodes, simulated once more from their actions.

The simulation is exact, so the actions of an episode and the seed of its reset give all of it back.
What the model knew then is gone; what is shown as predicted is what the run's newest snapshot
expects for the same actions.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.registry import load_plugins, require_imported
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.folder import load_transitions, transitions_path
from everlearn.runs.metrics_file import CONFIG, METRICS, TRANSITIONS, Line, Notify, read_lines
from everlearn.runs.reload import load_run
from everlearn.support.errors import EverlearnError, InvalidInputError
from everlearn.support.files import is_file
from everlearn.view.commands import Pause, Seek, SpeedLimit, Step
from everlearn.view.frame import NO_LINES, Frame, Lines, moving_parts, positions
from everlearn.view.live import WAIT, Pace
from everlearn.view.page import Controls, Page
from everlearn.view.scene import Simulation
from everlearn.world_model.memory import states_along
from everlearn.worlds import Environments, world_named

AHEAD = 15
"""Steps of a prediction."""

BEHIND = 60
"""Steps of the way so far that are shown."""

SAME = 1e-6
"""Largest difference of an observation that is taken for the recorded one."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One episode, step by step.

    Attributes
    ----------
    number, task, solved
        Of the episode.
    observations, rewards
        As recorded, ``[n + 1, S]`` and ``[n]``.
    poses
        Of all bodies, ``[n + 1, B, 7]``.
    predicted
        What the model expects of the recorded actions from each step on, ``[n, H + 1, S]``; None
        without a model.
    """

    number: int
    task: str
    solved: bool | None
    observations: FloatArray
    rewards: FloatArray
    poses: FloatArray
    predicted: FloatArray | None

    @property
    def steps(self) -> int:
        """Steps of the episode."""
        return len(self.rewards)


class StoredRun:
    """The recorded episodes of a run's folder.

    Parameters
    ----------
    folder
        Of the run.
    notify
        Told what cannot be shown.
    """

    def __init__(self, folder: Path, notify: Notify = lambda text: None) -> None:
        self.folder, self._notify = folder, notify
        self.config = RunConfig.read(folder / CONFIG)
        load_plugins()
        require_imported(self.config.imports, str(folder))
        lines, _ = read_lines(folder / METRICS)
        self.lines: list[Line] = lines
        self.episodes = [
            int(line["episode"])
            for line in lines
            if line["kind"] == "episode" and is_file(transitions_path(folder, line["episode"]))
        ]
        if not self.episodes:
            raise InvalidInputError(
                f"{folder} has no recorded transitions in {TRANSITIONS}, which a replay needs; "
                "runs record them unless --no-record is given"
            )
        world = world_named(self.config.world)
        self.environments = Environments(world, self.config.reset_noise)
        self.env: Any = self.environments.of(self.config.tasks[0])
        self.simulation = Simulation.of(self.env)
        self.bodies = EnvironmentFacts.of(self.env).bodies
        self.model = self._newest_model()

    def _newest_model(self) -> Any:
        try:
            _, _, agent = load_run(self.folder)
        except (EverlearnError, OSError) as error:
            self._notify(f"no predictions are shown: {error}")
            return None
        model = getattr(agent, "model", None)
        return model if hasattr(model, "memory") else None

    def names(self) -> dict[str, int]:
        """Episodes as a user reads them, and their numbers."""
        told = {line["episode"]: line for line in self.lines if line["kind"] == "episode"}
        return {_name(told[number]): number for number in self.episodes}

    def episode(self, number: int) -> Recording:
        """Simulate a recorded episode once more."""
        arrays, facts = load_transitions(self.folder, number)
        observations, actions = arrays["observations"], arrays["actions"]
        task = str(facts["task"])
        if task not in self.config.tasks:
            raise InvalidInputError(f"{self.folder}: episode {number} is of unknown task {task!r}")
        env: Any = self.environments.of(task)
        simulation = Simulation.of(env)
        # As it was reset then (runs.loop): the same seed gives the same start.
        obs, _ = env.reset(seed=schedule.environment_seed(self.config, number - 1))
        poses, away = [simulation.poses()], 0.0
        for action, after in zip(actions, observations[1:], strict=True):
            obs = env.step(action)[0]
            away = max(away, float(np.abs(obs - after).max()))
            poses.append(simulation.poses())
        if away > SAME:
            self._notify(
                f"episode {number}: this machine simulates it otherwise than the one that recorded "
                f"it, by up to {away:.3g}; the scene may not show what happened"
            )
        solved = facts.get("success")
        return Recording(
            number,
            task,
            None if solved is None else bool(solved),
            observations,
            arrays["rewards"],
            np.array(poses),
            self._predicted(observations, actions),
        )

    def _predicted(self, observations: FloatArray, actions: FloatArray) -> FloatArray | None:
        if self.model is None or len(actions) == 0:
            return None
        last = np.repeat(actions[-1:], AHEAD, axis=0)  # beyond the end nothing is drawn
        windows = np.concatenate([actions, last])
        plans = np.stack([windows[step : step + AHEAD] for step in range(len(actions))])
        unread = self.model.observation_space.shape[0] - observations.shape[1]
        starts = np.pad(observations[:-1], [(0, 0), (0, unread)])
        memory = states_along(self.model.memory, observations, actions)
        states = self.model.rollout(starts, plans, memory=memory if memory.shape[1] else None)
        return np.asarray(states[:, :, : observations.shape[1]])

    def curves(self) -> dict[str, tuple[FloatArray, FloatArray]]:
        """Return what the metrics say over the run's episodes."""
        found: dict[str, list[tuple[float, float]]] = {}
        for line in self.lines:
            at = float(line["episode"])
            if line["kind"] == "episode":
                found.setdefault("return of an episode", []).append((at, float(line["return"])))
            elif line["kind"] == "eval" and "success_rate" in line:
                found.setdefault(f"success in {line['task']}", []).append(
                    (at, float(line["success_rate"]))
                )
        return {
            name: (np.array(points)[:, 0], np.array(points)[:, 1]) for name, points in found.items()
        }

    def close(self) -> None:
        """Free the environments."""
        self.environments.close()


def _name(line: Line) -> str:
    ended = outcome(line.get("success"))
    words = f", {ended}" if ended else ""
    return f"{line['episode']}: {line['task']}{words} ({line['length']} steps)"


def outcome(solved: Any) -> str:
    """Say how an episode ended; nothing where that is not known."""
    return "" if solved is None else "solved" if solved else "not solved"


def frame_of(recording: Recording, step: int, bodies: Any) -> Frame:
    """Return the frame of a step of an episode."""
    happened, predicted = _ahead(recording, step, bodies)
    ended = f"  \n{outcome(recording.solved)}" if step == recording.steps else ""
    total = float(np.sum(recording.rewards[:step]))
    reward = f", reward {recording.rewards[step - 1]:.2f}, return {total:.1f}" if step else ""
    return Frame(
        poses=recording.poses[step],
        status=(
            f"**{recording.task}**, episode {recording.number}, step {step} of {recording.steps}"
            f"{reward}{ended}"
        ),
        task=recording.task,
        happened=happened,
        predicted=predicted,
    )


def _ahead(recording: Recording, step: int, bodies: Any) -> tuple[Lines, Lines]:
    """Where hand and objects go in the next steps, and where the model expects them to."""
    states = recording.observations[step : step + AHEAD + 1]
    if len(states) < 2:
        return NO_LINES, NO_LINES
    parts = moving_parts(states, bodies)
    if recording.predicted is None:
        return positions(states, parts), NO_LINES
    return positions(states, parts), positions(recording.predicted[step, : len(states)], parts)


class ReplaySession:
    """Shows a stored run: any of its episodes, with a time line.

    Parameters
    ----------
    run
        The run.
    host, port
        Where its page is served.
    """

    def __init__(self, run: StoredRun, *, host: str = "127.0.0.1", port: int = 8080) -> None:
        self.run_shown = run
        names = run.names()
        self.page = Page(run.simulation, Controls(pace=True, episodes=names), host=host, port=port)
        self.pace = Pace(limit=80.0)
        self._curves = run.curves()
        self._load(run.episodes[0])

    def _load(self, number: int) -> None:
        self.recording = self.run_shown.episode(number)
        self.step = 0
        self._show()

    def _show(self) -> None:
        frame = frame_of(self.recording, self.step, self.run_shown.bodies)
        self.page.frames.put(dataclasses.replace(frame, curves=self._curves))
        self.page.set_timeline(self.step, self.recording.steps)

    def run(self, stopped: Callable[[], bool]) -> None:
        """Play until `stopped` says so."""
        shown = 0.0
        while not stopped():
            command = self.page.next_command(WAIT if self._still else 0.0)
            if isinstance(command, Pause):
                self.pace.paused = command.on
            elif isinstance(command, Step):
                self.pace.paused = True
                self._go(min(self.step + 1, self.recording.steps))
            elif isinstance(command, SpeedLimit):
                self.pace.limit = min(command.steps, 80.0)
            elif isinstance(command, Seek):
                if command.episode in self.run_shown.episodes:
                    self._load(int(command.episode or 0))
                if command.step is not None and 0 <= command.step <= self.recording.steps:
                    self._go(command.step)
            if self._still:
                continue
            now = time.monotonic()
            if now - shown < 0.05:
                time.sleep(0.05 - (now - shown))
            passed = max(1, round(min(time.monotonic() - shown, 0.25) * self.pace.limit))
            shown = time.monotonic()
            self._go(min(self.step + passed, self.recording.steps))

    @property
    def _still(self) -> bool:
        return self.pace.paused or self.step == self.recording.steps

    def _go(self, step: int) -> None:
        if step != self.step:
            self.step = step
            self._show()

    def close(self) -> None:
        """Stop serving the page, and free the environments."""
        self.page.close()
        self.run_shown.close()
