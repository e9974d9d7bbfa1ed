"""The algorithm: an update against a plain one in autograd, and what it makes of success."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from everlearn.deep.sac.learner import SACConfig, SoftActorCritic
from everlearn.deep.sac.networks import (
    NormalisedEnsemble,
    NormalisedWorkspace,
    clip_,
    fast_products,
)
from everlearn.deep.strategies import PerfectMemory, Storage
from everlearn.support.errors import InvalidInputError

STATES, ACTIONS, ROWS = 3, 2, 16
HIGHEST = (2.0, 5.0)
"""Rewards that each of two tasks is said to have given."""
SMALL: dict[str, Any] = {"hidden": 12, "batch": ROWS, "learning_rate": 1e-2, "target_rate": 0.1}


def make(**settings: Any) -> SoftActorCritic:
    config = SACConfig(**{**SMALL, **settings})
    learner = SoftActorCritic(STATES, ACTIONS, PerfectMemory(), config, np.random.default_rng(0))
    for head, reward in enumerate(HIGHEST[: config.heads]):
        learner.note_reward(reward, head)
    return learner


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
        self.log_alpha = torch.zeros(heads, requires_grad=True)
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
            layers.append(layer)
            if place == 0:
                layers += [torch.nn.LayerNorm(sizes[1]), torch.nn.Tanh()]
            else:
                layers.append(torch.nn.LeakyReLU(0.2))
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
        heads = batch["task"].argmax(1) if self.config.multi_head else torch.zeros(ROWS).long()
        alpha = self.log_alpha.exp().detach()[heads]
        action, log_prob = self.policy(state, noise[:ROWS], heads)
        with torch.no_grad():
            next_action, next_log_prob = self.policy(following, noise[ROWS:], heads)
            value = self.value(self.targets, following, next_action, heads).min(0).values
            value = value - alpha * next_log_prob
            reward, ended = batch["reward"][:, 0], batch["ended"][:, 0] == 1
            if self.config.after_success == "zero":
                value[ended] = 0.0
            forever = 1 / (1 - self.config.discount)
            if self.config.after_success == "repeat":
                value[ended] = reward[ended] * forever
            if self.config.after_success == "highest":
                value[ended] = torch.tensor(HIGHEST)[heads][ended] * forever
            wanted = reward + self.config.discount * value
        found = self.value(self.critics, state, batch["action"], heads)
        self._step("critics", 0.5 * ((found - wanted) ** 2).mean(1).sum())
        value = self.value(self.critics, state, action, heads).min(0).values
        self._step("actor", (alpha * log_prob - value).mean())
        self._step("alpha", -(self.log_alpha[heads] * (log_prob.detach() - ACTIONS)).mean())
        with torch.no_grad():
            for critic, target in zip(self.critics, self.targets, strict=True):
                for mine, slow in zip(critic.parameters(), target.parameters(), strict=True):
                    slow += self.config.target_rate * (mine - slow)

    def _step(self, name: str, loss: torch.Tensor) -> None:
        optimizer = self.optimizers[name]
        optimizer.zero_grad()
        loss.backward()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(optimizer.param_groups[0]["params"], self.config.clip)
        optimizer.step()


def assert_equal(network: Any, member: int, expected: torch.nn.Sequential) -> None:
    (normal,) = (layer for layer in expected if isinstance(layer, torch.nn.LayerNorm))
    for found, wanted in ((network.gain, normal.weight), (network.shift, normal.bias)):
        torch.testing.assert_close(found[member, 0], wanted.detach(), rtol=1e-3, atol=1e-4)
    layers = [layer for layer in expected if isinstance(layer, torch.nn.Linear)]
    for place, layer in enumerate(layers):
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
        {"after_success": "repeat"},
        {"after_success": "continue"},
        {"after_success": "zero"},
        {"multi_head": True, "max_tasks": 2},
        {"layers": 3, "discount": 0.5},
        {"layers": 1, "clip": 0.1},
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
    torch.testing.assert_close(learner.log_temperature, plain.log_alpha.detach(), rtol=1e-3, atol=0)
    assert (learner.actor.network.vector - start).abs().max() > 0.01
    assert learner.updates == 6


def value_of_success(
    after_success: str, next_state: float, reward: float = 1.0
) -> tuple[float, float]:
    """Values of ending an episode and of going on for ever at 0.9 a step, with discount 0.9."""
    learner = make(
        after_success=after_success,
        hidden=24,
        layers=2,
        discount=0.9,
        learning_rate=3e-3,
        target_rate=0.2,
        batch=64,
    )
    storage = PerfectMemory().storage(learner.columns)
    generator = np.random.default_rng(0)
    state = np.ones(STATES)
    for _ in range(300):
        up = generator.random() < 0.5
        action = np.array([0.9 if up else -0.9, generator.uniform(-1, 1)])
        storage.add(
            state=state,
            action=action,
            next_state=next_state * state if up else state,
            reward=reward if up else 0.9,
            ended=up,
            task=[],
        )
    for _ in range(700):
        learner.update(storage, generator)
        learner.log_temperature.fill_(-8.0)  # values without a bonus on entropy
    actions = torch.tensor([[0.9, 0.0], [-0.9, 0.0]])
    inputs = torch.cat([torch.ones(2, STATES), actions], 1)
    success, lingering = learner.critics.network(inputs).mean(0)[:, 0].tolist()
    return success, lingering


@pytest.mark.parametrize("next_state", [1.0, -7.0])
def test_success_is_worth_its_reward_for_ever(next_state: float) -> None:
    """Whatever the critics think of an observation from where nothing ever followed."""
    success, lingering = value_of_success("repeat", next_state)
    assert success == pytest.approx(10.0, rel=0.05)
    assert lingering == pytest.approx(0.9 + 0.9 * success, rel=0.05)  # the next step may succeed


def test_a_success_that_earns_less_than_lingering_is_worth_less() -> None:
    success, lingering = value_of_success("repeat", 1.0, reward=0.5)
    assert success == pytest.approx(5.0, rel=0.1)
    assert lingering > success + 3.0


@pytest.mark.parametrize("reward", [1.0, 0.5])
def test_success_is_worth_the_highest_reward_for_ever(reward: float) -> None:
    """Even if it earned less than lingering would have: nothing is better than a solution."""
    success, lingering = value_of_success("highest", -7.0, reward)
    assert success == pytest.approx(reward + 0.9 * 10.0 * HIGHEST[0], rel=0.05)
    assert success > lingering


def test_the_highest_reward_is_each_tasks_own() -> None:
    learner = make(multi_head=True, max_tasks=3)
    learner.note_reward(7.0, 2)
    learner.note_reward(6.0, 2)
    assert learner.highest_reward.tolist() == [*HIGHEST, 7.0]
    arrays, meta = learner.state()
    other = make(multi_head=True, max_tasks=3)
    other.restore(arrays, meta)
    assert other.highest_reward.tolist() == [*HIGHEST, 7.0]


def test_success_can_be_an_end_or_go_on() -> None:
    success, lingering = value_of_success("zero", 1.0)
    assert success == pytest.approx(1.0, abs=0.3)
    assert lingering > success + 5.0
    success, lingering = value_of_success("continue", 1.0)
    assert success == pytest.approx(10.0, rel=0.2)
    assert success > lingering


def test_each_task_has_a_temperature() -> None:
    """That of a task whose transitions are not drawn stays as it is to the bit."""
    learner = make(multi_head=True, max_tasks=3)
    storage, generator = filled(learner), np.random.default_rng(4)
    for _ in range(5):
        learner.update(storage, generator)
    assert learner.log_temperature[0] != learner.log_temperature[1]
    assert (learner.log_temperature[:2] != 0.0).all()
    assert learner.log_temperature[2] == 0.0


def test_gradients_are_no_longer_than_asked_for() -> None:
    gradient = torch.tensor([3.0, -4.0])
    clip_(gradient, 5.5)
    assert gradient.tolist() == [3.0, -4.0]
    clip_(gradient, 0.5)
    torch.testing.assert_close(gradient, torch.tensor([0.3, -0.4]))
    nothing = torch.zeros(2)
    clip_(nothing, 1.0)
    assert nothing.tolist() == [0.0, 0.0]


# Networks ----------------------------------------------------------------------------------


def network(members: int, heads: int = 1) -> NormalisedEnsemble:
    """With gains and shifts that are not those of the beginning."""
    generator = np.random.default_rng(members)
    made = NormalisedEnsemble(members, (5, 7, 6, 4), generator, heads)
    with torch.no_grad():
        made.gain += torch.tensor(generator.normal(size=made.gain.shape) * 0.3)
        made.shift += torch.tensor(generator.normal(size=made.shift.shape) * 0.3)
    return made


def numbers(*shape: int) -> torch.Tensor:
    return torch.tensor(np.random.default_rng(sum(shape)).normal(size=shape), dtype=torch.float32)


@pytest.mark.parametrize("members", [1, 2, 3])
def test_networks_and_gradients_are_those_of_autograd(members: int) -> None:
    made, inputs, wanted = network(members), numbers(11, 5), numbers(members, 11, 4)
    inputs.requires_grad_()
    workspace = NormalisedWorkspace(made, 11)
    outputs = made(inputs)
    expected = torch.autograd.grad((outputs * wanted).sum(), [inputs, *made.parameters()])
    torch.testing.assert_close(workspace.forward(made, inputs.detach()), outputs.detach())
    workspace.backward(wanted.clone())
    for parameter, gradient in zip(made.parameters(), expected[1:], strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    workspace.forward(made, inputs.detach())
    found = workspace.input_gradient(wanted.clone(), slice(1, 3))
    torch.testing.assert_close(found, expected[0][:, 1:3])


def test_the_first_layer_is_normalised() -> None:
    """Inputs a thousand times as large reach the next layer alike; plain layers would not."""
    made, inputs = network(2), numbers(6, 5)
    made.biases[0].zero_()
    torch.testing.assert_close(made(1000.0 * inputs), made(inputs), rtol=1e-2, atol=1e-2)
    assert made.gain.shape == (2, 1, 7)
    names = {name for name, _ in made.named_parameters()}
    assert {"normal_gain", "normal_shift"} < names


def test_only_heads_are_free() -> None:
    assert network(1).free_parameters == frozenset()
    assert network(1, heads=2).free_parameters == {"layer2_weight", "layer2_bias"}


def test_other_weights_make_other_outputs() -> None:
    made, inputs = network(2, heads=2), numbers(6, 5)
    other = made.with_weights([0.5 * parameter for parameter in made.parameters()])
    assert other.free_parameters == made.free_parameters
    assert not torch.equal(other(inputs), made(inputs))
    same = made.with_weights(made.parameters())
    assert torch.equal(same(inputs), made(inputs))


def test_fast_products_are_as_exact_as_others() -> None:
    left, right = numbers(128, 256), numbers(256, 200)
    exact = left.double() @ right.double()
    before = torch.backends.mkldnn.matmul.fp32_precision
    with fast_products():
        found = torch.bmm(left[None], right[None])[0]
    assert torch.backends.mkldnn.matmul.fp32_precision == before
    assert float((found - exact).abs().max()) < 1e-5 * float(exact.abs().max())


@pytest.mark.parametrize("settings", [{}, {"multi_head": True, "max_tasks": 2}], ids=str)
def test_goes_on_to_the_bit(settings: dict[str, Any]) -> None:
    learner = make(**settings)
    storage, generator = filled(learner), np.random.default_rng(3)
    for _ in range(4):
        learner.update(storage, generator)
    arrays, meta = learner.state()
    other = make(**settings)
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
        {"random_steps": -1},
        {"clip": 0.0},
        {"after_success": "never"},
        {"evaluation_actions": None},
        {"discount": 1.0},
        {"retraining": -1},
        {"multi_head": 1},
    ],
    ids=str,
)
def test_settings_are_checked(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError, match=next(iter(settings))):
        SACConfig(**settings)
