"""Every number of the tables, once more from metrics.jsonl by other means."""

from __future__ import annotations

import csv
import json
import re
import statistics
from pathlib import Path

import pytest
from scipy import stats

from everlearn.report import Report, Resampling, read_report
from everlearn.report.figures import draw_study, speeds
from everlearn.results.summary import SUCCESS_METRICS, scores_of, summarize
from everlearn.runs.config import PAPER_TASKS, RunConfig
from tests.report.plain import lines_of, plain_numbers
from tests.report.synthetic import config_of, write_run

ROOT = Path(__file__).parents[2]


pytestmark = pytest.mark.xdist_group("report")  # one process makes the report for all

SEEDS = range(100, 104)
AGENTS = ("oa", "mlp-finetune", "mlp-si", "mlp-coreset", "mlp-perfect-memory")
METRICS = (
    "average_performance",
    "regret_online",
    "regret_eval",
    "regret_eval_steps",
    "forgetting",
    "forward_transfer",
)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_number_of_the_table_again(agent: str, runs: Path, written: Path):
    again = [plain_numbers(runs / "methods" / f"{agent}-{seed}") for seed in SEEDS]
    rows = list(csv.DictReader((written / "tables" / "methods.csv").open()))
    row = next(row for row in rows if row["method"] == agent)
    assert row["seeds"] == "4"
    shown = {
        "average_performance": row["AP ↑"],
        "regret_online": row["regret online ↓"],
        "regret_eval": row["regret over episodes ↓"],
        "regret_eval_steps": row["regret over steps ↓"],
        "forgetting": row["forgetting ↓"],
        "forward_transfer": row["transfer ↑"],
    }
    for metric in METRICS:
        values = [numbers[metric] for numbers in again]
        mean, error = (float(part) for part in shown[metric].split(" ± "))
        assert mean == pytest.approx(100 * statistics.fmean(values), abs=0.051), metric
        assert error == pytest.approx(100 * stats.sem(values), abs=0.051), metric


def test_the_main_table_has_regret_in_three_forms(report: Report, runs: Path):
    table = report.studies[0].tables["brief"]
    row = next(dict(zip(table.headings, row, strict=True)) for row in table.rows if row[0] == "oa")
    again = [plain_numbers(runs / "methods" / f"oa-{seed}") for seed in SEEDS]
    shown = {
        "regret_online": "regret online ↓",
        "regret_eval": "regret over episodes ↓",
        "regret_eval_steps": "regret over steps ↓",
    }
    for metric, heading in shown.items():
        mean, error = (float(part) for part in row[heading].split(" ± "))
        values = [numbers[metric] for numbers in again]
        assert mean == pytest.approx(100 * statistics.fmean(values), abs=0.051), metric
        assert error == pytest.approx(100 * stats.sem(values), abs=0.051), metric
    assert len({row[heading] for heading in shown.values()}) == 3


def test_tables_say_where_regret_starts_without_a_measurement(tmp_path: Path):
    def note(folder: Path) -> str:
        return read_report([folder]).studies[0].tables["brief"].note

    said = "Runs without an evaluation before a task's first training episode: "
    write_run(tmp_path / "new" / "oa", config_of("oa", 100))
    assert said not in note(tmp_path / "new")
    write_run(tmp_path / "old" / "oa", config_of("oa", 101), before=False)
    write_run(tmp_path / "old" / "random", config_of("random", 101), before=False)
    assert said + "all methods;" in note(tmp_path / "old")
    # One older run is enough: its method's mean has it in it.
    write_run(tmp_path / "new" / "mlp-si", config_of("mlp-si", 100))
    assert said + "oa, random;" in note(tmp_path)


