"""Penalties and importances against direct computations on models of two parameters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from everlearn.deep.strategies import ElasticWeightConsolidation, PackNet, SynapticIntelligence
from everlearn.deep.strategies.ewc import diagonal_fisher
from everlearn.deep.strategies.packnet import PackedProtection
from everlearn.support.errors import InvalidInputError


def line(slope: float, offset: float) -> torch.nn.Linear:
    module = torch.nn.Linear(1, 1).double()
    with torch.no_grad():
        module.weight.fill_(slope)
        module.bias.fill_(offset)
    return module


def values(module: torch.nn.Linear) -> np.ndarray:
    return np.array([module.weight.item(), module.bias.item()])


DATA = [
    (np.array([-1.0, 0.5, 2.0]), np.array([0.3, -0.2, 1.0])),
    (np.array([0.1, 0.2, -3.0]), np.array([1.0, 0.0, -1.0])),
    (np.array([4.0, 1.0, 1.5]), np.array([0.5, 0.5, 2.0])),
]
RATE, STEPS = 0.05, 7


def train(module: torch.nn.Linear, protection: object, x: np.ndarray, y: np.ndarray) -> None:
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE, momentum=0.9)
    inputs, targets = torch.tensor(x[:, None]), torch.tensor(y[:, None])
    for _ in range(STEPS):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(module(inputs), targets).backward()
        protection.after_backward()
        optimizer.step()
        protection.after_step()
    protection.end_task((inputs,))
    protection.begin_task("next")


def test_synaptic_intelligence_is_its_definition() -> None:
    c, xi = 0.7, 0.05
    module = line(0.4, -0.1)
    protection = SynapticIntelligence(c, xi).protect(module)

    weight, anchor = values(module), values(module)
    importance = np.zeros(2)
    for x, y in DATA:
        train(module, protection, x, y)
        path, momentum = np.zeros(2), np.zeros(2)
        for _ in range(STEPS):
            wrong = weight[0] * x + weight[1] - y
            gradient = np.array([np.mean(2 * wrong * x), np.mean(2 * wrong)])
            momentum = 0.9 * momentum + gradient + 2 * c * importance * (weight - anchor)
            path -= gradient * (-RATE * momentum)
            weight = weight - RATE * momentum
        importance = importance + np.maximum(path, 0) / ((weight - anchor) ** 2 + xi)
        anchor = weight.copy()
        np.testing.assert_allclose(values(module), weight, rtol=1e-10)
        found = [tensor.item() for tensor in protection.importance]
        np.testing.assert_allclose(found, importance, rtol=1e-9)
    assert (importance > 0).all()

    with torch.no_grad():
        module.weight += 0.3
    assert protection.penalty().item() == pytest.approx(c * importance[0] * 0.3**2, rel=1e-9)


def test_rewinding_forgets_the_path() -> None:
    module = line(0.4, -0.1)
    protection = SynapticIntelligence().protect(module)
    kept = values(module)
    protection.mark()
    x, y = (torch.tensor(part[:, None]) for part in DATA[0])
    optimizer = torch.optim.SGD(module.parameters(), lr=RATE)
    torch.nn.functional.mse_loss(module(x), y).backward()
    protection.after_backward()
    optimizer.step()
    protection.after_step()
    assert all(path.item() > 0 for path in protection.path)
    with torch.no_grad():
        module.weight.fill_(kept[0])
        module.bias.fill_(kept[1])
    protection.rewind()
    protection.end_task((x,))
    assert all(importance.item() == 0 for importance in protection.importance)


@pytest.mark.parametrize("variant", ["per-task", "online"])
def test_elastic_weights_are_their_definition(variant: str) -> None:
    strength, decay = 0.3, 0.8
    module = line(0.4, -0.1)
    protection = ElasticWeightConsolidation(strength, variant, decay).protect(module)
    tasks: list[tuple[np.ndarray, np.ndarray]] = []
    for x, y in DATA:
        train(module, protection, x, y)
        # Of a line with noise of variance 1: E[x^2] for the slope and 1 for the offset.
        tasks.append((np.array([np.mean(x**2), 1.0]), values(module)))
    with torch.no_grad():
        module.weight += 0.3
        module.bias -= 0.2
    here = values(module)
    if variant == "per-task":
        expected = sum(fisher @ (here - anchor) ** 2 for fisher, anchor in tasks)
    else:
        whole = sum(decay ** (2 - i) * fisher for i, (fisher, _) in enumerate(tasks))
        expected = whole @ (here - tasks[-1][1]) ** 2
    assert protection.penalty().item() == pytest.approx(0.5 * strength * expected, rel=1e-9)


@pytest.mark.parametrize(
    "strategy",
    [
        SynapticIntelligence(c=2.0),
        ElasticWeightConsolidation(5.0),
        ElasticWeightConsolidation(5.0, "online"),
    ],
)
def test_what_is_added_to_gradients_is_the_gradient_of_the_penalty(strategy: object) -> None:
    module = line(0.4, -0.1)
    protection = strategy.protect(module)
    for x, y in DATA:
        train(module, protection, x, y)
    with torch.no_grad():
        module.weight += 0.3
        module.bias -= 0.2
    expected = torch.autograd.grad(protection.penalty(), list(module.parameters()))
    for parameter in module.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    protection.after_backward()
    for parameter, gradient in zip(module.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient + 7.0)
        assert gradient.abs().item() > 0


class Policy(torch.nn.Module):
    """A Gaussian policy of two parameters: mean = a x, log deviation = b."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.7))
        self.b = torch.nn.Parameter(torch.tensor(-0.4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a * x, self.b.expand_as(x)


def test_fisher_of_a_gaussian_policy() -> None:
    def unit(output: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
        mean, log_deviation = output
        return torch.cat([mean / log_deviation.detach().exp(), math.sqrt(2.0) * log_deviation], -1)

    x = torch.tensor(np.random.default_rng(0).normal(size=(40, 1)), dtype=torch.float32)
    found = diagonal_fisher(Policy(), (x,), unit)
    # Independent: squared derivatives of the log-likelihood of actions drawn from the policy.
    generator = np.random.default_rng(1)
    noise = generator.normal(size=(200_000, 1)) * np.exp(-0.4)
    inputs = generator.choice(x.numpy(), 200_000)
    slope = noise / np.exp(-0.8) * inputs
    deviation = noise**2 / np.exp(-0.8) - 1
    assert float(found[0]) == pytest.approx(np.mean(slope**2), rel=0.02)
    assert float(found[1]) == pytest.approx(np.mean(deviation**2), rel=0.02)


def test_fisher_of_several_outputs_and_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
    x = torch.tensor(np.random.default_rng(0).normal(size=(11, 3)), dtype=torch.float32)
    expected = [torch.zeros_like(parameter) for parameter in module.parameters()]
    for row in x:
        for output in module(row):
            gradients = torch.autograd.grad(output, list(module.parameters()), retain_graph=True)
            for total, gradient in zip(expected, gradients, strict=True):
                total += gradient**2 / len(x)
    for numbers in (1, 200, 10**9):
        monkeypatch.setattr("everlearn.deep.strategies.ewc.CHUNK_NUMBERS", numbers)
        for found, total in zip(diagonal_fisher(module, (x,)), expected, strict=True):
            torch.testing.assert_close(found, total)


def test_packnet_shares_weights_out_evenly() -> None:
    module = torch.nn.Linear(30, 40)
    protection = PackNet(expected_tasks=4).protect(module)
    assert isinstance(protection, PackedProtection)
    for task in ("a", "b", "c", "d", "e"):
        protection.begin_task(task)
        with torch.no_grad():
            for parameter, trainable in zip(
                module.parameters(), protection._trainable, strict=True
            ):
                parameter += trainable * torch.rand_like(parameter)
        protection.end_task((torch.zeros(1, 30),))
    owned = [int((protection.owners[0] == slot).sum()) for slot in range(5)]
    assert owned == [300, 300, 300, 150, 75]
    assert int((protection.owners[0] == -1).sum()) == 75
    assert (protection.owners[1] == 0).all()  # biases are the first task's
    assert (module.weight[protection.owners[0] == -1] == 0).all()


def test_packnet_keeps_the_largest() -> None:
    module = torch.nn.Linear(4, 1)
    protection = PackNet(expected_tasks=2).protect(module)
    protection.begin_task("a")
    with torch.no_grad():
        module.weight.copy_(torch.tensor([[0.1, -5.0, 3.0, -0.2]]))
    protection.end_task((torch.zeros(1, 4),))
    assert module.weight.tolist() == [[0.0, -5.0, 3.0, 0.0]]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (SynapticIntelligence, {"c": 0.0}),
        (SynapticIntelligence, {"xi": float("nan")}),
        (ElasticWeightConsolidation, {"strength": -1.0}),
        (ElasticWeightConsolidation, {"variant": "both"}),
        (ElasticWeightConsolidation, {"decay": 1.5}),
        (ElasticWeightConsolidation, {"fisher_samples": 0}),
        (PackNet, {"expected_tasks": 0}),
    ],
)
def test_settings_are_checked(kind: type, settings: dict) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        kind(**settings)
