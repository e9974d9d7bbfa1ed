"""What the files of all world models and agents say of spaces, settings and memory."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from everlearn.interfaces import Bodies
from everlearn.support.checks import check_number, check_whole
from everlearn.support.errors import InvalidInputError

if TYPE_CHECKING:
    from everlearn.world_model.base import ImaginingModel

Arrays = dict[str, npt.NDArray[Any]]

LIVE_SETTINGS = ("max_memory_gb", "intervals")
"""Settings that a restored model may have otherwise than the saved one."""


def space_arrays(model: Any) -> Arrays:
    """Bounds of the spaces of a model or an agent."""
    return {
        "space/low": model.observation_space.low.copy(),
        "space/high": model.observation_space.high.copy(),
        "space/action_low": model.action_space.low.copy(),
        "space/action_high": model.action_space.high.copy(),
    }


def memory_facts(model: ImaginingModel) -> dict[str, Any]:
    """Name and options of a model's memory."""
    return {"name": model.memory.name, "options": model.memory.description()}


def still_fact(model: ImaginingModel) -> list[float] | None:
    """Smallest changes of a model's observations, None where there is no limit."""
    return model.still.tolist() if model.still.any() else None


def check_settings_fit(model: Any, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Refuse a state of a model or an agent that was saved with other settings or spaces."""
    # A state from before there was a setting was saved without it: as its default is.
    defaults = {field.name: field.default for field in fields(model.config)}
    mine, theirs = asdict(model.config), defaults | meta["config"]
    for name in set(mine) - set(LIVE_SETTINGS):
        if mine[name] != theirs.get(name):
            raise InvalidInputError(
                f"the state was saved with {name}={theirs.get(name)!r}, this model has "
                f"{mine[name]!r}; make a model with the same settings"
            )
    for name, bound in space_arrays(model).items():
        given = np.asarray(arrays.get(name, ()))
        # Only numbers are comparable: records would raise an error of NumPy's own.
        if given.dtype != bound.dtype or not np.array_equal(given, bound):
            raise InvalidInputError("the state was saved for other spaces than this model's")


def check_fits(model: Any, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Refuse a state that was saved with other settings, another memory or other spaces."""
    check_settings_fit(model, arrays, meta)
    bodies = getattr(model, "bodies", None)
    saved = stored_bodies(meta.get("bodies"), model.inputs.observations)
    # What rests is told by `still`; states from before that was known do not say it.
    if saved is not None and (bodies is None or replace(saved, resting=bodies.resting) != bodies):
        raise InvalidInputError("the state was saved for other bodies than this model's")
    if meta.get("still") != still_fact(model):
        raise InvalidInputError(
            f"the state was saved with smallest changes {meta.get('still')}, this model has "
            f"{still_fact(model)}"
        )
    memory = memory_facts(model)
    if _plain(memory) != _plain(meta["memory"]):
        raise InvalidInputError(
            f"the state was saved with memory {meta['memory']}, this model has {memory}"
        )


def stored_bodies(facts: Any, observations: int) -> Bodies | None:
    """Read the bodies of a saved model; states of models without any may not name them."""
    if facts is None:
        return None
    try:
        return _checked_bodies(facts, observations)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the stored bodies are not usable: {error!r}") from error


def _checked_bodies(facts: Any, observations: int) -> Bodies:
    hand, opening = tuple(facts["hand"]), tuple(facts["opening"])
    resting = tuple((index, smallest) for index, smallest in facts.get("resting", ()))
    objects = tuple(tuple(places) for places in facts["objects"])
    for index in itertools.chain(hand, opening, *objects, (index for index, _ in resting)):
        check_whole("an entry of bodies", index, 0)
        if index >= observations:
            raise InvalidInputError(f"bodies name observation {index} of {observations}")
    if {len(places) for places in objects} != {len(hand)} or len(facts["grip"]) != len(hand):
        raise InvalidInputError("hand, grip and objects of bodies differ in their axes")
    for number in (*facts["grip"], *(smallest for _, smallest in resting)):
        check_number("a length of bodies", number, -1e6, 1e6)
    return Bodies(hand, tuple(facts["grip"]), opening, objects, resting)


def _plain(value: Any) -> Any:
    """`value` as it looks after a trip through JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
