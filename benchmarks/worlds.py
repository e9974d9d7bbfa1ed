"""One agent with one set of settings in many worlds, beside doing nothing and acting at random.

    python -m benchmarks.worlds --seeds 320,321,322 --out results/worlds

Each world gets a fresh `oa` with its defaults and no reward function. It learns for so many steps
of the environment, and then plays frozen. Every world and seed is a file of its own below `--out`.
A file that is there is not made again, so the same command resumes.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from everlearn.agents import OnlineAgent, run_episode
from everlearn.runs.machine import PACKAGE, commit
from everlearn.support.settings import values_of
from everlearn.support.threads import limited_threads
from everlearn.worlds import world_named

WORLDS = (
    *(
        f"dm_control:{task}"
        for task in (
            "cartpole-swingup",
            "cartpole-swingup_sparse",
            "pendulum-swingup",
            "reacher-easy",
            "reacher-hard",
            "ball_in_cup-catch",
            "finger-spin",
            "cheetah-run",
            "walker-stand",
            "acrobot-swingup",
        )
    ),
    *(
        f"gym:{name}-v{version}"
        for name, version in (
            ("Pendulum", 1),
            ("Reacher", 5),
            ("Pusher", 5),
            ("InvertedPendulum", 5),
            ("InvertedDoublePendulum", 5),
            ("MountainCarContinuous", 0),
            ("HalfCheetah", 5),
        )
    ),
)
EPISODES = 5
"""Episodes that a frozen agent, no action and random actions are measured by."""


def learned(agent: OnlineAgent, env: gymnasium.Env[Any, Any], steps: int, seed: int) -> Any:
    """Returns ``(step, return)`` of training episodes, and seconds of each step's agent."""
    curve, seconds, done_steps = [], [], 0
    while done_steps < steps:
        obs, _ = env.reset(seed=1000 * seed + len(curve))
        agent.begin_episode()
        total, over = 0.0, False
        while not over:
            begun = time.perf_counter()
            action = agent.act(obs)
            acted = time.perf_counter()
            after, reward, terminated, truncated, _ = env.step(action)
            stepped = time.perf_counter()
            agent.observe(obs, action, after, float(reward), terminated)
            seconds.append(time.perf_counter() - stepped + acted - begun)
            obs, total = after, total + float(reward)
            done_steps += 1
            over = terminated or truncated
        curve.append((done_steps, total))
    return curve, np.array(seconds)


def played(env: gymnasium.Env[Any, Any], seed: int, random: bool) -> list[float]:
    """Returns of episodes without any agent: no action, or random ones."""
    space = env.action_space
    space.seed(seed)
    still = np.clip(np.zeros(space.shape), space.low, space.high).astype(space.dtype)
    returns = []
    for episode in range(EPISODES):
        env.reset(seed=10**6 + episode)
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(space.sample() if random else still)
            total, over = total + float(reward), terminated or truncated
        returns.append(total)
    return returns


def measured(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train and measure one agent in one world."""
    world = world_named(name)
    env = world.make(world.tasks[0])
    agent = OnlineAgent.for_env(env, seed=seed, threads=1)
    started = time.perf_counter()
    curve, seconds = learned(agent, env, steps, seed)
    trained = time.perf_counter() - started
    frozen = []
    for episode in range(EPISODES):
        copy = agent.evaluation_copy(episode)
        copy.begin_task(name, None)
        frozen.append(run_episode(copy, env, seed=10**6 + episode, explore=False).total_reward)
    milliseconds = 1000 * seconds[1:]  # the first compiles
    return {
        "world": name,
        "seed": seed,
        "steps": steps,
        "commit": commit(PACKAGE),
        "config": values_of(agent.blueprint.config),
        "curve": curve,
        "frozen": frozen,
        "zero": played(env, seed, random=False),
        "random": played(env, seed, random=True),
        "seconds": trained,
        "milliseconds": {
            "p50": float(np.median(milliseconds)),
            "p99": float(np.percentile(milliseconds, 99)),
            "most": float(milliseconds.max()),
        },
        "peak_megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def measure_all(
    measured: Callable[[str, int, int], dict[str, Any]], about: str, worlds: Iterable[str]
) -> None:
    """Measure what is not measured yet: a file for each world and seed below `--out`."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument("--worlds", default=",".join(worlds))
    parser.add_argument("--seeds", default="0")
    parser.add_argument("--steps", type=int, default=10_000)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    for seed in map(int, given.seeds.split(",")):
        for name in given.worlds.split(","):
            path = given.out / f"{name.replace(':', '-')}-{seed}.json"
            if path.exists():
                continue
            with limited_threads(1):
                result = measured(name, seed, given.steps)
            temporary = path.with_suffix(".tmp")
            temporary.write_text(json.dumps(result) + "\n")
            temporary.rename(path)
            print(
                f"{name} seed {seed}: frozen {np.mean(result['frozen']):.0f}, last "
                f"{result['curve'][-1][1]:.0f} [{result['seconds']:.0f} s]",
                flush=True,
            )


if __name__ == "__main__":
    measure_all(measured, __doc__ or "", WORLDS)
