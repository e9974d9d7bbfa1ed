"""The online model as arrays and a JSON dictionary, and back, to the bit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.support.archive import check_arrays, load_archive, save_archive
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import reading
from everlearn.world_model.memory import Memory, restored_memory
from everlearn.world_model.snapshot import (
    Arrays,
    check_fits,
    memory_facts,
    space_arrays,
    still_fact,
    stored_bodies,
)

if TYPE_CHECKING:
    from everlearn.online.model import OnlineWorldModel

KIND, VERSION = "online-world-model", 2

PENDING = ("obs", "action", "next_obs", "memory")
"""Parts of a transition kept during the warm-up."""


def model_state(model: OnlineWorldModel) -> tuple[Arrays, dict[str, Any]]:
    """Arrays and JSON dictionary of `model`; see `OnlineWorldModel.state`."""
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
        "version": VERSION,
        "config": asdict(model.config),
        "seed": model.seed,
        "unread": model.inputs.unread,
        "memory": memory_facts(model),
        "still": still_fact(model),
        "bodies": None if model.bodies is None else asdict(model.bodies),
        "steps": model.steps,
        "frozen": model.inputs.scaling.frozen,
        "fallbacks": learner.solver.fallbacks,
    }
    return arrays, meta


def restore_model(model: OnlineWorldModel, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Put a state into `model`, after checking that it fits; see `OnlineWorldModel.restore`."""
    _check_version(meta)
    _check_facts(meta)
    check_fits(model, arrays, meta)
    for name, mine in (("seed", model.seed), ("unread", model.inputs.unread)):
        if meta[name] != mine:
            raise InvalidInputError(
                f"the state was saved with {name}={meta[name]}, this model has {mine}; make a "
                "model with the same"
            )
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
    learner.remember(arrays["previous"].copy(), carried)
    learner.solver.fallbacks = int(meta["fallbacks"])
    learner.samples = int(meta["steps"])
    model.encoding.set_projection(arrays["projection"])
    scaling = model.inputs.scaling
    scaling.centre, scaling.multiplier = arrays["centre"].copy(), arrays["multiplier"].copy()
    scaling.frozen = bool(meta["frozen"])
    kept = [arrays[f"pending/{name}"].copy() for name in PENDING]
    model.pending = [(kept[0], kept[1], kept[2], kept[3])] if len(kept[0]) else []


def _widths(model: OnlineWorldModel) -> tuple[int, ...]:
    """Numbers in each part of a transition, in the order of `PENDING`."""
    size = model.inputs.observations
    return size, model.inputs.actions, size, model.memory.size


def _check_version(meta: dict[str, Any]) -> None:
    if meta.get("version") != VERSION:
        raise InvalidInputError(
            f"the state has version {meta.get('version', 1)!r} of the online model, this everlearn "
            f"reads version {VERSION}: settings and memories were named otherwise before. Load it "
            "with the everlearn that saved it, or train again"
        )


def _check_facts(meta: dict[str, Any]) -> None:
    """Refuse facts of a type that they never have."""
    kinds: dict[str, tuple[type, ...]] = {
        "config": (dict,),
        "memory": (dict,),
        "seed": (int,),
        "unread": (int,),
        "steps": (int,),
        "frozen": (bool,),
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


def save_model(model: OnlineWorldModel, path: str | Path) -> None:
    """Write `model` to one file, atomically."""
    arrays, meta = model_state(model)
    save_archive(path, KIND, VERSION, arrays, meta)


def load_model(
    model_class: type[OnlineWorldModel], path: str | Path, memory: Memory | None
) -> OnlineWorldModel:
    """Make the model that was saved at `path`; see `OnlineWorldModel.load`."""
    arrays, meta = load_archive(path, KIND, VERSION)
    with reading(path, "model"):
        _check_version(meta)
        observation_space = _box(arrays["space/low"], arrays["space/high"])
        action_space = _box(arrays["space/action_low"], arrays["space/action_high"])
        read = observation_space.shape[0] - meta["unread"]
        if memory is None:
            memory = restored_memory(
                meta["memory"]["name"],
                meta["memory"]["options"],
                _box(observation_space.low[:read], observation_space.high[:read]),
                action_space,
            )
        model = model_class(
            observation_space,
            action_space,
            seed=meta["seed"],
            memory=memory,
            bodies=stored_bodies(meta.get("bodies"), read),
            still=meta.get("still"),
            unread=meta["unread"],
            **meta["config"],
        )
        restore_model(model, arrays, meta)
    return model


def _box(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> spaces.Box:
    return spaces.Box(low, high, dtype=low.dtype.type)
