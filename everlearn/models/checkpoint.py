"""The whole online model as arrays and facts, and back, to the bit."""

from __future__ import annotations

import itertools
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.archive import check_arrays, load_archive, reading, save_archive
from everlearn.checks import check_number, check_whole
from everlearn.errors import InvalidInputError
from everlearn.models.memory import build_memory
from everlearn.protocols import Bodies

if TYPE_CHECKING:
    from everlearn.models.ftl import OnlineWorldModel
    from everlearn.models.imagining import ImaginingModel

KIND, VERSION = "online-world-model", 1

Arrays = dict[str, npt.NDArray[Any]]

PENDING = ("obs", "action", "next_obs", "memory")
"""Parts of a transition kept during the warm-up."""

LIVE_SETTINGS = ("threads", "max_memory_gb")
"""Settings that a restored model may have otherwise than the saved one."""


def model_state(model: OnlineWorldModel) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and JSON facts of `model`; see `OnlineWorldModel.state`."""
    learner, size = model.learner, model.inputs.observations
    statistics = learner.statistics
    cells = statistics.cells.copy()
    arrays: Arrays = {
        "cells": cells,
        "products": statistics.packed(),
        "targets": statistics.targets[: statistics.used, :size].copy(),
        "weights": learner.weights[cells, :size],
        "projection": model.encoding.projection[:, : model.encoding.inputs + 1].copy(),
        "centre": model.inputs.scaling.centre.copy(),
        "multiplier": model.inputs.scaling.multiplier.copy(),
        "previous": learner.previous.copy(),
        "carried": learner.carried[:, :size].copy(),
    }
    arrays |= space_arrays(model)
    for i, (name, width) in enumerate(zip(PENDING, _widths(model), strict=True)):
        parts = [kept[i] for kept in model.pending]
        arrays[f"pending/{name}"] = np.concatenate(parts) if parts else np.zeros((0, width))
    meta = {
        "config": asdict(model.config),
        "memory": memory_facts(model),
        "still": still_fact(model),
        "bodies": None if model.bodies is None else asdict(model.bodies),
        "steps": model.steps,
        "frozen": model.inputs.scaling.frozen,
        "previous_ridge": learner.previous_ridge,
        "fallbacks": learner.solver.fallbacks,
    }
    return arrays, meta


def restore_model(model: OnlineWorldModel, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Put a state into `model`, after checking that it fits; see `OnlineWorldModel.restore`."""
    _check_facts(meta)
    check_fits(model, arrays, meta)
    _check_arrays(model, arrays)
    size = model.inputs.observations
    learner = model.learner
    # The type that learning had reached, which need not be this model's at present.
    dtype = arrays["products"].dtype
    statistics = learner.empty_statistics(dtype)
    statistics.unpack(arrays["cells"], arrays["products"], arrays["targets"])
    # Nothing below can fail: the model is either the old one or wholly the new one.
    learner.statistics = statistics
    learner.retype(dtype)
    learner.weights[:] = 0
    learner.weights[arrays["cells"], :size] = arrays["weights"]
    learner.table[:] = learner.weights
    learner.forget_previous()
    carried = np.zeros((len(arrays["previous"]), learner.width))
    carried[:, :size] = arrays["carried"]
    learner.remember(arrays["previous"].copy(), carried, float(meta["previous_ridge"]))
    learner.solver.fallbacks = int(meta["fallbacks"])
    learner.samples = int(meta["steps"])
    model.encoding.set_projection(arrays["projection"])
    scaling = model.inputs.scaling
    scaling.centre, scaling.multiplier = arrays["centre"].copy(), arrays["multiplier"].copy()
    scaling.frozen = bool(meta["frozen"])
    kept = [arrays[f"pending/{name}"].copy() for name in PENDING]
    model.pending = [(kept[0], kept[1], kept[2], kept[3])] if len(kept[0]) else []


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


