"""What each grid of the encoding looks at: rows of the projection.

The paper's grids are dense: every projection mixes all inputs, so that a grid resolves none of
them finely (in a workspace of 1.6 m a bin of nine is wider than the table). Local grids look
at one object from the hand: each of their projections mixes a few of

- where the object is, seen from between the fingers, at a gain (in inputs a metre) of its
  own: fine for fingers that close on a block, coarse for an arm that sweeps a door open;
- how far the hand is open, the action, and how the hand moves (features of the memory);
- where the object itself is, if asked for: a handle that swings turns as it goes.

Contact depends on just these, and on nothing that happens elsewhere on the table. Nor need it be
looked at from afar: with a reach, the grids of an object count only where the hand is near it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import Bodies
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import ModelInputs

RANGE = 4.0
"""Largest over smallest gain of distances."""

Rows = npt.NDArray[np.float64]
"""Projections ``[rows, inputs + 1]`` of scaled inputs; the last column is a constant."""


def dense_rows(rng: np.random.Generator, rows: int, inputs: ModelInputs) -> Rows:
    """Projections of everything but what the memory keeps for other parts: N(0, 1 / inputs)."""
    seen = np.flatnonzero(inputs.gridded)
    out = np.zeros((rows, inputs.count + 1))
    out[:, seen] = rng.normal(0.0, len(seen) ** -0.5, (rows, len(seen)))
    return out


def local_rows(
    rng: np.random.Generator,
    grids: int,
    grid_dim: int,
    inputs: ModelInputs,
    bodies: Bodies,
    gain: float,
    mixed: int,
    place_gain: float = 0.0,
) -> Rows:
    """Projections of local grids, one object after the other; each mixes `mixed` inputs.

    Distances are multiplied by `gain` at most, and by a fourth of it at least; places by
    `place_gain`, unless that is 0.
    """
    views = [
        np.concatenate([_view(inputs, bodies, number), _place(inputs, bodies, number, place_gain)])
        for number in range(len(bodies.objects))
    ]
    if mixed > len(views[0]):
        raise InvalidInputError(
            f"local_inputs is {mixed}; a local grid has only {len(views[0])} inputs to mix"
        )
    out = np.zeros((grids * grid_dim, inputs.count + 1))
    seen = np.repeat(np.arange(len(views)), local_sizes(grids, bodies))
    for row in range(len(out)):
        view = views[seen[row // grid_dim]]
        chosen = rng.choice(len(view), mixed, replace=False)
        factors = rng.normal(0.0, mixed**-0.5, mixed)
        metres = chosen < len(bodies.hand)
        factors[metres] *= gain * RANGE ** -rng.uniform()
        out[row] = factors @ view[chosen]
    return out


def local_sizes(grids: int, bodies: Bodies) -> list[int]:
    """Local grids of each object, as evenly as they go."""
    count = len(bodies.objects)
    return [grids // count + (number < grids % count) for number in range(count)]


def relative_places(inputs: ModelInputs, bodies: Bodies) -> Rows:
    """Where each object is, seen from between the fingers, ``[objects, axes, inputs + 1]``."""
    axes = len(bodies.hand)
    views = [_view(inputs, bodies, number)[:axes] for number in range(len(bodies.objects))]
    return np.stack(views)


def _view(inputs: ModelInputs, bodies: Bodies, number: int) -> Rows:
    """Return what a local grid can mix, each as a row over scaled inputs and the constant.

    The relative position comes first, in metres.
    """
    # A scaled input is x = (raw - centre) * multiplier, so raw = x / multiplier + centre.
    centre, multiplier = inputs.scaling.centre, inputs.scaling.multiplier
    places = list(zip(bodies.objects[number], bodies.hand, bodies.grip, strict=True))
    relative = np.zeros((len(places), inputs.count + 1))
    for row, (thing, hand, offset) in zip(relative, places, strict=True):
        row[thing] = 1 / multiplier[thing]
        row[hand] = -1 / multiplier[hand]
        row[-1] = centre[thing] - centre[hand] - offset
    motion = inputs.observations + inputs.actions + np.array(inputs.features_of(bodies.hand), int)
    actions = np.arange(inputs.observations, inputs.observations + inputs.actions)
    others = np.concatenate([np.array(bodies.opening, int), actions, motion])
    return np.concatenate([relative, np.eye(inputs.count + 1)[others]])


def _place(inputs: ModelInputs, bodies: Bodies, number: int, gain: float) -> Rows:
    """Where an object is from the middle of its bounds, at `gain` a metre; nothing for 0."""
    axes = np.array(bodies.objects[number] if gain else (), int)
    return np.eye(inputs.count + 1)[axes] * (gain / inputs.scaling.multiplier[axes])[:, None]
