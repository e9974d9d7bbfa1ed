"""A short page about an audit, in plain words."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from everlearn.audit.figures import FIGURES, save_figures
from everlearn.audit.result import Audit, Comparator, Learner
from everlearn.online import OnlineModelConfig
from everlearn.runs.folder import write_text
from everlearn.runs.metrics_file import storing
from everlearn.world_model.memory import NoMemory

NAMES = {"online": "sparse online model", "leader": "exact leader"}
COMPARATORS: tuple[tuple[Comparator, str], ...] = (
    ("ridge", "ridge, the best of its norm"),
    ("least_squares", "least squares, the best of all"),
)


def write_report(audit: Audit, folder: Path) -> None:
    """Write the page, its figures and all numbers (``audit.json``) into `folder`."""
    with storing(str(folder)):
        folder.mkdir(parents=True, exist_ok=True)
        save_figures(audit, folder)
        write_text(folder / "audit.json", json.dumps(audit.to_json(), indent=2) + "\n")
        pictures = [f"![{name.removesuffix('.png')}]({name})" for name in FIGURES]
        write_text(folder / "audit.md", "\n".join([*page_lines(audit), "", *pictures, ""]))


def page_lines(audit: Audit) -> list[str]:
    """Return the page as lines of Markdown."""
    return [
        *_head(audit),
        *_losses(audit),
        *_growth(audit),
        *_assumptions(audit),
        *_bound(audit),
        *_gap(audit),
        *_limits(audit),
    ]


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
        f"# Regret audit of {audit.name}",
        "",
        f"{audit.steps} transitions of {audit.episodes} episodes{order}. Model: {settings}; "
        "all else as in the paper.",
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
    learners: tuple[Learner, ...] = ("online", "leader")
    for learner in learners:
        for comparator, words in COMPARATORS:
            steps, regrets = audit.regret(learner, comparator)
            if not steps:
                continue
            growth = audit.growth[f"{learner}/{comparator}"]
            row = [NAMES[learner], words, f"{regrets[-1]:.4g}"]
            if growth is None:
                row += ["too few points", "", "", "", ""]
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
        "variance that each shape explains, and the slope on log axes.",
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
    gap, facts = audit.last.gap, audit.proposition
    out = [
        f"Sparse against exact: at the end the sparse weights are {gap.relative:.2%} of their norm "
        f"away from the exact ones, and their regularised loss on all data is {gap.excess:.2%} "
        "above the minimum."
    ]
    if audit.last.leader_loss is not None:
        extra = audit.last.online_loss / audit.last.leader_loss - 1
        out.append(f"The sparse model's loss over its life is {extra:+.1%} against the leader's.")
    out.append(
        f"The proposition on the gap allows K r_M = {facts.allowed:.3g} times |Delta_t|; the "
        f"largest seen is {facts.largest:.3g} times, and it held at {facts.held} of {facts.times} "
        "times."
    )
    if facts.one_step_largest is not None:
        out.append(
            f"One sparse step from the exact solution, as in its proof: "
            f"{facts.one_step_largest:.3g} times."
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