@pytest.mark.parametrize("before", [True, False])
def test_regret_starts_with_a_measurement_where_there_is_one(before: bool, tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("mlp-si", 100), before=before, alone=True)
    (record,) = read_report([tmp_path]).studies[0].study.methods[0].runs
    starts = [e for e in lines_of(run) if e["kind"] == "eval" and e["episode"] == 0]
    assert len(starts) == before
    assert record.state == "finished"
    again, summary = plain_numbers(run), summarize(record)
    for metric in SUCCESS_METRICS:
        wanted = pytest.approx(again[metric.name])
        assert getattr(summary, metric.name) == wanted, metric.name
        assert statistics.fmean(scores_of(record, metric).values()) == wanted, metric.name


def test_runs_stored_before_there_were_such_measurements_mean_what_they_meant():
    stored = [path.parent for path in (ROOT / "results" / "quick").glob("*-10?/metrics.jsonl")]
    assert len(stored) > 20
    for run in stored:
        again = plain_numbers(run)
        summary = summarize(run)
        for name in METRICS[:5]:
            assert getattr(summary, name) == pytest.approx(again[name]), (run.name, name)


@pytest.mark.parametrize("agent", AGENTS)
def test_every_number_of_the_tasks_at_the_end_again(agent: str, runs: Path, written: Path):
    rates: dict[str, list[float]] = {}
    for seed in SEEDS:
        for line in lines_of(runs / "methods" / f"{agent}-{seed}"):
            if line["kind"] == "eval" and line["episode"] == 60:
                rates.setdefault(line["task"], []).append(line["success_rate"])
    rows = list(csv.DictReader((written / "tables" / "tasks.csv").open()))
    row = next(row for row in rows if row["method"] == agent)
    assert row.pop("seeds") == "4"
    del row["method"]
    assert set(row) == set(rates)
    for task, shown in row.items():
        mean, error = (float(part) for part in shown.split(" ± "))
        assert mean == pytest.approx(100 * statistics.fmean(rates[task]), abs=0.051), task
        assert error == pytest.approx(100 * stats.sem(rates[task]), abs=0.051), task


def test_every_number_of_the_periods_again(runs: Path, written: Path):
    rows = list(csv.DictReader((written / "tables" / "periods.csv").open()))
    row = next(r for r in rows if (r["method"], r["task"]) == ("mlp-si", "door-open"))
    solved, before, after, end, steps, minutes = ([] for _ in range(6))
    for seed in SEEDS:
        lines = lines_of(runs / "methods" / f"mlp-si-{seed}")
        rate = {
            e["episode"]: e["success_rate"]
            for e in lines
            if e["kind"] == "eval" and e["task"] == "door-open"
        }
        trained = [e for e in lines if e["kind"] == "episode" and e["task"] == "door-open"]
        solved.append(sum(e["success"] for e in trained) / 10)
        before.append(rate[20])
        after.append(rate[30])
        end.append(rate[60])
        steps.append(sum(e["length"] for e in trained))
        minutes.append(sum(e["seconds"] for e in trained) / 60)
    shown = {"solved in training": solved, "before training": before, "after its period": after}
    for heading, values in (shown | {"at the end": end}).items():
        mean = float(row[heading].partition(" ± ")[0])
        assert mean == pytest.approx(100 * statistics.fmean(values), abs=0.051), heading
    assert row["bursts"] == row["processor minutes"] == "-", "its runs do not say"
    assert float(row["steps"]) == pytest.approx(statistics.fmean(steps), abs=0.51)
    assert float(row["minutes"]) == pytest.approx(statistics.fmean(minutes), abs=0.051)


def test_processor_time_is_shown_where_runs_say_it(runs: Path, written: Path):
    rows = list(csv.DictReader((written / "tables" / "periods.csv").open()))
    row = next(r for r in rows if (r["method"], r["task"]) == ("oa", "peg-unplug"))
    minutes = []
    for seed in SEEDS:
        lines = lines_of(runs / "methods" / f"oa-{seed}")
        trained = [e for e in lines if e["kind"] == "episode" and e["task"] == "peg-unplug"]
        minutes.append(sum(e["processor_seconds"] for e in trained) / 60)
    assert float(row["processor minutes"]) == pytest.approx(statistics.fmean(minutes), abs=0.051)


