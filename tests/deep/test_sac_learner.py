"""The algorithm: an update against a plain one in autograd, and what it makes of success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from everlearn.deep.sac.learner import SACConfig, SoftActorCritic
from everlearn.deep.strategies import PerfectMemory
from everlearn.interfaces import Storage
from everlearn.support.errors import InvalidInputError

STATES, ACTIONS, ROWS = 3, 2, 16
SMALL: dict[str, Any] = {"hidden": 12, "batch": ROWS, "learning_rate": 1e-2, "target_rate": 0.1}


def make(**settings: Any) -> SoftActorCritic:
    config = SACConfig(**{**SMALL, **settings})
    return SoftActorCritic(STATES, ACTIONS, PerfectMemory(), config, np.random.default_rng(0))


def filled(learner: SoftActorCritic, rows: int = 40) -> Storage:
    storage = PerfectMemory().storage(learner.columns)
    generator = np.random.default_rng(1)
    for _ in range(rows):
        row = {name: generator.normal(size=width) for name, width in learner.columns.items()}
        row["action"] = np.tanh(row["action"])
        row["ended"] = [generator.random() < 0.3]
        row["task"] = np.eye(row["task"].size)[generator.integers(0, 2)] if row["task"].size else []
        storage.add(**row)
    return storage


class Plain:
    """The same algorithm as anybody would write it, with layers, distributions and autograd."""

    def __init__(self, learner: SoftActorCritic) -> None:
        self.config = learner.config
        heads = self.config.heads
        sizes = (self.config.hidden,) * self.config.layers
        self.actor = self._network(learner.actor.network, 0, (STATES, *sizes, 2 * ACTIONS * heads))
        inputs = STATES + ACTIONS
        self.critics, self.targets = (
            [self._network(learner.critics.network, i, (inputs, *sizes, heads)) for i in range(2)]
            for _ in range(2)
        )
        self.log_alpha = torch.zeros(1, requires_grad=True)
        rate = self.config.learning_rate
        self.optimizers = {
            "actor": torch.optim.Adam(self.actor.parameters(), rate),
            "critics": torch.optim.Adam([p for c in self.critics for p in c.parameters()], rate),
            "alpha": torch.optim.Adam([self.log_alpha], rate),
        }

    @staticmethod
    def _network(source: Any, member: int, sizes: tuple[int, ...]) -> torch.nn.Sequential:
        layers: list[torch.nn.Module] = []
        for place in range(len(sizes) - 1):
            layer = torch.nn.Linear(sizes[place], sizes[place + 1])
            layer.weight.data = source.matrices[place][member].T.clone()
            layer.bias.data = source.biases[place][member, 0].clone()
            layers += [layer, torch.nn.ReLU()]
        return torch.nn.Sequential(*layers[:-1])

    def own(self, outputs: torch.Tensor, heads: torch.Tensor) -> torch.Tensor:
        if not self.config.multi_head:
            return outputs
        parts = outputs.reshape(len(outputs), self.config.heads, -1)
        return parts[torch.arange(len(outputs)), heads]

    def policy(self, state: torch.Tensor, noise: torch.Tensor, heads: torch.Tensor) -> Any:
        mean, log_deviation = self.own(self.actor(state), heads).chunk(2, 1)
        normal = Normal(mean, log_deviation.clamp(-20, 2).exp())
        before = mean + normal.scale * noise
        action = torch.tanh(before)
        return action, (normal.log_prob(before) - torch.log(1 - action**2)).sum(1)

    def value(self, critics: list[Any], state: Any, action: Any, heads: Any) -> torch.Tensor:
        both = torch.cat([state, action], 1)
        return torch.stack([self.own(critic(both), heads)[:, 0] for critic in critics])

    def update(self, storage: Storage, generator: np.random.Generator) -> None:
        batch = {k: torch.tensor(v) for k, v in storage.sample(ROWS, generator).items()}
        noise = torch.tensor(generator.standard_normal((2 * ROWS, ACTIONS), np.float32))
        state, following = batch["state"], batch["next_state"]
        heads = batch["task"].argmax(1) if self.config.multi_head else torch.zeros(ROWS)
        alpha = self.log_alpha.exp().detach()
        action, log_prob = self.policy(state, noise[:ROWS], heads)
        with torch.no_grad():
            next_action, next_log_prob = self.policy(following, noise[ROWS:], heads)
            value = self.value(self.targets, following, next_action, heads).min(0).values
            value = value - alpha * next_log_prob
            if not self.config.bootstrap_through_success:
                value = value * (1 - batch["ended"][:, 0])
            wanted = batch["reward"][:, 0] + self.config.discount * value
        found = self.value(self.critics, state, batch["action"], heads)
        self._step("critics", 0.5 * ((found - wanted) ** 2).mean(1).sum())
        value = self.value(self.critics, state, action, heads).min(0).values
        self._step("actor", (alpha * log_prob - value).mean())
        self._step("alpha", -(self.log_alpha * (log_prob.detach() - ACTIONS)).mean())
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for mine, slow in zip(critic.parameters(), target.parameters(), strict=True):
                    slow += self.config.target_rate * (mine - slow)

    def _step(self, name: str, loss: torch.Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def assert_equal(network: Any, member: int, expected: torch.nn.Sequential) -> None:
    for place, layer in enumerate(expected[0::2]):
        torch.testing.assert_close(
            network.matrices[place][member], layer.weight.detach().T, rtol=1e-3, atol=1e-4
        )
        torch.testing.assert_close(
            network.biases[place][member, 0], layer.bias.detach(), rtol=1e-3, atol=1e-4
        )


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"bootstrap_through_success": False},
        {"multi_head": True, "max_tasks": 2},
        {"layers": 3, "discount": 0.5},
    ],
    ids=str,
)
def test_updates_are_those_of_a_plain_implementation(settings: dict[str, Any]) -> None:
    learner = make(**settings)
    storage, plain = filled(learner), Plain(learner)
    start = learner.actor.network.vector.clone()
    mine, yours = np.random.default_rng(5), np.random.default_rng(5)
    for _ in range(6):
        learner.update(storage, mine)
        plain.update(storage, yours)
    assert_equal(learner.actor.network, 0, plain.actor)
    for member in range(2):
        assert_equal(learner.critics.network, member, plain.critics[member])
        assert_equal(learner.targets, member, plain.targets[member])
    torch.testing.assert_close(learner.log_temperature, plain.log_alpha.detach(), rtol=1e-4, atol=0)
    assert (learner.actor.network.vector - start).abs().max() > 0.01
    assert learner.updates == 6


@pytest.mark.parametrize("through", [True, False])
def test_success_is_not_worth_less_than_lingering(through: bool) -> None:
    """Going up earns 1 and ends the episode; going down earns 0.9 and goes on for ever."""
    learner = make(
        bootstrap_through_success=through, hidden=24, discount=0.9, learning_rate=3e-3, batch=64
    )
    storage = PerfectMemory().storage(learner.columns)
    generator = np.random.default_rng(0)
    state = np.ones(STATES)
    for _ in range(300):
        up = generator.random() < 0.5
        action = np.array([0.9 if up else -0.9, generator.uniform(-1, 1)])
        reward = 1.0 if up else 0.9
        storage.add(state=state, action=action, next_state=state, reward=reward, ended=up, task=[])
    for _ in range(1500):
        learner.update(storage, generator)
        learner.log_temperature.fill_(-8.0)  # values without a bonus on entropy
    actions = torch.tensor([[0.9, 0.0], [-0.9, 0.0]])
    inputs = torch.cat([torch.ones(2, STATES), actions], 1)
    success, lingering = learner.critics.network(inputs).mean(0)[:, 0].tolist()
    if through:
        assert success > lingering
        assert success == pytest.approx(10.0, rel=0.1)
    else:
        assert success == pytest.approx(1.0, abs=0.3)
        assert lingering > success + 5.0


def test_goes_on_to_the_bit() -> None:
    learner = make()
    storage, generator = filled(learner), np.random.default_rng(3)
    for _ in range(4):
        learner.update(storage, generator)
    arrays, meta = learner.state()
    other = make()
    other.restore(arrays, meta)
    numbers = generator.bit_generator.state
    for one in (learner, other):
        generator.bit_generator.state = numbers
        for _ in range(4):
            one.update(storage, generator)
    mine, yours = learner.state(), other.state()
    assert mine[1] == yours[1]
    for name, array in mine[0].items():
        np.testing.assert_array_equal(array, yours[0][name])


@pytest.mark.parametrize(
    "settings",
    [
        {"hidden": 0},
        {"batch": 2.5},
        {"learning_rate": float("nan")},
        {"discount": 1.1},
        {"target_rate": -0.1},
        {"warm_up": 0},
        {"retraining": -1},
        {"multi_head": 1},
    ],
    ids=str,
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        SACConfig(**settings)
