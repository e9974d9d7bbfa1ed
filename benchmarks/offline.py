"""Rank settings of the online model on the transitions of a run, in seconds a setting.

    python -m benchmarks.offline RUN --cut 12 --option model.ridge=10 --option model.linear=false

Learns the first `cut` episodes of the run exactly (batch solution), then imagines the actions
of the next ones and says how far hand and object end from where they really went. Starts are
the steps at which an object is within 8 cm of the fingers: there the prediction is hard, and
there it matters. An object is "moved" if it went further than 3 mm in one step, growing with
the root of the steps.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.audit.stream import TransitionStream, read_stream
from everlearn.continual_bench.env import ContinualBenchEnv
from everlearn.continual_bench.observation import BODIES
from everlearn.online import OnlineWorldModel
from everlearn.planning.agent import OnlineAgent
from everlearn.planning.presets import oa_config
from everlearn.support.settings import parse_options

HORIZONS = (1, 5, 12)
NEAR = 0.08
MOVED = 0.003
EVERY = 3
"""Starts are this many steps apart: neighbours tell nearly the same."""


@dataclass(frozen=True)
class Error:
    """How wrong imagination is after some steps.

    `hand` in millimetres; `moved`: of what moved, error over distance; `still`: of what stayed,
    millimetres.
    """

    steps: int
    hand: float
    moved: float
    still: float


def nearest_object(obs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """First index of the object nearest to the fingers, and its distance, ``[N]`` each."""
    fingers = obs[:, list(BODIES.hand)] + np.array(BODIES.grip)
    places = np.stack([obs[:, list(thing)] for thing in BODIES.objects], axis=1)
    distances = np.linalg.norm(places - fingers[:, None], axis=2)
    nearest = distances.argmin(axis=1)
    return np.array([thing[0] for thing in BODIES.objects])[nearest], distances.min(axis=1)


def errors(
    model: OnlineWorldModel, stream: TransitionStream, cut: int, tested: int
) -> tuple[list[Error], int]:
    """Learn the first `cut` episodes and imagine in the next `tested`; also the starts used."""
    episode = np.cumsum(stream.starts) - 1
    memory = stream.memory_states(model.memory)
    learned = episode < cut
    model.learn_batch(
        stream.observations[learned],
        stream.actions[learned],
        stream.next_observations[learned],
        memory=memory[learned],
    )
    longest = max(HORIZONS)
    starts = np.flatnonzero((episode >= cut) & (episode < cut + tested))
    starts = starts[starts + longest <= len(episode)]
    starts = starts[episode[starts] == episode[starts + longest - 1]]
    thing, distance = nearest_object(stream.observations[starts])
    starts, thing = starts[distance < NEAR][::EVERY], thing[distance < NEAR][::EVERY]
    plans = stream.actions[starts[:, None] + np.arange(longest)]
    imagined = model.rollout(stream.observations[starts], plans, memory=memory[starts])
    places = thing[:, None] + np.arange(3)
    before = np.take_along_axis(stream.observations[starts], places, axis=1)
    found = []
    for steps in HORIZONS:
        true = stream.next_observations[starts + steps - 1]
        there = np.take_along_axis(true, places, axis=1)
        guess = np.take_along_axis(imagined[:, steps], places, axis=1)
        way = np.linalg.norm(there - before, axis=1)
        wrong = np.linalg.norm(guess - there, axis=1)
        moved = way > MOVED * steps**0.5
        hand = np.linalg.norm((imagined[:, steps] - true)[:, list(BODIES.hand)], axis=1)
        found.append(
            Error(
                steps,
                1e3 * float(hand.mean()),
                float(wrong[moved].sum() / way[moved].sum()),
                1e3 * float(wrong[~moved].mean()),
            )
        )
    return found, len(starts)


def main() -> None:
    """Print one line a horizon."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--cut", type=int, default=12, help="episodes to learn")
    parser.add_argument("--test", type=int, default=8, help="episodes to imagine in")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE")
    given = parser.parse_args()
    env = ContinualBenchEnv()
    options: dict[str, Any] = parse_options(oa_config(env), given.option)
    begun = time.perf_counter()
    model = OnlineAgent.for_env(env, seed=given.seed, threads=1, **options).model
    found, starts = errors(model, read_stream(given.run), given.cut, given.test)
    print(
        f"{given.run}: {model.steps} transitions learned, {starts} starts, {json.dumps(options)}, "
        f"{time.perf_counter() - begun:.0f} s"
    )
    for one in found:
        print(
            f"  {one.steps:2d} steps: hand {one.hand:6.2f} mm, moved objects {one.moved:.3f} of "
            f"their way, still ones {one.still:6.2f} mm"
        )


if __name__ == "__main__":
    main()
