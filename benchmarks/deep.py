"""Speed of a decision with the deep model: our kernel, PyTorch, NumPy, and mbrl-lib.

mbrl-lib needs other versions of its dependencies and so an interpreter of its own, which is
named by the variable MBRL_PYTHON; without it that row is left out. `python -m benchmarks.deep`
prints everything as JSON.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any

import numba
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from benchmarks import model as online
from benchmarks.common import Row, interleaved
from benchmarks.planner import TASK, Imagination
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.deep.mlp import rollout_kernel as dense
from everlearn.deep.mlp.model import MLPWorldModel
from everlearn.deep.mlp.network import adam, adam_step, make_network, torch_threads
from everlearn.deep.mlp.training import DenseTraining
from everlearn.interfaces import FloatArray
from everlearn.planning import CEMConfig, CEMPlanner
from everlearn.world_model.step_kernels import Limits, StepTables, Trajectories, given_features

LEARNED = 500
"""Transitions the network has been trained on before anything is timed."""

GOAL = (0.1, 0.6, 0.2)
"""Where the hand should be, in the comparison with mbrl-lib: a reward of one line on each side."""

ARITHMETIC = "arithmetic"

EPOCH_ROWS, BATCH, RATE = 100_000, 256, 4e-4
INPUTS, OUTPUTS = 30, 26
"""Of the network on Continual Bench: observation and action, and the change of the observation."""

NAME = "decision with the network (3 x 150 x 15 predictions and rewards)"


def make_model() -> MLPWorldModel:
    """A network of the paper's size that has learned a walk.

    Without memory or bounds, which mbrl-lib does not have.
    """
    env = ContinualBenchEnv(TASK)
    model = MLPWorldModel(env.observation_space, env.action_space, clip=False, threads=1)
    for obs, action, next_obs, _ in online.make_walk(LEARNED):
        model.learn(obs, action, next_obs)
    return model


def torch_rollout(model: MLPWorldModel, reuse: bool) -> Callable[..., FloatArray]:
    """The same imagination in PyTorch, without gradients; `reuse` writes into kept buffers."""
    inputs, changes = model.normalisers
    layers = [tensor.clone() for tensor in model.protection.weights(None)]
    matrices, biases = [matrix.T.contiguous() for matrix in layers[0::2]], layers[1::2]
    centre, deviation, change_centre, change_deviation = (
        torch.tensor(values, dtype=torch.float32)
        for values in (inputs.centre, inputs.deviation, changes.centre, changes.deviation)
    )
    kept: dict[int, list[torch.Tensor]] = {}

    def forward(x: torch.Tensor) -> torch.Tensor:
        if reuse and len(x) not in kept:
            kept[len(x)] = [torch.empty(len(x), len(bias)) for bias in biases]
        outs = kept.get(len(x), [None] * len(biases))
        for i, (matrix, bias, out) in enumerate(zip(matrices, biases, outs, strict=True)):
            x = torch.addmm(bias, x, matrix, out=out)
            if i < len(matrices) - 1:
                x.relu_()
        return x

    @torch.inference_mode()
    def rollout(obs: FloatArray, plans: FloatArray, memory: object = None) -> FloatArray:
        actions = torch.from_numpy(np.asarray(plans, np.float32))
        state = torch.tensor(np.asarray(obs), dtype=torch.float32).repeat(len(actions), 1)
        states = torch.empty(len(actions), actions.shape[1] + 1, state.shape[1])
        states[:, 0] = state
        for step in range(actions.shape[1]):
            x = torch.cat([state, actions[:, step]], 1)
            state = state + forward((x - centre) / deviation) * change_deviation + change_centre
            states[:, step + 1] = state
        return states.numpy()

    return rollout


def numpy_rollout(model: MLPWorldModel) -> Callable[..., FloatArray]:
    """The same imagination in NumPy, whose BLAS is another one."""
    inputs, changes = model.normalisers
    layers = [tensor.numpy().copy() for tensor in model.protection.weights(None)]
    matrices, biases = [np.ascontiguousarray(m.T) for m in layers[0::2]], layers[1::2]
    scale, offset = changes.deviation.astype(np.float32), changes.centre.astype(np.float32)

    def rollout(obs: FloatArray, plans: FloatArray, memory: object = None) -> FloatArray:
        state = np.repeat(np.asarray(obs, np.float32)[None], len(plans), axis=0)
        states = [state]
        for step in range(plans.shape[1]):
            x = inputs(np.concatenate([state, plans[:, step]], axis=1))
            for i, (matrix, bias) in enumerate(zip(matrices, biases, strict=True)):
                x = x @ matrix
                x += bias
                if i < len(matrices) - 1:
                    np.maximum(x, 0, out=x)
            state = state + x * scale + offset
            states.append(state)
        return np.stack(states, axis=1)

    return rollout


def measure() -> list[Row]:
    """A decision for a task of the benchmark, by the same planner in each imagination."""
    model = make_model()
    obs = np.asarray(online.make_walk(LEARNED + 1)[LEARNED][0], np.float32)
    sides: dict[str, Callable[..., FloatArray]] = {
        "ours": model.rollout,
        "torch addmm": torch_rollout(model, reuse=False),
        "torch addmm into buffers": torch_rollout(model, reuse=True),
        "NumPy sgemm": numpy_rollout(model),
    }
    plans = np.random.default_rng(1).uniform(-1, 1, (20, 15, 4)).astype(np.float32)
    expected = model.rollout(obs, plans)
    for name, rollout in sides.items():
        gap = float(np.max(np.abs(rollout(obs, plans) - expected)))
        if not gap < 1e-3:
            raise RuntimeError(f"{name} imagines states that differ by {gap}; nothing to compare")
    objective = TASKS.get(TASK).objective()
    decisions = {
        name: partial(
            CEMPlanner(model.action_space).plan, Imagination(rollout, model), obs, objective
        )
        for name, rollout in sides.items()
    }
    with torch_threads(1), threadpool_limits(1, user_api="blas"):
        seconds = interleaved(decisions, 10, rounds=9)
    return [
        Row(
            NAME,
            "everlearn, 1 thread",
            seconds["ours"],
            f"{name}, 1 thread",
            seconds[name],
            limit=ARITHMETIC,
        )
        for name in sides
        if name != "ours"
    ] + [*against_mbrl(model, obs), *training()]


def training() -> list[Row]:
    """An epoch of a network of the paper's size, against PyTorch's and against its arithmetic.

    The last row's reference is what its multiplications cost at the speed of imagination, with a
    network in which no unit is zero: those would be left out.
    """
    sizes = (INPUTS, *(200,) * 4, OUTPUTS)
    generator = np.random.default_rng(0)
    inputs = generator.normal(size=(EPOCH_ROWS, INPUTS)).astype(np.float32)
    targets = np.tanh(inputs[:, :OUTPUTS])
    rows = generator.permutation(EPOCH_ROWS)
    network, other = (make_network(sizes, np.random.default_rng(1)) for _ in range(2))
    parameters, others = list(network.parameters()), list(other.parameters())
    ours = DenseTraining(parameters, adam(parameters, RATE), BATCH, threads=1)
    optimizer = adam(others, RATE)

    def epoch() -> None:
        for first in range(0, EPOCH_ROWS, BATCH):
            ours.differentiate(inputs, targets, rows[first : first + BATCH])
            ours.update()

    def torch_epoch() -> None:
        x, y = (torch.from_numpy(part)[torch.from_numpy(rows)] for part in (inputs, targets))
        for first in range(0, EPOCH_ROWS, BATCH):
            part = slice(first, first + BATCH)
            optimizer.zero_grad(set_to_none=True)
            torch.nn.functional.mse_loss(other(x[part]), y[part]).backward()
            adam_step(optimizer)

    matrices = [np.abs(matrix.detach().numpy()) / 10 for matrix in parameters[0::2]]
    layers = dense.pack(matrices, [np.ones(len(matrix), np.float32) for matrix in matrices])
    nothing = np.zeros(OUTPUTS, np.float32)
    tables = StepTables(
        np.zeros(INPUTS, np.float32),
        np.ones(INPUTS, np.float32),
        Limits(nothing, nothing + 1, nothing),
        given_features(0).astype(np.float32),
        OUTPUTS,
    )
    states = np.zeros((16, 160, OUTPUTS), np.float32)
    actions = np.ones((160, 15, INPUTS - OUTPUTS), np.float32)
    trajectories = Trajectories(states, actions, np.zeros((160, 0), np.float32))

    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    try:
        with torch_threads(1), threadpool_limits(1, user_api="blas"):
            seconds = interleaved(
                {
                    "ours": epoch,
                    "torch": torch_epoch,
                    "imagination": partial(dense.imagine, trajectories, tables, layers),
                },
                {"ours": 1, "torch": 1, "imagination": 50},
                rounds=5,
            )
    finally:
        numba.set_num_threads(threads)
    first = sizes[0] * sizes[1]
    products = sum(one * next_one for one, next_one in pairwise(sizes))
    # Forwards, for the gradient of the weights, and for that of all inputs but the first layer's.
    epoch_products = EPOCH_ROWS * (3 * products - first)
    arithmetic = seconds["imagination"] / (160 * 15 * products) * epoch_products
    name, side = f"epoch of the network, {EPOCH_ROWS:,} rows", "everlearn, 1 thread"
    return [
        Row(
            name,
            side,
            seconds["ours"],
            "torch, 1 thread",
            seconds["torch"],
            at_least=1.5,
            limit=ARITHMETIC,
        ),
        Row(
            name,
            side,
            seconds["ours"],
            "its multiplications at the speed of imagination",
            arithmetic,
            at_least=0.5,
            limit=ARITHMETIC,
        ),
    ]


class OtherSide:
    """mbrl-lib in its own interpreter, which plans when asked to.

    Parameters
    ----------
    python
        That interpreter.
    model
        Whose network it is to use.
    """

    def __init__(self, python: str, model: MLPWorldModel) -> None:
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "model.npz"
        weights = [tensor.numpy() for tensor in model.protection.weights(None)]
        inputs, changes = model.normalisers
        # Its targets are not normalised: ours is taken into the last layer, as in our kernel.
        weights[-2] = weights[-2] * changes.deviation[:, None]
        weights[-1] = weights[-1] * changes.deviation + changes.centre
        np.savez(
            path,
            centre=inputs.centre,
            deviation=inputs.deviation,
            goal=GOAL,
            **{f"weights_{i}": weight.astype(np.float32) for i, weight in enumerate(weights)},
        )
        self._process = subprocess.Popen(
            [python, str(Path(__file__).with_name("mbrl_side.py")), str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.versions = self.ask("versions")

    def ask(self, *words: Any) -> Any:
        """Send one line and wait for the answer to it."""
        if self._process.stdin is None or self._process.stdout is None:
            raise RuntimeError("the other side has no pipes")
        self._process.stdin.write(json.dumps(words) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the other side ended with {self._process.wait()}")
        return json.loads(answer)

    def __enter__(self) -> OtherSide:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        self._process.wait()
        self._folder.cleanup()


def reach(obs: FloatArray, action: FloatArray, next_obs: FloatArray) -> FloatArray:
    """Reward of the comparison: minus the hand's distance from `GOAL`."""
    gap = next_obs[:, :3] - np.array(GOAL, next_obs.dtype)
    return -np.sqrt((gap * gap).sum(axis=1))


