"""Runs that are not as one would wish them: drawn honestly, labelled, or refused in a line."""

from __future__ import annotations

import csv
import dataclasses
import json
import random
import shutil
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.report import (
    Report,
    Resampling,
    read_comparison,
    read_report,
    summary_lines,
    write_report,
)
from everlearn.report.page import page
from everlearn.report.tables import latex_text, percent, to_csv
from everlearn.runs.command import command_for
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.presets import preset_config
from everlearn.support.errors import InvalidInputError
from tests.report.synthetic import config_of, write_run, write_sweep

pytestmark = pytest.mark.xdist_group("report")  # one process makes the report for all


def methods_of(report: Report) -> dict[str, dict]:
    return {method["label"]: method for method in report.to_json()["studies"][0]["methods"]}


def test_an_unfinished_run_is_drawn_but_not_counted(report: Report, written: Path):
    found = methods_of(report)["mlp-ewc"]
    assert [run["state"] for run in found["runs"]] == [
        "unfinished: 33 of 60 episodes",
        "finished",
    ]
    assert found["metrics"]["average_performance"]["seeds"] == 1
    rows = list(csv.DictReader((written / "data" / "success.csv").open()))
    ours = [row for row in rows if (row["method"], row["task"]) == ("mlp-ewc", "pick-place")]
    assert {int(row["episode"]): float(row["runs"]) for row in ours}[30] == 2
    assert {int(row["episode"]): float(row["runs"]) for row in ours}[35] == 1
    assert "1 of 2 finished" in (written / "tables" / "methods.md").read_text()


def test_missing_evaluations_leave_holes_and_no_numbers(report: Report, written: Path):
    found = methods_of(report)["mlp-packnet"]
    assert found["runs"][0]["state"] == "3 evaluations missing"
    assert found["metrics"]["average_performance"]["mean"] is None
    assert found["metrics"]["average_performance"]["so_far"] is not None
    rows = list(csv.DictReader((written / "data" / "success.csv").open()))
    when = {int(row["episode"]) for row in rows if row["method"] == "mlp-packnet"}
    assert not when & {10, 15, 60}
    assert "(so far)" in (written / "tables" / "methods.md").read_text()


def test_one_seed_has_no_interval(report: Report, written: Path):
    found = methods_of(report)["random"]["metrics"]["average_performance"]
    assert (found["seeds"], found["low"], found["standard_error"]) == (1, None, None)
    assert "[1 seed]" in (written / "tables" / "methods.md").read_text()


def test_runs_of_another_length_are_another_study(report: Report, written: Path):
    studies = report.to_json()["studies"]
    assert [study["episodes_per_task"] for study in studies] == [10, 2]
    assert [method["label"] for method in studies[1]["methods"]] == ["scripted"]
    assert (written / "study-2" / "tables" / "methods.csv").exists()


def test_folders_without_runs_are_clear_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for words, right in (
        ([str(tmp_path)], "holds no run"),
        ([str(tmp_path / "nowhere")], "there is no"),
        ([], "--compare A B"),
        ([str(tmp_path), "--resamples", "3"], "resamples is 3"),
    ):
        with pytest.raises(SystemExit) as end:
            main(["report", *words])
        assert end.value.code == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1
        assert right in said


def test_lines_that_nobody_wrote_are_refused_or_shown(tmp_path: Path):
    """Lines lost, doubled, swapped and altered: a report says so or goes on; it never breaks."""
    run = write_run(tmp_path / "runs" / "altered", config_of("oa", 0, "smoke"))
    write_run(tmp_path / "runs" / "good", config_of("oa", 1, "smoke"))
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    values = [0, 1, -1, 2**53, 1e308, 1e-320, None, True, "x", "door-open", 0.5, 100]
    left_out = 0
    for seed in range(60):
        chance, altered = random.Random(seed), [dict(line) for line in lines]
        for _ in range(chance.randint(1, 5)):
            place = chance.randrange(len(altered))
            name = chance.choice([name for name in altered[place] if name != "kind"])
            match chance.randrange(5):
                case 0:
                    altered.pop(place)
                case 1:
                    altered.insert(chance.randrange(len(altered)), dict(altered[place]))
                case 2:
                    altered[place][name] = chance.choice(values)
                case 3:
                    chance.shuffle(altered)
                case 4:
                    altered[place].pop(name)
        (run / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in altered))
        report = read_report([tmp_path / "runs"], Resampling(100))
        json.dumps(report.to_json(), allow_nan=False)
        assert "<h1>" in page(report, [[] for _ in report.studies], [[] for _ in report.studies])
        left_out += len(report.left_out)
    assert 10 < left_out < 50


