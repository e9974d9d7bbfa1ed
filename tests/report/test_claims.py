"""The paper's claims: verdicts of invented runs with a known answer, intervals against SciPy."""

from __future__ import annotations

import math
import statistics
from functools import cache
from pathlib import Path

import pytest
from scipy import stats

from everlearn.report import read_report
from everlearn.report.claims import (
    NETWORKS,
    OA,
    PAPER_FORGETTING,
    POLICIES,
    T_QUANTILES,
    Interval,
    above,
    below,
    claim_tables,
    interval,
    within,
)
from tests.report.plain import plain_numbers
from tests.report.synthetic import config_of, write_run

pytestmark = pytest.mark.xdist_group("claims")
AGENTS = (*NETWORKS, OA, *POLICIES)
SKILLS = dict(zip(AGENTS, (0.3, 0.5, 0.8, 0.97, 0.97, 0.05, 0.3, 0.3, 0.3, 0.3), strict=True))


@pytest.fixture(scope="module")
def paper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("paper")
    for agent in AGENTS:
        for seed in (300, 301, 302):
            run = root / f"{agent}-{seed}"
            write_run(run, config_of(agent, seed, "paper"), skill=SKILLS[agent])
    return root


def rows_of(root: Path, name: str = "claims") -> dict[str, dict[str, str]]:
    table = read_report([root]).studies[0].tables[name]
    return {row[0]: dict(zip(table.headings, row, strict=True)) for row in table.rows}


@cache
def values(root: Path, agent: str, metric: str) -> list[float]:
    return [plain_numbers(run)[metric] for run in sorted(root.glob(f"{agent}-30*"))]


def by_scipy(first: list[float], second: list[float] | None = None) -> tuple[float, float, float]:
    """Mean or difference in percent, and its interval, with whole degrees of freedom."""
    if second is None:
        mean, error, freedom = statistics.fmean(first), stats.sem(first), len(first) - 1
    else:
        test = stats.ttest_ind(first, second, equal_var=False)
        mean = statistics.fmean(first) - statistics.fmean(second)
        error = math.hypot(stats.sem(first), stats.sem(second))
        freedom = math.floor(test.df + 1e-9)
    half = stats.t.ppf(0.975, freedom) * abs(error)
    return 100 * mean, 100 * (mean - half), 100 * (mean + half)


def numbers(cell: str) -> tuple[float, float, float]:
    mean, ends = cell.split(";")[0].split(": ")[-1].rstrip("]").split(" [")
    low, high = ends.split(", ")
    return float(mean), float(low), float(high)


def test_the_quantiles_are_those_of_students_t():
    for freedom, quantile in enumerate(T_QUANTILES, 1):
        assert quantile == pytest.approx(stats.t.ppf(0.975, freedom), abs=5e-4)


def test_intervals_are_those_of_scipy():
    first, second = [0.2, 0.35, 0.5, 0.45], [0.1, 0.12, 0.3]
    assert tuple(100 * v for v in interval(first) or ()) == pytest.approx(by_scipy(first), abs=0.02)
    found = tuple(100 * v for v in interval(first, second) or ())
    assert found == pytest.approx(by_scipy(first, second), abs=0.02)
    assert interval([0.5]) is interval([]) is interval([0.5, 0.6], [0.1]) is None
    assert interval([0.5, 0.5], [0.25, 0.25]) == (0.25, 0.25, 0.25)


def test_verdicts_by_hand():
    low, middle, high = ((m, m - 0.05, m + 0.05) for m in (-0.2, 0.02, 0.2))
    made = [Interval(*one) for one in (low, middle, high)]
    assert [above(one) for one in made] == ["no", "open", "yes"]
    assert [below(one, 0.0) for one in made] == ["yes", "open", "no"]
    assert [within(one, 0.1) for one in made] == ["no", "yes", "no"]
    assert within(Interval(0.08, 0.0, 0.16), 0.1) == "open"
    assert above(None) == below(None, 0.0) == within(None, 0.1) == "not measured"