def check_fits(model: Any, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Refuse a state that was saved with other settings, another memory or other spaces."""
    check_settings_fit(model, arrays, meta)
    bodies = getattr(model, "bodies", None)
    saved = _bodies(meta.get("bodies"), model.inputs.observations)
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


def _widths(model: OnlineWorldModel) -> tuple[int, ...]:
    """Numbers in each part of a transition, in the order of `PENDING`."""
    size = model.inputs.observations
    return size, model.inputs.actions, size, model.memory.size


def _check_facts(meta: dict[str, Any]) -> None:
    """Refuse facts of a type that they never have."""
    kinds: dict[str, tuple[type, ...]] = {
        "config": (dict,),
        "memory": (dict,),
        "steps": (int,),
        "frozen": (bool,),
        "previous_ridge": (int, float),
        "fallbacks": (int,),
    }
    for name, kind in kinds.items():
        if type(meta.get(name)) not in kind:
            raise InvalidInputError(f"{name!r} of a state is {meta.get(name)!r}; not usable")
    if min(meta["steps"], meta["fallbacks"]) < 0:
        raise InvalidInputError("a state counts steps and fallbacks from 0 on")


def _check_arrays(model: OnlineWorldModel, arrays: Arrays) -> None:
    """Refuse arrays that do not fit the model or each other.

    The compiled kernels trust every index, so nothing may get past this.
    """
    size, total = model.inputs.observations, model.encoding.cells
    used, previous, kept = (
        len(np.atleast_1d(arrays.get(name, ()))) for name in ("cells", "previous", "pending/obs")
    )
    rows, inputs = model.encoding.features * model.encoding.grid_dim, model.encoding.inputs
    # A column for the constant input came later: files from before do without.
    columns = inputs + (arrays.get("projection", np.zeros((0, 0))).shape[-1:] == (inputs + 1,))
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "cells": ("i", (used,)),
        "products": ("f", (used * (used + 1) // 2,)),
        "targets": ("f", (used, size)),
        "weights": ("f", (used, size)),
        "projection": ("f", (rows, columns)),
        "centre": ("f", (inputs,)),
        "multiplier": ("f", (inputs,)),
        "previous": ("i", (previous,)),
        "carried": ("f", (previous, size)),
    }
    expected |= {name: ("f", bound.shape) for name, bound in space_arrays(model).items()}
    expected |= {
        f"pending/{name}": ("f", (kept, width))
        for name, width in zip(PENDING, _widths(model), strict=True)
    }
    check_arrays(arrays, expected)
    cells, last = arrays["cells"], arrays["previous"]
    for name, index in (("cells", cells), ("previous", last)):
        inside = ((index >= 0) & (index < total)).all()
        if index.dtype != np.int64 or not inside or len(np.unique(index)) != len(index):
            raise InvalidInputError(f"{name!r} of a state are not different cells of 0 to {total}")
    if np.setdiff1d(last, cells).size:
        raise InvalidInputError("'previous' of a state has cells that were never in use")
    if arrays["products"].dtype not in (np.float32, np.float64):
        raise InvalidInputError("'products' of a state are neither float32 nor float64")
    for name in ("projection", "centre", "multiplier"):
        if not np.isfinite(arrays[name]).all():
            raise InvalidInputError(f"{name!r} of a state has numbers that are not finite")


def _plain(value: Any) -> Any:
    """`value` as it looks after a trip through JSON."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def save_model(model: OnlineWorldModel, path: str | Path) -> None:
    """Write `model` to one file, atomically."""
    arrays, meta = model_state(model)
    save_archive(path, KIND, VERSION, arrays, meta)


def load_model(kind: type[OnlineWorldModel], path: str | Path) -> OnlineWorldModel:
    """Make the model of class `kind` that was saved at `path`."""
    arrays, meta = load_archive(path, KIND, VERSION)
    with reading(path, "model"):
        observation_space = _box(arrays["space/low"], arrays["space/high"])
        action_space = _box(arrays["space/action_low"], arrays["space/action_high"])
        memory = build_memory(
            meta["memory"]["name"], observation_space, action_space, **meta["memory"]["options"]
        )
        bodies = _bodies(meta.get("bodies"), observation_space.shape[0])
        model = kind(
            observation_space,
            action_space,
            memory=memory,
            bodies=bodies,
            still=meta.get("still"),
            **meta["config"],
        )
        restore_model(model, arrays, meta)
    return model


def _bodies(facts: Any, observations: int) -> Bodies | None:
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


def _box(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> spaces.Box:
    return spaces.Box(low, high, dtype=low.dtype.type)
