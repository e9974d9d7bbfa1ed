"""Two small regression tasks, and a training loop that any strategy can be put into."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from everlearn.deep.strategies import Protection, Storage, Strategy

ROWS = 200


def task_data(task: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs of both tasks overlap but little, so that one network can serve both."""
    generator = np.random.default_rng({"first": 1, "second": 2}[task])
    x = generator.uniform(0.0, 1.0, (ROWS, 1))
    if task == "first":
        x, y = x - 1.1, np.sin(4.0 * (x - 1.1))
    else:
        x, y = x + 0.1, 1.5 * np.cos(5.0 * (x + 0.1))
    return torch.tensor(x, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)


def network(seed: int = 0, width: int = 48) -> torch.nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return torch.nn.Sequential(
            torch.nn.Linear(1, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, width),
            torch.nn.ReLU(),
            torch.nn.Linear(width, 1),
        )


@dataclass
class Learner:
    """A network, its optimizer and what a strategy makes of them."""

    strategy: Strategy
    module: torch.nn.Module = field(default_factory=network)
    rate: float = 3e-3

    def __post_init__(self) -> None:
        self.storage: Storage = self.strategy.storage({"x": 1, "y": 1}, seed=0)
        self.protection: Protection = self.strategy.protect(self.module)
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=self.rate)
        self.begun = False

    def learn(self, task: str, steps: int = 500) -> None:
        self.begin(task)
        for x, y in zip(*task_data(task), strict=True):
            self.storage.add(x=x.numpy(), y=y.numpy())
        self.train(steps)

    def begin(self, task: str, retraining: int = 200) -> None:
        if self.begun:
            self.protection.end_task((torch.tensor(self.storage.column("x")),))
            if self.strategy.retrains:
                self.train(retraining)
            self.storage.end_task()
        self.protection.begin_task(task)
        self.begun = True

    def train(self, steps: int) -> None:
        x = torch.tensor(self.storage.column("x"))
        y = torch.tensor(self.storage.column("y"))
        for _ in range(steps):
            self.optimizer.zero_grad()
            torch.nn.functional.mse_loss(self.module(x), y).backward()
            self.protection.after_backward()
            self.optimizer.step()
            self.protection.after_step()

    def predict(self, task: str | None, x: torch.Tensor) -> torch.Tensor:
        names = [name for name, _ in self.module.named_parameters()]
        values = dict(zip(names, self.protection.weights(task), strict=True))
        with torch.no_grad():
            return torch.func.functional_call(self.module, values, (x,))

    def error(self, task: str) -> float:
        x, y = task_data(task)
        return float(((self.predict(task, x) - y) ** 2).mean())
