"""How often the frozen agent solves a task with what a run has seen, for settings to compare.

    python -m benchmarks.frozen RUN --learn 58 --task pick-place --option planner.final_weight=10

A new agent learns the first `learn` episodes of the run exactly (batch solution) and then acts
without learning. So planners and encodings are compared on the same data in a minute each,
where a run in which they choose their own data takes an hour and differs by luck. Episodes
end early: what has not been solved after `steps` hardly ever is.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.agents import AGENTS, make_agent, run_episode
from everlearn.audit.stream import read_stream
from everlearn.continual_bench import TASKS
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.support.settings import parse_options

PLANNER_SEED = 77


def solved_in(
    run: Path, learn: int, task: str, agent: str, seed: int, repeat: int, steps: int, **options: Any
) -> tuple[list[int | None], float]:
    """Steps to success of each episode, None where there was none, and seconds a step."""
    env = ContinualBenchEnv(task)
    made = make_agent(agent, env, seed, **options)
    model: Any = made.model  # type: ignore[attr-defined]
    stream = read_stream(run)
    learned = np.cumsum(stream.starts) <= learn
    model.learn_batch(
        stream.observations[learned],
        stream.actions[learned],
        stream.next_observations[learned],
        memory=stream.memory_states(model.memory)[learned],
    )
    frozen = made.evaluation_copy(PLANNER_SEED)
    frozen.begin_task(task, TASKS.get(task).objective())
    episodes = [run_episode(frozen, env, explore=False, max_steps=steps) for _ in range(repeat)]
    found = [one.length if one.info["success"] else None for one in episodes]
    seconds = sum(one.seconds for one in episodes) / sum(one.length for one in episodes)
    return found, seconds


def main() -> None:
    """Print the episodes solved."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--learn", type=int, required=True, help="episodes to learn")
    parser.add_argument("--task", required=True)
    parser.add_argument("--agent", default="oa")
    parser.add_argument("--seed", type=int, default=0, help="of the projection")
    parser.add_argument("--repeat", type=int, default=12, help="episodes to act in")
    parser.add_argument("--steps", type=int, default=100, help="steps of an episode at most")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    options = parse_options(AGENTS.get(given.agent).config, given.option)
    found, seconds = solved_in(
        given.run,
        given.learn,
        given.task,
        given.agent,
        given.seed,
        given.repeat,
        given.steps,
        **options,
    )
    solved = [count for count in found if count is not None]
    print(
        f"{given.task}, seed {given.seed}, {json.dumps(options)}: {len(solved)} of {len(found)} "
        f"solved, in {solved} steps; {1e3 * seconds:.0f} ms a step"
    )


if __name__ == "__main__":
    main()
