"""Soft actor-critic in the Gymnasium worlds of `benchmarks.worlds`, at as many steps.

    pip install stable-baselines3==2.9.2
    python -m benchmarks.worlds_sac --seeds 330,331,332 --out results/worlds/sac

stable-baselines3 is no dependency of the package. Its SAC has its own defaults, the reward of the
environment, and one thread. The last fifth of its training counts as `learning`; `frozen` is the
mean of its policy in the episodes that `oa` is measured by. A file that is there is not made again.
"""

from __future__ import annotations

import time
from typing import Any

from benchmarks.worlds import EPISODES, WORLDS, measure_all
from everlearn.runs.machine import PACKAGE, commit
from everlearn.worlds import world_named


def measured(name: str, seed: int, steps: int) -> dict[str, Any]:
    """Train SAC in one world, and let its policy play."""
    import stable_baselines3
    import torch

    torch.set_num_threads(1)
    world = world_named(name)
    env = world.make(world.tasks[0])
    agent = stable_baselines3.SAC("MlpPolicy", env, seed=seed, device="cpu")
    curve: list[tuple[int, float]] = []

    def keep(now: dict[str, Any], _: dict[str, Any]) -> bool:
        returns = [info["episode"]["r"] for info in now["infos"] if "episode" in info]
        curve.extend((agent.num_timesteps, float(total)) for total in returns)
        return True

    started = time.perf_counter()
    agent.learn(steps, callback=keep)
    trained = time.perf_counter() - started
    frozen = []
    for episode in range(EPISODES):
        obs, _ = env.reset(seed=10**6 + episode)
        total, over = 0.0, False
        while not over:
            action, _ = agent.predict(obs, deterministic=True)
            obs, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        frozen.append(total)
    return {
        "world": name,
        "seed": seed,
        "steps": steps,
        "commit": commit(PACKAGE),
        "stable_baselines3": stable_baselines3.__version__,
        "curve": curve,
        "frozen": frozen,
        "seconds": trained,
    }


if __name__ == "__main__":
    measure_all(measured, __doc__ or "", [name for name in WORLDS if name.startswith("gym:")])
