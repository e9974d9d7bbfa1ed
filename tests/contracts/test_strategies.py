"""What every registered strategy must keep, in any network: its files, its bits, its hooks."""

from __future__ import annotations

import copy
import dataclasses

import numpy as np
import pytest
import torch

from everlearn.deep.strategies import STRATEGIES
from everlearn.support.errors import InvalidInputError
from tests.deep.regression import Learner, network


@pytest.fixture(params=STRATEGIES.names())
def learner(request: pytest.FixtureRequest) -> Learner:
    learner = Learner(STRATEGIES.get(request.param)(), network(width=12))
    learner.learn("first", 20)
    learner.learn("second", 20)
    return learner


def test_says_what_it_is(learner: Learner) -> None:
    strategy = learner.strategy
    assert STRATEGIES.get(strategy.name) is type(strategy)
    for fact in (strategy.boundary_aware, strategy.task_dependent, strategy.retrains):
        assert isinstance(fact, bool)
    assert strategy.boundary_aware or not (strategy.task_dependent or strategy.retrains)
    assert dataclasses.is_dataclass(strategy)
    for field in dataclasses.fields(strategy):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(strategy, field.name, None)


def test_only_those_told_of_boundaries_use_them(learner: Learner) -> None:
    """Without a call at the boundary, a strategy that is not told of it does the same."""
    if learner.strategy.boundary_aware:
        assert len(learner.storage) <= 200  # the second task's rows
        return
    told = Learner(learner.strategy, network(width=12))
    untold = Learner(learner.strategy, network(width=12))
    for one in (told, untold):
        one.learn("first", 20)
    told.learn("second", 20)
    untold.begin = lambda task: None
    untold.learn("second", 20)
    for mine, yours in zip(told.module.parameters(), untold.module.parameters(), strict=True):
        assert torch.equal(mine, yours)


def test_goes_on_to_the_bit(learner: Learner) -> None:
    other = Learner(learner.strategy, network(seed=1, width=12))
    other.module.load_state_dict(learner.module.state_dict())
    other.optimizer.load_state_dict(copy.deepcopy(learner.optimizer.state_dict()))
    other.storage.restore(*learner.storage.state())
    other.protection.restore(*learner.protection.state())
    other.begun = True
    for one in (learner, other):
        one.learn("first", 10)  # a task that comes again
        one.learn("second", 10)
    for mine, yours in zip(learner.module.parameters(), other.module.parameters(), strict=True):
        assert torch.equal(mine, yours)
    for task in ("first", "second"):
        assert learner.error(task) == other.error(task)
    np.testing.assert_array_equal(learner.storage.column("x"), other.storage.column("x"))


def test_a_foreign_state_is_refused_and_changes_nothing(learner: Learner) -> None:
    arrays, meta = learner.protection.state()
    foreign, foreign_meta = learner.strategy.protect(network(width=13)).state()
    if arrays:
        with pytest.raises(InvalidInputError):
            learner.protection.restore(foreign, foreign_meta)
    rows, facts = learner.storage.state()
    for bad, bad_facts in (({"x": rows["x"]}, facts), (rows, {"seen": 1})):
        with pytest.raises(InvalidInputError):
            learner.storage.restore(bad, bad_facts)
    after, after_meta = learner.protection.state()
    assert meta == after_meta
    for name, array in arrays.items():
        np.testing.assert_array_equal(array, after[name])
    np.testing.assert_array_equal(learner.storage.column("x"), rows["x"])


def test_penalty_is_a_number_of_at_least_zero(learner: Learner) -> None:
    penalty = learner.protection.penalty()
    assert penalty.shape == ()
    assert penalty.item() >= 0.0


def test_protects_networks_of_one_agent_apart(learner: Learner) -> None:
    """An actor and a critic with other inputs, as in an agent that has both."""

    class Critic(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, obs: torch.Tensor, action: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.cat([obs, action], -1))

    actor, critic = torch.nn.Linear(2, 1), Critic()
    protections = [learner.strategy.protect(actor), learner.strategy.protect(critic)]
    obs, action = torch.ones(9, 2), torch.zeros(9, 1)
    for protection in protections:
        protection.begin_task("first")
    for module, inputs in ((actor, (obs,)), (critic, (obs, action))):
        module(*inputs).sum().backward()
    before = [parameter.detach().clone() for parameter in critic.parameters()]
    optimizer = torch.optim.Adam(actor.parameters())
    protections[0].after_backward()
    optimizer.step()
    protections[0].after_step()
    protections[0].end_task((obs,))
    protections[1].end_task((obs, action))
    for protection in protections:
        protection.begin_task("second")
    if not learner.strategy.retrains:  # pruning changes weights, training the actor does not
        for parameter, kept in zip(critic.parameters(), before, strict=True):
            assert torch.equal(parameter, kept)