def against_mbrl(model: MLPWorldModel, obs: FloatArray) -> list[Row]:
    """The same network, candidates, horizon, iterations and reward in mbrl-lib's planner."""
    python = os.environ.get("MBRL_PYTHON")
    if python is None:
        return []
    rows = []
    with OtherSide(python, model) as side:
        plans = np.random.default_rng(1).uniform(-1, 1, (20, 15, 4)).astype(np.float32)
        states = model.rollout(obs, plans)
        ours = reach(obs, plans, states[:, 1:].reshape(-1, states.shape[2])).reshape(20, 15).sum(1)
        theirs = np.array(side.ask("values", obs.tolist(), plans.tolist()))
        gap = float(np.max(np.abs(ours - theirs)))
        if not gap < 1e-3:
            raise RuntimeError(f"mbrl-lib's returns differ by {gap}; nothing to compare")
        for threads in sorted({1, numba.get_num_threads()}):
            planning = make_planning(model, threads)
            side.ask("threads", threads)
            seconds = interleaved(
                {"ours": partial(planning, obs), "theirs": partial(side.ask, "plan", 1)},
                10,
                rounds=15,
            )
            version = f"mbrl-lib {side.versions['mbrl']}"
            rows.append(
                Row(
                    f"decision with the network, reward of one line, {threads} threads",
                    "everlearn",
                    seconds["ours"],
                    f"{version}, torch {side.versions['torch']}",
                    seconds["theirs"],
                    at_least=2,
                    limit=ARITHMETIC,
                )
            )
    return rows


def make_planning(model: MLPWorldModel, threads: int) -> Callable[[FloatArray], object]:
    """A planner of ours as it runs with so many threads."""
    planner = CEMPlanner(model.action_space, CEMConfig())

    def plan(obs: FloatArray) -> object:
        model._threads.count = threads
        return planner.plan(model, obs, reach)

    return plan


if __name__ == "__main__":
    print(json.dumps([row.as_dict() for row in measure()], indent=2))
