"""Agents times seeds: which runs a sweep has, and whether they fit what is there already."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from everlearn.results.read import is_last
from everlearn.results.summary import single_task_configs
from everlearn.runs.metrics_file import SINGLE
from everlearn.runs.options import check_options
from everlearn.runs.presets import compose_config
from everlearn.support.errors import InvalidInputError
from everlearn.sweeps.job import Job
from everlearn.sweeps.storage import is_url, join, open_place

MAX_SEEDS = 10_000
"""Longest range of seeds; a longer one is a typing error."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds like ``0-6`` or ``0,3,10-12``; each once, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(part) > 40:
            raise InvalidInputError(
                f"seeds {text[:80]!r}: {part[:40]!r} is no seed; write them like 0-6 or 0,3,10-12"
            )
        low, high = int(first), int(last or first)
        if high < low or high - low >= MAX_SEEDS:
            raise InvalidInputError(
                f"seeds {text[:80]!r}: {part!r} is no range; write the smaller seed first, and "
                f"at most {MAX_SEEDS} of them"
            )
        seeds.extend(range(low, high + 1))
    return tuple(dict.fromkeys(seeds))


def parse_variations(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Read words like ``bins=5,7,9``: every combination of one value of each, as options.

    Without words there is one combination, of nothing.
    """
    choices: list[list[str]] = []
    for word in words:
        name, sign, values = word.partition("=")
        found = [f"{name}={value}" for value in values.split(",") if value]
        if not (sign and name and found):
            raise InvalidInputError(
                f"{word[:80]!r} does not vary anything; write it like bins=5,7,9,11"
            )
        choices.append(list(dict.fromkeys(found)))
    return list(itertools.product(*choices))


def sweep_jobs(
    agents: Sequence[str],
    seeds: Iterable[int],
    out: str,
    *,
    vary: Iterable[str] = (),
    threads: int = 1,
    single_tasks: bool = False,
    options: Iterable[str] = (),
    **settings: Any,
) -> list[Job]:
    """Return the runs of a sweep, seed by seed, so that what is there early compares agents.

    Parameters
    ----------
    agents, seeds
        Every agent runs with every seed.
    out
        Where: a folder or a URL; each run has a place ``AGENT-SEED`` in it, or
        ``AGENT-NAME=VALUE-SEED`` where something varies.
    vary
        Options to try several values of, as ``name=value,value``.
    threads
        Threads of each run.
    single_tasks
        Also run each task alone, for forward transfer.
    options, settings
        What `presets.compose_config` takes.
    """
    # Workers may have another working folder.
    place = out if is_url(out) else str(Path(out).absolute())
    jobs: list[Job] = []
    variations, common = parse_variations(vary), tuple(options)
    for seed in seeds:
        for agent, varied in itertools.product(dict.fromkeys(agents), variations):
            chosen = (*common, *varied)
            config = compose_config(
                agent=agent, seed=seed, threads=threads, options=chosen, **settings
            )
            check_options(agent, config.options)
            name = "-".join((agent, *varied, str(seed)))
            jobs.append(Job(name, config, join(place, name)))
    if single_tasks:
        jobs += [one for job in jobs for one in _alone(job)]
    return jobs


def unfinished(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that are not done yet; refuses places that hold something else."""
    found = []
    for job in jobs:
        place = open_place(job.place)
        stored = place.config()
        differences = stored.differences(job.config) if stored else []
        if differences:
            raise InvalidInputError(
                f"{job.place} holds a run with other settings ({'; '.join(differences)}); give "
                "those, or another --out"
            )
        if stored is None or not is_finished(job):
            found.append(job)
    return found


def is_finished(job: Job) -> bool:
    """Whether the snapshot at the end of a run is where it is kept."""
    return is_last(open_place(job.place).snapshots(), job.config)


def _alone(job: Job) -> list[Job]:
    return [
        dataclasses.replace(
            job,
            name=f"{job.name}/{task}",
            config=config,
            place=join(job.place, SINGLE, task),
        )
        for task, config in single_task_configs(job.config).items()
    ]
