"""Steps of the optimizer: those of PyTorch's Adam, without the numbers that slow it down."""

from __future__ import annotations

from collections.abc import Callable

import torch

from everlearn.deep.mlp.network import adam, adam_step

LIVE, DEAD, LIVELY_STEPS, STEPS = 50, 50, 5, 1500


def train(take_step: Callable[[torch.optim.Adam], object]) -> tuple[torch.Tensor, torch.Tensor]:
    """Weights and means of gradients after steps in which half of the gradient became 0."""
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(LIVE + DEAD, generator=generator)
    optimizer = adam([weights], 1e-3)
    for step in range(STEPS):
        weights.grad = torch.randn(LIVE + DEAD, generator=generator)
        if step >= LIVELY_STEPS:
            weights.grad[LIVE:] = 0.0
        take_step(optimizer)
    return weights, optimizer.state[weights]["exp_avg"]


def subnormal(values: torch.Tensor) -> torch.Tensor:
    return (values != 0.0) & (values.abs() < torch.finfo(values.dtype).tiny)


def test_moments_of_dead_weights_become_zero_and_weights_do_not_notice() -> None:
    plain, plain_means = train(lambda optimizer: optimizer.step())
    ours, means = train(adam_step)

    assert subnormal(plain_means[LIVE:]).all()  # what there is to cure
    assert (means[LIVE:] == 0.0).all()
    assert (means[:LIVE] == plain_means[:LIVE]).all()
    assert (ours == plain).all()


def test_no_moment_is_ever_too_small() -> None:
    seen = []

    def look(optimizer: torch.optim.Adam) -> None:
        adam_step(optimizer)
        (moments,) = optimizer.state.values()
        seen.append(subnormal(moments["exp_avg"]) | subnormal(moments["exp_avg_sq"]))

    train(look)

    assert len(seen) == STEPS
    assert not torch.stack(seen).any()
