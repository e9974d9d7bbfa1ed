"""A package of a user's: its agent and its world work in every command, and in every process."""

from __future__ import annotations

import dataclasses
import json
import shutil
from pathlib import Path

import pytest

from everlearn import cli
from everlearn.runs.config import RunConfig
from everlearn.runs.metrics_file import read_lines
from tests.plugins.conftest import MODULE, Everlearn, everlearn_in

# One process for all of them: they share an installation and runs.
pytestmark = pytest.mark.xdist_group("plugins")

SMALL = ["--episodes-per-task", 2, "--evaluation.every", 1, "--evaluation.episodes", 2]
SMALL += ["--evaluation.boundary-episodes", 2, "--threads", 2, "--seed", 3]


def lines_of(run: Path) -> list[dict]:
    lines, _ = read_lines(run / "metrics.jsonl")
    return [{k: v for k, v in line.items() if "seconds" not in k} for line in lines]


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("work")


@pytest.fixture(scope="module")
def installed(site: Path, work: Path) -> Everlearn:
    """Commands where the package is installed."""
    return everlearn_in(work, PYTHONPATH=str(site))


@pytest.fixture(scope="module")
def run(installed: Everlearn, work: Path) -> Path:
    """A run of the installed agent in the installed world, evaluated by two processes."""
    words = ["run", "--agent", "mine", "--world", "mine", *SMALL, "--option", "noise=0.75"]
    said = installed(*words, "--evaluators", 2, "--out", "runs/two")
    assert "mine in mine: 2 x 2 episodes of up to 15 steps, seed 3" in said.stderr
    assert "process less" not in said.stderr, "the second evaluator knows the plugin too"
    assert "average performance" in said.stdout
    return work / "runs" / "two"


@pytest.fixture(scope="module")
def swept(installed: Everlearn, work: Path) -> Path:
    words = ["sweep", "--agents", "mine,random", "--world", "mine", "--seeds", "0-1"]
    said = installed(*words, "--episodes-per-task", 1, "--out", "sweep")
    assert "4 of 4 runs finished" in said.stdout
    return work / "sweep"


def test_a_run_stores_what_its_agent_and_world_are(run: Path):
    config = RunConfig.read(run / "config.json")
    assert (config.agent, config.world, config.tasks) == ("mine", "mine", ("left", "right"))
    assert (config.max_steps, config.measure) == (15, "success")
    assert config.resolved == {"noise": 0.75}
    assert (config.told, config.given) == (("boundaries", "name"), ())
    lines = lines_of(run)
    assert [line["task"] for line in lines if line["kind"] == "episode"] == [
        "left", "left", "right", "right",
    ]  # fmt: skip
    assert all(line["success"] in (True, False) for line in lines if line["kind"] == "episode")


def test_eval_repeats_the_numbers_of_the_run(installed: Everlearn, run: Path):
    said = json.loads(installed("eval", run, "--episodes", 2, "--json").stdout)
    last = [line for line in lines_of(run) if line["kind"] == "eval" and line["episode"] == 4]
    assert said["episode"] == 4
    assert said["results"] == {
        line["task"]: {"success_rate": line["success_rate"], "episodes": 2} for line in last
    }


def test_the_same_command_resumes_and_extend_goes_on(installed: Everlearn, run: Path):
    before = (run / "metrics.jsonl").read_bytes()
    words = ["run", "--config", run / "config.json", "--out", run]
    assert "resuming after episode 4" in installed(*words).stderr
    assert (run / "metrics.jsonl").read_bytes() == before
    installed(*words, "--tasks", "left,right,left", "--extend")
    after = (run / "metrics.jsonl").read_bytes()
    assert after.startswith(before)
    assert lines_of(run)[-1]["episode"] == 6


def test_list_knows_installed_plugins(installed: Everlearn, run: Path):
    said = installed("list").stdout
    assert "dm_control, mine" in said
    assert "scripted, mine" in said
    assert "runs/two: mine, seed 3, finished" in said
    said = installed("list", "mine").stdout
    assert "Goes where a task was solved before." in said
    assert "noise = 0.5  (a number)" in said


def test_a_sweep_runs_the_plugin_in_its_workers(swept: Path):
    runs = sorted(str(path.parent.relative_to(swept)) for path in swept.rglob("config.json"))
    assert runs == ["mine-0", "mine-1", "random-0", "random-1"]
    told = {config.agent: config.told for config in map(RunConfig.read, swept.rglob("config.json"))}
    assert told == {"mine": ("boundaries", "name"), "random": ()}


