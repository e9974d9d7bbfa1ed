"""One pass over a stream: the sparse online model, the exact leader, and all that is checked."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np

from everlearn.audit import assumptions, verdicts
from everlearn.audit.bound import Constants
from everlearn.audit.encoded import Doubles, EncodedStream
from everlearn.audit.gap import measure_gap
from everlearn.audit.growth import fit_growth
from everlearn.audit.hindsight import least_squares_comparator, ridge_comparator
from everlearn.audit.leader import ExactLeader, Solution, block_losses, stream_losses
from everlearn.audit.result import (
    Audit,
    LeaderFacts,
    Point,
    StepLosses,
    proposition_facts,
    regret_curve,
)
from everlearn.audit.schedule import AuditConfig, audit_times, spans
from everlearn.audit.stream import TransitionStream
from everlearn.online import OnlineWorldModel
from everlearn.world_model.snapshot import LIVE_SETTINGS

BUDGET = 1e13
"""Operations that the exact leader may cost before it is left out, if nobody asked for it."""

LARGE = 4000
"""Cells in use beyond which least squares is left out and fewer points are audited."""

Progress = Callable[[int, int], None]
"""Is told steps done and steps in all."""


def audit_stream(
    model: OnlineWorldModel,
    stream: TransitionStream,
    config: AuditConfig | None = None,
    progress: Progress = lambda done, steps: None,
) -> Audit:
    """Let a new model learn a stream, and compare it with theory at every step.

    Parameters
    ----------
    model
        Has learned nothing yet; it learns the stream.
    stream
        What happened.
    config
        How much is measured.
    progress
        Told how far it is.
    """
    return _Auditor(model, stream, config or AuditConfig()).run(progress)


class _Auditor:
    """The parts of one audit in one place."""

    def __init__(
        self, model: OnlineWorldModel, stream: TransitionStream, config: AuditConfig
    ) -> None:
        self.started = time.perf_counter()
        self.model, self.stream, self.config = model, stream, config
        self.rng = np.random.default_rng(config.seed)
        order = self.rng.permutation(stream.steps) if config.shuffle else None
        self.encoded = EncodedStream(model, stream, order)
        self.growing = False
        self.large = len(self.encoded.used) > LARGE
        self.times = audit_times(stream.steps, config.points or (8 if self.large else 30))
        # A ridge that grows changes the whole matrix at every step.
        self.block = 1 if self.growing else config.block
        # One block of all steps, if they are fewer than the cells.
        self.as_one = stream.steps < len(self.encoded.used) and not self.growing
        self.exact = self._affordable() if config.exact is None else config.exact
        self.leader = ExactLeader(
            len(self.encoded.used), self.encoded.outputs, model.config.ridge, self.growing
        )
        self.online = np.empty(stream.steps)
        self.exact_losses: Doubles = np.empty(stream.steps)
        self.leverages: Doubles = np.empty(stream.steps)
        self.probes = self.rng.choice(stream.steps, min(config.probes, stream.steps), replace=False)

    def _affordable(self) -> bool:
        cells, steps = float(len(self.encoded.used)), self.stream.steps
        if self.as_one:
            return steps**2 * cells + steps**3 / 3 <= BUDGET
        return steps / self.block * cells**3 / 3 + 3 * steps * cells**2 <= BUDGET

    def run(self, progress: Progress) -> Audit:
        points: list[Point] = []
        solution: Solution | None = None
        if self.exact and self.as_one:
            ridge = self.model.config.ridge
            self.exact_losses, self.leverages = stream_losses(self.encoded, ridge)
        for first, end in spans(self.times, self.block):
            part = slice(first, end)
            features, targets = self.encoded.dense(part), self.encoded.targets[part]
            if self.exact and not self.as_one:
                solution = solution or self.leader.solve()
                self.exact_losses[part], self.leverages[part] = block_losses(
                    solution, features, targets
                )
            for step in range(first, end):
                self._live(step)
            self.leader.add(features, targets)
            solution = None
            if end in self.times:
                solution = self.leader.solve()
                points.append(self._point(end, solution))
            progress(end, self.stream.steps)
        return self._result(tuple(points))

    def _live(self, step: int) -> None:
        """One step of the online model's life: predict, then learn."""
        encoded = self.encoded
        weights = self.model.weights[encoded.cells[step]].astype(np.float64)
        # Not `predict`, which keeps to the observation space: the theorem's model is linear.
        error = encoded.targets[step] - encoded.values[step].astype(np.float64) @ weights
        self.online[step] = np.sum(error**2)
        self.model.learn(
            encoded.observations[step],
            encoded.actions[step],
            encoded.next_observations[step],
            memory=encoded.memory[step],
        )

    def _point(self, count: int, solution: Solution) -> Point:
        last = count - 1
        feature = self.encoded.dense(np.array([last]))[0]
        active = self.encoded.rows(last)
        online = self.model.weights[self.encoded.used].astype(np.float64)
        best, rank = (None, None) if self.large else least_squares_comparator(solution)
        largest = assumptions.largest_eigenvalue(solution.products)
        tried = [last, *self.rng.integers(count, size=self.config.blocks - 1)]
        return Point(
            step=count,
            online_loss=float(self.online[:count].sum()),
            leader_loss=float(self.exact_losses[:count].sum()) if self.exact else None,
            still_loss=solution.squares,
            ridge=ridge_comparator(solution),
            least_squares=best,
            regularised_minimum=solution.regularised_minimum,
            rank=rank,
            online_norm=float(np.linalg.norm(online)),
            gap=measure_gap(
                solution, online, feature, self.encoded.targets[last], active, self.growing
            ),
            stability=assumptions.stability(
                solution,
                self.encoded.dense(np.append(self.probes, last)),
                largest,
                self.config.tolerance,
            ),
            spectral=largest[0],
            trace=float(np.trace(solution.products)),
            feature_square=float(feature @ feature),
            coupling=assumptions.coupling(solution, active),
            schur_ratio=max(
                assumptions.schur_ratio(solution, self.encoded.rows(step)) for step in tried
            ),
            blocks=len(tried),
        )

    def _result(self, points: tuple[Point, ...]) -> Audit:
        tolerance = self.config.tolerance
        constants = self._constants(points)
        leverages = self.leverages if self.exact else None
        growth = {
            f"{learner}/{comparator}": fit_growth(*regret_curve(points, learner, comparator))
            for learner in ("online", "leader")
            for comparator in ("ridge", "least_squares")
        }
        return Audit(
            name=self.stream.name,
            steps=self.stream.steps,
            episodes=self.stream.episodes,
            marks=() if self.config.shuffle else self.stream.marks,
            shuffled=self.config.shuffle,
            model=self._settings(),
            constants=constants,
            bound=constants.bound(self.stream.steps),
            first_useful_step=constants.first_useful_step(),
            best_penalty_inverse=constants.best_penalty_inverse(self.stream.steps),
            verdicts=(
                verdicts.first_verdict(points, leverages),
                verdicts.second_verdict(self.encoded.targets, tolerance),
                verdicts.third_verdict(points, constants, tolerance),
            ),
            remarks=tuple(self._remarks()),
            points=points,
            growth=growth,
            proposition=proposition_facts(points, constants),
            leader=self._leader_facts(points) if self.exact and not self.growing else None,
            seconds=time.perf_counter() - self.started,
            losses=StepLosses(self.online, self.exact_losses if self.exact else None, leverages),
        )

    def _constants(self, points: tuple[Point, ...]) -> Constants:
        norms = [point.online_norm for point in points] + [point.ridge.norm for point in points]
        norms += [point.least_squares.norm for point in points if point.least_squares]
        return Constants(
            cells=self.model.encoding.cells,
            used=len(self.encoded.used),
            active=self.encoded.active,
            outputs=self.encoded.outputs,
            penalty_inverse=1 / self.model.config.ridge,
            target_norm=float(np.linalg.norm(self.encoded.targets, axis=1).max()),
            weight_norm=max(norms),
            schur_ratio=max(point.schur_ratio for point in points),
        )

    def _settings(self) -> dict[str, Any]:
        settings = asdict(self.model.config)
        for name in LIVE_SETTINGS:
            del settings[name]
        return {**settings, "memory": self.model.memory.name}

    def _remarks(self) -> list[str]:
        out = []
        if self.growing:
            out.append("the ridge grows with the samples; the theorem is about a fixed one")
        if self.model.config.solve_every:
            out.append(
                f"every {self.model.config.solve_every} steps the exact solution replaces the "
                "weights; the theorem is about equation 5 alone"
            )
        if self.model.config.ridge > 1:
            out.append(
                f"lambda is {1 / self.model.config.ridge:g}; the theorem asks for at least 1"
            )
        return out

    def _leader_facts(self, points: tuple[Point, ...]) -> LeaderFacts:
        losses, leverages = self.exact_losses, self.leverages
        kept = np.cumsum((1 - leverages) * losses)
        errors = [
            abs(float(kept[point.step - 1]) - point.regularised_minimum) / (point.still_loss or 1.0)
            for point in points
        ]
        determinant = float(-np.log1p(-leverages).sum())
        return LeaderFacts(
            regret=float(losses.sum() - points[-1].regularised_minimum),
            log_determinant=determinant,
            bound=float(losses.max()) * determinant,
            identity_error=max(errors),
        )
