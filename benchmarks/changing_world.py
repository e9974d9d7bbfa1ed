"""Errors of a world model in a life whose world changes for a while.

    python -m benchmarks.changing_world --change stiff-door --seed 0 --out FILE

Scripts with noise play a life of two objects, one of which the change is about. The models learn
every step of it, one after the other, and nobody tells them of the change. What is measured is the
error with which a step is predicted *before* it is learned, in the object's own observations while
it moves: of the object that the change is about, and of the other. Blocks of such steps are
averaged: the last before the change, the first after it, and so on.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.continual_bench import observation
from everlearn.continual_bench.changes import Change
from everlearn.continual_bench.life import ContinualLifeEnv
from everlearn.continual_bench.life_tasks import LIFE_SCRIPTS
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.interfaces import EnvironmentFacts, FloatArray
from everlearn.planning.presets import OA

OBJECTS = {
    "stiff-door": ("door", "window"),
    "heavy-block": ("block", "window"),
    "slippery-fingers": ("block", "window"),
    "delay": ("door", "window"),
}
PLACES = {
    "door": slice(observation.DOOR_HANDLE.start, observation.DOOR_ANGLE + 1),
    "window": observation.WINDOW_HANDLE,
    "block": observation.BLOCK_POSITION,
    "hand": observation.HAND,
}
MOVING = 1e-3
"""Change of an object in a step, in metres, from which on it moves."""


def life(change: str, seed: int, start: int, end: int, steps: int) -> list[tuple[Any, ...]]:
    """Transitions of a life: observation, action, next observation, and whether it was put back."""
    env = ContinualLifeEnv(OBJECTS[change], changes=[Change(change, start, end)])
    obs, info = env.reset(seed=seed)
    controller = ScriptedController(info["task"], 0.3, seed, LIFE_SCRIPTS)
    found = []
    while len(found) < steps:
        action = controller.act(obs)
        after, _, _, _, info = env.step(action)
        found.append((obs, action, after))
        obs = after
        if info["visit_over"]:
            for name in info["lost"]:
                obs = env.put_back(name)
            controller = ScriptedController(info["next_task"], 0.3, seed + env.visit, LIFE_SCRIPTS)
    return found


def model_of(**options: Any) -> Any:
    """The world model of the agent ``oa`` in a life."""
    env = ContinualLifeEnv()
    facts = EnvironmentFacts.of(env)
    memory = OA.memory.build(env.observation_space, env.action_space, facts)
    still = OA.observation.still(env.observation_space, facts)
    return replace(OA.model, **options).build(
        env.observation_space,
        env.action_space,
        seed=0,
        threads=1,
        memory=memory,
        bodies=facts.bodies,
        still=still,
    )


def errors(model: Any, transitions: list[tuple[Any, ...]]) -> FloatArray:
    """Error of each step before it is learned, ``[N, S]``."""
    memory = model.memory
    state: FloatArray = np.asarray(memory.start(transitions[0][0][None]))
    found = []
    for obs, action, after in transitions:
        found.append(model.predict(obs, action, state[0]) - after)
        model.learn(obs, action, after, memory=state[0])
        state = np.asarray(memory.advance(state, obs[None], action[None], after[None]))
    return np.array(found)


def main() -> None:
    """Measure, print and store."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--change", choices=list(OBJECTS), default="stiff-door")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--before", type=int, default=3000, help="steps before the change")
    parser.add_argument("--during", type=int, default=2000, help="steps of it")
    parser.add_argument("--after", type=int, default=1000, help="steps after it")
    parser.add_argument("--features", type=int, default=OA.model.features)
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    start, end = given.before, given.before + given.during
    transitions = life(given.change, given.seed, start, end, end + given.after)
    moved = np.array([after - obs for obs, _, after in transitions])
    blocks = {
        "before": (start - 1000, start),
        "0-500 after the change": (start, start + 500),
        "500-1000": (start + 500, start + 1000),
        "last 1000 of it": (end - 1000, end),
        "0-200 after its end": (end, end + 200),
        "200-1000": (end + 200, end + given.after),
    }
    result: dict[str, Any] = {
        "change": given.change,
        "seed": given.seed,
        "features": given.features,
        "steps": [start, end, end + given.after],
        "models": {},
    }
    settings: dict[str, dict[str, Any]] = {"never forgets": {}, "forgets": {"worlds": 3}}
    for name, options in settings.items():
        model = model_of(features=given.features, **options)
        began = time.process_time()
        found = errors(model, transitions)
        table: dict[str, Any] = {"seconds": time.process_time() - began}
        for thing in (*OBJECTS[given.change], "hand"):
            place = PLACES[thing]
            moving = np.abs(moved[:, place]).max(axis=1) >= MOVING
            size = np.sqrt((moved[:, place] ** 2).sum(axis=1))
            wrong = np.sqrt((found[:, place] ** 2).sum(axis=1))
            row = {}
            for block, (first, last) in blocks.items():
                chosen = (
                    moving & (np.arange(len(moving)) >= first) & (np.arange(len(moving)) < last)
                )
                count = int(chosen.sum())
                row[block] = [
                    None if not count else float(wrong[chosen].sum() / size[chosen].sum()),
                    count,
                ]
            table[thing] = row
        learner = model.learner
        table["changes"] = getattr(learner, "changes", 0) if options else 0
        table["returns"] = getattr(learner, "returns", 0) if options else 0
        result["models"][name] = table
        print(name, json.dumps(table), flush=True)
    if given.out is not None:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
