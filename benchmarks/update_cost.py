"""Cost of learning over a life: the online model's update, and trainings on a perfect memory.

Both models live through the same stream, the scripts of the six tasks with noise, one task after
the other, and then all of them again: the first round shows what new places cost, the second what
more data of known places cost. Processor time of one thread each, so that other work on the machine
counts little. `python -m benchmarks.update_cost` prints JSON.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import numpy as np

from everlearn.agents import mlp_agent
from everlearn.continual_bench import PAPER_TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.interfaces import FloatArray
from everlearn.planning.agent import OnlineAgent, PlanningAgent
from everlearn.runs.machine import processor
from everlearn.support.settings import with_options

STEPS_PER_TASK = 2_000
NOISE = 0.5
"""Standard deviation of the noise on the script's actions."""

ROUNDS = 2

WINDOW = 500
"""Steps that are summed up: two trainings of the network, one exact solution of the other."""

Transition = tuple[FloatArray, FloatArray, FloatArray]


def stream(seed: int = 0) -> Iterator[tuple[bool, Transition]]:
    """Transitions, each with whether an episode starts with it."""
    for place, task in enumerate(PAPER_TASKS * ROUNDS):
        env = ContinualBenchEnv(task)
        left, episode = STEPS_PER_TASK, 0
        while left:
            controller = ScriptedController(task, NOISE, seed + 1000 * place + episode)
            obs, _ = env.reset(seed=seed + episode)
            first, over = True, False
            while left and not over:
                action = controller.act(obs)
                after, _, terminated, truncated, _ = env.step(action)
                yield first, (obs, action, after)
                obs, first, over = after, False, terminated or truncated
                left -= 1
            episode += 1
        env.close()


def measure() -> dict[str, object]:
    """Processor seconds a step of both, window by window."""
    env = ContinualBenchEnv()
    online = OnlineAgent.for_env(env, threads=1)
    network = with_options(
        mlp_agent("perfect-memory").settings(env), {"model.train_every": WINDOW // 2}
    )
    deep = PlanningAgent.build(env, network, threads=1)
    windows: list[dict[str, float]] = []
    seconds = {"online": 0.0, "deep": 0.0}
    epochs = trainings = 0
    for step, (first, (obs, action, after)) in enumerate(stream(), start=1):
        for name, agent in (("online", online), ("deep", deep)):
            if first:
                agent.begin_episode()
            began = time.process_time()
            agent.observe(obs, action, after, 0.0, False)
            seconds[name] += time.process_time() - began
        training = deep.model.last_training
        if deep.model.trainings > trainings:
            trainings = deep.model.trainings
            epochs += training.epochs
        if step % WINDOW == 0:
            windows.append(
                {
                    "step": step,
                    "online_seconds_a_step": seconds["online"] / WINDOW,
                    "online_cells": round(online.model.utilization * online.model.encoding.cells),
                    "deep_seconds_a_step": seconds["deep"] / WINDOW,
                    "deep_rows": training.rows,
                    "deep_epochs": epochs,
                    "deep_seconds_an_epoch": seconds["deep"] / epochs,
                }
            )
            seconds, epochs = dict.fromkeys(seconds, 0.0), 0
    return {
        "what": "learning alone, one thread, processor seconds",
        "processor": processor(),
        "agents": {"online": "oa", "deep": "mlp-perfect-memory"},
        "growth": growth(windows),
        "windows": windows,
    }


def growth(windows: list[dict[str, float]]) -> dict[str, float]:
    """The last two tasks of the second round over the same tasks in the first."""
    once = len(windows) // ROUNDS
    result = {}
    for name in ("online_seconds_a_step", "deep_seconds_a_step", "deep_seconds_an_epoch"):
        values = [window[name] for window in windows]
        early, late = values[2 * once // 3 : once], values[-(once // 3) :]
        result[name] = float(np.mean(late) / np.mean(early))
    return result


if __name__ == "__main__":
    print(json.dumps(measure(), indent=1))
