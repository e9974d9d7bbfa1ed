"""Runs that are not as one would wish them: drawn honestly, labelled, or refused in a line."""

from __future__ import annotations

import base64
import csv
import dataclasses
import io
import json
import os
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
from everlearn.report.build import find_videos, to_csv
from everlearn.report.figures import draw_study
from everlearn.report.page import page
from everlearn.report.tables import Table, latex_text, percent, to_markdown
from everlearn.results.summary import summarize
from everlearn.support.errors import InvalidInputError
from everlearn.support.files import ForeignFileError
from tests.report.synthetic import config_of, settings_of, write_run, write_sweep

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
    for before in (False, True):
        folder = tmp_path / str(before)
        write_run(folder / "run", config_of("oa", 0, "smoke"), episodes=0, before=before)
        report = read_report([folder])
        text = write_report(report, folder / "out").read_text()
        assert "unfinished: 0 of 4 episodes" in text
        figures = {path.stem for path in (folder / "out" / "figures").iterdir()}
        assert figures == ({"success"} if before else set()), "nothing has been seen"
        assert methods_of(report)["oa"]["metrics"]["average_performance"]["so_far"] is None


def test_a_run_that_stands_at_a_switch_counts_only_what_it_saw(tmp_path: Path):
    for seed, before in ((0, True), (1, False)):
        write_run(tmp_path / str(seed), config_of("oa", seed), episodes=20, before=before)
    for run in read_report([tmp_path]).studies[0].study.methods[0].runs:
        last = [
            line["success_rate"]
            for line in map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
            if line["kind"] == "eval" and line["episode"] == 20
        ]
        assert len(last) == 3 - run.config.seed
        assert summarize(run).average_performance == pytest.approx(sum(last[:2]) / 2)
        assert run.state == "unfinished: 20 of 60 episodes"


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
    write_run(tmp_path / "b", config_of("oa", 0, options={"model.bins": 7}))
    # Given, but what it is anyway: the same method.
    write_run(tmp_path / "c", config_of("oa", 1, options={"model.ridge": 10.0}))
    methods = methods_of(read_report([tmp_path]))
    assert {label: len(found["runs"]) for label, found in methods.items()} == {
        "oa": 2,
        "oa bins=7": 1,
    }


def test_labels_are_short_where_that_is_clear(tmp_path: Path):
    resolved = {**settings_of("oa"), "memory.action_gain": 1.0, "model.action_gain": 2.0}
    write_run(tmp_path / "a", config_of("oa", 0, resolved=resolved))
    options = {"model.action_gain": 3.0, "planner.horizon": 15}
    resolved |= options
    write_run(tmp_path / "b", config_of("oa", 0, options=options, resolved=resolved))
    # Settings of a part go with the choice of the part.
    without = {name: value for name, value in resolved.items() if not name.startswith("memory.")}
    without |= {"memory": "none", "model.action_gain": 2.0, "planner.horizon": 25}
    write_run(tmp_path / "c", config_of("oa", 0, options={"memory": "none"}, resolved=without))
    assert set(methods_of(read_report([tmp_path]))) == {
        "oa",
        "oa horizon=15 model.action_gain=3.0",
        "oa memory=none",
    }


def test_defaults_of_two_versions_are_two_methods_and_a_note(tmp_path: Path):
    write_run(tmp_path / "a", config_of("oa", 0))
    write_run(tmp_path / "b", config_of("oa", 1, resolved={**settings_of("oa"), "model.bins": 9}))
    study = read_report([tmp_path]).to_json()["studies"][0]
    assert [method["label"] for method in study["methods"]] == ["oa", "oa #2"]
    assert "oa #2 differs from oa in model.bins" in study["notes"][0]


def test_the_papers_numbers_stand_beside_the_papers_agents_and_budget_alone(tmp_path: Path):
    agents = ("oa", "oa-paper", "mlp-coreset", "mlp-paper-coreset", "sac-ewc")
    for agent in agents:
        write_run(tmp_path / "paper" / agent, config_of(agent, 300, "paper"))
        write_run(tmp_path / "quick" / agent, config_of(agent, 300))
        noisy = config_of(agent, 300, "paper", reset_noise=0.03)
        write_run(tmp_path / "noise" / agent, noisy)
    options = {"planner.horizon": 15}
    varied = config_of("oa-paper", 300, "paper", options=options)
    write_run(tmp_path / "paper" / "varied", varied)
    report = read_report([tmp_path / "paper"])
    papers = {label: method["paper"] for label, method in methods_of(report).items()}
    assert {label for label, score in papers.items() if score} == {
        "oa-paper",
        "mlp-paper-coreset",
        "sac-ewc",
    }
    assert papers["oa-paper"] == {"average_performance": 72.93, "regret": 27.62}
    for table in ("brief", "methods"):
        headings = report.studies[0].tables[table].headings
        assert {"AP, paper", "regret over episodes, paper"} <= set(headings)
        for other in ("quick", "noise"):
            tables = read_report([tmp_path / other]).studies[0].tables
            assert not any("paper" in heading for heading in tables[table].headings)


