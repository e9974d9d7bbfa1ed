"""Speed of the online model against the plain reference and against torch, in one run."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces

from benchmarks.common import Row, interleaved
from benchmarks.reference import ReferenceModel
from everlearn.continual_bench import PAPER_TASKS, observation
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.online import OnlineWorldModel
from everlearn.world_model.memory import CommandMemory

CANDIDATES, HORIZON, ITERATIONS = 150, 15, 3
OBSERVATIONS, ACTIONS = 26, 4
PART = 100

FACTOR_AND_ROWS = "arithmetic (factorisation) and memory (rows of A), about half each"
ROWS_OF_WEIGHTS = "memory: rows of W from the caches"


def make_model(**options: Any) -> OnlineWorldModel:
    """A model of the paper's size for Continual Bench, with a memory of its commands."""
    return OnlineWorldModel(
        spaces.Box(observation.LOW, observation.HIGH, dtype=np.float64),
        spaces.Box(-1, 1, (ACTIONS,), np.float64),
        memory=CommandMemory(observation.COMMANDED_POSITION),
        **options,
    )


def make_walk(steps: int) -> list[tuple[Any, Any, Any, Any]]:
    """Transitions of scripts with noise, `PART` steps of each task in turn.

    Each is observation, action, next observation, and the commanded position at the first.
    """
    memory = CommandMemory(observation.COMMANDED_POSITION)
    env = ContinualBenchEnv(terminate_on_success=False)
    walk: list[tuple[Any, Any, Any, Any]] = []
    while len(walk) < steps:
        part = len(walk) // PART
        task = PAPER_TASKS[part % len(PAPER_TASKS)]
        controller = ScriptedController(task, noise=0.4, seed=part)
        obs, _ = env.reset(options={"task": task})
        command = memory.start(obs[None])
        for _ in range(PART):
            action = controller.act(obs)
            following = env.step(action)[0]
            walk.append((obs, action, following, command[0]))
            command = memory.advance(command, obs[None], action[None], following[None])
            obs = following
    return walk[:steps]


def _torch_rollout(model: OnlineWorldModel) -> Callable[[Any, Any, Any], Any] | None:
    """The same rollout with torch's embedding_bag, or None without torch."""
    if importlib.util.find_spec("torch") is None:
        print(
            "torch is not installed: no comparison with embedding_bag (pip install everlearn[deep])"
        )
        return None
    import torch

    encoding, scaling = model.encoding, model.inputs.scaling
    projection = torch.tensor(encoding.projection[:, : encoding.inputs].T.copy())
    centre = torch.tensor(scaling.centre, dtype=torch.float32)
    multiplier = torch.tensor(scaling.multiplier, dtype=torch.float32)
    weights = torch.tensor(np.ascontiguousarray(model.weights))
    low, high = (
        torch.tensor(b, dtype=torch.float32) for b in (model.inputs.low, model.inputs.high)
    )
    position = observation.COMMANDED_POSITION
    nearest, furthest = (torch.tensor(b) for b in (position.low, position.high))
    offset = torch.arange(encoding.features) * encoding.bins**2

    @torch.no_grad()
    def rollout(obs: Any, actions: Any, memory: Any) -> Any:
        plans = torch.tensor(actions, dtype=torch.float32)
        state = torch.tensor(obs, dtype=torch.float32).repeat(len(plans), 1)
        command = torch.tensor(memory, dtype=torch.float32).repeat(len(plans), 1)
        states = [state]
        for step in range(plans.shape[1]):
            action = plans[:, step]
            x = torch.cat([state, action, 30 * (command - state[:, :3])], dim=1)
            location = (encoding.bins - 1) * torch.sigmoid(((x - centre) * multiplier) @ projection)
            lower = location.floor().clamp(max=encoding.bins - 2)
            past = (location - lower).view(len(x), -1, 2)
            corner = lower.long().view(len(x), -1, 2)
            cell = offset + corner[:, :, 0] * encoding.bins + corner[:, :, 1]
            u, v = past[:, :, 0], past[:, :, 1]
            cells = torch.stack([cell, cell + 1, cell + encoding.bins, cell + encoding.bins + 1], 2)
            values = torch.stack([(1 - u) * (1 - v), (1 - u) * v, u * (1 - v), u * v], 2)
            change = torch.nn.functional.embedding_bag(
                cells.view(len(x), -1),
                weights,
                mode="sum",
                per_sample_weights=values.view(len(x), -1),
            )
            state = torch.clamp(state + change, low, high)
            command = torch.clamp(command + position.scale * action[:, :3], nearest, furthest)
            states.append(state)
        return torch.stack(states, 1).numpy()

    return rollout


