"""What a comparison shows, in sentences; and the words that a report uses."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from everlearn.report.tables import MethodScores, shown, words_cell
from everlearn.results.methods import NOT_LEARNING, Study
from everlearn.results.statistics import Resampling, difference_interval

ENOUGH = 5
"""Seeds below which a bootstrap interval is known to be too narrow."""

GLOSSARY = {
    "AP": "Average performance: mean success rate over the tasks seen, with learning off.",
    "regret": (
        "What failures cost. Online: share of training episodes that were not solved. Over "
        "episodes and over steps: mean of 1 - success rate of the task that is being learned."
    ),
    "forgetting": (
        "Success rate at the end of a task's own period minus that at the end of the run."
    ),
    "transfer": (
        "Success in the first tenth of a task's training episodes, minus that of the same agent "
        "on the task alone."
    ),
    "told of tasks": (
        "Whether the agent is told when tasks change (boundaries), and which one it is (name)."
    ),
    "given": (
        "What the agent uses besides observations and rewards: the reward as a function of "
        "observations (reward function), whether an observation is a success (success test), "
        "which entries are hand and objects (scene), and how commands move the hand (command law)."
    ),
    "burst": "A few steps in one random direction, taken when plans make no progress.",
    "IQM": "Interquartile mean: the mean of the middle half of the scores of all seeds and tasks.",
    "utilization": "Share of the cells of the online model that some transition has activated.",
}
"""Words of a report that newcomers do not know."""


def findings(study: Study, scores: Sequence[MethodScores], resampling: Resampling) -> list[str]:
    """Say which method performs best, by how much, and whether that may be chance.

    Only the agents without options that learn are compared: variations of settings are for tuning,
    and scripts know the solution.
    """
    metric = study.protocol.performance
    main = {method.label for method in study.main}
    ranked = sorted(
        (
            score
            for score in scores
            if score.method.label in main
            and score.method.agent not in NOT_LEARNING
            and score.estimates[metric.name].runs
        ),
        key=lambda score: -score.estimates[metric.name].mean,
    )
    if len(ranked) < 2:
        return []
    first, second = ranked[:2]
    unit = "AP" if first.percent else "mean return"
    sign = " %" if first.percent else ""
    (high, high_seeds), (low, low_seeds) = (
        (shown(score.estimates[metric.name].mean, score.percent), score.method.seeds)
        for score in (first, second)
    )
    sentences = [
        f"Of {len(ranked)} agents that learn, {first.method.label} has the highest {unit}: "
        f"{high}{sign} ({high_seeds}). {second.method.label} follows with {low}{sign} "
        f"({low_seeds}).",
        _certainty(first, second, resampling, study),
    ]
    if (first.method.told, first.method.given) != (second.method.told, second.method.given):
        sentences.append(
            f"The two do not know the same: {first.method.label} is given "
            f"{words_cell(first.method.given)} and told {words_cell(first.method.told)}; "
            f"{second.method.label} is given {words_cell(second.method.given)} and told "
            f"{words_cell(second.method.told)}."
        )
    return sentences


def _certainty(
    first: MethodScores, second: MethodScores, resampling: Resampling, study: Study
) -> str:
    metric = study.protocol.performance
    better, worse = (np.array(one.method.score_rows(metric)) for one in (first, second))
    if better.ndim != 2 or worse.ndim != 2 or better.shape[1:] != worse.shape[1:]:
        return "Their difference cannot be judged, as their runs do not say the same."
    low, high = difference_interval(worse, better, resampling)
    if math.isnan(low):
        return "At least one of them has a single seed, so the difference may be chance."
    percent = first.percent
    difference = first.estimates[metric.name].mean - second.estimates[metric.name].mean
    interval = f"[{shown(low, percent)}, {shown(high, percent)}]"
    verdict = (
        "the interval contains 0, so these seeds do not show which is better"
        if low <= 0
        else "the interval does not contain 0, so these seeds show a difference"
    )
    unit = " points" if percent else ""
    few = (
        f" With fewer than {ENOUGH} seeds such intervals are too narrow."
        if min(len(better), len(worse)) < ENOUGH
        else ""
    )
    return (
        f"The difference is {shown(difference, percent)}{unit}, 95 % interval {interval}: "
        f"{verdict}.{few}"
    )
