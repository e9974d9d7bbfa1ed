"""Soft actor-critic (Haarnoja et al. 2018), with twin critics, targets and a learned temperature.

One update draws transitions ``(s, a, r, s')`` and takes one step of Adam on each of

    critics      1/2 mean (Q_i(s, a) - y)^2,
                 y = r + discount (min_i Q'_i(s', a') - temperature log pi(a'|s')),  a' ~ pi(s')
                 y = r + discount (highest r) / (1 - discount) where the episode ended:
                 see `SACConfig.after_success`
    actor        mean (temperature log pi(a|s) - min_i Q_i(s, a)),  a ~ pi(s)
    temperature  - log(temperature) mean (log pi(a|s) + target entropy)

after which the targets follow, ``Q' <- (1 - target_rate) Q' + target_rate Q``. Gradients are in
closed form (`everlearn.deep.sac.networks`, `everlearn.deep.sac.gaussian`); what a strategy does
to actor and critics comes between gradient and step. Where each task has a head of actor and
critics, it has a temperature too, and each transition is learned with its own task's. Needs the
extra ``deep``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.mlp.network import adam, restore_weights, weights_state
from everlearn.deep.sac.gaussian import SquashedGaussian, unit_information
from everlearn.deep.sac.networks import (
    Batch,
    NormalisedEnsemble,
    NormalisedWorkspace,
    Policy,
    Trained,
    clip_,
    fast_products,
)
from everlearn.deep.strategies import STRATEGIES, PerfectMemory, Storage, Strategy
from everlearn.interfaces import State
from everlearn.support import settings
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.checks import check_number, check_positive, check_whole
from everlearn.support.errors import InvalidInputError, given

CRITICS = 2

AfterSuccess = Literal["highest", "repeat", "continue", "zero"]
EvaluationActions = Literal["mean", "sample"]


@dataclass(frozen=True)
class SACConfig:
    """Settings of a soft actor-critic."""

    hidden: int = 256
    """Width of the hidden layers, of actor and critics alike."""
    layers: int = 4
    """Number of the hidden layers; the first is normalised."""
    learning_rate: float = 1e-3
    """Learning rate of Adam, the same for all networks."""
    batch: int = 128
    """Rows of a minibatch."""
    discount: float = 0.99
    """Weight of the value of the next state."""
    target_rate: float = 0.005
    """How fast target networks follow."""
    clip: float | None = None
    """Greatest length of the gradients of actor, critics and temperature; None for no limit."""
    warm_up: int = 1000
    """Transitions kept before anything is learned; until then actions are random."""
    random_steps: int = 1000
    """Steps at the beginning of a task in which actions are random.

    An agent that is not told of tasks takes them once.
    """
    update_every: int = 1
    """Steps to an update."""
    after_success: AfterSuccess = "highest"
    """What is expected where the environment ended the episode: in Continual Bench, on success.

    - ``highest``: the highest reward that the task has given so far, for ever.
    - ``repeat``: the last reward, for ever, as if the agent rested there.
    - ``continue``: what the critics make of the last observation, from where nothing was ever seen
      to follow.
    - ``zero``: nothing; right where an episode ends on a failure, but with rewards that are
      positive solving a task would be worth less than lingering beside it.
    """
    retraining: int = 5000
    """Updates at the end of a task, for a strategy that trains again after it."""
    protect_critics: bool = False
    """Whether the strategy protects the critics' weights too, and not the actor's alone."""
    task_identity: bool = False
    """Whether the task is among the inputs of actor and critics."""
    multi_head: bool = False
    """Whether each task has outputs of actor and critics, and a temperature, of its own."""
    max_tasks: int = 6
    """Tasks that there is room for, if networks are told the task."""
    evaluation_actions: EvaluationActions = "sample"
    """What an evaluation takes of the policy: its ``mean``, squeezed, or a ``sample``."""
    strategy: Any = settings.part(STRATEGIES, PerfectMemory())
    """What data is kept, and how networks are protected from forgetting."""

    def __post_init__(self) -> None:
        for name in ("hidden", "layers", "batch", "warm_up", "update_every", "max_tasks"):
            check_whole(name, getattr(self, name), 1)
        check_whole("retraining", self.retraining, 0)
        check_whole("random_steps", self.random_steps, 0)
        check_positive("learning_rate", self.learning_rate)
        check_number("discount", self.discount, 0.0, 1.0)
        check_number("target_rate", self.target_rate, 0.0, 1.0)
        if self.clip is not None:
            check_positive("clip", self.clip)
        check_choice("after_success", self.after_success, get_args(AfterSuccess))
        check_choice("evaluation_actions", self.evaluation_actions, get_args(EvaluationActions))
        if self.after_success in ("highest", "repeat") and self.discount == 1.0:
            raise InvalidInputError(
                f"discount is 1 and after_success {self.after_success!r}: a reward that is "
                "repeated for ever has no value then; take a discount below 1, or another "
                "after_success"
            )
        for name in ("protect_critics", "task_identity", "multi_head"):
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


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse a value that is none of the choices."""
    if not isinstance(value, str) or value not in choices:
        raise InvalidInputError(f"{name} is {given(value)}; expected one of {', '.join(choices)}")


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
    highest_reward
        That each task has given so far, by its head.
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
        layers, heads = (config.hidden,) * config.layers, config.heads
        self.actor = Trained(
            NormalisedEnsemble(1, (self.states, *layers, 2 * actions * heads), generator, heads),
            strategy,
            config.learning_rate,
            config.clip,
        )
        self.critics = Trained(
            NormalisedEnsemble(CRITICS, (self.states + actions, *layers, heads), generator, heads),
            strategy if config.protect_critics else None,
            config.learning_rate,
            config.clip,
        )
        self.targets = self.critics.network.with_weights(self.critics.network.parameters())
        self.log_temperature = torch.zeros(heads)
        self.log_temperature.grad = torch.zeros(heads)
        self._temperature_optimizer = adam([self.log_temperature], config.learning_rate)
        self.updates = 0
        self.highest_reward = torch.full((heads,), -torch.inf)
        self._batch = Batch(config.batch, self.columns)
        self._acting = NormalisedWorkspace(self.actor.network, config.batch)
        self._judging = NormalisedWorkspace(self.critics.network, config.batch)

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
        self._batch.draw(storage, generator)
        with fast_products():
            self._step()
        self.updates += 1

    def note_reward(self, reward: float, head: int = 0) -> None:
        """Take notice of a reward of the task that has this head."""
        self.highest_reward[head] = max(float(self.highest_reward[head]), reward)

    def _step(self) -> None:
        rows, batch = self.config.batch, self._batch
        temperature = self._of_tasks(self.log_temperature.exp())

        # What the policy would do now: where each transition led, and where it began.
        following = self._actions_at(batch.next_state, batch.noise[rows:])
        here = self._actions_at(batch.state, batch.noise[:rows])
        batch.set_actions(here.actions, following.actions)

        # Critics.
        value = self._values(self.targets, batch.following).amin(0)[:, 0]
        value -= temperature * following.log_probability
        self._end(value)
        wanted = batch.reward + self.config.discount * value
        errors = self._values(self.critics.network, batch.replayed) - wanted[:, None]
        self._judging.backward(self._spread(errors / rows))
        self.critics.step()

        # Actor: of two critics the gradient flows through the one that expects less.
        values = self._values(self.critics.network, batch.proposed)
        least = (values == values.amin(0)).to(values.dtype)
        of_values = self._spread(least / (-rows * least.sum(0)))
        of_actions = self._judging.input_gradient(of_values, slice(self.states, None))
        of_outputs = here.gradient(of_actions, (temperature / rows)[:, None])
        self._acting.backward(self._spread(of_outputs[None]))
        self.actor.step()

        # Temperature: it rises while the policy has less entropy than it should.
        excess = self.actions - here.log_probability  # target entropy: - actions
        excess = excess @ batch.task if self.config.multi_head else excess.sum()
        of_temperature = self.log_temperature.grad
        of_temperature.copy_(excess / rows)
        if self.config.clip is not None:
            clip_(of_temperature, self.config.clip)
        self._temperature_optimizer.step()

        self.targets.vector.lerp_(self.critics.network.vector, self.config.target_rate)

    def _end(self, value: torch.Tensor) -> None:
        """Put in what is expected after the transitions that ended an episode."""
        ended, after = self._batch.ended, self.config.after_success
        if after == "highest":
            # A task without rewards so far has no transitions either: its zero counts for nothing.
            highest = self._of_tasks(self.highest_reward.nan_to_num(neginf=0.0))
            value.lerp_(highest.expand_as(value) / (1.0 - self.config.discount), ended)
        elif after == "repeat":
            value.lerp_(self._batch.reward / (1.0 - self.config.discount), ended)
        elif after == "zero":
            value *= 1.0 - ended

    def _of_tasks(self, values: torch.Tensor) -> torch.Tensor:
        """Of one number for each head those of each row's task ``[N]``; of a single one itself."""
        return self._batch.task @ values if self.config.multi_head else values

    def _actions_at(self, states: torch.Tensor, noise: torch.Tensor) -> SquashedGaussian:
        """Let the policy draw actions."""
        outputs = self._acting.forward(self.actor.network, states)
        return SquashedGaussian(self._own(outputs)[0], noise)

    def _values(self, network: NormalisedEnsemble, inputs: torch.Tensor) -> torch.Tensor:
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

        The last task's would keep a policy that has settled down from trying anything. Where each
        task has a head, its temperature is untouched so far, and so is its highest reward.
        """
        for part in (self.actor, self.critics):
            part.protection.begin_task(name)
        if not self.config.multi_head:
            self.log_temperature.zero_()
            self.highest_reward.fill_(-torch.inf)
        self.renew()

    def renew(self) -> None:
        """Forget all moments of Adam; those of a head would go on moving it without a gradient."""
        for part in (self.actor, self.critics):
            part.renew()
        self._temperature_optimizer.state.clear()

    def _parts(self) -> Iterator[tuple[str, Trained]]:
        yield "actor", self.actor
        yield "critics", self.critics

    def state(self) -> State:
        """Everything that later updates depend on."""
        arrays, facts = weights_state([self.log_temperature], self._temperature_optimizer)
        arrays = {f"temperature/{name}": array for name, array in arrays.items()}
        arrays["targets"] = self.targets.vector.numpy().copy()
        arrays["highest_reward"] = self.highest_reward.numpy().copy()
        meta: dict[str, Any] = {"temperature": facts, "updates": self.updates}
        for name, part in self._parts():
            part_arrays, meta[name] = part.state()
            arrays |= {f"{name}/{key}": array for key, array in part_arrays.items()}
        return arrays, meta

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; if something does not fit it is left half done."""
        check_whole("updates", meta["updates"], 0)
        own = {"targets": self.targets.vector, "highest_reward": self.highest_reward}
        check_arrays(
            {name: arrays[name] for name in own},
            {name: ("f", tuple(vector.shape)) for name, vector in own.items()},
        )
        restore_weights(
            [self.log_temperature],
            self._temperature_optimizer,
            part_of(arrays, "temperature/"),
            meta["temperature"],
        )
        for name, part in self._parts():
            part.restore(part_of(arrays, f"{name}/"), meta[name])
        for name, vector in own.items():
            vector.copy_(torch.from_numpy(arrays[name]))
        self.updates = meta["updates"]