def test_reports_and_lists_need_no_plugin(
    run: Path, swept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """This process cannot import the package."""
    with pytest.raises(SystemExit) as end:
        cli.main(["run", "--agent", "mine", "--out", str(tmp_path / "run")])
    assert end.value.code == 2
    assert "unknown agent 'mine'" in capsys.readouterr().err
    cli.main(["report", str(run.parent), str(swept), "--out", str(tmp_path / "report")])
    said = capsys.readouterr()
    assert "left out" not in said.err
    assert "mine" in said.out
    page = (tmp_path / "report" / "index.html").read_text()
    assert "mine" in page
    assert "boundaries" in page
    cli.main(["report", str(swept), "--json"])
    assert "mine" in capsys.readouterr().out
    cli.main(["list", "--runs", str(run.parent)])
    assert "two: mine, seed 3, finished" in capsys.readouterr().out
    # What needs the agent says which name is missing.
    with pytest.raises(SystemExit) as end:
        cli.main(["eval", str(run)])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert "unknown world 'mine'" in said or "unknown agent 'mine'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("door", ["--import", "EVERLEARN_IMPORT"])
def test_a_module_of_the_working_folder(door: str, tmp_path: Path, run: Path):
    (tmp_path / "my_parts.py").write_text(MODULE.read_text())
    if door == "--import":
        everlearn, extra = everlearn_in(tmp_path), ["--import", "my_parts"]
    else:
        everlearn, extra = everlearn_in(tmp_path, EVERLEARN_IMPORT="my_parts"), []
    words = ["run", "--agent", "mine", "--world", "mine", *SMALL, "--option", "noise=0.75"]
    said = everlearn(*words, *extra, "--evaluators", 2, "--out", "run")
    assert "process less" not in said.stderr
    assert [line for line in lines_of(tmp_path / "run") if line["episode"] < 4] == [
        line for line in lines_of(run) if line["episode"] < 4
    ], "the same bits as with the installed package"
    stored = RunConfig.read(tmp_path / "run" / "config.json")
    assert stored.imports == (("my_parts",) if extra else ())
    said = everlearn("eval", "run", "--episodes", 1, "--json", *extra)
    assert json.loads(said.stdout)["episode"] == 4
    assert "mine" in everlearn("list", *extra).stdout.split("agents:")[1].splitlines()[0]
    if extra:
        everlearn("sweep", "--agents", "mine", "--world", "mine", "--seeds", "0", "--out", "sweep",
                  "--episodes-per-task", 1, *extra)  # fmt: skip
        assert (tmp_path / "sweep" / "mine-0" / "config.json").exists()


@pytest.fixture
def stranger(tmp_path: Path, run: Path) -> Path:
    """A run from elsewhere: its config names a module, which lies in the working folder."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns(".lock"))
    config = RunConfig.read(run / "config.json")
    config = dataclasses.replace(config, imports=("from_elsewhere",), evaluators=2)
    (tmp_path / "run" / "config.json").write_text(config.to_json())
    trap = "open('sprung', 'w').close()\n"
    (tmp_path / "from_elsewhere.py").write_text(trap + MODULE.read_text())
    return tmp_path


def test_no_command_imports_what_only_a_config_names(stranger: Path):
    everlearn = everlearn_in(stranger)
    for words in (
        ["eval", "run"],
        ["run", "--config", "run/config.json", "--out", "again"],
        ["sweep", "--agents", "random", "--seeds", 0, "--config", "run/config.json", "--out", "s"],
        ["audit", "run", "--agent", "oa"],
    ):
        said = everlearn(*words, code=2).stderr
        assert "--import from_elsewhere" in said
        assert said.count("\n") == 1
    everlearn("report", "run", "--out", "report")
    assert "--import from_elsewhere" in (stranger / "report" / "index.html").read_text()
    everlearn("list", "--runs", ".")
    assert not (stranger / "sprung").exists()


def test_a_module_that_the_user_names_is_imported_in_every_process(stranger: Path):
    everlearn = everlearn_in(stranger)
    words = ["eval", "run", "--episodes", 2, "--json", "--import", "from_elsewhere"]
    said = everlearn(*words)
    assert "process less" not in said.stderr
    assert json.loads(said.stdout)["results"].keys() == {"left", "right"}
    assert (stranger / "sprung").exists()


def test_evaluators_import_what_their_parent_did(tmp_path: Path, run: Path):
    """Also what the config of the run does not name: it was made with an installed package."""
    shutil.copytree(run, tmp_path / "run", ignore=shutil.ignore_patterns(".lock"))
    (tmp_path / "my_parts.py").write_text(MODULE.read_text())
    said = everlearn_in(tmp_path)("eval", "run", "--episodes", 2, "--json", "--import", "my_parts")
    assert "process less" not in said.stderr