def test_a_run_that_has_just_begun(tmp_path: Path):
    write_run(tmp_path / "run", config_of("oa", 0), episodes=0)
    found = read_report([tmp_path])
    text = write_report(found, tmp_path / "out").read_text()
    assert "unfinished: 0 of 60 episodes" in text
    assert list((tmp_path / "out" / "figures").iterdir()) == []


def test_an_unreadable_run_is_named_and_does_not_hide_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_sweep(tmp_path, ["random"], (0, 1))
    with (tmp_path / "random-1" / "metrics.jsonl").open("a") as file:
        file.write("rubbish\n")
    main(["report", str(tmp_path), "--json"])
    said = capsys.readouterr()
    assert "random-1" in said.err
    summary = json.loads(said.out)
    assert "damaged" in summary["left_out"][0]
    assert len(summary["studies"][0]["methods"][0]["runs"]) == 1
    assert not list(tmp_path.glob("*.html")), "--json alone writes nothing"
    shutil.rmtree(tmp_path / "random-0")
    with pytest.raises(InvalidInputError, match="damaged"):
        read_report([tmp_path])


def test_the_same_run_twice_counts_once(tmp_path: Path):
    write_run(tmp_path / "a", config_of("random", 0))
    write_run(tmp_path / "b", config_of("random", 0), episodes=5)
    report = read_report([tmp_path, tmp_path / "a"])
    study = report.to_json()["studies"][0]
    assert [run["folder"] for run in study["methods"][0]["runs"]] == [str(tmp_path / "a")]
    assert "is left out" in study["notes"][0]
    assert "is left out" in "\n".join(summary_lines(report))


def test_runs_without_stored_settings_are_told_apart(tmp_path: Path):
    write_run(tmp_path / "new", config_of("oa", 0))
    older = dataclasses.replace(config_of("oa", 1), resolved=None)
    write_run(tmp_path / "old", older)
    study = read_report([tmp_path]).to_json()["studies"][0]
    labels = [method["label"] for method in study["methods"]]
    assert labels == ["oa", "oa (settings not stored)"]
    assert "not the defaults of their time" in study["notes"][0]


def test_methods_are_told_apart_by_the_settings_that_differ(tmp_path: Path):
    write_run(tmp_path / "a", config_of("oa", 0))
    write_run(tmp_path / "b", config_of("oa", 0, bins=7))
    default = config_of("oa", 0).resolved
    assert default is not None
    # Said, but what it is anyway: the same method.
    write_run(tmp_path / "c", config_of("oa", 1, ridge=default["ridge"]))
    methods = methods_of(read_report([tmp_path]))
    assert {label: len(found["runs"]) for label, found in methods.items()} == {
        "oa": 2,
        "oa bins=7": 1,
    }
    assert methods["oa"]["paper"] is not None
    assert methods["oa bins=7"]["paper"] is None


def test_the_table_says_what_each_method_is_told_of_tasks(tmp_path: Path):
    write_run(tmp_path / "a", config_of("sac-ewc", 0))
    write_run(tmp_path / "b", config_of("sac-ewc", 0, multi_head=True))
    write_run(tmp_path / "c", config_of("sac-coreset", 0))
    write_run(tmp_path / "d", config_of("sac-packnet", 0, task_identity=True))
    tables = read_report([tmp_path]).studies[0].tables
    column = tables["methods"].headings.index("told of tasks")
    told = {row[0]: row[column] for row in tables["methods"].rows}
    assert told == {
        "sac-ewc": "boundaries",
        "sac-ewc multi_head=true": "boundaries, multi_head",
        "sac-packnet task_identity=true": "boundaries, name, task_identity",
        "sac-coreset": "no",
    }
    assert [row[0] for row in tables["tasks"].rows] == list(told)
    brief = tables["brief"]
    for row in brief.rows:  # those without options
        assert row[brief.headings.index("told of tasks")] == told[row[0]]


