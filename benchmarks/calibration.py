"""How often truths lie within the bounds of the online model, task by task.

    python -m benchmarks.calibration --agent oa --seeds 3
    python -m benchmarks.calibration --agent oa --world gym:Pendulum-v1 --episodes 20
    python -m benchmarks.calibration --agent oa-paper --scripted

An agent learns the tasks of a world in turn. Then, frozen, it plays episodes of every task, old
ones first, and its model predicts each step of them, and 15 steps, with bounds. Printed is the
share of the truths within them, one JSON line for each seed and task; numbers whose bounds are
equal do not count, but for `resting`, the share of them. With `--scripted` the tasks of Continual
Bench are played by their scripts, with noise, which takes minutes where planning takes hours.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.agents import make_agent, run_episode
from everlearn.continual_bench import PAPER_TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.scripts import ScriptedController
from everlearn.interfaces import FloatArray
from everlearn.runs.evaluate import HORIZON, Episodes
from everlearn.world_model.memory import states_along
from everlearn.worlds import world_named

COUNTING = {"model.intervals": True}
SHARES = (0.5, 0.8, 0.9, 0.95)
NOISE = 0.3
"""Standard deviation of the noise on a script's actions."""

EVALUATED = 1_000_000
"""Seeds of evaluation episodes follow this number."""

Transition = tuple[FloatArray, FloatArray, FloatArray, FloatArray]


def learned(
    agent_name: str, world_name: str, seed: int, episodes: int, stream: list[Transition] | None
) -> tuple[Any, Any]:
    """Return the world and the agent after `episodes` of each task, one task after the other.

    `stream` is filled with the transitions that the model was taught.
    """
    world = world_named(world_name)
    agent: Any = None
    for number, task in enumerate(world.tasks):
        env = world.make(task)
        if agent is None:
            agent = make_agent(agent_name, env, seed, **COUNTING)
        agent.begin_task(task, world.objective(task))
        if stream is not None and number == 0:
            _record(agent.model, stream)
        for episode in range(episodes):
            run_episode(agent, env, seed=1000 * seed + episode, max_steps=world.max_steps)
        env.close()
    return world, agent


def taught_by_scripts(agent_name: str, seed: int, episodes: int) -> Any:
    """Return an agent whose model has learned episodes that the scripts of the tasks played."""
    agent: Any = make_agent(agent_name, ContinualBenchEnv(), seed, **COUNTING)
    for task in PAPER_TASKS:
        for observations, actions in scripted(task, episodes, 1000 * seed):
            memory = states_along(agent.model.memory, observations, actions)
            following = observations[1:]
            for one in zip(observations[:-1], actions, following, memory, strict=True):
                agent.model.learn_unchecked(*one)
    return agent


def scripted(task: str, episodes: int, first: int) -> Episodes:
    """Play `task` by its script, with noise and seeds from `first` on."""
    env, found = ContinualBenchEnv(task), []
    for number in range(first, first + episodes):
        controller = ScriptedController(task, NOISE, number)
        obs, _ = env.reset(seed=number)
        observations, actions, over = [obs], [], False
        while not over:
            action = np.clip(controller.act(obs), -1, 1)
            obs, _, terminated, truncated, _ = env.step(action)
            over = terminated or truncated
            observations.append(obs)
            actions.append(action)
        found.append((np.array(observations), np.array(actions)))
    env.close()
    return found


def _record(model: Any, stream: list[Transition]) -> None:
    taught = model.learn_unchecked

    def recorded(obs: Any, action: Any, next_obs: Any, memory: Any = None) -> None:
        kept = np.zeros(0) if memory is None else memory
        stream.append(tuple(np.array(part) for part in (obs, action, next_obs, kept)))  # type: ignore[arg-type]
        taught(obs, action, next_obs, memory)

    model.learn_unchecked = recorded


def heldout(world: Any, agent: Any, task: str, episodes: int) -> Episodes:
    """Play episodes of `task` with the frozen agent, as its model sees them."""
    env = world.make(task)
    model, found = agent.model, []
    repeat = agent._repeated.times
    for number in range(episodes):
        copy = agent.evaluation_copy(EVALUATED + number)
        copy.begin_task(task, world.objective(task))
        seen: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        run_episode(
            copy,
            env,
            seed=EVALUATED + number,
            explore=False,
            max_steps=world.max_steps,
            on_step=lambda obs, action, after, reward, seen=seen: seen.append((obs, action, after)),
        )
        # One decision of the agent is one transition of its model.
        whole = len(seen) // repeat * repeat
        if not whole:
            continue
        states = [seen[i][0] for i in range(0, whole, repeat)] + [seen[whole - 1][2]]
        padded = np.zeros((len(states), model.inputs.observations))
        padded[:, : len(states[0])] = states
        found.append((padded, np.array([seen[i][1] for i in range(0, whole, repeat)], float)))
    env.close()
    return found