def test_tables_say_what_each_method_is_told_and_given(tmp_path: Path):
    write_run(tmp_path / "a", config_of("sac-ewc", 0))
    heads = config_of("sac-ewc", 0, options={"multi_head": True}, told=["boundaries", "name"])
    write_run(tmp_path / "b", heads)
    write_run(tmp_path / "c", config_of("sac-coreset", 0))
    write_run(tmp_path / "d", config_of("mine", 0, told=None, given=None))
    write_run(tmp_path / "e", config_of("oa-paper", 0))
    tables = read_report([tmp_path]).studies[0].tables
    column = tables["methods"].headings.index("told of tasks")
    told = {row[0]: row[column] for row in tables["methods"].rows}
    assert told == {
        "oa-paper": "nothing",
        "sac-ewc": "boundaries",
        "sac-ewc multi_head=true": "boundaries, name",
        "sac-coreset": "nothing",
        "mine": "-",
    }
    given = {row[0]: row[column + 1] for row in tables["methods"].rows}
    assert tables["methods"].headings[column + 1] == "given"
    assert given["oa-paper"] == "reward function"
    assert given["sac-ewc"] == "nothing"
    assert given["mine"] == "-"
    assert "do not say" in tables["methods"].note
    assert [row[0] for row in tables["tasks"].rows] == list(told)
    brief = tables["brief"]
    for row in brief.rows:  # those without options
        assert row[brief.headings.index("told of tasks")] == told[row[0]]
        assert row[brief.headings.index("given")] == given[row[0]]


def test_agents_tasks_and_worlds_that_nobody_here_knows_are_read_and_drawn(tmp_path: Path):
    config = config_of(
        "my-agent",
        0,
        "smoke",
        options={"depth": {"layers": [1, 2]}},
        world="my-world",
        tasks=("juggle", "sing"),
        imports=("no_such_module",),
    )
    write_run(tmp_path / "run", config)
    report = read_report([tmp_path])
    assert report.left_out == []
    text = write_report(report, tmp_path / "out").read_text()
    assert "my-world: 2 tasks" in text
    assert "juggle" in text
    assert (tmp_path / "out" / "figures" / "success.png").exists()


def test_a_forged_cache_of_the_metrics_is_never_read(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("oa", 0))
    expected = read_report([run]).to_json()
    status = (run / "metrics.jsonl").stat()
    for name in (".columns", ".columns.json", "metrics.cache"):
        (run / name).write_text('{"episode": {"success": [true]}}')
        os.utime(run / name, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert read_report([run]).to_json() == expected


def test_a_video_that_is_a_link_is_not_in_the_page(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("oa", 0, "smoke"))
    (tmp_path / "secret").write_bytes(b"what lies outside")
    (run / "videos").mkdir()
    (run / "videos" / "button-press-after.mp4").symlink_to(tmp_path / "secret")
    (run / "videos" / "window-close-after.mp4").write_bytes(b"a film")
    report = read_report([run])
    films = [find_videos([run / "videos"], report.studies[0].study.protocol.names)]
    text = page(report, [[]], films)
    assert base64.b64encode(b"a film").decode() in text
    assert base64.b64encode(b"what lies outside").decode() not in text


@pytest.mark.parametrize("name", ["figures", "data", "figures/success.png"])
def test_a_report_in_a_folder_of_somebody_else_does_not_follow_its_links(name: str, tmp_path: Path):
    run, outside = write_run(tmp_path / "run", config_of("oa", 0, "smoke")), tmp_path / "outside"
    outside.write_text("kept") if "." in name else outside.mkdir()
    out = run / "report"
    (out / name).parent.mkdir(parents=True)
    (out / name).symlink_to(outside)
    with pytest.raises(ForeignFileError, match="is a symbolic link"):
        write_report(read_report([run]), out)
    assert outside.read_text() == "kept" if outside.is_file() else not list(outside.iterdir())


def test_reports_only_read(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("oa", 0, "smoke"), alone=True)
    before = {file: file.stat().st_mtime_ns for file in run.rglob("*")}
    write_report(read_report([run]), tmp_path / "out")
    assert {file: file.stat().st_mtime_ns for file in run.rglob("*")} == before


def test_a_damaged_run_of_a_task_alone_leaves_its_run_out(tmp_path: Path):
    write_run(tmp_path / "a", config_of("oa", 0))
    run = write_run(tmp_path / "b", config_of("oa", 1), alone=True)
    (run / "single" / "door-open" / "metrics.jsonl").write_text("rubbish\n")
    report = read_report([tmp_path])
    assert len(report.left_out) == 1
    assert "door-open" in report.left_out[0]


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


def test_text_of_any_kind_fits_into_latex_and_csv():
    assert latex_text("a_b & 50 % {x} ± \\") == (r"a\_b \& 50 \% \{x\} $\pm$ \textbackslash{}")
    rows = list(csv.DictReader(to_csv([{"a": '=cmd("x")', "b": float("nan")}]).splitlines()))
    assert rows == [{"a": '\'=cmd("x")', "b": ""}]


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "\t", "\r"])
def test_no_cell_of_csv_is_a_formula(sign: str):
    text = to_csv([{f"{sign}heading": f"{sign}1+cmd|' /C calc'!A0", "number": -1.5}])
    (heading, number), (cell, value) = csv.reader(io.StringIO(text))
    assert heading.endswith("heading")
    assert cell.endswith("1+cmd|' /C calc'!A0")
    for found in (heading, cell):
        assert found[0] in ("'", "\\"), "neither a sign of a formula nor white space before one"
    assert (number, value) == ("number", "-1.5")


