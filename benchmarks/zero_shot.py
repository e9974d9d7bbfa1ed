"""Rewards that a run never trained on, solved by its model as it is.

    python -m benchmarks.zero_shot RUN --episodes 20

Two of them: pick-place with its goal 10 cm to the left, right, near or far (the episodes take
turns), and opening the window again after a script has closed it. The run's agent is taken from
its newest snapshot and learns nothing here; only the objective is new.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numba import njit

from everlearn.agents import make_agent, run_episode
from everlearn.continual_bench import TASKS, Task, rewards
from everlearn.continual_bench.env import MAX_STEPS, ContinualBenchEnv
from everlearn.continual_bench.goals import BlockGoal
from everlearn.continual_bench.observation import WINDOW_HANDLE
from everlearn.interfaces import FloatArray
from everlearn.runs.reload import load_run
from everlearn.support.threads import limited_threads

PLANNER_SEED = 177
MOVED = {"left": (0.0, 0.1), "right": (0.0, -0.1), "far": (0.1, 0.0), "near": (-0.1, 0.0)}
"""Where the goal of pick-place goes, in metres along x and y."""
OPEN_Y, OPEN_RADIUS = 0.41, 0.05
"""Where the window's handle is when it is open, and what counts as that (as for closing)."""
BEHIND = (0.0, -0.04, -0.02)
"""From the handle to where fingers push it open, in metres; they closed it from the other side."""


@njit(cache=True)
def _opened(obs, out):  # type: ignore[no-untyped-def]
    fingers = np.empty(5)
    for i in range(len(obs)):
        rewards.estimate_fingers(obs[i], fingers)
        off = 0.0
        for k in range(3):
            off += (obs[i, 11 + k] + BEHIND[k] - fingers[k]) ** 2
        off = np.sqrt(off)
        in_place = rewards.long_tail(abs(obs[i, 12] - OPEN_Y), 0.0, OPEN_RADIUS, 0.16)
        pushed = rewards.hamacher(rewards.gaussian(off, 0.0, 0.02, 0.08), in_place)
        out[i] = 5.0 * rewards.gaussian(off, 0.0, 0.02, 0.12) + 5.0 * pushed


def moved_pick_place(name: str) -> Task:
    """Pick-place with another goal."""
    known = TASKS.get("pick-place")
    x, y, z = rewards.BLOCK_TARGET
    goal = BlockGoal((x + MOVED[name][0], y + MOVED[name][1], z))
    return Task(f"pick-place-{name}", known.hand, known.camera, goal, goal.succeeded)


def open_window() -> Task:
    """The window's handle where it was before the window was closed.

    Half is for fingers that are where they can do it, and half for what they do there. The
    place is the side from which the handle has to be pushed.
    """
    known = TASKS.get("window-close")

    def reward(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
        out = np.empty(len(next_obs))
        _opened(next_obs.astype(float), out)
        return out

    def success(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> np.ndarray:
        return np.abs(next_obs[:, WINDOW_HANDLE][:, 1] - OPEN_Y) <= OPEN_RADIUS

    return Task("window-open", known.hand, known.camera, reward, success)


def carries(frozen: Any, episodes: int) -> Iterator[tuple[str, int | None]]:
    """Steps to success with each goal in turn, None where there was none."""
    names = list(MOVED)
    for name in names:
        TASKS.register(f"pick-place-{name}", moved_pick_place(name))
    for episode in range(episodes):
        task = TASKS.get(f"pick-place-{names[episode % len(names)]}")
        frozen.begin_task(task.name, task.objective())
        result = run_episode(frozen, ContinualBenchEnv(task.name), explore=False)
        yield task.name, result.length if result.info["success"] else None


def opens(frozen: Any, episodes: int) -> Iterator[tuple[str, int | None]]:
    """Steps to an open window after it was closed, None where it stayed closed."""
    task = open_window()
    env = ContinualBenchEnv("window-close", terminate_on_success=False)
    objective: Any = task.objective()
    for _ in range(episodes):
        closing = make_agent("scripted", env)
        closing.begin_task("window-close", None)
        obs, _ = env.reset(seed=0)
        closing.begin_episode()
        frozen.begin_task(task.name, objective)
        frozen.begin_episode()
        closed, opened = False, False
        steps = 0
        while steps < MAX_STEPS:
            action = (frozen if closed else closing).act(obs, explore=False)
            after, _, _, _, info = env.step(action)
            step = obs[None], action[None], after[None]
            # It sees what the script commands too: its own commands go on from there.
            frozen.observe(obs, action, after, float(objective(*step)[0]), False)
            steps += closed
            opened = closed and bool(objective.succeeded(*step)[0])
            if not closed and info["success"]:
                closed = True  # from here on it has an episode's steps of its own
                env.set_state(replace(env.get_state(), steps=0))
            obs = after
            if opened:
                break
        yield task.name, steps if opened else None


def main() -> None:
    """Print and, if asked, store what was solved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--episodes", type=int, default=20, help="of each kind")
    parser.add_argument("--out", type=Path, help="JSON file for the result")
    given = parser.parse_args()
    config, state, agent = load_run(given.run)
    frozen: Any = agent.evaluation_copy(PLANNER_SEED)
    found: list[tuple[str, int | None]] = []
    with limited_threads(config.threads):
        for kind in (carries, opens):
            for name, steps in kind(frozen, given.episodes):
                found.append((name, steps))
                print(f"{name}: {'not solved' if steps is None else f'solved in {steps} steps'}")
    table: dict[str, dict[str, Any]] = {}
    for name, steps in found:
        row = table.setdefault(name, {"episodes": 0, "solved": 0, "steps": []})
        row["episodes"] += 1
        row["solved"] += steps is not None
        row["steps"].append(steps)
    for name, row in table.items():
        print(f"{name}: {row['solved']} of {row['episodes']}")
    if given.out is not None:
        facts = {"agent": config.agent, "seed": config.seed, "after": state.episode, "tasks": table}
        given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