def coverage(model: Any, episodes: Episodes, share: float, horizon: int) -> dict[str, Any]:
    """Share of the truths within bounds meant to hold `share`, and what was left out."""
    read, inside, resting, right = model.inputs.read, [], [], []
    for observations, actions in episodes:
        count = len(actions) - horizon + 1
        if count < 1:
            continue
        plans = np.stack([actions[k : k + horizon] for k in range(count)])
        kept = observations[:, :read]
        memory = states_along(model.memory, kept, actions)[:count]
        found = model.rollout(observations[:count], plans, memory, interval=share)
        low, high = found.low[:, -1, :read], found.high[:, -1, :read]
        truth = kept[horizon:].astype(low.dtype)
        covered, closed = (low <= truth) & (truth <= high), low == high
        inside.append(covered[~closed])
        resting.append(closed.mean())
        right.append(covered[closed])
    if not inside:
        return {}
    return {
        "covered": float(np.concatenate(inside).mean()),
        "resting": float(np.mean(resting)),
        "resting_right": float(np.concatenate(right).mean()) if np.concatenate(right).size else 1.0,
    }


def measure(model: Any, by_task: dict[str, Episodes]) -> list[dict[str, Any]]:
    """One row a task: coverage of every share, one and 15 steps ahead."""
    rows = []
    for task, episodes in by_task.items():
        row: dict[str, Any] = {"task": task, "steps": sum(len(a) for _, a in episodes)}
        for horizon in (1, HORIZON):
            for share in SHARES:
                found = coverage(model, episodes, share, horizon)
                row[f"{share}@{horizon}"] = round(found.get("covered", float("nan")), 4)
            row[f"resting@{horizon}"] = round(found.get("resting", float("nan")), 3)
            row[f"resting_right@{horizon}"] = round(found.get("resting_right", float("nan")), 4)
        rows.append(row)
    return rows


def main() -> None:
    """Print a JSON line for each seed and task."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agent", default="oa")
    parser.add_argument("--world", default="continual-bench")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--episodes", type=int, default=10, help="training episodes of each task")
    parser.add_argument("--heldout", type=int, default=5, help="frozen episodes of each task")
    parser.add_argument("--scripted", action="store_true", help="scripts act, no planner")
    parser.add_argument("--save", type=Path, help="folder for the transitions")
    chosen = parser.parse_args()
    for seed in chosen.seeds:
        began = time.time()
        stream: list[Transition] | None = None if chosen.save is None else []
        if chosen.scripted:
            agent = taught_by_scripts(chosen.agent, seed, chosen.episodes)
            by_task = {task: scripted(task, chosen.heldout, EVALUATED) for task in PAPER_TASKS}
        else:
            world, agent = learned(chosen.agent, chosen.world, seed, chosen.episodes, stream)
            by_task = {task: heldout(world, agent, task, chosen.heldout) for task in world.tasks}
        if chosen.save is not None and stream:
            name = f"{chosen.agent}-{chosen.world.replace(':', '-')}-{seed}.npz"
            _save(chosen.save / name, stream, by_task)
        facts = {"agent": chosen.agent, "world": chosen.world, "seed": seed}
        facts |= {"scripted": True} if chosen.scripted else {}
        for row in measure(agent.model, by_task):
            print(json.dumps(facts | row), flush=True)
        print(json.dumps(facts | {"seconds": round(time.time() - began)}), flush=True)


def _save(file: Path, stream: list[Transition], by_task: dict[str, Episodes]) -> None:
    parts = zip(("obs", "action", "next_obs", "memory"), zip(*stream, strict=True), strict=True)
    arrays = {f"stream/{name}": np.stack(part) for name, part in parts}
    for task, episodes in by_task.items():
        for number, (observations, actions) in enumerate(episodes):
            arrays |= {f"{task}/{number}/obs": observations, f"{task}/{number}/action": actions}
    np.savez(file, **arrays)


if __name__ == "__main__":
    main()