def test_tables_without_columns_for_it_say_what_methods_know(report: Report):
    for name in ("tasks", "periods"):
        note = report.studies[0].tables[name].note
        assert re.search(r": oa, .*?: told nothing, given reward function, success test, sc", note)
        assert "random: told nothing, given nothing" in note


def test_evaluation_in_other_ways_has_a_table(tmp_path: Path):
    for seed, share in ((100, 0.25), (101, 0.75)):
        run = write_run(tmp_path / str(seed), config_of("sac-ewc", seed))
        rates = {task: {"success_rate": share} for task in PAPER_TASKS}
        (run / "variants.json").write_text(json.dumps({"variants": {"mean actions": rates}}))
    write_run(tmp_path / "other", config_of("sac-coreset", 100))
    part = read_report([tmp_path]).studies[0]
    table = part.tables["variants"]
    (row,) = (dict(zip(table.headings, row, strict=True)) for row in table.rows)
    assert (row["method"], row["another way"], row["its seeds"]) == ("sac-ewc", "mean actions", "2")
    assert row["AP then"] == "50.0 ± 25.0"
    assert row["AP ↑"] == part.tables["brief"].rows[0][4]
    assert "variants" not in read_report([tmp_path / "other"]).studies[0].tables


@pytest.mark.parametrize(
    "content",
    [
        "[]",
        "{",
        '{"variants": 3}',
        '{"variants": {"x": {}}}',
        '{"variants": {"x": {"door-open": {"success_rate": "no"}}}}',
        json.dumps({"variants": {"x": {task: {"success_rate": 1.5} for task in PAPER_TASKS}}}),
        json.dumps({"variants": {"\n": {task: {"success_rate": 0.5} for task in PAPER_TASKS}}}),
    ],
)
def test_damaged_variants_leave_the_run_out(content: str, tmp_path: Path):
    run = write_run(tmp_path / "odd", config_of("sac-ewc", 100), episodes=1)
    (run / "variants.json").write_text(content)
    write_run(tmp_path / "whole", config_of("sac-ewc", 101), episodes=1)
    report = read_report([tmp_path])
    assert len(report.left_out) == 1
    assert "variants.json" in report.left_out[0]


def test_numbers_for_scripts_are_those_of_the_tables(report: Report, runs: Path):
    (study, other) = report.to_json()["studies"]
    assert (study["episodes_per_task"], other["episodes_per_task"]) == (10, 2)
    methods = {method["label"]: method for method in study["methods"]}
    again = [plain_numbers(runs / "methods" / f"oa-{seed}") for seed in SEEDS]
    for metric in METRICS:
        found = methods["oa"]["metrics"][metric]
        assert found["seeds"] == 4
        assert found["mean"] == pytest.approx(statistics.fmean(n[metric] for n in again))
    assert methods["oa"]["told"] == []
    assert methods["oa"]["given"] == ["reward function", "success test", "scene", "command law"]
    json.dumps(report.to_json(), allow_nan=False)


def test_the_middle_is_over_seeds_and_tasks(report: Report, runs: Path):
    finals = []
    for seed in SEEDS:
        for line in lines_of(runs / "methods" / f"mlp-si-{seed}"):
            if line["kind"] == "eval" and line["episode"] == 60:
                finals.append(line["success_rate"])
    assert len(finals) == 24
    methods = {method["label"]: method for method in report.to_json()["studies"][0]["methods"]}
    found = methods["mlp-si"]["metrics"]["average_performance"]
    assert found["interquartile_mean"] == pytest.approx(stats.trim_mean(finals, 0.25))
    assert found["low"] <= found["interquartile_mean"] <= found["high"]