def measure() -> list[Row]:
    """Update and imagination at the paper's size; the last row is a ratio of two of ours."""
    walk = make_walk(600)
    model = make_model()
    model.learn_batch(*(np.array(part) for part in zip(*walk[:450], strict=True)), solve=False)
    for transition in walk[450:500]:
        model.learn(*transition)
    reference = ReferenceModel(model, np.float32)
    cells = model.learner.statistics.cells
    reference.A[np.ix_(cells, cells)] = model.learner.statistics.rows()
    reference.B[:] = 0
    reference.B[cells] = model.learner.statistics.targets[: len(cells), :OBSERVATIONS]
    reference.W[:] = model.weights
    print(f"{len(cells)} cells in use")

    def learner(target: Any) -> Callable[[], object]:
        position = [0]

        def learn() -> None:
            target.learn(*walk[500 + position[0] % 100])
            position[0] += 1

        return learn

    def imagine(target: Any) -> Callable[[], object]:
        obs, _, _, memory = walk[500]
        plans = np.clip(
            np.cumsum(np.random.default_rng(1).normal(0, 0.3, (CANDIDATES, HORIZON, ACTIONS)), 1),
            -1,
            1,
        )

        def run() -> None:
            for _ in range(ITERATIONS):
                target(obs, plans, memory)

        return run

    rows = []
    times = interleaved(
        {"ours": learner(model), "reference": learner(reference)},
        # Many of ours in a row, as in use: the first ones pay for the caches the other emptied.
        {"ours": 40, "reference": 3},
    )
    rows.append(
        Row(
            "update",
            "everlearn",
            times["ours"],
            "NumPy",
            times["reference"],
            at_least=6,
            limit=FACTOR_AND_ROWS,
        )
    )
    times = interleaved(
        {"ours": imagine(model.rollout), "reference": imagine(reference.rollout)},
        {"ours": 10, "reference": 1},
        rounds=3,
    )
    rows.append(
        Row(
            "imagination",
            "everlearn",
            times["ours"],
            "NumPy",
            times["reference"],
            at_least=40,
            limit=ROWS_OF_WEIGHTS,
        )
    )
    torch_rollout = _torch_rollout(model)
    if torch_rollout is not None:
        times = interleaved(
            {"ours": imagine(model.rollout), "torch": imagine(torch_rollout)},
            {"ours": 10, "torch": 3},
        )
        rows.append(
            Row(
                "imagination",
                "everlearn",
                times["ours"],
                "torch embedding_bag",
                times["torch"],
                at_least=2,
                limit=ROWS_OF_WEIGHTS,
            )
        )
    rows.append(_late_update())
    return rows


def _late_update() -> Row:
    """An update at step 50,000 against one at step 5,000, the same cells in use.

    A walk is repeated; its statistics are scaled to that many repetitions instead of adding
    them up, which gives the same numbers up to rounding and takes no hour.
    """
    walk = make_walk(1500)
    first = make_model()
    first.learn_batch(*(np.array(part) for part in zip(*walk, strict=True)), solve=False)
    second = make_model()
    second.restore(*first.state())
    models = {5_000: first, 50_000: second}
    for steps, model in models.items():
        statistics = model.learner.statistics
        statistics.touched[:] *= steps / len(walk)
        statistics.targets *= steps / len(walk)
        model.learner.samples = steps

    def learner(model: OnlineWorldModel) -> Callable[[], object]:
        position = [0]

        def learn() -> None:
            model.learn(*walk[position[0] % len(walk)])
            position[0] += 1

        return learn

    times = interleaved({str(n): learner(m) for n, m in models.items()}, 10)
    for steps, model in models.items():
        print(f"step {steps}: {model.fallbacks} of {model.steps - steps} updates in float64")
    return Row(
        "update at step 50,000",
        "step 50,000",
        times["50000"],
        "step 5,000",
        times["5000"],
        at_least=1 / 1.3,
        limit=FACTOR_AND_ROWS,
    )


if __name__ == "__main__":
    for row in measure():
        print(
            f"{row.name:24} {row.ours} {row.ours_seconds * 1e3:8.2f} ms   "
            f"{row.reference} {row.reference_seconds * 1e3:8.2f} ms   {row.ratio:.2f}x "
            f"(bar {row.at_least}) {'met' if row.met else 'NOT MET'}"
        )
