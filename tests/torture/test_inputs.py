"""Generated nonsense for everything public: refused with a documented error, or harmless.

What is refused must leave no trace. A value that happens to be good may be taken; only refused
ones are counted.
"""

from __future__ import annotations

import copy
import dataclasses
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everlearn.agents import AGENTS, OnlineAgent, make_agent, run_episode
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.deep.mlp.config import MLPConfig
from everlearn.deep.sac.learner import SACConfig
from everlearn.online import OnlineModelConfig, OnlineWorldModel
from everlearn.planning import CEMConfig, CEMPlanner
from everlearn.planning.config import ObjectiveConfig
from everlearn.planning.escape import EscapeConfig
from everlearn.planning.presets import OA
from everlearn.results import metrics
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.metrics_file import parse_lines
from everlearn.runs.snapshots import RunState
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import EverlearnError
from everlearn.support.settings import parse_options, with_options
from everlearn.sweeps.grid import parse_seeds
from everlearn.sweeps.job import Resources
from tests.online.worlds import ACTIONS, memories, small_model, states_equal, walk
from tests.torture.length import often
from tests.torture.nasty import NESTED, anything, odd_arrays

TASK = "button-press"


@dataclasses.dataclass
class Target:
    """Something public: how to call it with a bad value, and how to look at its state."""

    call: Callable[[str, Any], object]
    places: dict[str, st.SearchStrategy[Any]]
    state: Callable[[], Any] = lambda: None


def _model() -> OnlineWorldModel:
    model = small_model(memory=memories()[1])
    for transition in walk(40, memory=model.memory):
        model.learn(*transition)
    return model


def as_array(bad: Any) -> Any:
    """Something that an archive may hold: an array of whatever type."""
    try:
        return np.asarray(bad)
    except ValueError:  # rows of different lengths
        return np.asarray(repr(bad))


def _replaced(good: dict[str, Any], place: str, bad: Any) -> dict[str, Any]:
    return {**copy.deepcopy(good), place: bad}


def environment() -> Target:
    env = ContinualBenchEnv(TASK)
    env.reset(seed=0)
    state = env.get_state()

    def call(place: str, bad: Any) -> object:
        if place == "action":
            return env.step(bad)
        if place == "seed":
            return env.reset(seed=bad)
        if place == "options":
            return env.reset(options=bad)
        if place == "task":
            return env.reset(options={"task": bad})
        return env.set_state(dataclasses.replace(state, **{place: bad}))

    def look() -> Any:
        now = env.get_state()
        return {name: np.asarray(value).tobytes() for name, value in vars(now).items()}

    sizes = {"physics": state.physics.shape, "observation": (26,), "fingers": (5,), "start": (7,)}
    places = {name: anything(*shape) for name, shape in sizes.items()}
    for name in ("seed", "options", "task", "generator", "opening", "steps", "running"):
        places[name] = NESTED
    return Target(call, {"action": anything(4), **places}, look)


def model_methods() -> Target:
    model = _model()
    obs, action, following = np.zeros(3), np.zeros(2), np.zeros(3)
    good = {
        "learn": {"obs": obs, "action": action, "next_obs": following, "memory": None},
        "predict": {"obs": obs, "action": action, "memory": None},
        "encode": {"obs": obs, "action": action, "memory": None},
        "rollout": {"obs": obs, "actions": np.zeros((3, 4, 2)), "memory": None},
        "learn_batch": {
            "obs": np.zeros((5, 3)),
            "action": np.zeros((5, 2)),
            "next_obs": np.zeros((5, 3)),
            "memory": None,
        },
    }
    shapes = {"obs": (3,), "next_obs": (3,), "action": (2,), "actions": (3, 4, 2), "memory": (2,)}

    def call(place: str, bad: Any) -> object:
        method, name = place.split()
        return getattr(model, method)(**_replaced(good[method], name, bad))

    places = {
        f"{method} {name}": anything(*shapes[name]) for method, g in good.items() for name in g
    }
    return Target(call, places, model.state)


def model_state() -> Target:
    model = _model()
    arrays, meta = model.state()
    places: dict[str, Any] = {f"arrays {name}": anything(*a.shape) for name, a in arrays.items()}
    places |= {f"meta {name}": NESTED for name in meta}

    def call(place: str, bad: Any) -> object:
        kind, name = place.split(maxsplit=1)
        if kind == "meta":
            return model.restore(arrays, _replaced(meta, name, bad))
        return model.restore({**arrays, name: as_array(bad)}, meta)

    return Target(call, places, model.state)


