"""What the files of planning agents hold: all that they know, or only what acting needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from everlearn.interfaces import EnvironmentFacts, State
from everlearn.planning.blueprint import Blueprint
from everlearn.planning.config import PlanningAgentConfig
from everlearn.planning.repeat import RepeatedAction
from everlearn.planning.structure import StructureCounter
from everlearn.planning.value import ValueMap
from everlearn.support.archive import check_arrays, part_of
from everlearn.support.errors import InvalidInputError
from everlearn.support.settings import values_of, with_options
from everlearn.support.structure import Structure

if TYPE_CHECKING:
    from everlearn.planning.agent import PlanningAgent

Arrays = dict[str, npt.NDArray[Any]]

KIND, VERSION = "everlearn-planning-agent", 1
EXPORT_KIND, EXPORT_VERSION = "everlearn-exported-agent", 1


def agent_state(agent: PlanningAgent) -> State:
    """Return everything that `agent` knows, and its settings, for `restore_agent`."""
    model_arrays, model_meta = agent.model.state()
    planner_arrays, planner_meta = agent.planner.state()
    value_arrays, value_meta = _value_state(agent)
    structure_arrays, structure_meta = _structure_state(agent)
    spaces_of, made_of = _blueprint_state(agent)
    arrays = {
        **_under("model/", model_arrays),
        **_under("planner/", planner_arrays),
        **value_arrays,
        **structure_arrays,
        **spaces_of,
    }
    if agent._exported_still is not None:
        arrays["agent/still"] = agent._exported_still
    if agent._memory_state is not None:
        arrays["agent/memory"] = np.asarray(agent._memory_state)
    facts = {
        "steps": agent.steps,
        "episodes": agent.episodes,
        "learns_reward": agent.learns_reward,
        "rewards": agent._rewards,
        "repeated": agent._repeated.state(),
        "values": value_meta,
        "structure": structure_meta,
        "escape": None if agent.escape is None else agent.escape.state(),
        **made_of,
    }
    return arrays, {"model": model_meta, "planner": planner_meta, "agent": facts}


def restore_agent(agent: PlanningAgent, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Put an `agent_state` into `agent`; on bad input raise and change nothing."""
    # What can fail comes first, on copies; the model, which replaces itself or raises, is the last
    # that may refuse.
    stored = meta["agent"]
    planner = agent.planner.spawn(0)
    planner.restore(part_of(arrays, "planner/"), meta["planner"])
    steps, episodes = int(stored["steps"]), int(stored["episodes"])
    escape = None if agent.escape is None else agent.escape.spawn(0)
    if escape is not None:
        escape.restore(stored["escape"])
    learns_reward, model = bool(stored["learns_reward"]), agent.model
    if learns_reward != agent.learns_reward and agent.blueprint is not None:
        model = agent.blueprint.model(learns_reward)
    repeated = RepeatedAction(agent._repeated.times)
    if "repeated" in stored:
        entries = agent._size + (model.inputs.unread if learns_reward else 0)
        repeated.restore(stored["repeated"], entries, agent.action_space.shape[0])
    rewards = stored.get("rewards")
    rewards = None if rewards is None else (float(rewards[0]), float(rewards[1]))
    values = _restored_values(agent, model, arrays, stored.get("values"))
    counter, found = _restored_structure(agent, arrays, stored.get("structure"))
    still = _checked_still(agent, arrays)
    state = arrays.get("agent/memory")
    if state is not None:
        check_arrays({"memory": state}, {"memory": ("f", (model.memory.size,))})
    model.restore(part_of(arrays, "model/"), meta["model"])
    # After the model, whose scale of the inputs places the landmarks; checked before it.
    if values is not None:
        values.restore(part_of(arrays, "values/"), stored["values"])
    agent.model, agent.learns_reward, agent.values = model, learns_reward, values
    if agent._objective is not None:
        agent._planned = agent._maximised(agent._objective)
    agent.planner, agent.escape = planner, escape
    agent.steps, agent.episodes = steps, episodes
    agent._repeated, agent._rewards = repeated, rewards
    agent._counter, agent._exported_structure = counter, found
    agent._exported_still = still
    agent._memory_state = state
    agent.last_plan = None


def exported_state(agent: PlanningAgent) -> State:
    """Return what acting needs, for `restore_exported`."""
    if agent.blueprint is None:
        raise InvalidInputError(
            "an agent that was given a model and a planner cannot be exported; make it with "
            "build or for_env"
        )
    if not hasattr(agent.model, "exported_state"):
        raise InvalidInputError(
            f"a model of {type(agent.model).__name__} has no weights to export; use save"
        )
    model_arrays, model_meta = agent.model.exported_state()
    spaces_of, made_of = _blueprint_state(agent)
    value_arrays, value_meta = _value_state(agent)
    still = agent.resting_limits()
    facts = {
        "steps": agent.steps,
        "learns_reward": agent.learns_reward,
        "values": value_meta,
        "structure": agent.structure.to_json(),
        **made_of,
    }
    arrays = {**spaces_of, **_under("model/", model_arrays), **value_arrays}
    if still is not None:
        arrays["agent/still"] = still
    return arrays, {"model": model_meta, "agent": facts}