def test_two_sets_are_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_sweep(tmp_path / "before", ["oa", "random"], range(5), skill=0.3)
    write_sweep(tmp_path / "after", ["oa"], range(5, 9), skill=0.9)
    places = [str(tmp_path / "before"), str(tmp_path / "after")]
    main(["report", "--compare", *places, "--json"])
    study = json.loads(capsys.readouterr().out)["studies"][0]
    labels = [method["label"] for method in study["methods"]]
    assert labels == ["after: oa", "before: oa", "before: random"]
    change = next(c for c in study["changes"] if c["metric"] == "average_performance")
    means = [method["metrics"]["average_performance"]["mean"] for method in study["methods"][1::-1]]
    assert (change["method"], change["before"], change["after"]) == ("oa", *means)
    assert change["low"] < change["difference"] < change["high"]
    assert change["verdict"] == "better"
    verdicts = {c["metric"]: c["verdict"] for c in study["changes"]}
    assert verdicts["regret_online"] == "better"
    report = read_comparison(*places)
    assert "before against after" in "\n".join(summary_lines(report))
    assert "before against after" in page(report, [[]], [[]])
    with pytest.raises(InvalidInputError, match="twice"):
        read_comparison(places[0], places[0])


def test_a_set_against_itself_shows_no_difference(tmp_path: Path):
    write_sweep(tmp_path / "one", ["oa"], range(4))
    write_sweep(tmp_path / "two", ["oa"], range(4))
    report = read_comparison(tmp_path / "one", tmp_path / "two")
    for change in report.studies[0].changes:
        assert change.difference == 0
        assert change.verdict == "no clear difference"


CONFIGS = [
    preset_config("quick", "oa", seed=3, threads=2),
    preset_config("smoke", "mlp-coreset", {"capacity": 7, "hidden": 60}, seed=1),
    RunConfig("scripted", {"noise": 0.25}, tasks=("door-open", "peg-unplug"), record=False),
    RunConfig("random", evaluation=EvaluationSchedule(0, 0, 3, 0), reset_noise=0.01, max_steps=7),
    RunConfig("oa", {"deadline_ms": None, "clip": False, "memory": "none"}, wandb=True),
]


@pytest.mark.parametrize("config", CONFIGS, ids=lambda config: config.agent)
def test_the_command_of_a_run_makes_its_config(
    config: RunConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    import shlex

    from everlearn.runs import loop as run_module

    found = []

    class EnoughError(Exception):
        pass

    def execute(given: RunConfig, out: Path, **_: object) -> None:
        found.append((given, out))
        raise EnoughError

    monkeypatch.setattr(run_module, "execute", execute)
    out = tmp_path / "a folder; rm"
    words = shlex.split(command_for(config, str(out)))
    assert words[0] == "everlearn"
    with pytest.raises(EnoughError):
        main(words[1:])
    assert found == [(config, out)]


def test_text_of_any_kind_fits_into_latex_and_csv():
    assert latex_text("a_b & 50 % {x} ± \\") == (r"a\_b \& 50 \% \{x\} $\pm$ \textbackslash{}")
    rows = list(csv.DictReader(to_csv([{"a": '=cmd("x")', "b": float("nan")}]).splitlines()))
    assert rows == [{"a": '\'=cmd("x")', "b": ""}]


def test_next_to_nothing_is_nothing_on_either_side():
    assert [percent(share) for share in (0.0, -0.0, 4e-4, -4e-4)] == ["0.0"] * 4
    assert [percent(share) for share in (-6e-4, 0.12345, 1.0)] == ["-0.1", "12.3", "100.0"]
    assert percent(float("nan")) == "nan"