def planner() -> Target:
    model = small_model()
    planner = CEMPlanner(ACTIONS, CEMConfig(candidates=8, elites=3, horizon=3, iterations=1))
    good = {
        "obs": np.zeros(3),
        "objective": lambda obs, action, next_obs: obs[:, 0],
        "memory": None,
        "deadline_ms": None,
    }
    arrays, meta = planner.state()

    def call(place: str, bad: Any) -> object:
        if place in good:
            return planner.plan(model, **_replaced(good, place, bad))
        if place == "returns":
            wrong = {**good, "objective": lambda obs, action, next_obs: bad}
            return planner.plan(model, **wrong)
        if place in arrays:
            return planner.restore({**arrays, place: bad}, meta)
        return planner.restore(arrays, _replaced(meta, place, bad))

    places: dict[str, Any] = {"obs": anything(3), "memory": anything(2), "deadline_ms": NESTED}
    places |= {"returns": anything(24), "mean": anything(3, 2), "elites": anything(1, 2, 2)}
    places |= {"config": NESTED, "generator": NESTED}

    def state() -> Any:
        arrays, meta = planner.state()
        return {name: array.copy() for name, array in arrays.items()}, copy.deepcopy(meta)

    return Target(call, places, state)


def agent() -> Target:
    env = ContinualBenchEnv(TASK)
    planner = {"candidates": 8, "elites": 3, "horizon": 3, "iterations": 1}
    agent = OnlineAgent.for_env(env, model={"features": 8}, planner=planner, threads=1)
    agent.begin_task(TASK, TASKS.get(TASK).objective())
    run_episode(agent, env, max_steps=5)
    obs, action = np.array(env.get_state().observation), np.zeros(4)
    good = {"obs": obs, "action": action, "next_obs": obs, "reward": 0.0, "terminated": False}

    def call(place: str, bad: Any) -> object:
        if place == "act":
            return agent.act(bad)
        if place == "objective":
            return agent.begin_task(TASK, bad)
        return agent.observe(**_replaced(good, place, bad))

    places: dict[str, Any] = {"act": anything(26), "objective": st.none()}
    places |= {"obs": anything(26), "action": anything(4), "next_obs": anything(26)}

    def look() -> Any:
        arrays, meta = agent.model.state()
        planned, facts = agent.planner.state()
        both = {**arrays, **{f"planner/{name}": array.copy() for name, array in planned.items()}}
        return both, [meta, copy.deepcopy(facts), agent.steps, agent.episodes]

    return Target(call, places, look)


def model_free_agent() -> Target:
    env = ContinualBenchEnv(TASK)
    agent: Any = make_agent("sac-coreset", env, 0, hidden=6, batch=4, warm_up=3, random_steps=3)
    run_episode(agent, env, max_steps=5)
    obs, action = np.array(env.get_state().observation), np.zeros(4)
    good = {"obs": obs, "action": action, "next_obs": obs, "reward": 0.0, "terminated": False}

    def call(place: str, bad: Any) -> object:
        if place == "act":
            return agent.act(bad)
        return agent.observe(**_replaced(good, place, bad))

    places: dict[str, Any] = {"act": anything(26), "reward": NESTED, "terminated": NESTED}
    places |= {"obs": anything(26), "action": anything(4), "next_obs": anything(26)}

    def look() -> Any:
        arrays, meta = agent.learner.state()
        kept, facts = agent.storage.state()
        both = {**arrays, **{f"storage/{name}": array for name, array in kept.items()}}
        return both, [meta, facts, agent.steps, agent._acting.bit_generator.state]

    return Target(call, places, look)


def _plain_fields(config: Any) -> dict[str, Any]:
    """Settings of a config that are not configs themselves."""
    names = [item.name for item in dataclasses.fields(config) if item.name != "strategy"]
    return {name: getattr(config, name) for name in names}


def configs() -> Target:
    plain = {
        "run": (RunConfig, json.loads(RunConfig().to_json())),
        "evaluation": (EvaluationSchedule, dataclasses.asdict(EvaluationSchedule())),
        "state": (RunState, dataclasses.asdict(RunState())),
        "resources": (Resources, dataclasses.asdict(Resources())),
        "cem": (CEMConfig, dataclasses.asdict(CEMConfig())),
        "model": (OnlineModelConfig, dataclasses.asdict(OnlineModelConfig())),
        "soft actor-critic": (SACConfig, _plain_fields(SACConfig())),
        "network": (MLPConfig, _plain_fields(MLPConfig())),
        "escape": (EscapeConfig, dataclasses.asdict(EscapeConfig())),
        "objective": (ObjectiveConfig, dataclasses.asdict(ObjectiveConfig())),
    }

    def call(place: str, bad: Any) -> object:
        name, item = place.rsplit(maxsplit=1)
        kind, values = plain[name]
        values = {k: v for k, v in values.items() if k not in ("version", "evaluation")}
        found = kind(**{**values, item: bad})
        # What is accepted must be usable: it survives JSON.
        return RunConfig.from_json(found.to_json()) if kind is RunConfig else found

    places = {f"{name} {item}": NESTED for name, (_, g) in plain.items() for item in g}
    del places["run version"]
    return Target(call, places)


