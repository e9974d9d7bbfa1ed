"""Soft actor-critic (Haarnoja et al. 2018), with twin critics, targets and a learned temperature.

One update draws transitions ``(s, a, r, s')`` and takes one step of Adam on each of

    critics      1/2 mean (Q_i(s, a) - y)^2,
                 y = r + discount (min_i Q'_i(s', a') - temperature log pi(a'|s')),  a' ~ pi(s')
    actor        mean (temperature log pi(a|s) - min_i Q_i(s, a)),  a ~ pi(s)
    temperature  - log(temperature) mean (log pi(a|s) + target entropy)

after which the targets follow, ``Q' <- (1 - target_rate) Q' + target_rate Q``. Gradients are in
closed form (`everlearn.deep.mlp.ensemble`, `everlearn.deep.sac.gaussian`); what a strategy does to
actor and critics comes between gradient and step. Needs the extra ``deep``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.mlp.ensemble import DenseEnsemble, Workspace
from everlearn.deep.mlp.network import adam, restore_weights, weights_state
from everlearn.deep.sac.gaussian import SquashedGaussian, unit_information
from everlearn.deep.sac.networks import Batch, Policy, Trained
from everlearn.deep.strategies import STRATEGIES, PerfectMemory
from everlearn.interfaces import State, Storage, Strategy
from everlearn.support import settings
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.checks import check_number, check_positive, check_whole
from everlearn.support.errors import InvalidInputError

CRITICS = 2


@dataclass(frozen=True)
class SACConfig:
    """Settings of a soft actor-critic."""

    hidden: int = 256
    """Width of the hidden layers, of actor and critics alike."""
    layers: int = 2
    """Number of the hidden layers."""
    learning_rate: float = 3e-4
    """Learning rate of Adam, the same for all networks."""
    batch: int = 256
    """Rows of a minibatch."""
    discount: float = 0.99
    """Weight of the value of the next state."""
    target_rate: float = 0.005
    """How fast target networks follow."""
    warm_up: int = 1000
    """Transitions kept before anything is learned; until then actions are random."""
    update_every: int = 1
    """Steps to an update."""
    bootstrap_through_success: bool = True
    """Whether the value goes on where the environment ended the episode.

    In Continual Bench that is success: cut off, solving a task would be worth less than lingering
    beside it. False for an environment that ends an episode on a failure.
    """
    retraining: int = 5000
    """Updates at the end of a task, for a strategy that trains again after it."""
    protect_critics: bool = False
    """Whether the strategy protects the critics' weights too, and not the actor's alone."""
    task_identity: bool = False
    """Whether actor and critics are told the task."""
    multi_head: bool = False
    """Whether each task has outputs of its own."""
    max_tasks: int = 6
    """Tasks that there is room for, if networks are told the task."""
    strategy: Any = settings.part(STRATEGIES, PerfectMemory())
    """What data is kept, and how networks are protected from forgetting."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "batch", "warm_up", "update_every", "max_tasks"):
            check_whole(name, getattr(self, name), 1)
        check_whole("retraining", self.retraining, 0)
        check_positive("learning_rate", self.learning_rate)
        check_number("discount", self.discount, 0.0, 1.0)
        check_number("target_rate", self.target_rate, 0.0, 1.0)
        for name in (
            "bootstrap_through_success",
            "protect_critics",
            "task_identity",
            "multi_head",
        ):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)!r}; expected True or False"
                )

    @property
    def tells_tasks(self) -> bool:
        """Whether the networks depend on the task."""
        return self.task_identity or self.multi_head

    @property
    def identity_size(self) -> int:
        """Numbers that tell the networks the task, beside an observation."""
        return self.max_tasks if self.task_identity else 0

    @property
    def heads(self) -> int:
        """Sets of outputs."""
        return self.max_tasks if self.multi_head else 1


