"""Compiled training against PyTorch in float64: errors, gradients, and steps of Adam."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from everlearn.deep.mlp.network import adam, make_network
from everlearn.deep.mlp.training import SWEEP, DenseTraining

ROWS = 90
RATE = 1e-2


def data(sizes: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(1)
    inputs = generator.normal(size=(ROWS, sizes[0])).astype(np.float32)
    return inputs, generator.normal(size=(ROWS, sizes[-1])).astype(np.float32)


def exact(network: torch.nn.Sequential, x: np.ndarray, y: np.ndarray) -> torch.Tensor:
    """The loss in float64, as the network is from then on."""
    network.double()
    return torch.nn.functional.mse_loss(network(torch.tensor(x).double()), torch.tensor(y).double())


# One, two and three vectors; panels of different widths; one layer alone; more inputs than units.
SIZES = [(3, 5), (20, 1, 2), (7, 16, 33, 4), (50, 12, 70, 12), (30, 100, 100, 30)]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients_and_errors_are_those_of_pytorch(sizes: tuple[int, ...], threads: int) -> None:
    inputs, targets = data(sizes)
    network, plain = (make_network(sizes, np.random.default_rng(0)) for _ in range(2))
    parameters = list(network.parameters())
    training = DenseTraining(parameters, adam(parameters, RATE), batch=40, threads=threads)
    # Full, not a multiple of anything, and fewer rows than threads and tiles have.
    for rows in (np.arange(40), np.array([5, 89, *range(15)]), np.array([7])):
        training.differentiate(inputs, targets, rows)
        plain.zero_grad()
        loss = exact(plain, inputs[rows], targets[rows])
        loss.backward()
        for parameter, expected in zip(parameters, plain.parameters(), strict=True):
            scale = float(expected.grad.abs().max()) + 1e-3
            gap = (parameter.grad.double() - expected.grad).abs().max()
            assert float(gap) < 1e-5 * scale
        assert training.error(inputs, targets, rows) == pytest.approx(loss.item(), rel=1e-5)
    # More rows than a minibatch has room for.
    loss = exact(plain, inputs, targets).item()
    assert training.error(inputs, targets, np.arange(ROWS)) == pytest.approx(loss, rel=1e-5)


def test_steps_are_those_of_pytorchs_adam_and_go_on_from_training_to_training() -> None:
    sizes = (7, 33, 4)
    network, plain = (make_network(sizes, np.random.default_rng(0)) for _ in range(2))
    parameters, expected = list(network.parameters()), list(plain.parameters())
    ours, theirs = adam(parameters, RATE), torch.optim.Adam(expected, lr=RATE)
    generator = np.random.default_rng(2)
    for _ in range(3):
        training = DenseTraining(parameters, ours, batch=8, threads=1)
        for _ in range(20):
            for parameter, same in zip(parameters, expected, strict=True):
                drawn = generator.normal(size=tuple(parameter.shape)).astype(np.float32)
                parameter.grad.copy_(torch.from_numpy(drawn))
                same.grad = torch.from_numpy(drawn)
            training.update()
            theirs.step()
        training.finish()
    for parameter, same in zip(parameters, expected, strict=True):
        torch.testing.assert_close(parameter, same, rtol=1e-5, atol=1e-6)
        for name in ("step", "exp_avg", "exp_avg_sq"):
            found = ours.state[parameter][name]
            torch.testing.assert_close(found, theirs.state[same][name], rtol=1e-5, atol=1e-7)


def test_moments_that_vanish_become_zero() -> None:
    parameters = list(make_network((3, 4), np.random.default_rng(0)).parameters())
    optimizer = adam(parameters, RATE)
    training = DenseTraining(parameters, optimizer, batch=8, threads=1)
    parameters[0].grad.fill_(1.0)
    parameters[1].grad.fill_(1.0)
    training.update()
    parameters[1].grad.zero_()
    for _ in range(1, 15 * SWEEP):
        training.update()
    training.finish()
    live, dead = (optimizer.state[parameter]["exp_avg"] for parameter in parameters)
    assert (dead == 0.0).all()
    torch.testing.assert_close(live, torch.ones(4, 3))


def test_what_is_not_a_number_is_not_hidden() -> None:
    sizes = (3, 20, 2)
    inputs, targets = data(sizes)
    inputs[4, 1] = np.nan
    parameters = list(make_network(sizes, np.random.default_rng(0)).parameters())
    training = DenseTraining(parameters, adam(parameters, RATE), batch=40, threads=1)
    rows = np.arange(10)
    assert np.isnan(training.error(inputs, targets, rows))
    training.differentiate(inputs, targets, rows)
    assert parameters[-1].grad.isnan().all()
    assert np.isfinite(training.error(inputs, targets, np.arange(5, 10)))
