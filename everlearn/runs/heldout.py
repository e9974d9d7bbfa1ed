"""Fixed transitions of every task, never learned from, that measure a world model's error."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import SCRIPTS, ScriptedController
from everlearn.interfaces import FloatArray
from everlearn.world_model.memory import states_along

NOISE = 0.3
"""Standard deviation of the noise on the script's actions."""

HORIZON = 15
"""Steps of the long error: the paper's planning horizon."""

_SEED = 20_000
"""Of the sets; not the run's, so that all runs are measured on the same transitions."""


@dataclass(frozen=True, eq=False)
class HeldOutSet:
    """Episodes of one task as observations ``[n + 1, S]`` and actions ``[n, A]`` each."""

    task: str
    episodes: tuple[tuple[FloatArray, FloatArray], ...]

    @property
    def transitions(self) -> int:
        """How many there are."""
        return sum(len(actions) for _, actions in self.episodes)


def has_script(task: str) -> bool:
    """Whether a set can be made for a task: one that a user registered may have no script."""
    return task in SCRIPTS


def heldout_set(task: str, count: int, reset_noise: float = 0.0) -> HeldOutSet:
    """Play the task's script with noise until there are `count` transitions.

    The set depends on its arguments alone; a smaller one is the start of a larger one.
    """
    env = ContinualBenchEnv(task, reset_noise=reset_noise)
    episodes: list[tuple[FloatArray, FloatArray]] = []
    missing = count
    while missing > 0:
        place = np.random.SeedSequence(
            _SEED, spawn_key=(zlib.crc32(task.encode()), len(episodes))
        ).generate_state(2)
        controller = ScriptedController(task, NOISE, int(place[0]))
        obs, _ = env.reset(seed=int(place[1]))
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
    return HeldOutSet(task, tuple(episodes))


def model_error(model: Any, heldout: HeldOutSet, horizon: int = HORIZON) -> float | None:
    """Mean squared error of the state imagined `horizon` steps ahead; None if no window fits.

    Mean over all windows of `horizon` steps inside the set's episodes and over the numbers of
    an observation, in their own units. A model's memory is at each window what it would be
    had the agent lived through the episode; the imagination starts from the true state.
    """
    memory = getattr(model, "memory", None)
    if memory is not None and memory.size == 0:
        memory = None
    starts, plans, ends = [], [], []
    memories: list[FloatArray] = []
    for observations, actions in heldout.episodes:
        windows = len(actions) - horizon + 1
        if windows < 1:
            continue
        starts.append(observations[:windows])
        plans.append(np.lib.stride_tricks.sliding_window_view(actions, horizon, axis=0))
        ends.append(observations[horizon:])
        if memory is not None:
            memories.append(states_along(memory, observations, actions)[:windows])
    if not starts:
        return None
    states_before = np.concatenate(memories) if memories else None
    actions = np.ascontiguousarray(np.concatenate(plans).transpose(0, 2, 1))
    states = model.rollout(np.concatenate(starts), actions, memory=states_before)
    wrong = np.asarray(states[:, -1], dtype=np.float64) - np.concatenate(ends)
    return float(np.mean(wrong**2))
