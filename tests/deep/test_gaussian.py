"""The squeezed Gaussian against PyTorch's distributions and autograd."""

from __future__ import annotations

import numpy as np
import torch
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from everlearn.deep.sac.gaussian import SquashedGaussian, unit_information


def numbers(*shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(len(shape)).normal(size=shape))


def test_log_probability_is_that_of_the_transformed_distribution() -> None:
    outputs, noise = 0.5 * numbers(50, 6), numbers(50, 3)
    found = SquashedGaussian(outputs, noise)
    mean, log_deviation = outputs.chunk(2, 1)
    squeezed = TransformedDistribution(Normal(mean, log_deviation.exp()), TanhTransform())
    torch.testing.assert_close(found.actions, torch.tanh(mean + log_deviation.exp() * noise))
    expected = squeezed.log_prob(found.actions).sum(1)
    torch.testing.assert_close(found.log_probability, expected, rtol=1e-6, atol=1e-6)


def test_far_out_it_stays_finite() -> None:
    found = SquashedGaussian(torch.tensor([[40.0, -1.0]]), torch.tensor([[0.3]]))
    assert torch.isfinite(found.log_probability).all()
    assert torch.isfinite(found.gradient(torch.ones(1, 1), 1.0)).all()


def test_gradients_are_those_of_autograd() -> None:
    outputs, noise = 3.0 * numbers(50, 6), numbers(50, 3)
    outputs.requires_grad_()
    assert (outputs[:, 3:] > 2.0).any()  # some are beyond the limit, where nothing flows
    found = SquashedGaussian(outputs, noise)
    of_actions = numbers(3, 50).T
    loss = (of_actions * found.actions).sum() + 0.3 * found.log_probability.sum()
    (expected,) = torch.autograd.grad(loss, outputs)
    with torch.no_grad():
        gradient = SquashedGaussian(outputs, noise).gradient(of_actions, 0.3)
    torch.testing.assert_close(gradient, expected)


def test_information_is_the_curvature_of_the_divergence() -> None:
    """KL(p || p + d) is half the information times d^2: the definition, from another side."""
    outputs = torch.tensor([0.4, -0.3])
    before = Normal(outputs[0], outputs[1].exp())
    for place in range(2):
        step = torch.zeros(2)
        step[place] = 1e-2
        moved = outputs + step
        after = Normal(moved[0], moved[1].exp())
        divergence = float(torch.distributions.kl_divergence(before, after))
        derivative = torch.func.jacrev(unit_information)(outputs)[:, place]
        expected = 0.5 * float((derivative**2).sum()) * 1e-4
        assert abs(divergence - expected) < 0.03 * expected
