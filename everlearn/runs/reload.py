"""A finished or stopped run's agent, back from its newest snapshot."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from everlearn.continual_bench import TASKS
from everlearn.runs import schedule
from everlearn.runs.config import RunConfig
from everlearn.runs.evaluate import Evaluator, LearningAgent
from everlearn.runs.evaluators import evaluator_threads, helpers_for
from everlearn.runs.loop import make, restore_agent
from everlearn.runs.metrics_file import CHECKPOINTS, CONFIG, Notify
from everlearn.runs.snapshots import RunState, newest_usable
from everlearn.support.checks import check_whole
from everlearn.support.errors import InvalidInputError
from everlearn.support.threads import check_threads, limited_threads


def load_run(
    run: str | Path, notify: Notify = lambda text: None
) -> tuple[RunConfig, RunState, LearningAgent]:
    """Return a run's config, how far it had come, and its agent; changes nothing in the run."""
    folder = Path(run)
    config = RunConfig.read(folder / CONFIG)
    env, agent = make(config)
    with closing(env):
        snapshot = newest_usable(
            folder / CHECKPOINTS,
            lambda found: restore_agent(config, found, agent),
            notify,
            repair=False,
        )
    if snapshot is None:
        raise InvalidInputError(f"{folder} has no snapshot yet; run it until its first task ends")
    return config, snapshot.state, agent


def evaluate_run(
    run: str | Path,
    episodes: int,
    tasks: tuple[str, ...] | None = None,
    notify: Notify = lambda text: None,
    videos: Path | None = None,
) -> tuple[int, dict[str, float]]:
    """Evaluate a run's agent, and film all of it if `videos` is a folder.

    Seeds are those of the run's own evaluation at that time: with as many episodes the result
    is the one in its metrics.

    Returns
    -------
    done, rates
        Training episodes of the agent, and the success rate of each task.
    """
    check_whole("episodes", episodes, 1)
    for task in tasks or ():
        TASKS.get(task)
    config, state, agent = load_run(run, notify)
    check_threads(config.threads)
    chosen = schedule.seen_tasks(config, state.episode) if tasks is None else tasks
    helpers = helpers_for(config) if videos is None else None
    snapshot = Path(run) / CHECKPOINTS / state.name
    with (
        closing(Evaluator(config, videos=videos, helpers=helpers, notify=notify)) as evaluator,
        limited_threads(evaluator_threads(config) if helpers else config.threads),
    ):
        rates = evaluator.success_rates(agent, chosen, state.episode, episodes, snapshot)
    return state.episode, rates
