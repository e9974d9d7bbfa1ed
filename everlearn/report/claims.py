"""The paper's claims, one by one: what runs at its settings and budget say of each.

Every rule is about a 95 % interval over seeds, of a mean or of a difference of two means
(Student's t, Welch's degrees of freedom, rounded down), so that two or three seeds decide little:

    yes            the whole interval is where the claim says
    no             the whole interval is where the claim says it is not
    open           the interval is on both sides
    not measured   a method has fewer than two finished runs

A claim about several pairs of methods holds if it holds of each of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from everlearn.report.tables import MISSING, PAPER_SCORES, Table, percent
from everlearn.results.methods import Method
from everlearn.results.summary import summarize

Verdict = Literal["yes", "no", "open", "not measured"]

OA = "oa-paper"
FINETUNE, SI, CORESET, PERFECT = NETWORKS = (
    *("mlp-paper-finetune", "mlp-paper-si"),
    *("mlp-paper-coreset", "mlp-paper-perfect-memory"),
)
POLICIES = ("sac-finetune", "sac-ewc", "sac-packnet", "sac-coreset", "sac-perfect-memory")

PAPER_FORGETTING = {FINETUNE: 53.30, SI: 35.14, CORESET: 21.58, PERFECT: 4.72, OA: 2.33}
"""Of the paper's last table, which it comments out; in percent."""

MARGIN = 0.10
"""Points of AP within which methods match, and of forgetting above which a method forgets."""

FEWEST = 2

T_QUANTILES = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228),
    *(2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086),
)
"""97.5 % quantiles of Student's t with 1, 2, ... degrees of freedom; the last for more of them."""


class Interval(NamedTuple):
    """A mean, or a difference of means, and its 95 % interval over seeds."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{percent(self.mean)} [{percent(self.low)}, {percent(self.high)}]"


Scores = dict[str, list[float]]
"""A metric of every finished run, by agent."""


@dataclass(frozen=True)
class Claim:
    """A claim with what was measured.

    Attributes
    ----------
    text, rule
        What the paper says, and when it holds here.
    verdict
        Whether it does.
    measured, paper
        The figures here and there, in percent.
    """

    text: str
    rule: str
    verdict: Verdict
    measured: str
    paper: str


def interval(values: Sequence[float], others: Sequence[float] = ()) -> Interval | None:
    """Return the interval of the mean of `values`, minus that of `others` if there are some.

    None if one of them has fewer than two values.
    """
    samples = [np.asarray(part, np.float64) for part in (values, others) if len(part)]
    if any(len(part) < FEWEST for part in samples) or not len(values):
        return None
    variances = [part.var(ddof=1) / len(part) for part in samples]
    mean = float(samples[0].mean() - (samples[1].mean() if others else 0.0))
    spread = sum(
        square**2 / (len(part) - 1) for square, part in zip(variances, samples, strict=True)
    )
    if spread == 0:  # all seeds agree
        return Interval(mean, mean, mean)
    freedom = int(sum(variances) ** 2 / spread + 1e-9)
    half = T_QUANTILES[min(freedom, len(T_QUANTILES)) - 1] * math.sqrt(sum(variances))
    return Interval(mean, mean - half, mean + half)


def above(found: Interval | None, bound: float = 0.0) -> Verdict:
    """Judge that a number is above a bound."""
    if found is None:
        return "not measured"
    return "yes" if found.low > bound else "no" if found.high < bound else "open"


def below(found: Interval | None, bound: float) -> Verdict:
    """Judge that a number is below a bound."""
    opposite: dict[Verdict, Verdict] = {"yes": "no", "no": "yes"}
    verdict = above(found, bound)
    return opposite.get(verdict, verdict)


def within(found: Interval | None, margin: float) -> Verdict:
    """Judge that a number is within a margin around 0."""
    if found is None:
        return "not measured"
    if -margin < found.low and found.high < margin:
        return "yes"
    return "no" if found.low > margin or found.high < -margin else "open"


def claims(methods: Sequence[Method]) -> list[Claim]:
    """Judge all claims by the methods of a study with the paper's protocol."""
    performance, regret, forgetting = (
        _scores(methods, name) for name in ("average_performance", "regret_eval", "forgetting")
    )
    points = f"{100 * MARGIN:.0f} points"
    found = [
        _about_one("Fine-tuning forgets", FINETUNE, forgetting, more=True),
        _about_two("SI helps a little", SI, FINETUNE, performance),
        _about_two("A coreset helps more than SI", CORESET, SI, performance),
    ]
    difference = _difference(performance, OA, PERFECT)
    found.append(
        Claim(
            "OA matches perfect memory",
            f"AP of {OA} minus that of {PERFECT}: within {points}",
            within(difference, MARGIN),
            _shown(difference, performance, (OA, PERFECT)),
            f"{_paper_difference(0, OA, PERFECT):.2f}",
        )
    )
    based = (*NETWORKS, OA)
    found += [
        _about_pairs(
            "OA has the least regret",
            f"regret over episodes of every other agent minus that of {OA}: above 0",
            [(other, OA) for other in (*NETWORKS, *POLICIES)],
            regret,
            1,
        ),
        _about_pairs(
            "Model-free agents have high regret",
            "regret over episodes of every SAC agent minus that of every other agent: above 0",
            [(policy, other) for policy in POLICIES for other in based],
            regret,
            1,
        ),
        _about_pairs(
            "Strategies raise the AP of SAC",
            f"AP of every other SAC agent minus that of {POLICIES[0]}: above 0",
            [(policy, POLICIES[0]) for policy in POLICIES[1:]],
            performance,
            0,
        ),
        _about_one("OA hardly forgets", OA, forgetting, more=False),
    ]
    return found


