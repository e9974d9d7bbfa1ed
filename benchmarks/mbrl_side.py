"""The other side of `benchmarks.deep`: mbrl-lib's planner, run by an interpreter that has it.

Not part of the package: it imports mbrl, torch and NumPy only. Reads one JSON list a line and
answers each with one line of JSON.
"""

from __future__ import annotations

import importlib.metadata
import json
import sys
from typing import Any

import gymnasium
import mbrl.models
import mbrl.planning
import numpy as np
import omegaconf
import torch

CANDIDATES, HORIZON, ITERATIONS, ACTIONS = 150, 15, 3, 4
PACKAGES = ("mbrl", "torch", "numpy", "hydra-core", "omegaconf")


class Side:
    """PETS with one deterministic member: model, model environment and trajectory optimizer."""

    def __init__(self, path: str) -> None:
        stored = np.load(path)
        weights = [stored[f"weights_{i}"] for i in range(len(stored) - 3)]
        inputs, outputs = weights[0].shape[1], len(weights[-1])
        network = mbrl.models.GaussianMLP(
            inputs,
            outputs,
            "cpu",
            num_layers=len(weights) // 2 - 1,
            ensemble_size=1,
            hid_size=len(weights[0]),
            deterministic=True,
        )
        layers = [layer[0] for layer in network.hidden_layers] + [network.mean_and_logvar]
        with torch.no_grad():
            for layer, matrix, bias in zip(layers, weights[0::2], weights[1::2], strict=True):
                layer.weight.copy_(torch.from_numpy(matrix.T.copy())[None])
                layer.bias.copy_(torch.from_numpy(bias)[None, None])
        model = mbrl.models.OneDTransitionRewardModel(
            network, target_is_delta=True, normalize=True, learned_rewards=False
        )
        model.input_normalizer.mean = torch.tensor(stored["centre"], dtype=torch.float32)[None]
        model.input_normalizer.std = torch.tensor(stored["deviation"], dtype=torch.float32)[None]
        goal = torch.tensor(stored["goal"], dtype=torch.float32)

        class Spaces:
            observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (outputs,))
            action_space = gymnasium.spaces.Box(-1.0, 1.0, (ACTIONS,))

        self.env = mbrl.models.ModelEnv(
            Spaces(),
            model,
            lambda action, obs: torch.zeros(len(obs), 1, dtype=torch.bool),
            lambda action, obs: -(obs[:, :3] - goal).norm(dim=1, keepdim=True),
            torch.Generator(),
        )
        self.agent = mbrl.planning.TrajectoryOptimizerAgent(
            omegaconf.OmegaConf.create(
                {
                    "_target_": "mbrl.planning.CEMOptimizer",
                    "num_iterations": ITERATIONS,
                    "elite_ratio": 0.1,
                    "population_size": CANDIDATES,
                    "alpha": 0.1,
                    "device": "cpu",
                    "lower_bound": "???",
                    "upper_bound": "???",
                    "clipped_normal": True,
                }
            ),
            [-1.0] * ACTIONS,
            [1.0] * ACTIONS,
            planning_horizon=HORIZON,
        )
        self.agent.set_trajectory_eval_fn(self.values)
        self.obs = np.zeros(outputs, np.float32)

    def values(self, obs: np.ndarray, sequences: torch.Tensor) -> torch.Tensor:
        """Returns of sequences of actions from one observation."""
        return self.env.evaluate_action_sequences(sequences, obs, num_particles=1)

    def answer(self, what: str, *given: Any) -> Any:
        """Do what a line asks for."""
        if what == "versions":
            return {name: importlib.metadata.version(name) for name in PACKAGES}
        if what == "threads":
            torch.set_num_threads(given[0])
            return given[0]
        if what == "values":
            self.obs = np.array(given[0], np.float32)
            return self.values(self.obs, torch.tensor(given[1], dtype=torch.float32)).tolist()
        if what == "plan":
            for _ in range(given[0]):
                self.agent.act(self.obs)
            return given[0]
        raise ValueError(f"cannot answer {what!r}")


if __name__ == "__main__":
    side = Side(sys.argv[1])
    for line in sys.stdin:
        print(json.dumps(side.answer(*json.loads(line))), flush=True)
