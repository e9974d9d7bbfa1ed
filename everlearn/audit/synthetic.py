"""Streams whose answer is known: a best model to compare with, or an assumption that must fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.audit.stream import TransitionStream
from everlearn.interfaces import FloatArray
from everlearn.online import OnlineWorldModel
from everlearn.registry import Registry
from everlearn.support.errors import InvalidInputError

_OBSERVATIONS, _ACTIONS = 2, 1
# One thread: several would only wait for each other in kernels this small.
_SMALL: dict[str, Any] = {
    "features": 6,
    "bins": 4,
    "grid_dim": 2,
    "precision": "float64",
    "threads": 1,
}


@dataclass(frozen=True, eq=False)
class SyntheticCase:
    """A stream, a new model for it, and what is known.

    Attributes
    ----------
    summary
        In a line.
    model, stream
        For `audit_stream`.
    breaks
        Assumptions that must fail on it.
    true_loss
        Squared error of the model that made the targets; None if none did.
    """

    summary: str
    model: OnlineWorldModel
    stream: TransitionStream
    breaks: tuple[int, ...]
    true_loss: float | None = None


SyntheticFactory = Callable[[int, int], SyntheticCase]
"""Makes a case of so many steps from a seed."""

SYNTHETIC: Registry[SyntheticFactory] = Registry("synthetic stream")


def synthetic_case(name: str, steps: int, seed: int = 0) -> SyntheticCase:
    """Make the case registered under `name`."""
    if steps < 1:
        raise InvalidInputError(f"steps is {steps}; expected at least 1")
    return SYNTHETIC.get(name)(steps, seed)


def _model(ridge: float, **options: Any) -> OnlineWorldModel:
    return OnlineWorldModel(
        spaces.Box(-1, 1, (_OBSERVATIONS,), np.float64),
        spaces.Box(-1, 1, (_ACTIONS,), np.float64),
        ridge=ridge,
        **{**_SMALL, **options},
    )


def _stream(
    name: str, observations: FloatArray, actions: FloatArray, targets: FloatArray
) -> TransitionStream:
    starts: npt.NDArray[np.bool_] = np.ones(len(actions), np.bool_)
    return TransitionStream(name, observations, actions, observations + targets, starts)


def _inputs(rng: np.random.Generator, steps: int, fixed: bool) -> tuple[FloatArray, FloatArray]:
    """Draw inputs, all independent, or one that is repeated."""
    count = 1 if fixed else steps
    obs, action = rng.uniform(-1, 1, (count, _OBSERVATIONS)), rng.uniform(-1, 1, (count, _ACTIONS))
    repeats = steps if fixed else 1
    return np.repeat(obs, repeats, axis=0), np.repeat(action, repeats, axis=0)


def _independent(steps: int, seed: int) -> SyntheticCase:
    rng = np.random.default_rng(seed)
    model = _model(0.005)
    obs, action = _inputs(rng, steps, fixed=False)
    truth = rng.normal(0, 0.05, (model.encoding.cells, _OBSERVATIONS))
    cells, values = model.encode(obs, action)
    noise = rng.normal(0, 0.05, (steps, _OBSERVATIONS))
    targets = np.einsum("nk,nks->ns", values, truth[cells]) + noise
    return SyntheticCase(
        "independent inputs, targets of a known model of the same features plus noise",
        model,
        _stream("iid", obs, action, targets),
        (1, 2),
        float(np.sum(noise**2)),
    )


def _repeated(name: str, summary: str, breaks: tuple[int, ...], low: float, high: float) -> None:
    """Register one input for ever, with targets drawn from a range."""

    def make(steps: int, seed: int) -> SyntheticCase:
        rng = np.random.default_rng(seed)
        obs, action = _inputs(rng, steps, fixed=True)
        targets = rng.uniform(low, high, (steps, _OBSERVATIONS))
        return SyntheticCase(summary, _model(0.1), _stream(name, obs, action, targets), breaks)

    SYNTHETIC.register(name, make)


def _moving(steps: int, seed: int) -> SyntheticCase:
    rng = np.random.default_rng(seed)
    obs, action = _inputs(rng, steps, fixed=False)
    targets = rng.uniform(0, 0.01, (steps, _OBSERVATIONS))
    # Two bins: every cell is active for every input, so that K = D and assumption 3 holds.
    return SyntheticCase(
        "inputs that move, dense features: breaks assumption 1",
        _model(0.1, bins=2),
        _stream("moving", obs, action, targets),
        (1,),
    )


def _drifting(steps: int, seed: int) -> SyntheticCase:
    rng = np.random.default_rng(seed)
    # From one corner of the space to the opposite one, where every 20 steps targets are others:
    # there are always cells not seen before, of which nothing is known.
    obs = np.linspace(-1, 1, steps)[:, None] * np.ones(_OBSERVATIONS)
    levels = rng.uniform(0, 0.01, (steps // 20 + 1, _OBSERVATIONS))
    targets, action = levels[np.arange(steps) // 20], np.zeros((steps, _ACTIONS))
    return SyntheticCase(
        "inputs that never come back: breaks assumption 1",
        _model(0.1, bins=60, grid_dim=1),
        _stream("drifting", obs, action, targets),
        (1,),
    )


SYNTHETIC.register("iid", _independent)
_repeated("steady", "one input for ever, small targets >= 0: all assumptions hold", (), 0.0, 0.01)
SYNTHETIC.register("moving", _moving)
SYNTHETIC.register("drifting", _drifting)
_repeated("signed", "as steady, targets of both signs: breaks assumption 2", (2,), -0.01, 0.01)
_repeated("large", "as steady, large targets: breaks assumption 3", (3,), 0.5, 1.0)
