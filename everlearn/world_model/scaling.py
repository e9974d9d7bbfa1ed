"""From spaces and raw numbers to scaled inputs: bounds, checks and one multiplier an input."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import FloatArray
from everlearn.support.checks import as_numbers
from everlearn.support.errors import InvalidInputError

logger = logging.getLogger(__name__)

SPREAD = 2.0
"""Standard deviations that stand for half the range of an unbounded input."""


OUTLIER = 3.0
"""Half ranges within which all samples lie that a scale was fitted to."""

STRETCH = 1.3
"""Factor by which a scale must have changed to be fitted again."""

SHIFT = 0.3
"""Half ranges by which a centre must have moved to be fitted again."""


class InputScaling:
    """``(x - centre) * multiplier`` for every input of the model.

    Bounded inputs: the centre of the bounds, and gain over half their range, so that bounds
    become ``[-gain, gain]``. Inputs without bounds start with centre 0 and multiplier `gain`
    and are waiting for statistics: after `freeze` their mean plus or minus two standard
    deviations become ``[-gain, gain]``, once and for all, because moving the scale later would
    move every cell that has been learned.

    Parameters
    ----------
    low, high
        Bounds of each input; infinite where there are none.
    gain
        What the bounds become after scaling, for each input.
    """

    def __init__(self, low: FloatArray, high: FloatArray, gain: FloatArray) -> None:
        bounded = np.isfinite(low) & np.isfinite(high)
        half = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, -1)) / 2, 1.0)
        centre = np.where(bounded, np.where(bounded, low, 0) + half, 0.0)
        self.gain: npt.NDArray[np.float64] = np.asarray(gain, np.float64)
        self.centre: npt.NDArray[np.float64] = centre
        # An input that cannot vary (low == high) carries nothing: it is multiplied by zero.
        self.multiplier: npt.NDArray[np.float64] = np.where(
            half > 0, self.gain / np.where(half > 0, half, 1), 0.0
        )
        self.unbounded: npt.NDArray[np.bool_] = ~bounded
        self.frozen = not bool(self.unbounded.any())

    def _fitted(
        self, samples: FloatArray
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Centre and multiplier, by ``samples[N, I]`` where there are no bounds."""
        mean = samples.mean(axis=0)
        deviation = samples.std(axis=0)
        # What was constant for long and then moved has a small deviation and values far out.
        furthest = np.abs(samples - mean).max(axis=0)
        deviation = np.maximum(deviation, furthest / (SPREAD * OUTLIER))
        # A constant input has no scale of its own; leave room for a first movement.
        deviation = np.where(deviation > 1e-8 * (1 + np.abs(mean)), deviation, 1.0)
        return (
            np.where(self.unbounded, mean, self.centre),
            np.where(self.unbounded, self.gain / (SPREAD * deviation), self.multiplier),
        )

    def take(self, centre: npt.NDArray[np.float64], multiplier: npt.NDArray[np.float64]) -> None:
        """Scale by these from now on."""
        self.centre, self.multiplier = centre, multiplier

    def far_out(self, sample: FloatArray) -> bool:
        """Whether a raw input ``[I]`` lies so far out that its scale cannot be right."""
        scaled = np.abs((sample - self.centre) * self.multiplier)
        return bool((scaled > 2 * OUTLIER * self.gain)[self.unbounded].any())

    def refitted(
        self, samples: FloatArray
    ) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]] | None:
        """Centre and multiplier fitted to ``samples[N, I]``; None if they have not changed much.

        What was learned with another scale is void.
        """
        centre, multiplier = self._fitted(samples)
        free = self.unbounded
        ratio = multiplier[free] / self.multiplier[free]
        shift = (centre[free] - self.centre[free]) * self.multiplier[free]
        limit = SHIFT * self.gain[free]
        if not ((ratio > STRETCH) | (ratio < 1 / STRETCH) | (np.abs(shift) > limit)).any():
            return None
        return centre, multiplier

    def freeze(self, samples: FloatArray) -> None:
        """Fix the scale of inputs without bounds by ``samples[N, I]``."""
        if self.frozen:
            return
        self.centre, self.multiplier = self._fitted(samples)
        self.frozen = True
        logger.warning(
            "scale of %d unbounded inputs fixed by %d samples; it stays as it is from now on",
            int(self.unbounded.sum()),
            len(samples),
        )


def as_box(space: spaces.Space[Any], name: str) -> spaces.Box:
    """`space`, if it is a one-dimensional Box; anything else is refused."""
    if isinstance(space, spaces.Box) and len(space.shape) == 1 and space.shape[0] > 0:
        return space
    if "action" not in name:
        advice = "Wrap the environment, for example with gymnasium.wrappers.FlattenObservation"
    elif isinstance(space, spaces.Box):
        advice = "Wrap the environment in a gymnasium.ActionWrapper that reshapes actions"
    else:
        advice = (
            "Agents choose real numbers: use a version of the environment with continuous actions, "
            "or a gymnasium.ActionWrapper that turns numbers of a Box into its actions"
        )
    raise InvalidInputError(f"{name} must be a one-dimensional Box; got {space}. {advice}")


def box_bounds(space: spaces.Space[Any], name: str) -> tuple[FloatArray, FloatArray]:
    """Bounds of a one-dimensional Box in float64."""
    box = as_box(space, name)
    return box.low.astype(np.float64), box.high.astype(np.float64)


def as_batch(
    value: object, name: str, width: int, dims: Sequence[int] = (1, 2)
) -> npt.NDArray[np.float64]:
    """`value` as finite float64 numbers of one of the allowed numbers of dimensions."""
    array = as_numbers(value, name).astype(np.float64, copy=False)
    if array.ndim not in dims or array.shape[-1] != width:
        expected = " or ".join(("[" + "N, H, "[3 * (3 - d) :] + f"{width}]") for d in dims)
        raise InvalidInputError(f"{name} must have shape {expected}; got {list(array.shape)}")
    if not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise InvalidInputError(
            f"{name} must be finite; got {array[tuple(where)]} at index {where}"
        )
    return array
