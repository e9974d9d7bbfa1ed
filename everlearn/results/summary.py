"""A run's numbers: what `metrics.py` makes of its lines, in total and by task."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt

from everlearn.results import metrics
from everlearn.results.read import RunRecord, read_run
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.metrics_file import SINGLE

Scores = dict[str, float]
"""A metric by task."""


@dataclass(frozen=True)
class Summary:
    """The numbers of one run; NaN where the run does not say, or its world does not measure."""

    average_performance: float = math.nan
    regret_online: float = math.nan
    regret_online_steps: float = math.nan
    regret_eval: float = math.nan
    regret_eval_steps: float = math.nan
    average_return: float = math.nan
    """Mean return in the last evaluation, over the tasks seen."""
    training_return: float = math.nan
    """Mean return of the training episodes."""
    forgetting: float = math.nan
    forward_transfer: float = math.nan
    transfer_by_task: Scores = field(default_factory=dict)


@dataclass(frozen=True)
class Metric:
    """A number that tables show.

    Attributes
    ----------
    name
        As `Summary` has it.
    heading
        Above its column.
    better
        Which direction is better.
    scores
        Its value by task in a run; their mean is the run's number.
    """

    name: str
    heading: str
    better: Literal["up", "down"]
    scores: Callable[[RunRecord], Scores]

    @property
    def titled(self) -> str:
        """The heading with an arrow to the better side."""
        return f"{self.heading} {'↑' if self.better == 'up' else '↓'}"


def summarize(run: str | Path | RunRecord) -> Summary:
    """Compute a run's numbers; reads it if a folder is given."""
    if not isinstance(run, RunRecord):
        run = read_run(run)
    table = run.evaluations
    steps = run.episode_column("step")
    # What was trained since the last evaluation is not measured by it.
    measured = steps[: int(table.episodes[-1])] if len(table.episodes) else steps[:0]
    by_episodes = periods(run.config, measured, by_steps=False)
    transfer = _forward_transfer(run)
    shared = {
        "forgetting": metrics.forgetting(table.episodes, table.values, by_episodes),
        "forward_transfer": float(np.mean(list(transfer.values()))) if transfer else math.nan,
    }
    means = metrics.mean_of_seen(table.values_of_seen)
    last = float(means[-1]) if len(means) else math.nan
    if not run.config.measures_success:
        returns = run.episode_column("return")
        return Summary(
            average_return=last,
            training_return=float(np.mean(returns)) if len(returns) else math.nan,
            transfer_by_task=transfer,
            **shared,
        )
    success, lengths = run.episode_column("success"), run.episode_column("length")
    by_steps = periods(run.config, measured, by_steps=True)
    return Summary(
        average_performance=last,
        regret_online=metrics.regret_online(success),
        regret_online_steps=metrics.regret_online(success, lengths),
        regret_eval=metrics.regret_eval(table.episodes, table.values, by_episodes),
        regret_eval_steps=metrics.regret_eval(table.steps, table.values, by_steps),
        transfer_by_task=transfer,
        **shared,
    )


def result_lines(summary: Summary) -> list[str]:
    """Return a run's numbers, for the end of a command."""
    shown = {
        "average performance": summary.average_performance,
        "regret, online": summary.regret_online,
        "regret, evaluated": summary.regret_eval,
        "regret, evaluated, over steps": summary.regret_eval_steps,
        "average return": summary.average_return,
        "training return": summary.training_return,
        "forgetting": summary.forgetting,
        "forward transfer": summary.forward_transfer,
    }
    return [f"{name}: {value:.3f}" for name, value in shown.items() if not math.isnan(value)]


def scores_of(run: RunRecord, metric: Metric) -> Scores:
    """Scores of a metric by task; empty where the run does not say all of them.

    A task that comes again in the sequence has one for every period where the metric is about
    periods. Regret over steps weighs periods by their length, so that it is one score of the
    whole run.
    """
    scores = metric.scores(run)
    return {} if any(math.isnan(value) for value in scores.values()) else scores


def period_scores(run: RunRecord) -> dict[str, Scores]:
    """Return what each entry of the sequence came to, by its name.

    Returns
    -------
    dict
        ``training``: share of its episodes that were solved, or their mean return; ``before``,
        ``after``, ``end``: the evaluation just before its period, just after it, and at the end of
        the run; ``bursts``: escape bursts in an episode of the evaluation at the end; ``steps``,
        ``seconds`` and ``processor`` seconds of its training. NaN where the run does not say.
    """
    config, table = run.config, run.evaluations
    column = "success" if config.measures_success else "return"
    by_entry = {
        name: _by_entry(run, source, reduced)
        for name, source, reduced in (
            ("training", column, _mean),
            ("steps", "length", _sum),
            ("seconds", "seconds", _sum),
            ("processor", "processor_seconds", _sum),
        )
    }
    scores = {}
    for entry, (name, task) in enumerate(zip(entry_names(config.tasks), config.tasks, strict=True)):
        start = entry * config.episodes_per_task
        times = {"before": start, "after": start + config.episodes_per_task, "end": config.episodes}
        evaluated = {
            word: metrics.value_at(table.episodes, table.values, time, table.tasks.index(task))
            for word, time in times.items()
        }
        scores[name] = {word: values[name] for word, values in by_entry.items()} | evaluated
        scores[name]["bursts"] = _bursts_at_end(run, task)
    return scores