class SoftActorCritic:
    """Actor, critics, targets and temperature, and how one update changes them.

    Parameters
    ----------
    observations, actions
        Numbers in an observation and in an action.
    strategy
        What protects actor and, if asked for, critics.
    config
        Settings.
    generator
        Source of the initial weights.

    Attributes
    ----------
    updates
        How many there were.
    """

    def __init__(
        self,
        observations: int,
        actions: int,
        strategy: Strategy,
        config: SACConfig,
        generator: np.random.Generator,
    ) -> None:
        self.config, self.actions = config, actions
        self.states = observations + config.identity_size
        layers = (config.hidden,) * config.layers
        self.actor = Trained(
            DenseEnsemble(1, (self.states, *layers, 2 * actions * config.heads), generator),
            strategy,
            config.learning_rate,
        )
        self.critics = Trained(
            DenseEnsemble(CRITICS, (self.states + actions, *layers, config.heads), generator),
            strategy if config.protect_critics else None,
            config.learning_rate,
        )
        self.targets = self.critics.network.with_weights(self.critics.network.parameters())
        self.log_temperature = torch.zeros(1)
        self.log_temperature.grad = torch.zeros(1)
        self._temperature_optimizer = adam([self.log_temperature], config.learning_rate)
        self.updates = 0
        self._batch = Batch(config.batch, self.columns)
        self._acting = Workspace(self.actor.network, config.batch)
        self._judging = Workspace(self.critics.network, config.batch)

    @property
    def columns(self) -> dict[str, int]:
        """What a storage must keep of a transition; ``task`` tells which head has the say."""
        return {
            "state": self.states,
            "action": self.actions,
            "next_state": self.states,
            "reward": 1,
            "ended": 1,
            "task": self.config.heads if self.config.multi_head else 0,
        }

    @torch.no_grad()
    def update(self, storage: Storage, generator: np.random.Generator) -> None:
        """Draw a minibatch and take one step of everything."""
        rows, batch = self.config.batch, self._batch
        batch.draw(storage, generator)
        temperature = self.log_temperature.exp()

        # What the policy would do now: where each transition led, and where it began.
        following = self._actions_at(batch.next_state, batch.noise[rows:])
        here = self._actions_at(batch.state, batch.noise[:rows])
        batch.set_actions(here.actions, following.actions)

        # Critics.
        value = self._values(self.targets, batch.following).amin(0)[:, 0]
        value -= temperature * following.log_probability
        if not self.config.bootstrap_through_success:
            value *= 1.0 - batch.ended
        wanted = batch.reward + self.config.discount * value
        errors = self._values(self.critics.network, batch.replayed) - wanted[:, None]
        self._judging.backward(self._spread(errors / rows))
        self.critics.step()

        # Actor: of two critics the gradient flows through the one that expects less.
        values = self._values(self.critics.network, batch.proposed)
        least = (values == values.amin(0)).to(values.dtype)
        of_values = self._spread(least / (-rows * least.sum(0)))
        of_actions = self._judging.input_gradient(of_values, slice(self.states, None))
        of_outputs = here.gradient(of_actions, temperature / rows)
        self._acting.backward(self._spread(of_outputs[None]))
        self.actor.step()

        # Temperature: it rises while the policy has less entropy than it should.
        entropy = -here.log_probability.mean()
        self.log_temperature.grad.fill_(entropy + self.actions)  # target entropy: - actions
        self._temperature_optimizer.step()

        self.targets.vector.lerp_(self.critics.network.vector, self.config.target_rate)
        self.updates += 1

    def _actions_at(self, states: torch.Tensor, noise: torch.Tensor) -> SquashedGaussian:
        """Let the policy draw actions."""
        outputs = self._acting.forward(self.actor.network, states)
        return SquashedGaussian(self._own(outputs)[0], noise)

    def _values(self, network: DenseEnsemble, inputs: torch.Tensor) -> torch.Tensor:
        """Values ``[critics, N, 1]`` of states and actions."""
        return self._own(self._judging.forward(network, inputs))

    def _own(self, outputs: torch.Tensor) -> torch.Tensor:
        """Of outputs ``[M, N, heads * K]`` those of each row's task ``[M, N, K]``."""
        if not self.config.multi_head:
            return outputs
        tasks = self._batch.task
        return (outputs.unflatten(2, (self.config.heads, -1)) * tasks[:, :, None]).sum(2)

    def _spread(self, gradient: torch.Tensor) -> torch.Tensor:
        """Gradient of all outputs, given that of each row's own: the reverse of `_own`."""
        if not self.config.multi_head:
            return gradient
        return (gradient[:, :, None] * self._batch.task[:, :, None]).flatten(2)

    def policy(self, task: str | None = None) -> Policy:
        """Return what acts as the actor does, with the weights of a task if it has its own."""
        network = self.actor.network
        if task is not None and self.actor.depends_on_task:
            network = network.with_weights(self.actor.protection.weights(task))
        return Policy(network, self.actions)

    def end_task(self, storage: Storage, head: int) -> None:
        """Consolidate the task that ends, whose head is the one given."""

        def own(outputs: torch.Tensor) -> torch.Tensor:
            return outputs.unflatten(-1, (self.config.heads, -1))[..., head, :]

        states, actions = (torch.tensor(storage.column(name)) for name in ("state", "action"))
        self.actor.protection.end_task((states,), lambda outputs: unit_information(own(outputs)))
        self.critics.protection.end_task((torch.cat([states, actions], 1),), own)

    def begin_task(self, name: str) -> None:
        """Begin another task, with a temperature and with moments of Adam that are its own.

        The last task's would keep a policy that has settled down from trying anything.
        """
        for part in (self.actor, self.critics):
            part.protection.begin_task(name)
            part.renew()
        self.log_temperature.zero_()
        self._temperature_optimizer.state.clear()

    def _parts(self) -> Iterator[tuple[str, Trained]]:
        yield "actor", self.actor
        yield "critics", self.critics

    def state(self) -> State:
        """Everything that later updates depend on."""
        arrays, facts = weights_state([self.log_temperature], self._temperature_optimizer)
        arrays = {f"temperature/{name}": array for name, array in arrays.items()}
        arrays["targets"] = self.targets.vector.numpy().copy()
        meta: dict[str, Any] = {"temperature": facts, "updates": self.updates}
        for name, part in self._parts():
            part_arrays, meta[name] = part.state()
            arrays |= {f"{name}/{key}": array for key, array in part_arrays.items()}
        return arrays, meta

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; if something does not fit it is left half done."""
        check_whole("updates", meta["updates"], 0)
        check_arrays(
            {"targets": arrays["targets"]}, {"targets": ("f", (len(self.targets.vector),))}
        )
        restore_weights(
            [self.log_temperature],
            self._temperature_optimizer,
            part_of(arrays, "temperature/"),
            meta["temperature"],
        )
        for name, part in self._parts():
            part.restore(part_of(arrays, f"{name}/"), meta[name])
        self.targets.vector.copy_(torch.from_numpy(arrays["targets"]))
        self.updates = meta["updates"]
