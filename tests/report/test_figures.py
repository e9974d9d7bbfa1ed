"""Figures for print, looked at line by line."""

from __future__ import annotations

from pathlib import Path

import pytest
from matplotlib.container import ErrorbarContainer
from matplotlib.figure import Figure

from everlearn.report import read_report
from everlearn.report.figures import Drawing, draw_study
from tests.report.synthetic import config_of, write_run, write_sweep

pytestmark = pytest.mark.xdist_group("report")


@pytest.fixture(scope="module")
def drawings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Drawing]:
    """Two ablations around agents as they are, one value with fewer seeds than the others."""
    root = tmp_path_factory.mktemp("runs")
    others = ("mlp-finetune", "mlp-ewc", "mlp-si", "mlp-packnet", "mlp-perfect-memory")
    write_sweep(root, ("oa", "mlp-coreset", *others, "random", "scripted"), (100, 101))
    for capacity, seeds in ((1_000, (100, 101)), (50_000, (100,))):
        for seed in seeds:
            options = {"model.strategy.capacity": capacity}
            config = config_of("mlp-coreset", seed, options=options)
            write_run(root / f"{capacity}-{seed}", config)
    return drawn_from(root)


def drawn_from(folder: Path) -> dict[str, Drawing]:
    report = read_report([folder])
    part = report.studies[0]
    drawings = draw_study(part.study, part.curves, report.resampling)
    return {drawing.name: drawing for drawing in drawings}


def looks_of(figure: Figure) -> dict[str, tuple[str, str, str]]:
    """Colour, dashes and marker of everything that a legend names, by agent."""
    named = [(line.get_label(), line) for axes in figure.axes for line in axes.lines]
    for axes in figure.axes:
        for family in axes.containers:
            assert isinstance(family, ErrorbarContainer)
            named.append((family.get_label(), family.lines[0]))
    return {
        str(label).partition(" (")[0]: (line.get_color(), line.get_linestyle(), line.get_marker())
        for label, line in named
        if not str(label).startswith("_")
    }


def test_every_line_of_the_budget_has_a_look_of_its_own(drawings: dict[str, Drawing]):
    looks = looks_of(drawings["budget"].figure)
    assert len(looks) == 9
    assert len({look[1:] for look in looks.values()}) == 9, "whatever the colours are"


def test_an_agent_looks_the_same_in_all_figures(drawings: dict[str, Drawing]):
    assert looks_of(drawings["budget"].figure) == looks_of(drawings["success"].figure)


def test_points_of_an_ablation_say_their_seeds_where_they_differ(drawings: dict[str, Drawing]):
    (axes,) = drawings["budget"].figure.axes
    assert [text.get_text() for text in axes.texts] == ["n=2", "n=2", "n=1"]
    (family,) = axes.containers
    assert isinstance(family, ErrorbarContainer)
    _, _, (bars,) = family.lines
    assert [len(segment) for segment in bars.get_segments()] == [2, 2, 0], "one seed has no error"


def test_long_curves_keep_their_markers(tmp_path: Path):
    write_run(tmp_path / "run", config_of("random", 100, "paper"))
    (axes,) = drawn_from(tmp_path)["regret"].figure.axes
    marked = [line for line in axes.lines if line.get_marker() == "o"]
    assert max(len(line.get_xdata()) for line in marked) == 12


def test_methods_that_differ_never_share_colour_and_marker(tmp_path: Path):
    for number in range(40):
        config = config_of("oa", 0, options={"planner.horizon": 100 + number} if number else None)
        write_run(tmp_path / str(number), config)
    styles = read_report([tmp_path]).studies[0].study.styles
    assert len(styles) == 40
    assert len({(style.color, style.marker) for style in styles.values()}) == 40


def test_calibration_is_drawn_where_coverage_was_measured(drawings: dict[str, Drawing]):
    drawing = drawings["calibration"]
    assert {row["method"] for row in drawing.rows} == {"oa"}, "others give no bounds"
    tasks = {row["task"] for row in drawing.rows}
    assert len(drawing.rows) == len(tasks) * 2 * 4
    for row in drawing.rows:
        one = row["meant"] ** 1.1  # at the end of a run, not before
        expected = one if row["steps"] == 1 else one**1.2
        assert row["covered"] == pytest.approx(expected)
        assert row["seeds"] == 2
    panels = [axes for axes in drawing.figure.axes if axes.get_title()]
    assert {axes.get_title() for axes in panels} == tasks
    assert panels[0].get_ylabel() == "truths within bounds"
    (legend,) = drawing.figure.legends
    names = [text.get_text() for text in legend.get_texts()]
    assert names == ["oa, one step ahead (2 seeds)", "oa, 15 steps ahead (2 seeds)"]
    for container in panels[0].containers:
        shares = container.lines[0].get_xdata()
        assert list(shares) == [0.5, 0.8, 0.9, 0.95]


def test_no_calibration_is_drawn_without_coverage(tmp_path: Path):
    write_sweep(tmp_path, ("mlp-coreset",), (100, 101))
    assert "calibration" not in drawn_from(tmp_path)