def bursts_at_end(runs: Iterable[RunRecord]) -> float | None:
    """Mean escape bursts in an episode of the last evaluations; None if no run says them."""
    counts = [_bursts_at_end(run, task) for run in runs for task in dict.fromkeys(run.config.tasks)]
    known = [count for count in counts if not math.isnan(count)]
    return sum(known) / len(known) if known else None


def _bursts_at_end(run: RunRecord, task: str) -> float:
    columns = run.columns["eval"]
    if "bursts" not in columns:
        return math.nan
    rows = (columns["episode"] == run.config.episodes) & (columns["task"] == task)
    return float(columns["bursts"][rows][-1]) if rows.any() else math.nan


def periods(
    config: RunConfig, episode_steps: npt.NDArray[np.generic], by_steps: bool
) -> list[metrics.Period]:
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
    begun = []
    for entry, task in enumerate(config.tasks):
        start = entry * config.episodes_per_task
        end = min(start + config.episodes_per_task, len(episode_steps))
        if end > start:
            span = (start, end) if clock is None else (clock[start], clock[end])
            begun.append((tasks.index(task), float(span[0]), float(span[1])))
    return begun


def entry_names(tasks: Iterable[str]) -> list[str]:
    """Names of the entries of a sequence: a task that comes again gets a number."""
    seen: dict[str, int] = {}
    names = []
    for task in tasks:
        seen[task] = seen.get(task, 0) + 1
        names.append(task if seen[task] == 1 else f"{task} ({seen[task]})")
    return names


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


def _final_values(run: RunRecord) -> Scores:
    table = run.evaluations
    if not len(table.episodes):
        return {}
    return dict(zip(table.tasks, map(float, table.values_of_seen[-1]), strict=True))


def _by_entry(
    run: RunRecord, column: str, score: Callable[[npt.NDArray[np.generic]], float]
) -> Scores:
    """Score the training episodes of every entry of the sequence."""
    values, length = run.episode_column(column), run.config.episodes_per_task
    return {
        name: score(values[entry * length : (entry + 1) * length])
        for entry, name in enumerate(entry_names(run.config.tasks))
    }


def _online_regret(run: RunRecord) -> Scores:
    return _by_entry(run, "success", metrics.regret_online)


def _training_returns(run: RunRecord) -> Scores:
    return _by_entry(run, "return", _mean)


def _mean(values: npt.NDArray[np.generic]) -> float:
    return float(np.mean(values.astype(np.float64))) if len(values) else math.nan


def _sum(values: npt.NDArray[np.generic]) -> float:
    return float(np.sum(values.astype(np.float64))) if len(values) else math.nan


def _evaluated_regret(run: RunRecord) -> Scores:
    table = run.evaluations
    spans = periods(run.config, run.episode_column("step"), by_steps=False)
    return {
        name: metrics.regret_eval(table.episodes, table.values, [span])
        for name, span in zip(entry_names(run.config.tasks), spans, strict=False)
    }


def _evaluated_regret_over_steps(run: RunRecord) -> Scores:
    return {"all tasks": summarize(run).regret_eval_steps}


def _forgetting(run: RunRecord) -> Scores:
    table = run.evaluations
    spans = periods(run.config, run.episode_column("step"), by_steps=False)
    by_column = metrics.forgetting_by_task(table.episodes, table.values, spans)
    return {table.tasks[column]: value for column, value in by_column.items()}


def _forward_transfer(run: RunRecord) -> Scores:
    """Forward transfer of every task whose run alone is there."""
    config = run.config
    column = "success" if config.measures_success else "return"
    values = run.episode_column(column)
    transfer = {}
    for task, wanted in single_task_configs(config).items():
        alone = run.alone.get(task)
        if alone is None or alone.config.differences(wanted):
            continue  # not run, or left from a run with other settings
        start = config.tasks.index(task) * config.episodes_per_task
        transfer[task] = metrics.forward_transfer(
            values[start : start + config.episodes_per_task],
            alone.episode_column(column),
            config.episodes_per_task,
        )
    return transfer


SUCCESS_METRICS = (
    Metric("average_performance", "AP", "up", _final_values),
    Metric("regret_online", "regret online", "down", _online_regret),
    Metric("regret_eval", "regret over episodes", "down", _evaluated_regret),
    Metric("regret_eval_steps", "regret over steps", "down", _evaluated_regret_over_steps),
    Metric("forgetting", "forgetting", "down", _forgetting),
    Metric("forward_transfer", "transfer", "up", _forward_transfer),
)
RETURN_METRICS = (
    Metric("average_return", "return", "up", _final_values),
    Metric("training_return", "return in training", "up", _training_returns),
    Metric("forgetting", "forgetting", "down", _forgetting),
    Metric("forward_transfer", "transfer", "up", _forward_transfer),
)
"""What tables show of worlds that measure success, and of those that measure returns."""
