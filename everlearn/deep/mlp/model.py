"""A deep world model: a network that predicts the change of an observation.

The comparison to the online model. Same inputs (observation, action and what is remembered),
same imagination, another way to learn: every 250 steps the network is trained on all data that
its strategy keeps, until the loss on a holdout of 5 % has not improved for 5 epochs. Strategies
live in `everlearn.deep.strategies`; this file knows their base class only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from gymnasium import spaces

from everlearn.deep.mlp import rollout_kernel as dense
from everlearn.deep.mlp import snapshot
from everlearn.deep.mlp.config import MLPConfig
from everlearn.deep.mlp.network import Trainer, make_network, torch_threads
from everlearn.deep.mlp.normaliser import Normaliser, RunningMoments
from everlearn.deep.strategies.base import Strategy
from everlearn.interfaces import State
from everlearn.support.checks import check_whole
from everlearn.support.errors import NotReadyError, UnknownNameError
from everlearn.support.threads import Threads
from everlearn.world_model.base import ImaginingModel, Transitions
from everlearn.world_model.memory import Memory
from everlearn.world_model.step_kernels import MemoryTables, Trajectories

SMALLEST_INPUT = 1e-2
"""Smallest deviation of an input, in half ranges: what only trembles is not blown up."""

SMALLEST_CHANGE = 1e-4
"""Smallest deviation of a change, in half ranges."""


@dataclass(frozen=True)
class Training:
    """What one training was: rows it used, epochs, loss on the holdout, wall-clock time."""

    rows: int
    epochs: int
    holdout_loss: float
    seconds: float


@dataclass(frozen=True, eq=False)
class _Prediction:
    """What predictions are made with: packed layers, and the scale of their inputs."""

    layers: dense.DenseLayers
    scaling: npt.NDArray[np.float32]


class MLPWorldModel(ImaginingModel):
    """A world model that is a deep network, trained now and then.

    Parameters
    ----------
    observation_space, action_space
        One-dimensional Box spaces.
    config
        Settings; any of them can also be given by name, as in ``strategy=Coreset(5000)``.
    seed
        Fans out into initial weights, holdouts, minibatches and what the strategy draws.
    threads
        Threads of kernels and of PyTorch; None takes what numba was given.
    memory
        What the model sees beside observation and action; nothing if None.

    Attributes
    ----------
    steps
        Transitions learned.
    trainings, last_training
        How many there were, and the last of them.
    """

    def __init__(
        self,
        observation_space: spaces.Space[Any],
        action_space: spaces.Space[Any],
        config: MLPConfig | None = None,
        *,
        seed: int = 0,
        threads: int | None = None,
        memory: Memory | None = None,
        still: npt.ArrayLike | None = None,
        **options: Any,
    ) -> None:
        known = {field.name for field in fields(MLPConfig)}
        if unknown := set(options) - known:
            raise UnknownNameError(
                f"unknown option {sorted(unknown)[0]!r}; known: {', '.join(sorted(known))}"
            )
        self.config = replace(config or MLPConfig(), **options)
        super().__init__(
            observation_space,
            action_space,
            memory,
            np.float32,
            clip=self.config.clip,
            still=still,
        )
        check_whole("seed", seed, 0)
        if threads is not None:
            check_whole("threads", threads, 1)
        self.seed, self.threads = seed, threads
        strategy: Strategy = self.config.strategy
        self.strategy = strategy
        drawing, training, keeping = np.random.SeedSequence(seed).spawn(3)
        inputs, outputs = self.inputs.count, self.inputs.observations
        self.network = make_network(
            (inputs, *(self.config.hidden,) * self.config.layers, outputs),
            np.random.default_rng(drawing),
        )
        self.protection = strategy.protect(self.network)
        widths = {"inputs": inputs, "changes": outputs, "held": 1}
        self.storage = strategy.storage(widths, keeping)
        self.trainer = Trainer(
            self.network,
            self.protection,
            learning_rate=self.config.learning_rate,
            batch=self.config.batch,
            patience=self.config.training_patience,
            threshold=self.config.improvement,
        )
        self.generator = np.random.default_rng(training)
        self.moments = RunningMoments(inputs), RunningMoments(outputs)
        # Of no effect until the first training: like the online model's, the first prediction
        # is that nothing changes.
        self.normalisers = (
            Normaliser(np.zeros(inputs), np.ones(inputs)),
            Normaliser(np.zeros(outputs), np.zeros(outputs)),
        )
        self.frozen: dict[str, tuple[Normaliser, Normaliser]] = {}
        self._predictions: dict[str | None, _Prediction] = {}
        self._threads = Threads(threads)
        self.task: str | None = None
        self.steps = 0
        self.trainings = 0
        self.last_training: Training | None = None

    # Learning --------------------------------------------------------------------------

    def _learn(self, transition: Transitions) -> None:
        """Keep a transition; every `train_every` of them train the network."""
        observations, actions, following, states = transition
        given = self.inputs.raw(observations, actions, states)
        change = following - observations
        # Whether a transition is held out is settled once: were the holdout drawn anew for every
        # training, most of it would have been trained on before, and its loss could only rise.
        held = int((self.steps + 1) * self.config.holdout) > int(self.steps * self.config.holdout)
        self.storage.add(inputs=given[0], changes=change[0], held=held)
        for moments, rows in zip(self.moments, (given, change), strict=True):
            moments.add(rows)
        self.steps += 1
        if self.steps % self.config.train_every == 0:
            self.train()

    def train(self) -> None:
        """Train on all data that is kept, until the holdout stops improving."""
        if len(self.storage) < 2:
            return
        started = time.perf_counter()
        self.normalisers = self._current_normalisers()
        inputs, changes = (
            normaliser(self.storage.column(name))
            for normaliser, name in zip(self.normalisers, ("inputs", "changes"), strict=True)
        )
        held = self.storage.column("held")[:, 0] > 0
        if held.all() or not held.any():
            held = np.arange(len(held)) == 0  # too few for a share: the first alone
        with self._threads.limited() as threads, torch_threads(threads):
            epochs, loss = self.trainer.train(inputs, changes, held, self.generator)
        self._predictions.clear()
        self.trainings += 1
        seconds = time.perf_counter() - started
        self.last_training = Training(len(inputs), epochs, loss, seconds)

    def begin_task(self, name: str) -> None:
        """End the task at hand, as the strategy does, and begin another.

        Called at boundaries, for strategies that are told of them; the task at hand beginning
        again is none.
        """
        if name == self.task:
            return
        if self.task is not None:
            with self._threads.limited() as threads, torch_threads(threads):
                inputs = self.normalisers[0](self.storage.column("inputs"))
                self.protection.end_task((torch.from_numpy(inputs),))
            if self.strategy.retrains:
                self.train()
            if self.strategy.task_dependent:
                self.frozen[self.task] = self.normalisers
            self.storage.end_task()
        self.task = name
        self.protection.begin_task(name)
        self._predictions.clear()

    def _current_normalisers(self) -> tuple[Normaliser, Normaliser]:
        moments = self.moments
        if self.config.normalise_over == "kept":
            moments = RunningMoments(self.inputs.count), RunningMoments(self.inputs.observations)
            for one, name in zip(moments, ("inputs", "changes"), strict=True):
                one.add(self.storage.column(name))
        half = self.inputs.half_ranges
        return (
            Normaliser.of(moments[0], SMALLEST_INPUT * half),
            Normaliser.of(moments[1], SMALLEST_CHANGE * half[: self.inputs.observations]),
        )

    # Imagination -----------------------------------------------------------------------

    def for_task(self, name: str) -> ImaginingModel:
        """Return what predicts a task: the model itself, unless the strategy has parts for it.

        What is returned shares this model's memory and must not be kept across learning.
        """
        return _TaskView(self, name) if self.strategy.task_dependent else self

    def _run(self, trajectories: Trajectories, memory: MemoryTables) -> None:
        self._run_for(None, trajectories, memory)

    def _run_for(self, task: str | None, trajectories: Trajectories, memory: MemoryTables) -> None:
        prediction = self._prediction(task)
        centre, multiplier = prediction.scaling
        tables = self._step_tables(centre, multiplier, memory)
        with self._threads.limited():
            dense.imagine(trajectories, tables, prediction.layers)

    def _prediction(self, task: str | None) -> _Prediction:
        """Pack the weights that predict `task`, once between trainings."""
        if task not in self._predictions:
            inputs, changes = self.normalisers
            if task is not None and task != self.task:
                inputs, changes = self.frozen.get(task, self.normalisers)
            weights = [tensor.numpy() for tensor in self.protection.weights(task)]
            matrices, biases = weights[0::2], weights[1::2]
            # The outputs' normalisation is linear, as the last layer is.
            matrices[-1] = (matrices[-1] * changes.deviation[:, None]).astype(np.float32)
            biases[-1] = (biases[-1] * changes.deviation + changes.centre).astype(np.float32)
            scaling = np.stack([inputs.centre, 1.0 / inputs.deviation]).astype(np.float32)
            self._predictions[task] = _Prediction(dense.pack(matrices, biases), scaling)
        return self._predictions[task]

    # Keeping ---------------------------------------------------------------------------

    def state(self) -> State:
        """Everything the model knows, for `restore`: arrays and JSON facts."""
        return snapshot.model_state(self)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]) -> None:
        """Take over a `state` of a model with the same spaces, settings and strategy, to the bit.

        What does not fit raises and changes nothing.
        """
        fresh = MLPWorldModel(
            self.observation_space,
            self.action_space,
            self.config,
            seed=self.seed,
            threads=self.threads,
            memory=self.memory,
            still=self.still,
        )
        snapshot.restore_model(fresh, arrays, meta)
        self.__dict__.update(fresh.__dict__)


class _TaskView(ImaginingModel):
    """A model as it predicts one task."""

    def __init__(self, model: MLPWorldModel, task: str) -> None:
        super().__init__(
            model.observation_space,
            model.action_space,
            model.memory,
            model.dtype,
            clip=model.config.clip,
            still=model.still,
        )
        self.model, self.task = model, task
        self.strategy = model.strategy

    def for_task(self, name: str) -> ImaginingModel:
        """Return what predicts another task."""
        return self.model.for_task(name)

    def _run(self, trajectories: Trajectories, memory: MemoryTables) -> None:
        self.model._run_for(self.task, trajectories, memory)

    def _learn(self, transition: Transitions) -> None:
        raise NotReadyError(
            f"this is the model as it predicts {self.task!r}, which does not learn; let the model "
            "learn that it was made from"
        )
