"""What the page says of a comparison, on runs whose scores are set by hand."""

from __future__ import annotations

from pathlib import Path

from everlearn.report import Resampling, read_report
from everlearn.report.findings import GLOSSARY, findings
from tests.report.synthetic import config_of, write_run


def said(root: Path) -> str:
    (part,) = read_report([root]).studies
    return " ".join(findings(part.study, part.scores, Resampling()))


def test_a_clear_difference_is_called_one(tmp_path: Path):
    for seed in range(100, 106):
        write_run(tmp_path / f"a{seed}", config_of("oa", seed), skill=0.95)
        write_run(tmp_path / f"b{seed}", config_of("mlp-coreset", seed), skill=0.3)
        write_run(tmp_path / f"c{seed}", config_of("scripted", seed), skill=1.0)
        tuned = config_of("oa", seed, options={"model.bins": 7})
        write_run(tmp_path / f"d{seed}", tuned, skill=0.99)
    text = said(tmp_path)
    assert text.startswith("Of 2 agents that learn, oa has the highest AP: ")
    assert "mlp-coreset follows" in text
    assert "does not contain 0, so these seeds show a difference" in text
    assert "scripted" not in text, "scripts know the solution"
    assert "bins" not in text, "variations are for tuning"
    assert "do not know the same" not in text
    assert "too narrow" not in text


def test_equal_methods_are_not_ranked_by_chance(tmp_path: Path):
    for seed in range(100, 108):
        write_run(tmp_path / f"a{seed}", config_of("oa", seed), skill=0.5)
        write_run(tmp_path / f"b{seed}", config_of("mlp-packnet", seed), skill=0.5)
    text = said(tmp_path)
    assert "contains 0, so these seeds do not show which is better" in text
    assert "do not know the same" in text, "packnet is told the task"


def test_few_seeds_are_called_few(tmp_path: Path):
    for seed in (100, 101):
        write_run(tmp_path / f"a{seed}", config_of("oa", seed), skill=0.9)
        write_run(tmp_path / f"b{seed}", config_of("mlp-coreset", seed), skill=0.1)
    assert "With fewer than 5 seeds such intervals are too narrow" in said(tmp_path)


def test_one_seed_says_little_and_one_method_nothing(tmp_path: Path):
    write_run(tmp_path / "a", config_of("oa", 100), skill=0.9)
    assert said(tmp_path) == ""
    write_run(tmp_path / "b", config_of("mlp-coreset", 100), skill=0.1)
    assert "a single seed, so the difference may be chance" in said(tmp_path)


def test_the_glossary_has_the_words_of_the_page():
    assert {"AP", "regret", "given", "told of tasks", "burst"} <= GLOSSARY.keys()
