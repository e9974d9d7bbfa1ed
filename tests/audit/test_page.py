"""The verdict with which the page begins: one sentence, computed from the result."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from everlearn.audit import (
    Audit,
    AuditConfig,
    TransitionStream,
    audit_stream,
    page_lines,
    synthetic_case,
)
from everlearn.audit.page import verdict_sentence, write_report


def audited(name: str, steps: int = 60, config: AuditConfig | None = None) -> Audit:
    case = synthetic_case(name, steps)
    return audit_stream(case.model, case.stream, config)


@pytest.fixture(scope="module")
def steady() -> Audit:
    return audited("steady")


def test_the_page_begins_with_one_sentence(steady: Audit):
    first, second, *_ = page_lines(steady)
    growth = steady.growth["online/least_squares"]
    assert growth is not None
    assert first == (
        f"On these 60 transitions the regret grows like t^{growth.exponent:.2f}, below the paper's "
        "bound, which is too large to say anything; all three assumptions hold."
    )
    assert second == ""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("signed", "the theorem does not apply, because assumption 2 fails."),
        ("iid", "the theorem does not apply, because assumptions 1 and 2 fail."),
    ],
)
def test_assumptions_that_fail_are_named(name: str, words: str):
    assert verdict_sentence(audited(name)).endswith(words)


def test_every_assumption_and_the_model(steady: Audit):
    failed = tuple(replace(verdict, held=False) for verdict in steady.verdicts)
    remarked = replace(steady, verdicts=failed, remarks=("lambda is 0.1",))
    assert verdict_sentence(remarked).endswith(
        "because assumptions 1, 2 and 3 fail and the model has settings that it does not cover."
    )


def test_the_bound_can_be_useful_or_exceeded(steady: Audit):
    useful = replace(steady, first_useful_step=10.0)
    assert "below the paper's bound; all three" in verdict_sentence(useful)
    tiny = replace(steady.constants, weight_norm=0.0, target_norm=1e-9)
    times = len(steady.points)
    assert f"above the paper's bound at {times} of {times} times; all three" in verdict_sentence(
        replace(steady, constants=tiny)
    )


def test_what_cannot_be_said_is_not_said(steady: Audit):
    few = audited("steady", config=AuditConfig(points=2, shuffle=True))
    assert verdict_sentence(few).startswith("On these 60 transitions in random order the regret is")
    assert "(measured at too few times to say how it grows), below" in verdict_sentence(few)
    assert "(the same at all times)" in verdict_sentence(
        replace(steady, growth={"online/least_squares": None})
    )
    growth = steady.growth["online/least_squares"]
    assert growth is not None
    changed = {"online/least_squares": replace(growth, exponent=None)}
    assert "(not positive at all times" in verdict_sentence(replace(steady, growth=changed))
    changed = {"online/least_squares": replace(growth, exponent=-0.25)}
    assert "the regret falls like t^-0.25," in verdict_sentence(replace(steady, growth=changed))


def test_a_stream_in_which_nothing_moves(tmp_path):
    case = synthetic_case("steady", 40)
    still = case.stream.observations
    stream = TransitionStream("still", still, case.stream.actions, still, np.ones(40, np.bool_))
    audit = audit_stream(case.model, stream)
    assert (audit.first_useful_step, audit.best_penalty_inverse) == (None, None)
    write_report(audit, tmp_path)
    assert (
        (tmp_path / "audit.md")
        .read_text()
        .startswith("On these 40 transitions nothing moved, so there is no regret to speak of.\n\n")
    )
