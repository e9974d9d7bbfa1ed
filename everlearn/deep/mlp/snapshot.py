"""The whole deep model as arrays and facts, and back, to the bit."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from everlearn.deep.mlp.normaliser import Normaliser
from everlearn.interfaces import State
from everlearn.support.archive import part_of
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.world_model.snapshot import check_fits, memory_facts, space_arrays, still_fact

if TYPE_CHECKING:
    from everlearn.deep.mlp.model import MLPWorldModel

NORMALISED = ("inputs", "changes")
"""What a model has a normaliser for."""


def model_state(model: MLPWorldModel) -> State:
    """Arrays and JSON facts of `model`; see `MLPWorldModel.state`."""
    arrays = space_arrays(model)
    meta: dict[str, Any] = {
        "config": asdict(model.config),
        "memory": memory_facts(model),
        "still": still_fact(model),
        "strategy": _strategy_facts(model),
        "seed": model.seed,
        "task": model.task,
        "steps": model.steps,
        "trainings": model.trainings,
        "frozen": list(model.frozen),
        "generator": model.generator.bit_generator.state,
    }
    for name, part in _parts(model).items():
        part_arrays, meta[name] = part.state()
        arrays |= {f"{name}/{key}": array for key, array in part_arrays.items()}
    for place, pair in enumerate([model.normalisers, *model.frozen.values()]):
        for kind, normaliser in zip(NORMALISED, pair, strict=True):
            both = np.stack([normaliser.centre, normaliser.deviation])
            arrays[f"normaliser/{place}/{kind}"] = both
    return arrays, meta


def restore_model(
    model: MLPWorldModel, arrays: dict[str, npt.NDArray[Any]], meta: dict[str, Any]
) -> None:
    """Put a state into `model`, a fresh one: if something does not fit it is left half done."""
    check_fits(model, arrays, meta)
    if meta["strategy"] != _strategy_facts(model):
        raise InvalidInputError(
            f"the state was saved with strategy {meta['strategy']}, this model has "
            f"{_strategy_facts(model)}"
        )
    if meta["seed"] != model.seed:
        raise InvalidInputError(
            f"the state was saved with seed {meta['seed']}, this model has {model.seed}"
        )
    names = meta["frozen"] if meta["task"] is None else [*meta["frozen"], meta["task"]]
    if not all(isinstance(name, str) for name in names):
        raise InvalidInputError(f"tasks of a state have names; got {names!r}")
    for counter in ("steps", "trainings"):
        check_whole(f"{counter} of a state", meta[counter], 0)
    for name, part in _parts(model).items():
        part.restore(part_of(arrays, f"{name}/"), meta[name])
    pairs = []
    for place in range(1 + len(meta["frozen"])):
        inputs, changes = (Normaliser(*arrays[f"normaliser/{place}/{kind}"]) for kind in NORMALISED)
        pairs.append((inputs, changes))
    model.normalisers = pairs[0]
    model.frozen = dict(zip(meta["frozen"], pairs[1:], strict=True))
    model.generator.bit_generator.state = meta["generator"]
    model.task = meta["task"]
    model.steps, model.trainings = int(meta["steps"]), int(meta["trainings"])


def _parts(model: MLPWorldModel) -> dict[str, Any]:
    """Return what saves and restores itself; the network comes before its protection."""
    return {
        "network": model.trainer,
        "protection": model.protection,
        "storage": model.storage,
        "input_moments": model.moments[0],
        "change_moments": model.moments[1],
    }


def _strategy_facts(model: MLPWorldModel) -> dict[str, Any]:
    return {"name": model.strategy.name, "settings": model.strategy.settings()}
