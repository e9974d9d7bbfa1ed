"""Configs of everlearn 0.1, whose options had one flat list of names.

They are read so that old results stay readable. An old run cannot be resumed: its snapshots belong
to the code of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from everlearn.support.errors import InvalidInputError

REMOVED = (
    *("minimum_deviation", "execute", "mean_candidate", "population_decay"),
    *("onset_weight", "place_gain", "ridge_growth"),
)
"""Options that are gone; no stored run had another value than the default."""

_PLANNER = (
    "candidates",
    "horizon",
    "iterations",
    "elites",
    "noise_beta",
    "deviation",
    "kept_elites",
    "momentum",
    "discount",
    "final_weight",
)
_ABSENT: dict[Any, tuple[str, ...]] = {
    "none": ("command_gain", "displacement_gain", "thing_gain"),
    "history": ("command_gain", "thing_gain"),
}
"""Options that stood in every list, whatever the memory was."""

_PLANNING = {
    "memory": "memory",
    "command_gain": "memory.command_gain",
    "displacement_gain": "memory.displacement_gain",
    "thing_gain": "memory.object_gain",
    "patience": "escape.patience",
    "progress": "escape.progress",
    "burst": "escape.burst",
    "success_bonus": "objective.success_bonus",
    "rest": "observation.rest",
    "deadline_ms": "deadline_ms",
    "planner": "planner",
    **{name: f"planner.{name}" for name in _PLANNER},
}
_STRATEGY = (
    *("capacity", "strength", "variant", "decay", "fisher_samples", "fisher_floor"),
    *("c", "xi", "expected_tasks"),
)
"""Names of settings of strategies; the others of a network are the model's."""

BOUNDARIES = (
    "scripted",
    *("mlp-finetune", "mlp-ewc", "mlp-si", "mlp-packnet"),
    *("sac-finetune", "sac-ewc", "sac-packnet"),
)
"""Agents of that version that were told when a task changes."""

NAMES = ("scripted", "mlp-packnet", "sac-packnet")
"""Of these, those that were told which task it is in evaluation too."""


def upgraded(values: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the fields of a config of version 1 as version 2 has them."""
    found = dict(values)
    agent = found.get("agent", "oa")
    for name in ("options", "resolved"):
        table = found.get(name)
        if table is not None:
            if not isinstance(table, Mapping):
                raise InvalidInputError(f"{source}: {name} is {table!r}; expected an object")
            found[name] = {
                option_path(str(agent), key): _value(key, value)
                for key, value in table.items()
                if key not in REMOVED and key not in _ABSENT.get(table.get("memory"), ())
            }
    if "checkpoint_seconds" in found:
        found["snapshot_seconds"] = found.pop("checkpoint_seconds")
    told = [word for word, names in (("boundaries", BOUNDARIES), ("name", NAMES)) if agent in names]
    options = values.get("resolved") or values.get("options") or {}
    if any(options.get(name) for name in ("task_identity", "multi_head")):
        told = ["boundaries", "name"]
    return {**found, "told": told, "given": given(str(agent), values), "measure": "success"}


def given(agent: str, values: Mapping[str, Any]) -> list[str] | None:
    """Return what an agent of that version was given; None where the run does not say."""
    if not agent.startswith(("oa", "mlp-")):
        return ["script"] if agent == "scripted" else []
    settings = values.get("resolved")
    if not settings:
        return None
    words = {
        "reward function": True,
        "success test": bool(settings.get("success_bonus")),
        "scene": bool(settings.get("local_grids") or settings.get("rest")),
        "command law": settings.get("memory") in ("commands", "motion", "auto")
        or bool(settings.get("patience")),
    }
    return [word for word, was_given in words.items() if was_given]


def _value(name: str, value: Any) -> Any:
    """Return the value of an option as it is written today."""
    if name == "rest":
        return bool(value)
    if name == "bootstrap_through_success":
        return "continue" if value else "zero"
    return value


def option_path(agent: str, name: str) -> str:
    """Return the dotted path of an option that had `name` in the flat list of `agent`."""
    if name == "bootstrap_through_success":
        return "after_success"
    if agent.startswith("sac-"):
        return f"strategy.{name}" if name in _STRATEGY else name
    if agent.startswith("mlp-"):
        if name in _PLANNING:
            return _PLANNING[name]
        return f"model.strategy.{name}" if name in _STRATEGY else f"model.{name}"
    if agent.startswith("oa"):
        return _PLANNING.get(name, f"model.{name}")
    return name
