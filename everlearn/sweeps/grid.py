"""Which runs a sweep has: agents times seeds times varied options, and which are unfinished."""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from everlearn.results.summary import single_task_configs
from everlearn.runs.metrics_file import SINGLE
from everlearn.runs.presets import compose_config
from everlearn.support.errors import InvalidInputError
from everlearn.sweeps.job import Job, is_finished
from everlearn.sweeps.storage import is_url, join_location, open_storage

MAX_SEEDS = 10_000
"""Longest range of seeds; a longer one is a typing error."""

_VALUE = re.compile(r"[\w.+-]+")
"""Values of varied options: they become parts of the names of folders."""


def parse_seeds(text: str) -> tuple[int, ...]:
    """Read seeds like ``0-6`` or ``0,3,10-12``; each once, in the order given."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or len(part) > 40:
            raise InvalidInputError(
                f"seeds {text[:80]!r}: {part[:40]!r} is not a seed; write seeds like 0-6 or "
                "0,3,10-12"
            )
        low, high = int(first), int(last or first)
        if high < low or high - low >= MAX_SEEDS:
            raise InvalidInputError(
                f"seeds {text[:80]!r}: {part!r} is not a range; write the smaller seed first, "
                f"and at most {MAX_SEEDS} of them"
            )
        seeds.extend(range(low, high + 1))
    return tuple(dict.fromkeys(seeds))


def parse_variations(words: Iterable[str]) -> list[tuple[str, ...]]:
    """Read words like ``model.bins=5,7,9``: every combination of one value of each, as options.

    Without words there is one combination, the empty one.
    """
    choices: list[list[str]] = []
    for word in words:
        path, _, text = word.partition("=")
        values = [value.strip() for value in text.split(",")]
        if not path or not all(map(_VALUE.fullmatch, values)):
            raise InvalidInputError(
                f"{word[:80]!r} does not vary an option; write it like model.bins=5,7,9, with "
                "values of letters, digits, '.', '+', '-' and '_'"
            )
        choices.append([f"{path}={value}" for value in dict.fromkeys(values)])
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
    """Return the runs of a sweep, seed by seed, so that the first ones already compare agents.

    Parameters
    ----------
    agents, seeds
        Every agent runs with every seed.
    out
        A folder or a URL. Each run is stored below it, as ``AGENT-SEED``, or as
        ``AGENT-OPTION=VALUE-SEED`` where an option varies.
    vary
        Options to try several values of, as ``path=value,value``.
    threads
        Threads of each run.
    single_tasks
        Also run each task alone, for forward transfer.
    options, settings
        Arguments of `everlearn.runs.presets.compose_config`: preset, world, tasks, imports ...
    """
    # Workers may have another working folder.
    root = out if is_url(out) else str(Path(out).absolute())
    variations, common = parse_variations(vary), tuple(options)
    jobs: list[Job] = []
    for seed in seeds:
        for agent, varied in itertools.product(dict.fromkeys(agents), variations):
            config = compose_config(
                agent=agent, seed=seed, threads=threads, options=(*common, *varied), **settings
            )
            name = "-".join((agent, *varied, str(seed)))
            jobs.append(Job(name, config, join_location(root, name)))
    if single_tasks:
        jobs += [single for job in jobs for single in _single_task_jobs(job)]
    return jobs


def unfinished(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs that are not finished; refuses a location that holds another run."""
    remaining = []
    for job in jobs:
        stored = open_storage(job.location).config()
        differences = stored.differences(job.config) if stored else []
        if differences:
            raise InvalidInputError(
                f"{job.location} holds a run with other settings ({'; '.join(differences)}); "
                "give those, or another --out"
            )
        if stored is None or not is_finished(job):
            remaining.append(job)
    return remaining


def _single_task_jobs(job: Job) -> list[Job]:
    return [
        dataclasses.replace(
            job,
            name=f"{job.name}/{task}",
            config=config,
            location=join_location(job.location, SINGLE, task),
        )
        for task, config in single_task_configs(job.config).items()
    ]
