"""The online model as arrays and a JSON dictionary, and back, to the bit."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import State
from everlearn.online import interval_state, relearning
from everlearn.online.interval_state import check_record, record_state, restore_record
from everlearn.online.intervals import ErrorRecord
from everlearn.online.relearning import Relearning
from everlearn.support.archive import check_arrays, load_archive, part_of
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


def model_state(
    model: OnlineWorldModel, learner: State | None = None, *, kept: bool = True
) -> State:
    """Arrays and JSON dictionary of `model`; see `OnlineWorldModel.state`.

    `learner` takes the place of its learner's state, and without `kept` the scale of inputs is
    final: transitions that could still change it are left out.
    """
    learned, counts = model.learner.state() if learner is None else learner
    arrays: Arrays = {
        **learned,
        "projection": model.encoding.projection[:, : model.encoding.inputs + 1].copy(),
        "centre": model.inputs.scaling.centre.copy(),
        "multiplier": model.inputs.scaling.multiplier.copy(),
        "seen": np.stack([model.seen_low, model.seen_high]),
        "change_squares": model.change_squares.copy(),
    }
    arrays |= space_arrays(model)
    relearned: State = ({}, {})
    if model.relearning is not None and kept:
        relearned = model.relearning.state()
        arrays |= relearned[0]
    intervals: dict[str, Any] | None = None
    if model.errors is not None:
        kept_errors, intervals = record_state(model.errors, learning=learner is None)
        arrays |= kept_errors
    for i, (name, width) in enumerate(zip(PENDING, _widths(model), strict=True)):
        parts = [transitions[i] for transitions in model.pending] if kept else []
        arrays[f"pending/{name}"] = np.concatenate(parts) if parts else np.zeros((0, width))
    meta = {
        "version": VERSION,
        "config": asdict(model.config),
        "seed": model.seed,
        "unread": model.inputs.unread,
        "novelty": model.novelty,
        "memory": memory_facts(model),
        "still": still_fact(model),
        "bodies": None if model.bodies is None else asdict(model.bodies),
        "frozen": model.inputs.scaling.frozen or not kept,
        "changes_seen": model.changes_seen,
        "relearned": relearned[1] or None,
        "intervals": intervals,
        **counts,
    }
    return arrays, meta


def restore_model(model: OnlineWorldModel, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Put a state into `model`, after checking that it fits; see `OnlineWorldModel.restore`."""
    _check_version(meta)
    _check_facts(meta)
    check_fits(model, arrays, meta)
    mine = {"seed": model.seed, "unread": model.inputs.unread, "novelty": model.novelty}
    for name, value in mine.items():
        if meta.get(name, False) != value:
            raise InvalidInputError(
                f"the state was saved with {name}={meta.get(name)}, this model has {value}; make a "
                "model with the same"
            )
    parts = (interval_state.PREFIX, relearning.PREFIX)  # checked by those who read them
    _check_arrays(model, {n: a for n, a in arrays.items() if not n.startswith(parts)})
    again = _relearning(model, arrays, meta.get("relearned"))
    # Files from before there were intervals, or of models without, do without.
    errors = None if model.errors is None else ErrorRecord(model)
    if errors is not None and meta.get("intervals") is not None:
        check_record(errors, arrays, meta["intervals"], model)
    model.learner.restore(
        {name: array for name, array in arrays.items() if name in model.learner.ARRAYS}, meta
    )
    # Nothing below can fail: the model is either the old one or wholly the new one.
    model.encoding.set_projection(arrays["projection"])
    scaling = model.inputs.scaling
    scaling.centre, scaling.multiplier = arrays["centre"].copy(), arrays["multiplier"].copy()
    scaling.frozen = bool(meta["frozen"])
    if model.novelty:
        model.clear_novelty()
        model.mark_novelty(arrays["cells"])
    if errors is not None and meta.get("intervals") is not None:
        restore_record(errors, arrays, meta["intervals"], model)
    model.errors = errors
    model.seen_low, model.seen_high = arrays.get("seen", _nothing_seen(model)).copy()
    model.set_limits()
    model.change_squares = np.zeros(model.inputs.read)
    model.change_squares[:] = arrays.get("change_squares", 0.0)
    model.changes_seen = meta.get("changes_seen", 0)
    model.relearning = again
    kept = [arrays[f"pending/{name}"].copy() for name in PENDING]
    model.pending = [(kept[0], kept[1], kept[2], kept[3])] if len(kept[0]) else []


def _relearning(model: OnlineWorldModel, arrays: Arrays, facts: Any) -> Relearning | None:
    """Return what was learning again with another scale, if anything was."""
    if not isinstance(facts, dict):
        if facts is not None or part_of(arrays, relearning.PREFIX):
            raise InvalidInputError(f"what a state learned again is {facts!r}; expected facts")
        return None
    kept = len(arrays["pending/obs"])
    return Relearning.restored(model.fresh_learner(), arrays, facts, model.encoding.inputs, kept)


def _nothing_seen(model: OnlineWorldModel) -> npt.NDArray[np.float64]:
    low = np.full(model.inputs.read, np.inf)
    return np.stack([low, -low])


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
        "frozen": (bool,),
    }
    if type(meta.get("changes_seen", 0)) is not int or meta.get("changes_seen", 0) < 0:
        raise InvalidInputError(f"a state cannot have seen {meta['changes_seen']!r} changes")
    for name, kind in kinds.items():
        if type(meta.get(name)) not in kind:
            raise InvalidInputError(f"{name!r} of a state is {meta.get(name)!r}; not usable")


def _check_arrays(model: OnlineWorldModel, arrays: Arrays) -> None:
    """Refuse arrays that do not fit the model; its learner checks those that are its own."""
    kept = len(np.atleast_1d(arrays.get("pending/obs", ())))
    rows, inputs = model.encoding.features * model.encoding.grid_dim, model.encoding.inputs
    # A column for the constant input came later: files from before do without.
    columns = inputs + (arrays.get("projection", np.zeros((0, 0))).shape[-1:] == (inputs + 1,))
    expected: dict[str, tuple[str, tuple[int, ...]]] = {
        "projection": ("f", (rows, columns)),
        "centre": ("f", (inputs,)),
        "multiplier": ("f", (inputs,)),
    }
    # Files from before imagination had limits, or samples had weights, do without.
    read = model.inputs.read
    late: dict[str, tuple[str, tuple[int, ...]]] = {
        "seen": ("f", (2, read)),
        "change_squares": ("f", (read,)),
    }
    expected |= {name: shape for name, shape in late.items() if name in arrays}
    expected |= {name: ("f", bound.shape) for name, bound in space_arrays(model).items()}
    expected |= {
        f"pending/{name}": ("f", (kept, width))
        for name, width in zip(PENDING, _widths(model), strict=True)
    }
    others = {name: array for name, array in arrays.items() if name not in model.learner.ARRAYS}
    check_arrays(others, expected)
    for name in ("projection", "centre", "multiplier", *late):
        if name != "seen" and not np.isfinite(arrays.get(name, np.zeros(0))).all():
            raise InvalidInputError(f"{name!r} of a state has numbers that are not finite")


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
            novelty=meta.get("novelty", False),
            **meta["config"],
        )
        restore_model(model, arrays, meta)
    return model


def _box(low: npt.NDArray[Any], high: npt.NDArray[Any]) -> spaces.Box:
    return spaces.Box(low, high, dtype=low.dtype.type)
