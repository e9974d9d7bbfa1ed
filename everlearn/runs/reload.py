"""A finished or stopped run's agent, back from its newest snapshot."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from everlearn.interfaces import Agent
from everlearn.registry import load_plugins, require_imported
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.evaluate import Evaluator, OnEvaluated
from everlearn.runs.evaluators import evaluator_threads, evaluators_for
from everlearn.runs.loop import make, restore_agent
from everlearn.runs.machine import commit
from everlearn.runs.metrics_file import CHECKPOINTS, CONFIG, VARIANTS, Notify, storing
from everlearn.runs.snapshots import RunState, newest_usable
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import write_text
from everlearn.support.threads import check_threads, limited_threads


def load_run(
    run: str | Path, notify: Notify = lambda text: None
) -> tuple[RunConfig, RunState, Agent]:
    """Return a run's config, how far it had come, and its agent; changes nothing in the run.

    Modules that the run was made with must have been imported: its config may come from anybody.
    """
    folder = Path(run)
    config = RunConfig.read(folder / CONFIG)
    load_plugins()
    require_imported(config.imports, str(folder))
    environments, agent, _ = make(config)
    with closing(environments):
        snapshot = newest_usable(
            folder / CHECKPOINTS,
            lambda candidate: restore_agent(config, candidate, agent),
            notify,
            repair=False,
        )
    if snapshot is None:
        raise InvalidInputError(f"{folder} has no snapshot; run it until its first task ends")
    return config, snapshot.state, agent


def evaluate_run(
    run: str | Path,
    episodes: int,
    tasks: tuple[str, ...] | None = None,
    notify: Notify = lambda text: None,
    videos: Path | None = None,
    on_episode: OnEvaluated = lambda task, score: None,
) -> tuple[int, dict[str, dict[str, Any]]]:
    """Evaluate a run's agent, and film all of it if `videos` is a folder.

    Seeds are those of the run's own evaluation at that time: with as many episodes the result
    is the one in its metrics.

    Returns
    -------
    done, results
        Training episodes of the agent, and what `Evaluator.evaluate` returns of each task.
    """
    check_whole("episodes", episodes, 1)
    config, state, agent = load_run(run, notify)
    check_threads(config.threads)
    chosen = tasks or schedule.seen_tasks(config, state.episode) or config.tasks[:1]
    others = evaluators_for(config) if videos is None else None
    snapshot = Path(run) / CHECKPOINTS / state.name
    evaluator = Evaluator(
        config, on_episode=on_episode, videos=videos, others=others, notify=notify
    )
    with (
        closing(evaluator),
        limited_threads(evaluator_threads(config) if others else config.threads),
    ):
        results = evaluator.evaluate(agent, chosen, state.episode, episodes, snapshot)
    return state.episode, results


def evaluate_variants(
    run: str | Path,
    episodes: int | None = None,
    notify: Notify = lambda text: None,
    on_episode: OnEvaluated = lambda task, score: None,
) -> dict[str, dict[str, dict[str, Any]]]:
    """Evaluate a finished run's agent in its other ways too, and keep that in the run's folder.

    Agents name them in `evaluation_variants`: without escape bursts, or with the mean of a policy
    in place of samples. Seeds are those of the run's last evaluation.

    Parameters
    ----------
    run
        Its folder; `VARIANTS` is written there.
    episodes
        Of each task; as many as in the run's last evaluation if None.
    notify, on_episode
        As for `evaluate_run`.

    Returns
    -------
    dict
        By the name of the variant and by task: what `Evaluator.evaluate` returns.
    """
    config, state, agent = load_run(run, notify)
    variants: Mapping[str, Mapping[str, Any]] = getattr(agent, "evaluation_variants", {})
    if not variants:
        raise InvalidInputError(
            f"agent {config.agent!r} has no other way to be evaluated (evaluation_variants)"
        )
    if state.episode < config.episodes or not state.evaluated:
        raise InvalidInputError(
            f"{run} has not finished: {state.episode} of {config.episodes} episodes; variants are "
            "of the agent at the end"
        )
    count = episodes or schedule.evaluation_episodes(config, config.episodes)
    check_whole("episodes", count, 1)
    path = Path(run) / VARIANTS
    if path.exists():
        raise InvalidInputError(f"{path} is there already; move it away to evaluate once more")
    check_threads(config.threads)
    tasks = schedule.seen_tasks(config, config.episodes)
    results = {}
    for name, variant in variants.items():
        evaluator = Evaluator(config, on_episode=on_episode, notify=notify, variant=variant)
        with closing(evaluator), limited_threads(config.threads):
            results[name] = evaluator.evaluate(agent, tasks, config.episodes, count)
    record = {
        "episode": config.episodes,
        "commit": commit(Path(__file__).parent),
        "variants": results,
    }
    with storing(str(path)):
        write_text(path, json.dumps(record, indent=1) + "\n")
    return results