def test_every_point_of_the_success_figure_again(written: Path, runs: Path):
    rates: dict[tuple[str, int], list[float]] = {}
    for seed in SEEDS:
        for line in lines_of(runs / "methods" / f"mlp-coreset-{seed}"):
            if line["kind"] == "eval":
                key = (line["task"], line["episode"])
                rates.setdefault(key, []).append(line["success_rate"])
    rows = list(csv.DictReader((written / "data" / "success.csv").open()))
    ours = [row for row in rows if row["method"] == "mlp-coreset"]
    assert len(ours) == len(rates)
    for row in ours:
        values = rates[row["task"], int(row["episode"])]
        assert float(row["mean"]) == pytest.approx(statistics.fmean(values))
        assert float(row["standard_error"]) == pytest.approx(stats.sem(values))
        assert float(row["runs"]) == 4


def test_average_performance_is_scaled_by_the_share_of_tasks_seen(written: Path, runs: Path):
    rows = list(csv.DictReader((written / "data" / "average-performance.csv").open()))
    ours = {int(row["episode"]): float(row["mean"]) for row in rows if row["method"] == "oa"}
    assert min(ours) == 5, "nothing has been seen before the first episode"
    for when, mean in ours.items():
        sums = []
        for seed in SEEDS:
            found = lines_of(runs / "methods" / f"oa-{seed}")
            there = [e for e in found if e["kind"] == "eval" and e["episode"] == when]
            trained = {e["task"] for e in found if e["kind"] == "episode" and e["episode"] <= when}
            sums.append(sum(e["success_rate"] for e in there if e["task"] in trained) / 6)
        assert mean == pytest.approx(statistics.fmean(sums))


def test_the_area_of_the_illustration_is_the_regret(written: Path, report: Report):
    rows = list(csv.DictReader((written / "data" / "regret-area.csv").open()))
    methods = {method["label"]: method for method in report.to_json()["studies"][0]["methods"]}
    for label in AGENTS:
        drawn = {float(row["regret"]) for row in rows if row["method"] == label}
        assert len(drawn) == 1
        wanted = methods[label]["metrics"]["regret_eval"]["mean"]
        assert drawn.pop() == pytest.approx(wanted)


def test_ablations_come_out_of_a_folder_of_runs(written: Path, runs: Path):
    rows = list(csv.DictReader((written / "data" / "bins.csv").open()))
    performance = [row for row in rows if row["metric"] == "average_performance"]
    assert [float(row["value"]) for row in performance] == [5, 7, 9, 11]
    finals = []
    for seed in (100, 101):
        found = lines_of(runs / "bins" / f"oa-9-{seed}")
        last = [e for e in found if e["kind"] == "eval" and e["episode"] == 60]
        finals.append(statistics.fmean(e["success_rate"] for e in last))
    assert float(performance[2]["mean"]) == pytest.approx(statistics.fmean(finals))
    used = [row for row in rows if row["metric"] == "utilization"]
    assert len(used) == 4
    budget = list(csv.DictReader((written / "data" / "budget.csv").open()))
    values = [float(row["value"]) for row in budget if row["setting"] == "capacity"]
    assert values == [1_000, 5_000, 10_000, 50_000]
    assert {row["agent"] for row in budget if not row["setting"]} >= {"oa", "mlp-perfect-memory"}


def test_speed_is_steps_by_seconds_of_training(written: Path, runs: Path):
    rows = list(csv.DictReader((written / "data" / "speed.csv").open()))
    row = next(r for r in rows if (r["method"], r["metric"]) == ("oa", "steps_per_second"))
    rates = []
    for seed in SEEDS:
        found = [e for e in lines_of(runs / "methods" / f"oa-{seed}") if e["kind"] == "episode"]
        rates.append(sum(e["length"] for e in found) / sum(e["seconds"] for e in found))
    assert float(row["mean"]) == pytest.approx(statistics.fmean(rates))


