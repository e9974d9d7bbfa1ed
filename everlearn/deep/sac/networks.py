"""Parts of an actor-critic: a network that is trained, a policy that acts, a minibatch.

Needs the extra ``deep``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from everlearn.deep.mlp.ensemble import DenseEnsemble, Workspace
from everlearn.deep.mlp.network import adam, adam_step, restore_weights, weights_state
from everlearn.deep.sac.gaussian import SquashedGaussian, parameters_of
from everlearn.deep.strategies import Protection
from everlearn.interfaces import Protection as ProtectionProtocol
from everlearn.interfaces import State, Storage, Strategy
from everlearn.support.archive import part_of

Floats = npt.NDArray[np.float32]


class Trained:
    """Networks, their optimizer, and what a strategy does to them.

    Parameters
    ----------
    network
        One or more networks as one.
    strategy
        What protects them from forgetting; None leaves them alone.
    learning_rate
        Of Adam.
    """

    def __init__(
        self, network: DenseEnsemble, strategy: Strategy | None, learning_rate: float
    ) -> None:
        self.network = network
        self.depends_on_task = strategy is not None and strategy.task_dependent
        self.protection: ProtectionProtocol = (
            Protection(network) if strategy is None else strategy.protect(network)
        )
        self._optimizer = adam([network.vector], learning_rate)

    def step(self) -> None:
        """Take a step along the gradient that is there, as far as the strategy lets it."""
        self.protection.after_backward()
        adam_step(self._optimizer)
        self.protection.after_step()

    def renew(self) -> None:
        """Forget the optimizer's moments."""
        self._optimizer.state.clear()

    def state(self) -> State:
        """Weights, moments, and what the strategy carries."""
        arrays, facts = weights_state([self.network.vector], self._optimizer)
        carried, protection = self.protection.state()
        arrays |= {f"protection/{name}": array for name, array in carried.items()}
        return arrays, {**facts, "protection": protection}

    def restore(self, arrays: Mapping[str, npt.NDArray[Any]], meta: Mapping[str, Any]) -> None:
        """Take over what `state` returned; if something does not fit it is left half done."""
        own = {name: array for name, array in arrays.items() if name[:11] != "protection/"}
        restore_weights([self.network.vector], self._optimizer, own, meta)
        # After the weights: some strategies hold on to values of theirs.
        self.protection.restore(part_of(arrays, "protection/"), meta["protection"])


class Policy:
    """An actor that acts, one state at a time.

    Parameters
    ----------
    network
        The actor; its weights are used as they are at each call.
    actions
        Numbers in an action.
    """

    def __init__(self, network: DenseEnsemble, actions: int) -> None:
        self._network, self._workspace = network, Workspace(network, 1)
        self._outputs = 2 * actions

    @torch.no_grad()
    def act(self, state: Floats, head: int = 0, noise: Floats | None = None) -> Floats:
        """Return the action ``[A]`` in ``[-1, 1]`` at ``state[S]``.

        Parameters
        ----------
        state
            What the network sees.
        head
            Which of its outputs have the say.
        noise
            Of a standard normal distribution, ``[A]``; None takes the middle of the distribution.
        """
        outputs = self._workspace.forward(self._network, torch.from_numpy(state)[None])[0]
        own = outputs[:, head * self._outputs : (head + 1) * self._outputs]
        if noise is None:
            action = torch.tanh(parameters_of(own)[0])
        else:
            action = SquashedGaussian(own, torch.from_numpy(noise)[None]).actions
        found: Floats = action[0].numpy()
        return found


class Batch:
    """One minibatch in buffers that are made once.

    Parameters
    ----------
    rows
        Transitions in it.
    columns
        Numbers of each part of a transition.

    Attributes
    ----------
    replayed, proposed, following
        Inputs of critics, ``[N, state + action]``: what was done, what the policy would do there,
        and what it would do next.
    state, next_state
        Views of their states.
    reward, ended, task
        ``[N]``, ``[N]`` and ``[N, heads]``.
    noise
        Of a standard normal distribution, ``[2 N, A]``.
    """

    def __init__(self, rows: int, columns: Mapping[str, int]) -> None:
        states, actions = columns["state"], columns["action"]
        self.rows, self._actions = rows, slice(states, None)
        self.replayed, self.proposed, self.following = torch.zeros(3, rows, states + actions)
        self.state, self.next_state = self.replayed[:, :states], self.following[:, :states]
        self.reward, self.ended = torch.zeros(2, rows)
        self.task = torch.zeros(rows, columns["task"])
        self.noise = torch.zeros(2 * rows, actions)
        self._places = {
            "state": self.state,
            "action": self.replayed[:, self._actions],
            "next_state": self.next_state,
            "reward": self.reward[:, None],
            "ended": self.ended[:, None],
            "task": self.task,
        }

    def draw(self, storage: Storage, generator: np.random.Generator) -> None:
        """Fill the batch with transitions and noise."""
        for name, values in storage.sample(self.rows, generator).items():
            self._places[name].copy_(torch.from_numpy(values))
        self.proposed[:, : self._actions.start] = self.state
        generator.standard_normal(dtype=np.float32, out=self.noise.numpy())

    def set_actions(self, here: torch.Tensor, following: torch.Tensor) -> None:
        """Put in what the policy would do."""
        self.proposed[:, self._actions] = here
        self.following[:, self._actions] = following