@pytest.mark.parametrize("cell", ["-", "-5.0 [1 seed]", "+1.2", "-0.3 ± 0.1", "-12.0 (so far)"])
def test_numbers_with_a_sign_stay_numbers(cell: str):
    assert list(csv.reader(io.StringIO(to_csv([{"a": cell}]))))[1] == [cell]


def test_nothing_of_a_run_comes_alive_in_markdown():
    hostile = "<img src=x onerror=alert(1)> [a](javascript:x) http://evil.example www.evil.example"
    cells = (hostile, "&lt;b&gt; | \\ \x1b[2J")
    text = to_markdown(Table("t", "t", ("<b>a</b>", "b"), (cells,), f"note of {hostile}"))
    for sign in ("<", "](", "://", "www.", "\x1b"):
        assert sign not in text
    assert "&amp;lt;b&amp;gt; \\| \\\\ \\\\x1b[2J" in text or "\\x1b[2J" in text
    plain = "79.0 [70.1, 80.2] ± 3 `oa` success_bonus=1"
    assert f"| {plain} |" in to_markdown(Table("t", "t", ("a",), ((plain,),), ""))


def test_nothing_of_a_run_reaches_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    """Values of options are in the names of methods, and folders in what is left out."""
    for seed, value in enumerate(("plain", "\x1b]0;owned\x07\x1b[2Jred")):
        write_run(tmp_path / str(seed), config_of("mine", 0, "smoke", options={"x": value}))
    damaged = write_run(tmp_path / "\x1b[2Jname", config_of("oa", 0, "smoke"))
    (damaged / "metrics.jsonl").write_text("rubbish\n")
    monkeypatch.setattr("everlearn.report.write_report", lambda *_, **__: tmp_path)
    main(["report", str(tmp_path)])
    said = capsys.readouterr()
    assert "\\x1b[2Jred" in said.out
    assert "\\x1b[2Jname" in said.err
    assert "\x1b" not in said.out + said.err


def test_dollar_signs_in_names_begin_no_formula(tmp_path: Path):
    write_run(tmp_path / "a", config_of("mine", 0, "smoke", options={"x": "$\\frac{1$"}))
    config = config_of("mine", 0, "smoke", tasks=("a$b_$", "c$^$"), options={"x": "y"})
    write_run(tmp_path / "b", config)
    for part in read_report([tmp_path]).studies:
        for drawing in draw_study(part.study, part.curves, Resampling(100)):
            drawing.figure.draw_without_rendering()


def test_next_to_nothing_is_nothing_on_either_side():
    assert [percent(share) for share in (0.0, -0.0, 4e-4, -4e-4)] == ["0.0"] * 4
    assert [percent(share) for share in (-6e-4, 0.12345, 1.0)] == ["-0.1", "12.3", "100.0"]
    assert percent(float("nan")) == "nan"