def test_times_of_different_processors_are_never_averaged(tmp_path: Path):
    used = {100: ["slow"], 101: ["fast"], 102: ["fast"], 103: ["fast", "slow"]}
    for seed, names in used.items():
        write_run(tmp_path / f"oa-{seed}", config_of("oa", seed))
        first, *others = [{"processor": name} for name in names]
        stored = {**first, "resumed_with": others} if others else first
        (tmp_path / f"oa-{seed}" / "environment.json").write_text(json.dumps(stored))
    (part,) = read_report([tmp_path]).studies
    (several,) = speeds(part.study, Resampling()).values()
    assert {one.processor: one.hours.runs for one in several} == {
        "slow": 1,
        "fast": 2,
        "fast, slow": 1,
    }
    (drawn,) = [
        one for one in draw_study(part.study, part.curves, Resampling()) if one.name == "speed"
    ]
    assert "3 sorts of processors" in drawn.caption
    assert {axes.get_xscale() for axes in drawn.figure.axes} == {"log"}


def test_wall_time_is_that_of_training_and_of_evaluation(written: Path, runs: Path):
    rows = list(csv.DictReader((written / "data" / "speed.csv").open()))
    means = {(row["method"], row["metric"]): row["mean"] for row in rows}
    for metric, kind in (("hours", "episode"), ("evaluation_hours", "eval")):
        hours = []
        for seed in SEEDS:
            found = [e for e in lines_of(runs / "methods" / f"oa-{seed}") if e["kind"] == kind]
            hours.append(sum(e["seconds"] for e in found) / 3600)
        assert float(means["oa", metric]) == pytest.approx(statistics.fmean(hours))
    assert means["mlp-si", "evaluation_hours"] == "", "its runs do not say"
    assert means["mlp-si", "hours"] != ""


def test_the_papers_numbers_are_in_the_paper():
    from everlearn.report.tables import PAPER_SCORES

    assert PAPER_SCORES["oa-paper"] == (72.93, 27.62)
    assert PAPER_SCORES["mlp-paper-finetune"] == (24.86, 37.74)
    assert PAPER_SCORES["sac-packnet"] == (41.72, 78.50)
    assert len(PAPER_SCORES) == 10
    assert not {"oa", "mlp-finetune", "mlp-coreset"} & PAPER_SCORES.keys(), (
        "they have other settings"
    )


def test_all_formats_of_a_table_say_the_same(written: Path):
    folder = written / "tables"
    rows = list(csv.reader((folder / "methods.csv").open()))
    markdown = (folder / "methods.md").read_text()
    cells = [
        [cell.strip() for cell in line.strip("| ").split(" | ")]
        for line in markdown.splitlines()
        if line.startswith("| ")
    ]
    assert cells == [[cell.strip() for cell in row] for row in rows]
    latex = (folder / "methods.tex").read_text()
    body = re.search(r"\\midrule\n(.*?)\\bottomrule", latex, flags=re.S)
    assert body
    numbers = [re.findall(r"-?\d+\.\d+", line) for line in body[1].splitlines()]
    wanted = [re.findall(r"-?\d+\.\d+", " ".join(row)) for row in rows[1:]]
    assert numbers[: len(wanted)] == wanted
    assert not re.search(r"(?<!\\)[%_#&](?! )", latex.replace(r" & ", " "))


def test_every_figure_has_its_files(written: Path):
    names = {path.stem for path in (written / "figures").glob("*.png")}
    assert names == {
        "success",
        "average-performance",
        "regret",
        "regret-area",
        "utilization",
        "model-error-1",
        "model-error-15",
        "calibration",
        "budget",
        "bins",
        "speed",
        "profiles",
        "improvement",
    }
    for name in names:
        assert (written / "figures" / f"{name}.pdf").read_bytes().startswith(b"%PDF")
        rows = list(csv.DictReader((written / "data" / f"{name}.csv").open()))
        assert rows
        words = {value.lower() for row in rows for value in row.values()}
        assert not words & {"nan", "inf", "-inf"}, "what is not known is an empty cell"


def test_print_quality(written: Path):
    from PIL import Image

    with Image.open(written / "figures" / "success.png") as picture:
        assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.5)
        assert picture.width >= 3000


def test_configs_of_the_runs_are_complete(runs: Path):
    config = RunConfig.read(runs / "bins" / "oa-9-100" / "config.json")
    assert config.resolved is not None
    assert config.resolved["model.bins"] == 9
