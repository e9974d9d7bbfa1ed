"""Networks as one vector: the same numbers and gradients as plain layers and autograd."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from everlearn.deep.mlp.ensemble import DenseEnsemble, Workspace

SIZES = (5, 7, 6, 3)


def ensemble(members: int = 2, seed: int = 0) -> DenseEnsemble:
    return DenseEnsemble(members, SIZES, np.random.default_rng(seed))


def plain(made: DenseEnsemble, member: int) -> torch.nn.Sequential:
    """One member as layers of PyTorch's own, which lay their matrices out the other way round."""
    layers: list[torch.nn.Module] = []
    for matrix, bias in zip(made.matrices, made.biases, strict=True):
        layer = torch.nn.Linear(*matrix.shape[1:])
        with torch.no_grad():
            layer.weight.copy_(matrix[member].T)
            layer.bias.copy_(bias[member, 0])
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def numbers(*shape: int) -> torch.Tensor:
    drawn = np.random.default_rng(sum(shape)).normal(size=shape)
    return torch.tensor(drawn, dtype=torch.float32)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_is_so_many_plain_networks(members: int) -> None:
    made, inputs = ensemble(members), numbers(11, 5)
    found = Workspace(made, 11).forward(made, inputs)
    for member in range(members):
        expected = plain(made, member)(inputs)
        torch.testing.assert_close(found[member], expected)
        torch.testing.assert_close(made(inputs)[member], expected)


def test_gradients_are_those_of_autograd() -> None:
    made, inputs = ensemble(), numbers(11, 5)
    wanted = numbers(2, 11, 3)
    workspace = Workspace(made, 11)
    workspace.forward(made, inputs)
    workspace.backward(wanted)
    for member in range(2):
        network = plain(made, member)
        network(inputs).backward(wanted[member])
        for place, layer in enumerate(network[0::2]):
            torch.testing.assert_close(made.matrix_gradients[place][member], layer.weight.grad.T)
            torch.testing.assert_close(made.bias_gradients[place][member, 0], layer.bias.grad)


def test_gradient_of_some_inputs() -> None:
    made, inputs = ensemble(), numbers(11, 5).requires_grad_()
    wanted = numbers(2, 11, 3)
    workspace = Workspace(made, 11)
    workspace.forward(made, inputs.detach())
    found = workspace.input_gradient(wanted, slice(2, None))
    sum(plain(made, i)(inputs).mul(wanted[i]).sum() for i in range(2)).backward()
    torch.testing.assert_close(found, inputs.grad[:, 2:])


def test_one_workspace_serves_several_ensembles() -> None:
    first, second, inputs = ensemble(), ensemble(seed=1), numbers(11, 5)
    workspace = Workspace(first, 11)
    before = workspace.forward(first, inputs).clone()
    workspace.forward(second, inputs)
    workspace.backward(numbers(2, 11, 3))
    assert second.gradient.abs().sum() > 0
    assert first.gradient.abs().sum() == 0
    assert torch.equal(workspace.forward(first, inputs), before)


def test_parameters_and_their_gradients_are_views_of_the_vectors() -> None:
    made = ensemble()
    parameters = list(made.parameters())
    assert sum(parameter.numel() for parameter in parameters) == 2 * (
        5 * 7 + 7 + 7 * 6 + 6 + 6 * 3 + 3
    )
    made.vector.fill_(3.0)
    made.gradient.fill_(4.0)
    for parameter in parameters:
        assert (parameter == 3.0).all()
        assert (parameter.grad == 4.0).all()
    with torch.no_grad():
        parameters[2][1, 0, 0] = 9.0
    assert made.matrices[1][1, 0, 0] == 9.0


def test_weights_are_drawn_as_pytorch_does() -> None:
    made = DenseEnsemble(2, (4, 3000, 1), np.random.default_rng(0))
    for matrix, inputs in zip(made.matrices, (4, 3000), strict=True):
        assert matrix.abs().max() <= inputs**-0.5
        assert float(matrix.var()) == pytest.approx(1 / (3 * inputs), rel=0.05)
    assert not torch.equal(made.matrices[0][0], made.matrices[0][1])


def test_a_copy_with_other_weights_is_apart() -> None:
    made = ensemble()
    other = made.with_weights([parameter * 2 for parameter in made.parameters()])
    torch.testing.assert_close(other.vector, made.vector * 2)
    other.vector.zero_()
    assert made.vector.abs().sum() > 0
