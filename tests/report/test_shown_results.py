"""README and docs show what the stored runs say, not what they once said."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from everlearn.report import read_report
from everlearn.report.ablations import ablations, draw_ablations
from everlearn.results.statistics import Resampling
from everlearn.results.summary import summarize
from tests.report.synthetic import config_of, write_run

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("tool", ROOT / "tools" / "show_results.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_pages_show_what_the_runs_say(tool: ModuleType):
    texts = []
    for page, text in tool.pages():
        assert page.read_text(encoding="utf-8") == text, "run python tools/show_results.py"
        texts.append(text)
    for figure in map(Path, tool.FIGURES.values()):
        shown = any(f"images/{figure.name})" in text for text in texts)
        assert (ROOT / figure).exists() == shown, figure
        assert not shown or (ROOT / figure).read_bytes().startswith(b"\x89PNG")


def test_pages_without_runs_say_so(
    tool: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    monkeypatch.setattr(tool, "read", tool.read.__wrapped__)
    for made in (tool.paper_methods(), tool.further("periods"), tool.methods(tool.PAPER)):
        assert made == tool.NOTHING_YET
    assert "not measured" in tool.further("claims")
    write_run(tmp_path / tool.PAPER / "oa-300", config_of("oa", 300, "paper"), episodes=130)
    assert tool.paper_methods() == tool.NOTHING_YET, "it has not finished"
    for name, options in (("oa-paper", {"model.bins": 7}), ("oa-paper", {})):
        config = config_of(name, 300, "paper", options)
        write_run(tmp_path / tool.PAPER / f"{name}{len(options)}", config)
    only = tool.paper_methods()
    assert "| oa-paper | 1 |" in only
    assert "| oa | 0 of 1 finished |" in only
    assert "bins" not in only
    table = tool.ablation("oa-paper", "bins", "bins", ", as `oa-paper` has it")
    assert "](images/paper-bins.png)" in table
    assert "given reward function" in table
    assert tool.ablation("mlp-paper-coreset", "capacity", "budget", "") == tool.NOTHING_YET


def test_figure_5_of_the_paper_is_drawn_of_its_agents(tool: ModuleType, tmp_path: Path):
    for capacity in (1_000, 10_000):
        options = {"model.strategy.capacity": capacity}
        config = config_of("mlp-paper-coreset", 300, "paper", options)
        write_run(tmp_path / f"coreset{capacity}", config, skill=0.5)
    for bins in (5, 9):
        config = config_of("oa-paper", 300, "paper", {"model.bins": bins})
        write_run(tmp_path / f"bins{bins}", config, skill=0.1 * bins)
    study = read_report([tmp_path]).studies[0].study
    (bins,) = ablations(study, "bins", Resampling(100))
    (budget,) = ablations(study, "capacity", Resampling(100))
    assert (bins.agent, bins.values) == ("oa-paper", (5.0, 9.0))
    assert (budget.agent, budget.values) == ("mlp-paper-coreset", (1_000.0, 10_000.0))
    assert bins.performance[0].mean < bins.performance[1].mean
    assert {drawing.name for drawing in draw_ablations(study, Resampling(100))} == {
        "budget",
        "bins",
    }
    assert {"paper-budget.png", "paper-bins.png"} <= {
        Path(kept).name for (folder, _), kept in tool.FIGURES.items() if folder == tool.PAPER
    }


def test_a_page_without_its_marks_is_refused(tool: ModuleType):
    with pytest.raises(SystemExit, match="expected one place"):
        tool.filled("no marks", "paper", "a table")


@pytest.mark.parametrize(("agent", "option"), [("oa", "bins"), ("mlp-coreset", "capacity")])
def test_the_ablations_are_those_of_their_folders(tool: ModuleType, agent: str, option: str):
    # By the names of the folders, which the tool does not look at.
    groups: dict[str, list[float]] = {}
    for folder in (ROOT / tool.QUICK).iterdir():
        name, _, _ = folder.name.rpartition("-")
        if name == agent or name.startswith(f"{agent}-{option}="):
            run = summarize(folder)
            groups.setdefault(name, []).append(100 * run.average_performance)
    table = tool.variations(tool.QUICK, agent, {option: ""})
    rows = [row.split("|")[1:] for row in table.splitlines() if f"`{option}=" in row]
    shown = sorted((int(row[1]), float(row[2].split("±")[0])) for row in rows)
    expected = sorted((len(values), sum(values) / len(values)) for values in groups.values())
    assert [seeds for seeds, _ in shown] == [seeds for seeds, _ in expected]
    assert [mean for _, mean in shown] == pytest.approx([mean for _, mean in expected], abs=0.051)
    assert len(shown) == 4


def test_the_table_of_worlds_has_a_row_for_each_and_the_means_of_its_files(tool: ModuleType):
    rows = {
        cells[1].strip().strip("`"): [cell.strip() for cell in cells[2:-1]]
        for cells in (line.split("|") for line in tool.worlds().splitlines())
        if len(cells) > 2 and ":" in cells[1]
    }
    files = sorted((ROOT / tool.WORLDS).glob("*.json"))
    assert files
    stored: dict[str, list[Any]] = {}
    for path in files:
        run = json.loads(path.read_text(encoding="utf-8"))
        stored.setdefault(run["world"], []).append(run)
    assert rows.keys() == stored.keys()
    for world, runs in stored.items():
        seeds, _, _, _, frozen, _, sac_frozen, tdmpc2, *_ = rows[world]
        assert int(seeds) == len(runs)
        shown = [float(number) for number in frozen.split()]
        assert shown == pytest.approx([sum(run["frozen"]) / 5 for run in runs], abs=0.51)
        assert (tdmpc2 == "-") == world.startswith("gym:")
        name = f"{world.replace(':', '-')}-*.json"
        peers = [json.loads(path.read_text()) for path in (ROOT / tool.SAC_WORLDS).glob(name)]
        expected = sorted(sum(run["frozen"]) / 5 for run in peers)
        beside = sorted(float(number) for number in sac_frozen.split() if number != "-")
        assert beside == pytest.approx(expected, abs=0.51)
    # By hand, from the published figures.
    assert rows["dm_control:cartpole-swingup"][7:10] == ["839", "677", "835"]
    assert rows["dm_control:ball_in_cup-catch"][7] == "981"
