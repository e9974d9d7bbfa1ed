"""Speed of a whole decision, and of the whole loop: plan, act, learn."""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import gymnasium
import numpy as np

import everlearn  # noqa: F401 - registers the environment
from benchmarks.common import Row, interleaved
from everlearn.agents import AGENTS, OnlineAgent, RandomAgent, run_episode
from everlearn.continual_bench import TASKS
from everlearn.models.ftl import OnlineWorldModel
from everlearn.planning import CEMPlanner
from everlearn.protocols import FloatArray

ENVIRONMENT = "everlearn/ContinualBench-v0"
TASK = "button-press"
LEARNED = 300
"""Transitions the model has learned before planning is timed."""


class NumpyModel:
    """The plain transcription of the paper: gather the active rows of W and sum them."""

    def __init__(self, model: OnlineWorldModel) -> None:
        from benchmarks.reference import ReferenceModel

        self.reference = ReferenceModel.like(model)

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        return self.reference.rollout(obs, actions)


class TorchModel:
    """The same predictions with ``torch.nn.functional.embedding_bag``, float32, no gradients."""

    def __init__(self, model: OnlineWorldModel) -> None:
        import torch

        self.torch = torch
        config, scaling = model.config, model.inputs.scaling
        if config.grid_dim != 2 or model.memory.size != 0:
            raise ValueError("written for two-dimensional grids and no memory")
        self.bins, self.features = config.bins, config.features
        self.projection = torch.tensor(model.encoding.projection[:, : model.inputs.count].T.copy())
        self.centre = torch.tensor(scaling.centre, dtype=torch.float32)
        self.multiplier = torch.tensor(scaling.multiplier, dtype=torch.float32)
        self.weights = torch.tensor(np.array(model.weights))
        self.low = torch.tensor(model.observation_space.low, dtype=torch.float32)
        self.high = torch.tensor(model.observation_space.high, dtype=torch.float32)
        self.first_cell = torch.arange(self.features) * self.bins**2

    def rollout(
        self, obs: FloatArray, actions: FloatArray, memory: FloatArray | None = None
    ) -> FloatArray:
        torch = self.torch
        with torch.inference_mode():
            moves = torch.from_numpy(np.ascontiguousarray(actions, np.float32))
            count, horizon, _ = moves.shape
            state = torch.tensor(obs, dtype=torch.float32).expand(count, -1)
            states = [state]
            for step in range(horizon):
                state = state + self._change(state, moves[:, step])
                state = torch.minimum(torch.maximum(state, self.low), self.high)
                states.append(state)
            return torch.stack(states, dim=1).numpy()

    def _change(self, state: Any, action: Any) -> Any:
        torch = self.torch
        inputs = (torch.cat([state, action], dim=1) - self.centre) * self.multiplier
        place = torch.sigmoid(inputs @ self.projection) * (self.bins - 1)
        lower = place.floor().clamp_(max=self.bins - 2)
        upper_share = (place - lower).view(len(state), self.features, 2)
        lower = lower.long().view(len(state), self.features, 2)
        corner = self.first_cell + lower[..., 0] * self.bins + lower[..., 1]
        u, v = upper_share[..., 0], upper_share[..., 1]
        cells = torch.stack([corner, corner + 1, corner + self.bins, corner + self.bins + 1], 2)
        shares = torch.stack([(1 - u) * (1 - v), (1 - u) * v, u * (1 - v), u * v], 2)
        return torch.nn.functional.embedding_bag(
            cells.view(len(state), -1),
            self.weights,
            per_sample_weights=shares.view(len(state), -1),
            mode="sum",
        )


def learned_agent(
    name: str = "oa-paper",
) -> tuple[gymnasium.Env[Any, Any], OnlineAgent, FloatArray]:
    """The environment, an agent that has watched random actions, and an observation."""
    env = gymnasium.make(ENVIRONMENT, task=TASK)
    agent = AGENTS.get(name)(env, 0)
    if not isinstance(agent, OnlineAgent):
        raise TypeError(f"{name} is not an online agent")
    agent.begin_task(TASK, TASKS.get(TASK).objective())
    rows: list[tuple[FloatArray, FloatArray, FloatArray]] = []
    run_episode(
        RandomAgent.for_env(env),
        env,
        seed=0,
        max_steps=LEARNED,
        on_step=lambda obs, action, after, reward: rows.append((obs, action, after)),
    )
    agent.begin_episode()
    for obs, action, after in rows:
        agent.observe(obs, action, after, 0.0, False)
    return env, agent, rows[-1][2]


def measure() -> list[Row]:
    """A decision at the paper's settings: our model, plain NumPy and torch, the same planner."""
    env, agent, obs = learned_agent()
    env.close()
    model, objective = agent.model, TASKS.get(TASK).objective()
    models: dict[str, Any] = {"ours": model, "numpy": NumpyModel(model)}
    try:
        models["torch"] = TorchModel(model)
    except ImportError as error:
        print(f"planning against torch is skipped: {error} (install everlearn[deep])")
    _check_agreement(models, obs)
    # One planner each, of the same seed: every side draws the same candidates.
    decisions = {
        name: partial(CEMPlanner(model.action_space).plan, one, obs, objective)
        for name, one in models.items()
    }
    seconds = interleaved(decisions, {"ours": 20, "numpy": 1, "torch": 5}, rounds=7)
    rows = [
        Row(
            name="decision (3 x 150 x 15 predictions and rewards)",
            ours="compiled kernels",
            ours_seconds=seconds["ours"],
            reference="plain NumPy, gather and sum",
            reference_seconds=seconds["numpy"],
            at_least=40.0,
        )
    ]
    if "torch" in seconds:
        rows.append(
            Row(
                name="decision, same planner",
                ours="compiled kernels",
                ours_seconds=seconds["ours"],
                reference="torch embedding_bag",
                reference_seconds=seconds["torch"],
                at_least=2.0,
            )
        )
    return rows


def _check_agreement(models: dict[str, Any], obs: FloatArray) -> None:
    """Refuse to time sides that do not compute the same thing."""
    actions = np.random.default_rng(1).uniform(-1, 1, (20, 15, 4)).astype(np.float32)
    expected = models["ours"].rollout(obs, actions)
    for name, model in models.items():
        gap = float(np.max(np.abs(model.rollout(obs, actions) - expected)))
        if not gap < 1e-2:
            raise RuntimeError(f"{name} imagines states that differ by {gap}; nothing to compare")


def closed_loop(steps: int = 300, name: str = "oa") -> dict[str, float]:
    """Steps a second of the running agent, and where a step's time goes."""
    env, agent, _ = learned_agent(name)
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
    whole = 1e3 * np.sum(list(parts.values()), axis=0)
    result = {
        "loop, steps a second": 1e3 / float(np.mean(whole)),
        "loop, p50 ms": float(np.percentile(whole, 50)),
        "loop, p99 ms": float(np.percentile(whole, 99)),
    }
    for part, durations in parts.items():
        result[f"{part}, p50 ms"] = 1e3 * float(np.percentile(durations, 50))
    result["cells in use"] = agent.model.utilization * agent.model.encoding.cells
    return result


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row.name}: {1e3 * row.ours_seconds:.2f} ms, {row.reference}: "
            f"{1e3 * row.reference_seconds:.1f} ms, {row.ratio:.1f}x"
        )
    for what, value in closed_loop().items():
        print(f"{what}: {value:.1f}")