def restore_exported(agent: PlanningAgent, arrays: Arrays, meta: dict[str, Any]) -> None:
    """Put an `exported_state` into `agent`, which was made from the same file."""
    stored = meta["agent"]
    steps = stored["steps"]
    if type(steps) is not int or steps < 1:
        raise InvalidInputError(f"an exported agent cannot have learned {steps!r} steps")
    learns_reward = bool(stored["learns_reward"])
    model = cast("Blueprint", agent.blueprint).model(learns_reward)
    if not hasattr(model, "freeze"):
        raise InvalidInputError(f"a {type(model).__name__} cannot have been exported")
    model.freeze()
    model.restore(part_of(arrays, "model/"), meta["model"])
    values = _restored_values(agent, model, arrays, stored.get("values"))
    found = stored.get("structure")
    agent._exported_still = _checked_still(agent, arrays)
    agent.model, agent.learns_reward, agent.steps = model, learns_reward, steps
    agent.values = values
    agent._exported_structure = Structure() if found is None else Structure.from_json(found)


def stored_blueprint(arrays: Arrays, stored: dict[str, Any], threads: int | None) -> Blueprint:
    """Return what the agent of a file was made of."""
    if stored["config"] is None:
        raise InvalidInputError(
            "the agent was made from a model and a planner; make it the same way again "
            "and load the file into it"
        )
    observations, actions = (
        spaces.Box(low, arrays[f"{name}/high"], dtype=cast("Any", low.dtype))
        for name in ("observation_space", "action_space")
        for low in [arrays[f"{name}/low"]]
    )
    config = with_options(PlanningAgentConfig(), stored["config"])
    facts = EnvironmentFacts.from_json(stored["facts"])
    return Blueprint(config, observations, actions, facts, int(stored["seed"]), threads)


def _under(prefix: str, arrays: Arrays) -> Arrays:
    return {f"{prefix}{name}": array for name, array in arrays.items()}


def _blueprint_state(agent: PlanningAgent) -> State:
    """Spaces and settings, as `stored_blueprint` reads them."""
    arrays: Arrays = {}
    for name in ("observation_space", "action_space"):
        space = getattr(agent, name)
        arrays |= {f"{name}/low": space.low, f"{name}/high": space.high}
    made = agent.blueprint
    return arrays, {
        "config": None if made is None else values_of(made.config),
        "facts": None if made is None else made.facts.to_json(),
        "seed": None if made is None else made.seed,
    }


def _value_state(agent: PlanningAgent) -> tuple[Arrays, dict[str, Any] | None]:
    """Arrays and facts of the value function; none and None without one."""
    if agent.values is None:
        return {}, None
    arrays, meta = agent.values.state()
    return _under("values/", arrays), meta


def _restored_values(
    agent: PlanningAgent, model: Any, arrays: Arrays, meta: Any
) -> ValueMap | None:
    """Return the value function over states of `model` with what `_value_state` returned."""
    values = None if meta is None or agent.blueprint is None else agent.blueprint.values(model)
    if values is not None:
        values.restore(part_of(arrays, "values/"), meta)
    return values


def _checked_still(agent: PlanningAgent, arrays: Arrays) -> npt.NDArray[Any] | None:
    """Return what an exported agent holds still, if it counted that."""
    still = arrays.get("agent/still")
    if still is not None:
        check_arrays({"still": still}, {"still": ("f", (agent._size,))})
        if not (still >= 0).all():
            raise InvalidInputError("smallest changes that an agent believes in are below 0")
    return still


def _structure_state(agent: PlanningAgent) -> State:
    """Arrays and facts of what was counted, or only what an exported agent knows."""
    if agent._exported_structure is not None:
        return {}, {"found": agent._exported_structure.to_json()}
    arrays, meta = agent._counter.state()
    return _under("structure/", arrays), meta


def _restored_structure(
    agent: PlanningAgent, arrays: Arrays, meta: dict[str, Any] | None
) -> tuple[StructureCounter, Structure | None]:
    """Return what `_structure_state` returned; an older file has none and counts from 0."""
    counter = agent._new_counter()
    if meta is None:
        return counter, None
    if "found" in meta:
        return counter, Structure.from_json(meta["found"])
    counter.restore(part_of(arrays, "structure/"), meta)
    return counter, None
