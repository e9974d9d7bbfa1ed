"""Speed of a whole decision, and of the whole loop: plan, act, learn."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import gymnasium
import numba
import numpy as np

import everlearn  # noqa: F401 - registers the environment
from benchmarks import model as model_benchmark
from benchmarks import reference
from benchmarks.common import Row, interleaved
from everlearn.agents import OnlineAgent, RandomAgent, make_agent, run_episode
from everlearn.continual_bench import TASKS
from everlearn.interfaces import FloatArray
from everlearn.planning import CEMPlanner

ENVIRONMENT = "everlearn/ContinualBench-v0"
TASK = "button-press"
LEARNED = 300
"""Transitions the model has learned before anything is timed."""


class Imagination:
    """A function that imagines in place of a model, to plan with."""

    def __init__(self, rollout: Callable[..., FloatArray], model: Any) -> None:
        self._rollout = rollout
        self.observation_space = model.observation_space

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        return self._rollout(obs, actions, memory)


def measure() -> list[Row]:
    """A decision at the paper's settings, with predictions and the rewards of a task.

    Plain NumPy plans by the plainest cross-entropy method; torch by the planner that is ours.
    """
    walk = model_benchmark.make_walk(LEARNED + 1)
    model = model_benchmark.make_model()
    for transition in walk[:LEARNED]:
        model.learn(*transition)
    obs, _, _, memory = walk[LEARNED]
    objective = TASKS.get(TASK).objective()
    plain = reference.ReferenceModel(model, np.float32)
    plain.W[:] = model.weights
    sides: dict[str, Callable[..., FloatArray]] = {"ours": model.rollout, "numpy": plain.rollout}
    sides |= _torch_sides(model)
    _check_agreement(sides, obs, memory)

    def plan_plainly() -> None:
        reference.plan(
            lambda plans: plain.rollout(obs, plans.astype(np.float32), memory),
            objective,
            model_benchmark.ACTIONS,
            np.random.default_rng(0),
        )

    # One planner each, of the same seed: all draw the same candidates.
    decisions: dict[str, Callable[[], object]] = {
        name: partial(
            CEMPlanner(model.action_space).plan, Imagination(rollout, model), obs, objective, memory
        )
        for name, rollout in sides.items()
    }
    decisions["numpy"] = plan_plainly
    repeats = {name: {"ours": 20, "numpy": 1}.get(name, 3) for name in decisions}
    seconds = interleaved(decisions, repeats, rounds=5)
    name, ours = "decision (3 x 150 x 15 predictions and rewards)", seconds["ours"]
    limit = model_benchmark.ROWS_OF_WEIGHTS
    rows = [Row(name, "everlearn", ours, "NumPy", seconds["numpy"], at_least=40, limit=limit)]
    torches = {side: value for side, value in seconds.items() if side.startswith("torch")}
    if torches:
        # On busy cores more threads can be slower; the faster of both is the one to beat.
        fastest = min(torches, key=torches.__getitem__)
        rows.append(
            Row(name, "everlearn", ours, fastest, torches[fastest], at_least=2, limit=limit)
        )
    return rows


def measure_agent() -> list[Row]:
    """A decision of `oa` on one thread and on all, and its training with many cells."""
    return [*_threads_of_a_decision(), _bins()]


def _threads_of_a_decision() -> list[Row]:
    """None on a machine with one processor."""
    count = numba.get_num_threads()
    if count == 1:
        return []
    env, agent = learned_agent("oa")
    obs, _ = env.reset(seed=1)
    agent.begin_episode()

    def decide(threads: int) -> None:
        numba.set_num_threads(threads)
        agent.act(obs)

    try:
        sides = {str(threads): partial(decide, threads) for threads in (count, 1)}
        seconds = interleaved(sides, 20, rounds=9)
    finally:
        numba.set_num_threads(count)
        env.close()
    return [
        Row(
            name="decision of oa (3 x 200 x 25 predictions and rewards)",
            ours=f"{count} threads",
            ours_seconds=seconds[str(count)],
            reference="1 thread",
            reference_seconds=seconds["1"],
            at_least=1.5 if count == 2 else None,
            limit=model_benchmark.ROWS_OF_WEIGHTS,
        )
    ]


def _bins(steps: int = 1000, turn: int = 100) -> Row:
    """Steps of training with 11 bins a grid and with 5, exact solutions included, in turns."""
    loops = {bins: Loop(TASK, {"model.bins": bins}) for bins in (11, 5)}
    for loop in loops.values():
        loop.seconds(20)
        loop.agent.model.solve()  # loads its kernels
    spent = dict.fromkeys(loops, 0.0)
    for _ in range(steps // turn):
        for bins, loop in loops.items():
            spent[bins] += loop.seconds(turn)
    return Row(
        name="training of oa with more cells, per step",
        ours="11 bins",
        ours_seconds=spent[11] / steps,
        reference="5 bins",
        reference_seconds=spent[5] / steps,
        at_least=0.8,
        limit="its plan",
    )


class Loop:
    """Plan, act and learn, episode after episode."""

    def __init__(self, task: str, options: dict[str, Any]) -> None:
        self.env = gymnasium.make(ENVIRONMENT, task=task)
        self.agent: Any = make_agent("oa", self.env, **options)
        self.agent.begin_task(task, TASKS.get(task).objective())
        self._obs: FloatArray | None = None

    def seconds(self, steps: int) -> float:
        """Take so many steps, and return how long they took."""
        began = time.perf_counter()
        for _ in range(steps):
            if self._obs is None:
                self._obs, _ = self.env.reset()
                self.agent.begin_episode()
            action = self.agent.act(self._obs)
            after, reward, terminated, truncated, _ = self.env.step(action)
            self.agent.observe(self._obs, action, after, float(reward), bool(terminated))
            self._obs = None if terminated or truncated else after
        return time.perf_counter() - began


def _torch_sides(model: Any) -> dict[str, Callable[..., FloatArray]]:
    """Torch's ``embedding_bag`` with one thread and with as many as our kernels have."""
    if importlib.util.find_spec("torch") is None:
        print("planning against torch is skipped: it is not installed (everlearn[deep] adds it)")
        return {}
    import torch

    rollout = model_benchmark._torch_rollout(model)
    if rollout is None:
        return {}

    def with_threads(threads: int, *given: Any) -> FloatArray:
        torch.set_num_threads(threads)
        states: FloatArray = rollout(*given)
        return states

    return {
        f"torch embedding_bag, {threads} threads": partial(with_threads, threads)
        for threads in sorted({1, numba.get_num_threads()})
    }


