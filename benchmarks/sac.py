"""Soft actor-critic: that it learns, and how it compares with stable-baselines3's.

`python -m benchmarks.sac` prints one JSON object, and how far it is to stderr. The comparison needs
stable-baselines3, which is no dependency of the package: `pip install stable-baselines3==2.9.2`.
Both sides have networks of the same widths (ours are normalised), the same batch, rates, warm-up,
scale of observations, steps, seeds, and one thread. Episodes go on after success, so that all are
of one length and nothing hangs on what an end is worth.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.wrappers import RescaleObservation

from everlearn.agents import run_episode
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.deep.sac.agent import DEFAULTS, SACAgent
from everlearn.deep.sac.learner import SACConfig
from everlearn.deep.strategies import PerfectMemory
from everlearn.runs.machine import processor

PENDULUM_STEPS, PENDULUM_EPISODES = 20_000, 20
TASK, STEPS, SEEDS = "window-close", 10_000, (0, 1, 2)
LAST = 5
"""Episodes at the end of a training whose return counts."""

ROUNDS, REPEATS = 20, 20
"""Turns in which updates are timed, and updates a turn."""

Train = Callable[[int, int], tuple[Any, list[float]]]
"""From a seed and a number of steps to an agent and the returns of its training episodes."""


def pendulum_return(seed: int, steps: int = PENDULUM_STEPS) -> float:
    """Mean return of evaluation episodes after training from nothing."""
    env = gymnasium.make("Pendulum-v1")
    agent = SACAgent.for_env(env, seed=seed, threads=1)
    for episode in range(steps // 200):
        run_episode(agent, env, seed=1000 * seed + episode)
    copy = agent.evaluation_copy(seed)
    returns = [
        run_episode(copy, env, seed=10_000 + episode, explore=False).total_reward
        for episode in range(PENDULUM_EPISODES)
    ]
    return float(np.mean(returns))


def bench_env() -> gymnasium.Env[Any, Any]:
    return ContinualBenchEnv(TASK, terminate_on_success=False)


def scaled_env() -> gymnasium.Env[Any, Any]:
    """With observations as our agent scales them for itself."""
    return RescaleObservation(bench_env(), np.float64(-1.0), np.float64(1.0))


def ours(seed: int, steps: int) -> tuple[SACAgent, list[float]]:
    """Train the agent of this package."""
    env = bench_env()
    agent = SACAgent.for_env(env, seed=seed, threads=1)
    returns = []
    while agent.steps < steps:
        reset = 1000 * seed if not returns else None
        returns.append(run_episode(agent, env, seed=reset).total_reward)
    return agent, returns


def theirs(seed: int, steps: int) -> tuple[Any, list[float]]:
    """The same with stable-baselines3."""
    from stable_baselines3 import SAC
    from stable_baselines3.common.monitor import Monitor

    config = DEFAULTS[PerfectMemory.name]  # as `SACAgent.for_env` has it
    env = Monitor(scaled_env())
    agent = SAC(
        "MlpPolicy",
        env,
        learning_rate=config.learning_rate,
        buffer_size=steps,
        learning_starts=config.warm_up,
        batch_size=config.batch,
        tau=config.target_rate,
        gamma=config.discount,
        train_freq=config.update_every,
        policy_kwargs={"net_arch": [config.hidden] * config.layers},
        seed=seed,
        device="cpu",
    )
    agent.learn(steps, log_interval=10**9)
    return agent, env.get_episode_rewards()


SIDES: dict[str, Train] = {"ours": ours, "stable-baselines3": theirs}


def updates_per_second() -> dict[str, float]:
    """Updates in a second of processor time after a short training of each, in turns."""
    steps = SACConfig().warm_up + 500
    (mine, _), (other, _) = (train(0, steps) for train in SIDES.values())
    updates: dict[str, Callable[[], object]] = {
        "ours": lambda: mine.learner.update(mine.storage, mine._training),
        "stable-baselines3": lambda: other.train(1, mine.config.batch),
    }
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    for _ in range(ROUNDS):
        for name, update in updates.items():
            update()  # untimed: the other side's memory is in the caches
            started = time.process_time()
            for _ in range(REPEATS):
                update()
            seconds[name].append((time.process_time() - started) / REPEATS)
    rates = {name: 1.0 / float(np.median(values)) for name, values in seconds.items()}
    return {**rates, "ratio": rates["ours"] / rates["stable-baselines3"]}


def compare() -> dict[str, Any]:
    """Returns at the end of trainings, and steps in a second of processor time."""
    returns: dict[str, list[float]] = {name: [] for name in SIDES}
    rates: dict[str, list[float]] = {name: [] for name in SIDES}
    for seed in SEEDS:
        for name, train in SIDES.items():
            started = time.process_time()
            _, episodes = train(seed, STEPS)
            rates[name].append(STEPS / (time.process_time() - started))
            returns[name].append(float(np.mean(episodes[-LAST:])))
            tell(f"{name}, seed {seed}: return {returns[name][-1]:.0f}")
    means = {name: float(np.mean(found)) for name, found in returns.items()}
    spreads = {name: float(np.std(found, ddof=1)) for name, found in returns.items()}
    speeds = {name: float(np.median(found)) for name, found in rates.items()}
    return {
        "task": TASK,
        "steps": STEPS,
        "returns": returns,
        "means": means,
        "deviations": spreads,
        "no_worse": means["ours"] >= means["stable-baselines3"] - max(spreads.values()),
        "steps_per_second": speeds,
        "ratio": speeds["ours"] / speeds["stable-baselines3"],
    }


def tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    torch.set_num_threads(1)
    found: dict[str, Any] = {"processor": processor(), "torch": torch.__version__}
    found["updates_per_second"] = updates_per_second()
    tell(f"updates a second: {found['updates_per_second']}")
    found["compare"] = compare()
    found["pendulum"] = {}
    for seed in SEEDS:
        found["pendulum"][seed] = pendulum_return(seed)
        tell(f"Pendulum-v1, seed {seed}: {found['pendulum'][seed]:.1f}")
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
