"""Which transitions count more: those in which a thing that rested begins to move.

They are rare (a push begins once and then goes on for dozens of steps) and decide plans. A moving
thing's last displacement predicts its next one so well that a plain fit gives it the credit,
and expects of a hand that arrives at a resting door a fifth of the push.
"""

from __future__ import annotations

import numpy as np

from everlearn.interfaces import Bodies
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.inputs import Batch
from everlearn.world_model.memory import Memory, RemembersMotion

RESTED = 0.01
"""A thing rested if its last change was below this share of what is small for it."""

MOVES = 0.2
"""It moves if its change is above this share."""


class Onsets:
    """Weights of transitions.

    Parameters
    ----------
    weight
        How often an onset counts; every other transition counts once.
    memory
        Knows the last displacement.
    bodies
        Say what rests, and which changes are small for it.
    """

    def __init__(self, weight: float, memory: Memory, bodies: Bodies | None) -> None:
        if bodies is None or not bodies.resting or not isinstance(memory, RemembersMotion):
            raise InvalidInputError(
                f"onset_weight is {weight:g}, which needs `bodies` that say what rests (an "
                "environment declares `bodies.resting`) and a memory of displacements ('motion' or "
                f"'history', not {memory.name!r}). Without, leave onset_weight at 1"
            )
        self._weight, self._memory = weight, memory
        things, small = zip(*bodies.resting, strict=True)
        self._things, self._small = list(things), np.array(small)

    def weights(self, change: Batch, memory: Batch) -> Batch:
        """How often each transition counts ``[N]``, from changes ``[N, S]`` and memory states."""
        before = np.abs(self._memory.displacement(memory)[:, self._things])
        now = np.abs(change[:, self._things])
        begins = (before < RESTED * self._small) & (now > MOVES * self._small)
        return np.where(begins.any(axis=1), self._weight, 1.0)