def _check_agreement(
    sides: dict[str, Callable[..., FloatArray]], obs: FloatArray, memory: FloatArray
) -> None:
    """Refuse to time sides that do not compute the same thing."""
    shape = (20, model_benchmark.HORIZON, model_benchmark.ACTIONS)
    actions = np.random.default_rng(1).uniform(-1, 1, shape).astype(np.float32)
    expected = sides["ours"](obs, actions, memory)
    for name, rollout in sides.items():
        gap = float(np.max(np.abs(rollout(obs, actions, memory) - expected)))
        if not gap < 1e-2:
            raise RuntimeError(f"{name} imagines states that differ by {gap}; nothing to compare")


def learned_agent(name: str) -> tuple[gymnasium.Env[Any, Any], OnlineAgent]:
    """The environment, and an agent that has watched random actions in it."""
    env = gymnasium.make(ENVIRONMENT, task=TASK)
    agent = make_agent(name, env)
    if not isinstance(agent, OnlineAgent):
        raise TypeError(f"{name} is not an online agent")
    agent.begin_task(TASK, TASKS.get(TASK).objective())
    agent.begin_episode()
    run_episode(
        RandomAgent.for_env(env),
        env,
        seed=0,
        max_steps=LEARNED,
        on_step=lambda obs, action, after, reward: agent.observe(obs, action, after, reward, False),
    )
    return env, agent


def closed_loop(steps: int = 300, name: str = "oa") -> dict[str, float]:
    """Steps a second of the running agent, and where a step's time goes."""
    env, agent = learned_agent(name)
    parts: dict[str, list[float]] = {"plan": [], "act": [], "learn": []}
    obs, _ = env.reset(seed=1)
    agent.begin_episode()
    for _ in range(steps):
        times = [time.perf_counter()]
        action = agent.act(obs)
        times.append(time.perf_counter())
        after, reward, terminated, truncated, _ = env.step(action)
        times.append(time.perf_counter())
        agent.observe(obs, action, after, float(reward), bool(terminated))
        times.append(time.perf_counter())
        for part, duration in zip(parts.values(), np.diff(times), strict=True):
            part.append(float(duration))
        obs = after
        if terminated or truncated:
            obs, _ = env.reset()
            agent.begin_episode()
    env.close()
    whole = np.sum(list(parts.values()), axis=0)
    result = {
        "loop, steps a second": 1.0 / float(np.mean(whole)),
        "loop, p50 ms": 1e3 * float(np.percentile(whole, 50)),
        "loop, p99 ms": 1e3 * float(np.percentile(whole, 99)),
    }
    for part, durations in parts.items():
        result[f"{part}, p50 ms"] = 1e3 * float(np.percentile(durations, 50))
    result["cells in use"] = agent.model.utilization * agent.model.encoding.cells
    return {what: round(value, 2) for what, value in result.items()}


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row.name}: {1e3 * row.ours_seconds:.2f} ms, {row.reference}: "
            f"{1e3 * row.reference_seconds:.1f} ms, {row.ratio:.1f}x"
        )
    for what, value in closed_loop().items():
        print(f"{what}: {value:.1f}")