def test_every_figure_of_the_claims_again(paper: Path):
    rows = rows_of(paper)
    finetune, si, coreset, perfect = NETWORKS

    def check(text: str, verdict: str, wanted: tuple[float, float, float]) -> None:
        assert rows[text]["here"] == verdict, text
        assert numbers(rows[text]["measured"]) == pytest.approx(wanted, abs=0.06), text

    def performance(first: str, second: str) -> tuple[float, float, float]:
        metric = "average_performance"
        return by_scipy(values(paper, first, metric), values(paper, second, metric))

    check("SI helps a little", "yes", performance(si, finetune))
    check("A coreset helps more than SI", "yes", performance(coreset, si))
    check("OA matches perfect memory", "yes", performance(OA, perfect))
    own = by_scipy(values(paper, OA, "forgetting"))
    check("OA hardly forgets", "yes" if own[2] < 10 else "open", own)
    own = by_scipy(values(paper, finetune, "forgetting"))
    check("Fine-tuning forgets", "no" if own[2] < 10 else "open", own)
    regret = {agent: values(paper, agent, "regret_eval") for agent in AGENTS}
    pairs = [by_scipy(regret[other], regret[OA]) for other in AGENTS if other != OA]
    lowest = min(pairs, key=lambda one: one[1])
    # It ties with perfect memory here.
    check("OA has the least regret", "open" if lowest[2] > 0 else "no", lowest)
    pairs = [by_scipy(regret[one], regret[two]) for one in POLICIES for two in (*NETWORKS, OA)]
    lowest = min(pairs, key=lambda one: one[1])
    check("Model-free agents have high regret", "no" if lowest[2] < 0 else "open", lowest)
    assert "25 of 25 pairs" in rows["Model-free agents have high regret"]["measured"]
    assert rows["Strategies raise the AP of SAC"]["here"] == "yes"


def test_forgetting_stands_beside_the_papers(paper: Path):
    rows = rows_of(paper, "forgetting")
    assert [row["paper"] for row in rows.values()] == ["53.30", "35.14", "21.58", "4.72", "2.33"]
    for agent, figure in PAPER_FORGETTING.items():
        wanted = by_scipy(values(paper, agent, "forgetting"))
        assert numbers(rows[agent]["forgetting ↓"]) == pytest.approx(wanted, abs=0.06)
        inside = wanted[1] <= figure <= wanted[2]
        assert rows[agent]["paper's figure inside the interval"] == ("yes" if inside else "no")


def test_what_is_missing_is_said(tmp_path: Path):
    write_run(tmp_path / "one", config_of(OA, 300, "paper"), skill=0.9)
    rows = rows_of(tmp_path)
    assert {row["here"] for row in rows.values()} == {"not measured"}
    own = 100 * plain_numbers(tmp_path / "one")["forgetting"]
    assert rows["OA hardly forgets"]["measured"] == f"{OA} {own:.1f} [1 seed]"
    judged, beside = claim_tables(())
    assert {row[1] for row in judged.rows} == {"not measured"}
    assert {row[1] for row in beside.rows} == {"0"}


def test_one_pair_that_is_the_other_way_round_decides(tmp_path: Path):
    for seed in (300, 301):
        write_run(tmp_path / f"oa{seed}", config_of(OA, seed, "paper"), skill=0.3)
        config = config_of(POLICIES[0], seed, "paper")
        write_run(tmp_path / f"sac{seed}", config, skill=1.0)
    assert rows_of(tmp_path)["OA has the least regret"]["here"] in ("no", "not measured")
    for seed in (302, 303):
        write_run(tmp_path / f"oa{seed}", config_of(OA, seed, "paper"), skill=0.3)
        config = config_of(POLICIES[0], seed, "paper")
        write_run(tmp_path / f"sac{seed}", config, skill=1.0)
    assert rows_of(tmp_path)["OA has the least regret"]["here"] == "no"


def test_other_protocols_and_agents_have_no_such_table(tmp_path: Path):
    write_run(tmp_path / "quick", config_of(OA, 300))
    write_run(tmp_path / "own/oa", config_of("oa", 300, "paper"))
    write_run(tmp_path / "noise/oa", config_of(OA, 300, "paper", reset_noise=0.03))
    for folder in ("quick", "own", "noise"):
        assert "claims" not in read_report([tmp_path / folder]).studies[0].tables
