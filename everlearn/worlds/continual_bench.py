"""Continual Bench as a world: its tasks, and transitions to measure models with."""

from __future__ import annotations

import zlib

import numpy as np

from everlearn.continual_bench import PAPER_TASKS, TASKS
from everlearn.continual_bench.env import MAX_STEPS, ContinualBenchEnv
from everlearn.continual_bench.scripts import SCRIPTS, ScriptedController
from everlearn.interfaces import FloatArray, Measure, Objective

NOISE = 0.3
"""Standard deviation of the noise on a script's actions."""

_SEED = 20_000
"""Of held-out transitions; not a run's, so that all runs are measured on the same ones."""


class ContinualBenchWorld:
    """Six manipulation tasks around one table, and those that users register."""

    name = "continual-bench"
    measure: Measure = "success"
    max_steps = MAX_STEPS
    tasks = PAPER_TASKS

    def make(
        self, task: str, *, reset_noise: float = 0.0, render_mode: str | None = None
    ) -> ContinualBenchEnv:
        """Return an environment of `task`; `reset_noise` is in metres."""
        return ContinualBenchEnv(task, reset_noise=reset_noise, render_mode=render_mode)

    def objective(self, task: str) -> Objective:
        """Return the task's reward on predicted observations."""
        return TASKS.get(task).objective()

    def heldout_episodes(
        self, task: str, count: int, reset_noise: float = 0.0
    ) -> list[tuple[FloatArray, FloatArray]]:
        """Play the task's script with noise until there are `count` transitions.

        The result depends on the arguments alone; a smaller set is the start of a larger one.
        Empty for a task without a script.

        Returns
        -------
        list
            Observations ``[n + 1, S]`` and actions ``[n, A]`` of each episode.
        """
        if task not in SCRIPTS:
            return []
        env = ContinualBenchEnv(task, reset_noise=reset_noise)
        episodes: list[tuple[FloatArray, FloatArray]] = []
        missing = count
        while missing > 0:
            seeds = np.random.SeedSequence(
                _SEED, spawn_key=(zlib.crc32(task.encode()), len(episodes))
            ).generate_state(2)
            controller = ScriptedController(task, NOISE, int(seeds[0]))
            obs, _ = env.reset(seed=int(seeds[1]))
            observations: list[FloatArray] = [obs]
            actions: list[FloatArray] = []
            over = False
            while not over and len(actions) < missing:
                action = controller.act(obs)
                obs, _, terminated, truncated, _ = env.step(action)
                over = terminated or truncated
                observations.append(obs)
                actions.append(action)
            missing -= len(actions)
            episodes.append((np.array(observations), np.array(actions)))
        env.close()
        return episodes
