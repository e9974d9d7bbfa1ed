"""A run's numbers: its lines as arrays, and what `metrics.py` makes of them."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from everlearn.results import metrics
from everlearn.results.read import Columns, read_run
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.metrics_file import CONFIG, METRICS, SINGLE
from everlearn.support.errors import DamagedFileError


@dataclass(frozen=True, eq=False)
class Evaluations:
    """A run's evaluations as arrays.

    Attributes
    ----------
    tasks
        Names of the columns of `p`, in the order of learning.
    episodes, steps
        When, ``[W]``, in both units of time.
    p
        Success rates ``[W, T]``; NaN where a task had not been seen.
    """

    tasks: tuple[str, ...]
    episodes: metrics.Floats
    steps: metrics.Floats
    p: metrics.Floats


@dataclass(frozen=True)
class Summary:
    """The numbers of one run; NaN where the run does not say."""

    average_performance: float
    regret_online: float
    regret_online_steps: float
    regret_eval: float
    regret_eval_steps: float
    forgetting: float
    forward_transfer: float
    transfer_by_task: dict[str, float]


def evaluations(config: RunConfig, columns: Columns) -> Evaluations:
    """Make arrays of a run's ``eval`` columns."""
    tasks = tuple(dict.fromkeys(config.tasks))
    if not columns:
        none = np.zeros(0)
        return Evaluations(tasks, none, none, np.zeros((0, len(tasks))))
    episodes, rows = np.unique(columns["episode"], return_inverse=True)
    steps, p = np.zeros(len(episodes)), np.full((len(episodes), len(tasks)), np.nan)
    place = {task: column for column, task in enumerate(tasks)}
    if unknown := set(columns["task"]) - set(place):
        raise DamagedFileError(
            f"the metrics have evaluations of {sorted(unknown)[0]!r}, which is no task of the run; "
            "use the config that they were written with"
        )
    steps[rows] = columns["step"]
    p[rows, [place[task] for task in columns["task"]]] = columns["success_rate"]
    return Evaluations(tasks, episodes.astype(np.float64), steps, p)


def periods(config: RunConfig, episode_steps: np.ndarray, by_steps: bool) -> list[metrics.Period]:
    """Periods of the entries of the sequence that have begun.

    Parameters
    ----------
    config
        The run's.
    episode_steps
        Steps done after each training episode, ``[N]``; their number says how far the run is.
    by_steps
        Measure time in steps instead of episodes.
    """
    tasks = list(dict.fromkeys(config.tasks))
    clock = np.concatenate([[0.0], episode_steps]) if by_steps else None
    found = []
    for entry, task in enumerate(config.tasks):
        start = entry * config.episodes_per_task
        end = min(start + config.episodes_per_task, len(episode_steps))
        if end > start:
            span = (start, end) if clock is None else (clock[start], clock[end])
            found.append((tasks.index(task), float(span[0]), float(span[1])))
    return found


def summarize(run: str | Path) -> Summary:
    """Read a run, and the runs of its tasks alone if there are any, and compute its numbers."""
    folder = Path(run)
    return summary_of(folder, RunConfig.read(folder / CONFIG), read_run(folder))


def summary_of(folder: Path, config: RunConfig, columns: dict[str, Columns]) -> Summary:
    """Compute the numbers of a run that has been read; `folder` may hold its tasks alone."""
    table, training = evaluations(config, columns["eval"]), columns["episode"]
    success = training.get("success", np.zeros(0, bool))
    lengths = training.get("length", np.zeros(0, int))
    steps = training.get("step", np.zeros(0, int))
    # What was trained since the last evaluation is not measured by it.
    known = steps[: int(table.episodes[-1])] if len(table.episodes) else steps[:0]
    by_episodes = periods(config, known, by_steps=False)
    transfer = _transfer(folder, config, success)
    curve = metrics.average_performance(table.p)
    return Summary(
        average_performance=float(curve[-1]) if len(curve) else math.nan,
        regret_online=metrics.regret_online(success),
        regret_online_steps=metrics.regret_online(success, lengths),
        regret_eval=metrics.regret_eval(table.episodes, table.p, by_episodes),
        regret_eval_steps=metrics.regret_eval(
            table.steps, table.p, periods(config, known, by_steps=True)
        ),
        forgetting=metrics.forgetting(table.episodes, table.p, by_episodes),
        forward_transfer=float(np.mean(list(transfer.values()))) if transfer else math.nan,
        transfer_by_task=transfer,
    )


def single_task_configs(config: RunConfig) -> dict[str, RunConfig]:
    """Return the runs that forward transfer compares with, by task.

    The same agent and seed, one task alone, and only the episodes that are compared. The first
    task of the sequence has nothing to gain from and needs none.
    """
    return {
        task: dataclasses.replace(
            config,
            tasks=(task,),
            episodes_per_task=metrics.first_episodes(config.episodes_per_task),
            evaluation=EvaluationSchedule(0, 0, 0, 0),
            record=False,
            tensorboard=False,
            wandb=False,
        )
        for task in dict.fromkeys(config.tasks)
        if task != config.tasks[0]
    }


def single_task_folder(run: str | Path, task: str) -> Path:
    """Folder of the run of one task alone."""
    return Path(run) / SINGLE / task


def _transfer(folder: Path, config: RunConfig, success: np.ndarray) -> dict[str, float]:
    """Forward transfer of every task whose run alone is there."""
    found = {}
    for task, single in single_task_configs(config).items():
        alone = single_task_folder(folder, task)
        if not (alone / METRICS).exists() or RunConfig.read(alone / CONFIG).differences(single):
            continue  # not run, or left from a run with other settings
        start = config.tasks.index(task) * config.episodes_per_task
        flags = read_run(alone)["episode"].get("success", np.zeros(0, bool))
        found[task] = metrics.forward_transfer(
            success[start : start + config.episodes_per_task], flags, config.episodes_per_task
        )
    return found


def result_lines(summary: Summary) -> list[str]:
    """Return a run's numbers, for the end of a command."""
    shown = {
        "average performance": summary.average_performance,
        "regret, online": summary.regret_online,
        "regret, evaluated": summary.regret_eval,
        "forgetting": summary.forgetting,
        "forward transfer": summary.forward_transfer,
    }
    return [f"{name}: {value:.3f}" for name, value in shown.items() if not math.isnan(value)]
