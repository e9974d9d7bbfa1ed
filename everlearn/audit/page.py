"""The text of an audit, verdict first; its page with figures and numbers; its progress bar."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as ProgressBar

from everlearn.audit.measure import Progress
from everlearn.audit.result import COMPARATORS, LEARNERS, Audit
from everlearn.audit.theory import FEWEST, LATE
from everlearn.online import OnlineModelConfig
from everlearn.runs.metrics_file import storing
from everlearn.support.files import write_text
from everlearn.support.terminal import error_console
from everlearn.world_model.memory import NoMemory


def write_report(audit: Audit, folder: Path) -> None:
    """Write the page (``audit.md``), its figures and all numbers (``audit.json``) into `folder`."""
    from everlearn.audit.figures import FIGURES, save_figures  # text alone needs no matplotlib

    with storing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        save_figures(audit, folder)
        write_text(folder / "audit.json", json.dumps(audit.to_json(), indent=2) + "\n")
        pictures = [f"![{name.removesuffix('.png')}]({name})" for name in FIGURES]
        write_text(folder / "audit.md", "\n".join([*page_lines(audit), "", *pictures, ""]))


def page_lines(audit: Audit) -> list[str]:
    """Return the page as lines of Markdown; the first is the verdict, in a sentence."""
    return [
        verdict_sentence(audit),
        "",
        *_head(audit),
        *_losses(audit),
        *_growth(audit),
        *_assumptions(audit),
        *_bound(audit),
        *_gap(audit),
        *_limits(audit),
    ]


def verdict_sentence(audit: Audit) -> str:
    """Say in one sentence how the regret grows, if it is below the bound, if the theorem applies.

    The regret is that of the sparse online model against the strongest comparator computed.
    """
    stream = f"On these {audit.steps:,} transitions{' in random order' if audit.shuffled else ''}"
    if audit.constants.target_norm == 0:
        return f"{stream} nothing moved, so there is no regret to speak of."
    failed = [str(verdict.assumption) for verdict in audit.verdicts if not verdict.held]
    reasons = []
    if failed:
        plural = len(failed) > 1
        numbers = (
            f"s {', '.join(failed[:-1])} and {failed[-1]} fail" if plural else f" {failed[0]} fails"
        )
        reasons.append("assumption" + numbers)
    if audit.remarks:
        reasons.append("the model has settings that it does not cover")
    theorem = "all three assumptions hold"
    if reasons:
        theorem = f"the theorem does not apply, because {' and '.join(reasons)}"
    return f"{stream} {_growth_words(audit)}, {_bound_words(audit)}; {theorem}."


def _growth_words(audit: Audit) -> str:
    steps, regrets = audit.regret("online", audit.strongest)
    growth = audit.growth[f"online/{audit.strongest}"]
    if growth is not None and growth.exponent is not None:
        verb = "grows" if growth.exponent >= 0 else "falls"
        return f"the regret {verb} like t^{growth.exponent:.2f}"
    if growth is not None:
        why = "not positive at all times, so that it has no exponent"
    elif sum(step >= LATE * steps[-1] for step in steps) < FEWEST:
        why = "measured at too few times to say how it grows"
    else:
        why = "the same at all times"
    return f"the regret is {regrets[-1]:.3g} ({why})"


def _bound_words(audit: Audit) -> str:
    steps, regrets = audit.regret("online", audit.strongest)
    above = sum(
        regret > audit.constants.bound(step) for step, regret in zip(steps, regrets, strict=True)
    )
    if above:
        return f"above the paper's bound at {above} of {len(steps)} times"
    if audit.first_useful_step is None or audit.steps < audit.first_useful_step:
        return "below the paper's bound, which is too large to say anything"
    return "below the paper's bound"


def _head(audit: Audit) -> list[str]:
    papers = {**asdict(OnlineModelConfig()), "memory": NoMemory.name}
    settings = ", ".join(
        f"{name} {value}"
        for name, value in audit.model.items()
        if name in ("features", "ridge") or value != papers.get(name)
    )
    order = " in random order" if audit.shuffled else ""
    constants = audit.constants
    return [
        f"Regret audit of {audit.name}: {audit.steps} transitions of {audit.episodes} "
        f"episodes{order}. Model: {settings}; all else as in the paper.",
        f"D = {constants.cells} cells, of which the stream touches {constants.used}; K = "
        f"{constants.active} active; S = {constants.outputs} outputs.",
        "",
    ]


def _losses(audit: Audit) -> list[str]:
    last = audit.last
    rows = [("predict no change", last.still_loss), ("sparse online model", last.online_loss)]
    if last.leader_loss is not None:
        rows.append(("exact leader, before every step", last.leader_loss))
    rows.append(("ridge in hindsight", last.ridge.loss))
    if last.least_squares is not None:
        rows.append(("least squares in hindsight", last.least_squares.loss))
    out = ["| sum of squared errors | at the end |", "|---|---|"]
    out += [f"| {name} | {value:.5g} |" for name, value in rows]
    return [*out, ""]


def _growth(audit: Audit) -> list[str]:
    out = [
        "Regret is in the plain squared loss, as in the theorem, each time against the best fixed "
        "model of the steps so far.",
        "",
        "| regret of | against | at the end | best fit | log T | sqrt T | T | exponent |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for learner, learner_name in LEARNERS.items():
        for comparator, comparator_name in COMPARATORS.items():
            steps, regrets = audit.regret(learner, comparator)
            if not steps:
                continue
            growth = audit.growth[f"{learner}/{comparator}"]
            row = [learner_name, comparator_name, f"{regrets[-1]:.4g}"]
            if growth is None:
                row += ["no fit", "", "", "", ""]
            else:
                row.append(growth.best)
                row += [f"{fit.explained:.4f}" for fit in growth.fits.values()]
                row.append("-" if growth.exponent is None else f"{growth.exponent:.2f}")
            out.append("| " + " | ".join(row) + " |")
    fitted = max((growth.points for growth in audit.growth.values() if growth), default=0)
    return [
        *out,
        "",
        f"Fits are over the {fitted} points after the first tenth; columns show the part of the "
        "variance that each law explains, and the slope on log axes.",
        "",
    ]


def _assumptions(audit: Audit) -> list[str]:
    first, second, third = (verdict.facts for verdict in audit.verdicts)
    words = ["held" if verdict.held else "failed" for verdict in audit.verdicts]
    out = [
        f"- **Assumption 1** (features settle): {words[0]}. True at {first['times_held']} of "
        f"{first['times']} times, for {first['pairs_held']} of {first['pairs']} pairs of time and "
        f"input. At the end the norm is {first['last_norm']:.3g}, {first['last_ratio']:.3g} times "
        "what is allowed."
    ]
    if first["consequence_share"] is not None:
        out[0] += (
            f" What the proofs take from it, leverage at most 1/t, is true at "
            f"{first['consequence_share']:.2%} of the steps; the median leverage of the last tenth "
            f"is {first['consequence_last_ratio']:.3g} times 1/t."
        )
    out.append(
        f"- **Assumption 2** (targets not negative, all bounded): {words[1]}. "
        f"{second['steps_held']:.2%} of the steps have no negative target; "
        f"{second['entries_negative']:.1%} of all entries are negative, "
        f"{second['entries_zero']:.1%} zero. Bounds: c_y = {audit.constants.target_norm:.4g}, "
        f"c_W = {audit.constants.weight_norm:.4g}."
    )
    out.append(
        f"- **Assumption 3** (enough active cells): {words[2]}. K = {third['active']}; at the end "
        f"{third['last_asked']:.4g} are asked for. True at {third['times_held']} of "
        f"{third['times']} times with the spectral norm, {third['times_held_trace']} with the "
        f"trace that the proof has, {third['times_held_appendix']} with the trace and c_y >= 1."
    )
    return [*out, *(f"- Beside them: {remark}." for remark in audit.remarks), ""]


def _bound(audit: Audit) -> list[str]:
    constants, last = audit.constants, audit.last
    out = [
        f"The bound, with lambda = {constants.penalty_inverse:g} and r_M at least "
        f"{constants.schur_ratio:.4g}, is {audit.bound:.3g}: {audit.bound / last.still_loss:.2g} "
        "times the whole loss of predicting no change."
        if last.still_loss
        else f"The bound is {audit.bound:.3g}; nothing moved.",
    ]
    if audit.first_useful_step is not None:
        out.append(f"It says something from step {audit.first_useful_step:.2g} on.")
    if audit.best_penalty_inverse is not None:
        out.append(
            "The theorem's second part would need lambda = "
            f"{audit.best_penalty_inverse:.2g}, and asks for at least 1."
        )
    if audit.leader is not None:
        out.append(
            "Without any assumption the exact leader's regret against the regularised minimum, "
            f"{audit.leader.regret:.4g}, is at most (largest loss) x log det(I + A/r) = "
            f"{audit.leader.bound:.4g}."
        )
    return [" ".join(out), ""]


def _gap(audit: Audit) -> list[str]:
    gap, proposition = audit.last.gap, audit.proposition
    out = [
        f"Sparse against exact: at the end the sparse weights are {gap.relative:.2%} of their norm "
        f"away from the exact ones, and their regularised loss on all data is {gap.excess:.2%} "
        "above the minimum."
    ]
    if audit.last.leader_loss:
        extra = audit.last.online_loss / audit.last.leader_loss - 1
        out.append(f"The sparse model's loss over its life is {extra:+.1%} against the leader's.")
    out.append(
        f"Proposition 3 allows a gap of K r_M = {proposition.allowed:.3g} times |Delta_t|; the "
        f"largest seen is {proposition.largest:.3g} times, and it held at {proposition.held} of "
        f"{proposition.times} times. One sparse step from the exact solution, as in its proof: "
        f"{proposition.one_step_largest:.3g} times."
    )
    return [" ".join(out), ""]


def _limits(audit: Audit) -> list[str]:
    last = audit.last
    exact = "losses of every step, c_y, targets, ridge in hindsight and the gap at all times listed"
    if last.leader_loss is not None:
        exact += ", leader and leverages at every step"
    if audit.leader is not None:
        exact += f" (checked by an identity, to {audit.leader.identity_error:.1e})"
    sampled = (
        f"{len(audit.points)} times; assumption 1 on {last.stability.inputs} inputs of the stream "
        f"at each, where the paper has all inputs there are; r_M on {last.blocks} blocks at each, "
        "so that it and the bound can only be larger"
    )
    missing = []
    if last.leader_loss is None:
        missing.append("the exact leader's losses (too many cells)")
    if last.least_squares is None:
        missing.append("least squares (too many cells)")
    left_out = f" Left out: {', '.join(missing)}." if missing else ""
    return [
        f"Computed exactly, in float64 but for the online model itself, which has its own "
        f"precision: {exact}. Sampled: {sampled}.{left_out} "
        f"{audit.seconds:.0f} s."
    ]


@contextmanager
def progress_bar(console: Console | None = None) -> Iterator[Progress]:
    """Give a function that shows how far an audit is; only terminals show it."""
    console = console or error_console()
    columns = (TextColumn("audit"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with ProgressBar(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task("audit", total=None)
        yield lambda done, steps: bar.update(task, completed=done, total=steps)