def claim_tables(methods: Sequence[Method]) -> list[Table]:
    """Return the table of claims, and the one of forgetting beside the paper's."""
    rows = tuple(
        (claim.text, claim.verdict, claim.measured, claim.paper, claim.rule)
        for claim in claims(methods)
    )
    note = (
        "In percent: mean, or difference of means, and its 95 % interval over seeds (Student's t, "
        "Welch's degrees of freedom rounded down). Yes: the whole interval is where the rule says. "
        "No: all of it is where the rule says it is not. Open: it is on both sides. Not measured: "
        "a method has fewer than two finished runs. Of several pairs, the one with the lowest "
        "lower end is shown; yes needs all of them. The rules were fixed before any of the runs "
        "that the README reports had finished."
    )
    headings = ("the paper says", "here", "measured", "paper", "rule")
    judged = Table("claims", "The paper's claims", headings, rows, note)
    forgetting = _scores(methods, "forgetting")
    cells = []
    for agent, paper in PAPER_FORGETTING.items():
        found = interval(forgetting.get(agent, []))
        inside = None if found is None else found.low <= paper / 100 <= found.high
        said = MISSING if inside is None else "yes" if inside else "no"
        seeds = str(len(forgetting.get(agent, [])))
        cells.append((agent, seeds, _alone(forgetting, agent), f"{paper:.2f}", said))
    beside = Table(
        "forgetting",
        "Forgetting beside the paper's",
        ("method", "seeds", "forgetting ↓", "paper", "paper's figure inside the interval"),
        tuple(cells),
        "In percent: mean and 95 % interval over seeds. The paper's figures are from a table in "
        "its source that is commented out.",
    )
    return [judged, beside]


def _scores(methods: Sequence[Method], name: str) -> Scores:
    """Return a metric of the finished runs of the agents as they are."""
    scores: Scores = {}
    for method in methods:
        if not method.varied:
            values = [getattr(summarize(run), name) for run in method.complete]
            known = [value for value in values if not math.isnan(value)]
            scores.setdefault(method.agent, []).extend(known)
    return scores


def _difference(scores: Scores, first: str, second: str) -> Interval | None:
    values = scores.get(first, []), scores.get(second, [])
    return interval(*values) if all(values) else None


def _paper_difference(column: int, first: str, second: str) -> float:
    return PAPER_SCORES[first][column] - PAPER_SCORES[second][column]


def _about_one(text: str, agent: str, scores: Scores, *, more: bool) -> Claim:
    """Judge how much an agent forgets."""
    found = interval(scores.get(agent, []))
    side = "above" if more else "below"
    return Claim(
        text,
        f"forgetting of {agent}: {side} {100 * MARGIN:.0f} points",
        above(found, MARGIN) if more else below(found, MARGIN),
        _shown(found, scores, (agent,)),
        f"{PAPER_FORGETTING[agent]:.2f}",
    )


def _about_two(text: str, better: str, worse: str, scores: Scores) -> Claim:
    """Judge that an agent has a higher AP than another."""
    found = _difference(scores, better, worse)
    return Claim(
        text,
        f"AP of {better} minus that of {worse}: above 0",
        above(found),
        _shown(found, scores, (better, worse)),
        f"{_paper_difference(0, better, worse):.2f}",
    )


def _about_pairs(
    text: str, rule: str, pairs: Sequence[tuple[str, str]], scores: Scores, column: int
) -> Claim:
    """Judge that in every pair the first agent has the higher score; `column` of the paper's."""
    found = {pair: _difference(scores, *pair) for pair in pairs}
    verdicts = {above(one) for one in found.values()}
    order: tuple[Verdict, ...] = ("no", "not measured", "open", "yes")
    verdict = next(word for word in order if word in verdicts)
    known = {pair: one for pair, one in found.items() if one is not None}
    if known:
        (first, second), lowest = min(known.items(), key=lambda item: item[1].low)
        measured = f"{first} - {second}: {lowest}; {len(known)} of {len(pairs)} pairs"
    else:
        measured = _shown(None, scores, dict.fromkeys(agent for pair in pairs for agent in pair))
    least = min(pairs, key=lambda pair: _paper_difference(column, *pair))
    paper = f"{least[0]} - {least[1]}: {_paper_difference(column, *least):.2f}"
    return Claim(text, rule, verdict, measured, paper)


def _shown(found: Interval | None, scores: Scores, agents: Sequence[str] | dict[str, None]) -> str:
    """Return an interval, or what of it is there."""
    if found is not None:
        return str(found)
    there = [f"{agent} {_alone(scores, agent)}" for agent in agents if scores.get(agent)]
    return ", ".join(there) or MISSING


def _alone(scores: Scores, agent: str) -> str:
    values = scores.get(agent, [])
    found = interval(values)
    if found is not None:
        return str(found)
    return f"{percent(values[0])} [1 seed]" if values else MISSING