def words() -> Target:
    config = json.loads(RunConfig().to_json())
    calls: dict[str, Callable[[Any], object]] = {
        "registry": AGENTS.get,
        "register": lambda bad: AGENTS.register(bad, AGENTS.get("oa")),
        "unregister": AGENTS.unregister,
        "options": lambda bad: parse_options(OA, [bad]),
        "known option": lambda bad: parse_options(OA, [f"model.ridge={bad}"]),
        "checked option": lambda bad: with_options(OA, {"model.features": bad}),
        "unknown option": lambda bad: with_options(OA, {bad: 1}),
        "seeds": parse_seeds,
        "json": RunConfig.from_json,
        "json values": lambda bad: RunConfig.from_json(json.dumps({**config, **bad})),
        "lines": lambda bad: parse_lines(bad + b"\n", "metrics"),
    }
    text = st.text(max_size=30)
    json_values = st.recursive(
        st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), text),
        lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(text, inside)),
        max_leaves=5,
    )
    fields = st.sampled_from([*config, "evaluation", "other"])
    line = st.dictionaries(
        st.sampled_from(["kind", "episode", "step", "task", "success", "length", "success_rate"]),
        st.one_of(json_values, st.sampled_from(["episode", "eval", "model"])),
    )
    places: dict[str, Any] = dict.fromkeys(calls, text)
    places |= {"json values": st.dictionaries(fields, json_values, min_size=1)}
    places |= {"lines": st.one_of(st.binary(), line.map(json.dumps).map(str.encode))}
    places |= {"registry": NESTED, "register": NESTED}
    return Target(lambda place, bad: calls[place](bad), places, AGENTS.names)


def measures() -> Target:
    times, p, periods = [1.0, 2.0], [[0.5, np.nan], [0.5, 1.0]], [(0, 0.0, 1.0), (1, 1.0, 2.0)]
    calls: dict[str, Callable[[Any], object]] = {
        "ap": metrics.average_performance,
        "online": metrics.regret_online,
        "lengths": lambda bad: metrics.regret_online([True, False], bad),
        "eval p": lambda bad: metrics.regret_eval(times, bad, periods),
        "eval times": lambda bad: metrics.regret_eval(bad, p, periods),
        "forgetting": lambda bad: metrics.forgetting(times, bad, periods),
        "transfer": lambda bad: metrics.forward_transfer(bad, [True], 1),
    }
    places = {name: anything(2, 2) for name in calls}
    return Target(lambda place, bad: calls[place](bad), places)


def archives(folder: Any) -> Target:
    path = folder / "archive"
    save_archive(path, "thing", 1, {"a": np.arange(3.0)}, {})

    def call(place: str, bad: Any) -> object:
        if place == "meta":
            return save_archive(path, "thing", 1, {}, {"fact": bad})
        if place == "array":
            return save_archive(path, "thing", 1, {"a": bad}, {})
        (folder / "other").write_bytes(bad)
        return load_archive(folder / "other", "thing", 1)

    places: dict[str, Any] = {"meta": NESTED, "array": odd_arrays(), "content": st.binary()}
    return Target(call, places, path.read_bytes)


TARGETS = {
    "environment": environment,
    "methods of the model": model_methods,
    "state of the model": model_state,
    "planner": planner,
    "agent": agent,
    "model-free agent": model_free_agent,
    "configs": configs,
    "words and JSON": words,
    "metrics": measures,
    "archives": archives,
}


def _same(before: Any, after: Any) -> bool:
    if isinstance(before, tuple) and isinstance(before[0], dict):
        return states_equal(before, after)
    return bool(before == after)


@pytest.mark.parametrize(
    "examples",
    [60, pytest.param(often(1400, 60), marks=[pytest.mark.torture, pytest.mark.timeout(3000)])],
)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.filterwarnings("ignore")  # NumPy warns about what it is given before it is refused
def test_bad_input_is_refused_and_leaves_no_trace(name, examples, tmp_path, tally):
    make = TARGETS[name]
    target = make(tmp_path) if make is archives else make()
    refused = 0

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(data=st.data())
    def attack(data):
        nonlocal refused, target
        place = data.draw(st.sampled_from(sorted(target.places)), label="place")
        bad = data.draw(target.places[place], label="bad")
        before = target.state()
        try:
            target.call(place, bad)
        except EverlearnError:
            refused += 1
            assert _same(before, target.state()), "a refusal changed something"
        else:  # it was good: start again from what is known
            target = make(tmp_path) if make is archives else make()

    attack()
    tally[f"bad inputs refused: {name}"] += refused
    tally["bad inputs refused, in all"] += refused
    assert refused > examples // 2, f"only {refused} of {examples} were bad"
