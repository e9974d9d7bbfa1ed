"""Streams whose answer is known: a best model to compare with, or an assumption that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.audit.stream import TransitionStream
from everlearn.interfaces import FloatArray
from everlearn.online import OnlineWorldModel
from everlearn.registry import Registry
from everlearn.support.checks import check_whole

_OBSERVATIONS, _ACTIONS = 2, 1


@dataclass(frozen=True, eq=False)
class SyntheticCase:
    """A new model and a stream for `audit_stream`, and what is known about them."""

    model: OnlineWorldModel
    stream: TransitionStream
    breaks: tuple[int, ...]
    """Assumptions that must fail."""
    true_loss: float | None = None
    """Squared error of the model that made the targets; None if none did."""


SyntheticFactory = Callable[[int, int], SyntheticCase]
"""Makes a case of so many steps from a seed."""

SYNTHETIC: Registry[SyntheticFactory] = Registry("synthetic stream")


def synthetic_case(name: str, steps: int, seed: int = 0) -> SyntheticCase:
    """Make the case registered under `name`."""
    check_whole("steps", steps, 1)
    return SYNTHETIC.get(name)(steps, seed)


def _model(ridge: float, bins: int = 4, grid_dim: int = 2) -> OnlineWorldModel:
    return OnlineWorldModel(
        spaces.Box(-1, 1, (_OBSERVATIONS,), np.float64),
        spaces.Box(-1, 1, (_ACTIONS,), np.float64),
        ridge=ridge,
        features=6,
        bins=bins,
        grid_dim=grid_dim,
        precision="float64",
        threads=1,  # several would only wait for each other in kernels this small
    )


def _stream(
    name: str, observations: FloatArray, actions: FloatArray, targets: FloatArray
) -> TransitionStream:
    starts: npt.NDArray[np.bool_] = np.ones(len(actions), np.bool_)
    return TransitionStream(name, observations, actions, observations + targets, starts)


def _random_inputs(rng: np.random.Generator, count: int) -> tuple[FloatArray, FloatArray]:
    return rng.uniform(-1, 1, (count, _OBSERVATIONS)), rng.uniform(-1, 1, (count, _ACTIONS))


def _independent(steps: int, seed: int) -> SyntheticCase:
    """Independent inputs, targets of a known model of the same features plus noise."""
    rng = np.random.default_rng(seed)
    model = _model(0.005)
    obs, action = _random_inputs(rng, steps)
    truth = rng.normal(0, 0.05, (model.encoding.cells, _OBSERVATIONS))
    cells, values = model.encode(obs, action)
    noise = rng.normal(0, 0.05, (steps, _OBSERVATIONS))
    targets = np.einsum("nk,nks->ns", values, truth[cells]) + noise
    stream = _stream("iid", obs, action, targets)
    return SyntheticCase(model, stream, (1, 2), float(np.sum(noise**2)))


def _repeated(name: str, breaks: tuple[int, ...], low: float, high: float) -> None:
    """Register a stream that repeats one input, with targets drawn from a range."""

    def make(steps: int, seed: int) -> SyntheticCase:
        rng = np.random.default_rng(seed)
        obs, action = (np.repeat(part, steps, axis=0) for part in _random_inputs(rng, 1))
        targets = rng.uniform(low, high, (steps, _OBSERVATIONS))
        return SyntheticCase(_model(0.1), _stream(name, obs, action, targets), breaks)

    SYNTHETIC.register(name, make)


def _moving(steps: int, seed: int) -> SyntheticCase:
    """Draw inputs that differ, with dense features: breaks assumption 1."""
    rng = np.random.default_rng(seed)
    obs, action = _random_inputs(rng, steps)
    targets = rng.uniform(0, 0.01, (steps, _OBSERVATIONS))
    # Two bins: every cell is active for every input, so that K = D and assumption 3 holds.
    return SyntheticCase(_model(0.1, bins=2), _stream("moving", obs, action, targets), (1,))


def _drifting(steps: int, seed: int) -> SyntheticCase:
    """Move through inputs that never come back: breaks assumption 1."""
    rng = np.random.default_rng(seed)
    # From one corner of the space to the opposite one, with new targets every 20 steps: there
    # are always cells not seen before, of which nothing is known.
    obs = np.linspace(-1, 1, steps)[:, None] * np.ones(_OBSERVATIONS)
    levels = rng.uniform(0, 0.01, (steps // 20 + 1, _OBSERVATIONS))
    targets, action = levels[np.arange(steps) // 20], np.zeros((steps, _ACTIONS))
    model = _model(0.1, bins=60, grid_dim=1)
    return SyntheticCase(model, _stream("drifting", obs, action, targets), (1,))


SYNTHETIC.register("iid", _independent)
_repeated("steady", (), 0.0, 0.01)  # small targets >= 0: all assumptions hold
SYNTHETIC.register("moving", _moving)
SYNTHETIC.register("drifting", _drifting)
_repeated("signed", (2,), -0.01, 0.01)  # targets of both signs
_repeated("large", (3,), 0.5, 1.0)  # large targets
