"""One pass over a stream: the sparse online model learns it and is compared with the theory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np

from everlearn.audit import theory
from everlearn.audit.leader import (
    ExactLeader,
    Solution,
    block_losses,
    least_squares_comparator,
    measure_gap,
    ridge_comparator,
    stream_losses,
)
from everlearn.audit.result import (
    COMPARATORS,
    LEARNERS,
    TOLERANCE,
    Audit,
    Point,
    StepLosses,
    first_verdict,
    gap_proposition,
    leader_identity,
    regret_curve,
    second_verdict,
    third_verdict,
)
from everlearn.audit.stream import (
    AuditConfig,
    Doubles,
    EncodedStream,
    TransitionStream,
    audit_times,
    model_for,
    read_stream,
    spans,
)
from everlearn.online import OnlineWorldModel
from everlearn.world_model.snapshot import LIVE_SETTINGS

BUDGET = 1e13
"""Operations that the exact leader may cost before it is left out, if nobody asked for it."""

MANY_CELLS = 4000
"""Cells in use beyond which least squares is left out and fewer points are audited."""

Progress = Callable[[int, int], None]
"""Called with steps done and steps in all."""


def audit_run(
    run: str | Path,
    *,
    agent: str | None = None,
    options: Iterable[str] = (),
    steps: int | None = None,
    config: AuditConfig | None = None,
    progress: Progress = lambda done, steps: None,
) -> Audit:
    """Audit the transitions that a run recorded, with a new model like its agent's.

    Parameters
    ----------
    run, agent, options
        See `model_for`.
    steps
        How many of the transitions; all if None.
    config, progress
        See `audit_stream`.
    """
    model = model_for(run, agent, options)
    return audit_stream(model, read_stream(run, steps), config, progress)


def audit_stream(
    model: OnlineWorldModel,
    stream: TransitionStream,
    config: AuditConfig | None = None,
    progress: Progress = lambda done, steps: None,
) -> Audit:
    """Let a new model learn a stream, and compare it with the theory.

    Parameters
    ----------
    model
        Has learned nothing yet; it learns the stream.
    stream
        The transitions.
    config
        How much is measured.
    progress
        Called after every block of steps.
    """
    return _Auditor(model, stream, config or AuditConfig()).run(progress)


class _Auditor:
    def __init__(
        self, model: OnlineWorldModel, stream: TransitionStream, config: AuditConfig
    ) -> None:
        self.started = time.perf_counter()
        self.model, self.stream, self.config = model, stream, config
        self.ridge = model.config.ridge
        self.rng = np.random.default_rng(config.seed)
        order = self.rng.permutation(stream.steps) if config.shuffle else None
        self.encoded = EncodedStream(model, stream, order)
        used = len(self.encoded.used)
        self.many_cells = used > MANY_CELLS
        self.times = audit_times(stream.steps, config.points or (8 if self.many_cells else 30))
        # One block of all steps, if they are fewer than the cells.
        self.as_one = stream.steps < used
        self.exact = self._is_affordable(used) if config.exact is None else config.exact
        self.leader = ExactLeader(used, self.encoded.outputs, self.ridge)
        self.online_losses: Doubles = np.empty(stream.steps)
        self.leader_losses: Doubles = np.empty(stream.steps)
        self.leverages: Doubles = np.empty(stream.steps)
        self.probes = self.rng.choice(stream.steps, min(config.probes, stream.steps), replace=False)

    def _is_affordable(self, cells: float) -> bool:
        steps = self.stream.steps
        if self.as_one:
            return steps**2 * cells + steps**3 / 3 <= BUDGET
        return steps / self.config.block * cells**3 / 3 + 3 * steps * cells**2 <= BUDGET

    def run(self, progress: Progress) -> Audit:
        points: list[Point] = []
        solution: Solution | None = None
        if self.exact and self.as_one:
            self.leader_losses, self.leverages = stream_losses(self.encoded, self.ridge)
        for first, end in spans(self.times, self.config.block):
            part = slice(first, end)
            features, targets = self.encoded.dense(part), self.encoded.targets[part]
            if self.exact and not self.as_one:
                solution = solution or self.leader.solve()
                self.leader_losses[part], self.leverages[part] = block_losses(
                    solution, features, targets
                )
            for step in range(first, end):
                self._predict_and_learn(step)
            self.leader.add(features, targets)
            solution = None
            if end in self.times:
                solution = self.leader.solve()
                points.append(self._point(end, solution))
            progress(end, self.stream.steps)
        return self._result(tuple(points))

    def _predict_and_learn(self, step: int) -> None:
        """``f_t(W~^(t)) = |W~^T phi_t - y_t|^2``, then equation 5."""
        encoded = self.encoded
        weights = self.model.weights[encoded.cells[step]].astype(np.float64)
        # Not `predict`, which keeps to the observation space: the theorem's model is linear.
        error = encoded.targets[step] - encoded.values[step].astype(np.float64) @ weights
        self.online_losses[step] = np.sum(error**2)
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
        best, rank = (None, None) if self.many_cells else least_squares_comparator(solution)
        largest = theory.largest_eigenvalue(solution.products)
        inputs = self.encoded.dense(np.append(self.probes, last))
        tried = [last, *self.rng.integers(count, size=self.config.blocks - 1)]
        return Point(
            step=count,
            online_loss=float(self.online_losses[:count].sum()),
            leader_loss=float(self.leader_losses[:count].sum()) if self.exact else None,
            still_loss=solution.squares,
            ridge=ridge_comparator(solution),
            least_squares=best,
            regularised_minimum=solution.regularised_minimum,
            rank=rank,
            online_norm=float(np.linalg.norm(online)),
            gap=measure_gap(solution, online, feature, self.encoded.targets[last], active),
            stability=theory.stability(solution, inputs, largest, TOLERANCE),
            spectral=largest[0],
            trace=float(np.trace(solution.products)),
            feature_square=float(feature @ feature),
            coupling=theory.coupling(solution, active),
            schur_ratio=max(
                theory.schur_ratio(solution, self.encoded.rows(step)) for step in tried
            ),
            blocks=len(tried),
        )

    def _result(self, points: tuple[Point, ...]) -> Audit:
        constants = self._constants(points)
        leverages = self.leverages if self.exact else None
        settings = {**asdict(self.model.config), "memory": self.model.memory.name}
        return Audit(
            name=self.stream.name,
            steps=self.stream.steps,
            episodes=self.stream.episodes,
            marks=() if self.config.shuffle else self.stream.marks,
            shuffled=self.config.shuffle,
            model={name: value for name, value in settings.items() if name not in LIVE_SETTINGS},
            constants=constants,
            bound=constants.bound(self.stream.steps),
            first_useful_step=constants.first_useful_step(),
            best_penalty_inverse=constants.best_penalty_inverse(self.stream.steps),
            verdicts=(
                first_verdict(points, leverages),
                second_verdict(self.encoded.targets),
                third_verdict(points, constants),
            ),
            remarks=tuple(self._remarks()),
            points=points,
            growth={
                f"{learner}/{comparator}": theory.fit_growth(
                    *regret_curve(points, learner, comparator)
                )
                for learner in LEARNERS
                for comparator in COMPARATORS
            },
            proposition=gap_proposition(points, constants),
            leader=leader_identity(points, self.leader_losses, self.leverages)
            if self.exact
            else None,
            seconds=time.perf_counter() - self.started,
            losses=StepLosses(
                self.online_losses, self.leader_losses if self.exact else None, leverages
            ),
        )

    def _constants(self, points: tuple[Point, ...]) -> theory.Constants:
        norms = [point.online_norm for point in points] + [point.ridge.norm for point in points]
        norms += [point.least_squares.norm for point in points if point.least_squares]
        return theory.Constants(
            cells=self.model.encoding.cells,
            used=len(self.encoded.used),
            active=self.encoded.active,
            outputs=self.encoded.outputs,
            penalty_inverse=1 / self.ridge,
            target_norm=float(np.linalg.norm(self.encoded.targets, axis=1).max()),
            weight_norm=max(norms),
            schur_ratio=max(point.schur_ratio for point in points),
        )

    def _remarks(self) -> list[str]:
        remarks = []
        if self.model.config.solve_every:
            remarks.append(
                f"every {self.model.config.solve_every} steps the exact solution replaces the "
                "weights; the theorem is about equation 5 alone"
            )
        if self.ridge > 1:
            remarks.append(f"lambda is {1 / self.ridge:g}; the theorem asks for at least 1")
        return remarks
