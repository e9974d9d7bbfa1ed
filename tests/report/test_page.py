"""The page in a real Chromium: what a reader sees, touches and must never be harmed by."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from everlearn.report import read_report, write_report
from everlearn.report.build import find_videos
from everlearn.report.page import LARGEST_VIDEO, page
from everlearn.report.pictures import find_strips
from everlearn.report.videos import make_videos
from everlearn.runs.loop import execute
from everlearn.support.errors import MissingExtraError
from tests.report.browser import Browser, chromium
from tests.report.synthetic import config_of, write_run
from tests.runs.worker import tiny

pytestmark = pytest.mark.xdist_group("report")  # one process makes the report for all

CURVES = "document.querySelectorAll('#success .panel')[0].querySelectorAll('g[data-method]')"
BUTTONS = "document.querySelectorAll('.study .controls')[0].querySelectorAll('button')"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture
def shown(browser: Browser, written: Path) -> Browser:
    browser.resize(1280, 900)
    browser.open(written / "index.html")
    browser.resize(1280, 900)
    return browser


def test_no_error_and_nothing_from_the_network(shown: Browser, written: Path):
    assert shown.messages() == []
    # The page may name files beside it, but loads nothing.
    assert shown.run("return performance.getEntriesByType('resource').length") == 0
    assert shown.run("return document.querySelectorAll('.panel svg').length") > 20


def test_every_chart_names_both_axes(shown: Browser):
    named = shown.run(
        "return [...document.querySelectorAll('.panel svg')].map(s => s.querySelector('.y')"
        "?.textContent)"
    )
    assert named
    assert all(named)
    assert {"success rate", "online regret", "cells ever active"} <= set(named)


def test_toggling_a_method_changes_the_curves(shown: Browser):
    before = shown.run(f"return [...{CURVES}].map(g => g.dataset.method)")
    assert "0" in before
    shown.run(f"[...{BUTTONS}][0].click()")
    after = shown.run(f"return [...{CURVES}].map(g => g.dataset.method)")
    assert after == [method for method in before if method != "0"]
    assert shown.run(f"return [...{BUTTONS}][0].getAttribute('aria-pressed')") == "false"
    shown.run(f"[...{BUTTONS}][0].click()")
    assert shown.run(f"return [...{CURVES}].map(g => g.dataset.method)") == before


def test_no_method_is_told_by_its_colour_alone(shown: Browser):
    drawn = shown.run(
        f"return [...{CURVES}].map(g => [g.dataset.method,"
        "g.querySelector('.line').getAttribute('stroke-dasharray'),"
        "...new Set([...g.querySelectorAll('.marker')].map(m => m.getAttribute('d')))])"
    )
    assert len(drawn) > 6
    assert {len(looks) for looks in drawn} == {3}, "each has one kind of marker"
    assert len({tuple(looks[1:]) for looks in drawn}) == len(drawn)
    # The table above has the same markers.
    table = shown.run(
        "return [...document.querySelectorAll('table.scores')[0].querySelectorAll('tbody tr path')]"
        ".map(m => m.getAttribute('d'))"
    )
    assert all(table[int(method)] == outline for method, _, outline in drawn)


def test_the_table_says_what_methods_are_told_and_given(shown: Browser):
    said = shown.run(
        "return [...document.querySelectorAll('table.scores')[0].querySelectorAll('tbody th')]"
        ".map(t => t.textContent)"
    )
    assert "oa4 seeds" in said
    assert "mlp-packnet1 seed, 0 finished" in said
    words = shown.run(
        "return [...document.querySelectorAll('table.scores')[0].querySelectorAll('tbody tr')]"
        ".map(r => [...r.querySelectorAll('.words')].map(t => t.textContent))"
    )
    everything = "reward function, success test, scene, command law"
    known = dict(zip(said, words, strict=True))
    assert known["oa4 seeds"] == ["nothing", everything]
    assert known["mlp-finetune4 seeds"] == ["boundaries", everything]
    assert known["mlp-packnet1 seed, 0 finished"] == ["boundaries, name", everything]
    assert known["random1 seed"] == ["nothing", "nothing"]


def test_toggling_a_task_hides_its_panels(shown: Browser):
    visible = (
        "return [...document.querySelectorAll('#success .panel')].filter(p => !p.hidden).length"
    )
    assert shown.run(visible) == 6
    shown.run(f"[...{BUTTONS}].find(b => b.textContent === 'door-open').click()")
    assert shown.run(visible) == 5


def test_the_other_statistic_moves_the_curves(shown: Browser):
    path = "return document.querySelector('#success .panel path.line').getAttribute('d')"
    before = shown.run(path)
    shown.run(f"[...{BUTTONS}].find(b => b.textContent.startsWith('IQM')).click()")
    assert shown.run(path) != before


def test_controls_stay_in_view_beside_the_charts_alone(shown: Browser):
    top = (
        "document.querySelector('{}').scrollIntoView();"
        "return document.querySelector('.controls').getBoundingClientRect().bottom"
    )
    assert shown.run(top.format("#model-error-1")) > 50
    assert shown.run(top.format(".study details")) < 0


def test_variations_of_settings_wait_until_they_are_asked_for(shown: Browser):
    states = shown.run(
        f"return [...{BUTTONS}].map(b => [b.textContent, b.getAttribute('aria-pressed')])"
    )
    pressed = {text.partition(" (")[0]: state for text, state in states}
    assert pressed["oa"] == "true"
    assert pressed["oa features=100 bins=7"] == "false"


def test_hovering_shows_the_numbers_of_that_time(shown: Browser, written: Path):
    x, y = shown.run(
        "const s = document.querySelector('#average-performance .panel svg');"
        "s.scrollIntoView({block: 'center'}); const r = s.getBoundingClientRect();"
        "return [r.right - 14, r.top + r.height / 2]"
    )
    shown.move_to(x, y)
    said = shown.run("return document.querySelector('.tip').textContent")
    assert "after episode 60" in said
    mean = re.search(r"oa: ([\d.]+) %", said)
    assert mean
    rows = (written / "data" / "average-performance.csv").read_text().splitlines()
    last = next(row.split(",") for row in rows if row.startswith("oa,60,"))
    assert float(mean[1]) == pytest.approx(100 * float(last[3]), abs=0.06)
    assert "n=4" in said
    # A line or two for each method, beside its marker.
    rows = shown.run(
        "return [...document.querySelectorAll('.tip div')].map(row => row.offsetHeight)"
    )
    assert len(rows) > 6
    assert max(rows) < 45


@pytest.mark.parametrize("width", [360, 390])
def test_text_is_readable_at_the_width_of_a_phone(shown: Browser, width: int):
    shown.resize(width, 844, phone=True)
    assert shown.run("return document.documentElement.scrollWidth") <= width
    small = shown.run(
        "return [...document.querySelectorAll('body *')].filter(e => e.textContent.trim() &&"
        "!['SCRIPT', 'STYLE'].includes(e.tagName) && e.offsetParent !== null &&"
        "parseFloat(getComputedStyle(e).fontSize) < 12).length"
    )
    assert small == 0
    # Letters of a curve's axis are as large as they say: the picture is not scaled.
    ratio = shown.run(
        "const s = document.querySelector('.panel svg');"
        "return s.getBoundingClientRect().width / s.viewBox.baseVal.width"
    )
    assert ratio == pytest.approx(1, abs=0.05)
    # A table that goes on beyond the edge says so, until its end is reached.
    hint = "document.querySelector('.framed .hint')"
    assert shown.run(f"return {hint}.hidden") is False
    framed = "document.querySelector('.framed')"
    assert shown.run(f"return {framed}.className") == "framed right"
    shown.run("document.querySelector('.framed .scroll').scrollLeft = 1e6")
    shown.resize(width, 844, phone=True)
    assert shown.run(f"return {framed}.className") == "framed left"
    # A method's name has room for itself.
    narrow = shown.run(
        "return Math.min(...[...document.querySelectorAll('tbody th')].map(t => t.clientWidth))"
    )
    assert narrow > 90


def test_names_and_files_from_run_folders_do_no_harm(browser: Browser, tmp_path: Path):
    hostile = "</script><img src=x onerror=document.title='harmed'><b>"
    folder = tmp_path / "runs" / hostile.replace("/", "-")
    config = config_of("mlp-coreset", 0)
    assert config.resolved is not None
    for seed, name in enumerate(("plain", hostile)):
        changed = {**config.resolved, "model.normalise_over": name}
        write_run(folder / str(seed), _altered(config, changed, seed))
    versions = {"python": hostile, "versions": {hostile: hostile}, "processor": hostile}
    (folder / "0" / "environment.json").write_text(json.dumps({**versions, "resumed_with": [3]}))
    (folder / "1" / "environment.json").write_text("[" * 100_000)
    file = tmp_path / "hostile.html"
    file.write_text(page(read_report([folder]), [[]], [[]]))
    browser.resize(1280, 900)
    browser.open(file)
    assert browser.messages() == []
    assert browser.run("return document.title") == "everlearn report"
    assert browser.run("return document.querySelectorAll('img[onerror]').length") == 0
    assert browser.run(f"return {CURVES}.length") == 2
    assert hostile in browser.run("return document.body.textContent")
    # Whatever slips through, the page's policy lets no other script run.
    browser.run(
        "const s = document.createElement('script'); s.textContent ='window.ran = 1';"
        "document.body.append(s)"
    )
    assert browser.run("return window.ran ?? null") is None


def _altered(config, resolved, seed):
    from dataclasses import replace

    return replace(config, resolved=resolved, options={"model.batch": 1 + seed}, seed=seed)


class Outline(HTMLParser):
    """Counts tags and checks that they close."""

    VOID = frozenset({"meta", "br", "img", "wbr"})

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_page_is_one_file_of_well_formed_html(written: Path):
    outline = Outline()
    outline.feed((written / "index.html").read_text())
    assert outline.open == []
    for tag, attributes in outline.seen:
        for name in ("src", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:"), (tag, value)
        assert tag != "link"
        link = attributes.get("href")
        if link is not None:
            assert (written / link).exists(), link
        assert not any(name.startswith("on") for name in attributes)


def test_runs_are_listed_with_command_and_versions(written: Path, runs: Path):
    text = (written / "index.html").read_text()
    config = runs / "bins" / "oa-7-100" / "config.json"
    assert f"everlearn run --config {config} --out runs/again" in text
    assert "oa, model.bins=7, model.features=100" in text
    assert "numpy " in text
    assert "unfinished: 33 of 60 episodes" in text
    assert "3 evaluations missing" in text


def test_videos_are_in_the_page_or_it_says_where_they_are(tmp_path: Path):
    run = write_run(tmp_path / "runs" / "one", config_of("random", 0))
    report = read_report([run])
    assert "There are none" in page(report, [[]], [[]])
    (run / "videos").mkdir()
    (run / "videos" / "door-open-before.mp4").write_bytes(b"short film")
    (run / "videos" / "holiday.mp4").write_bytes(b"something else")
    extra = tmp_path / "films"
    extra.mkdir()
    with (extra / "door-open-after.mp4").open("wb") as file:
        file.truncate(LARGEST_VIDEO + 1)
    found = find_videos([run / "videos", extra, tmp_path / "nowhere"], ["pick-place", "door-open"])
    assert [(video.when, video.source) for video in found] == [
        ("after", "films"),
        ("before", "one"),
    ]
    text = page(report, [[]], [found])
    assert "data:video/mp4;base64,c2hvcnQgZmlsbQ==" in text
    assert "door-open, before learning" in text
    assert "4 MB, not in this page" in text
    assert "holiday" not in text


def test_runs_with_snapshots_are_filmed_before_and_after(tmp_path: Path):
    execute(tiny("oa", episodes_per_task=1, max_steps=4), tmp_path / "run")
    said: list[str] = []
    report = read_report([tmp_path / "run"])
    study = report.studies[0].study
    try:
        folders = make_videos(study, tmp_path / "out", said.append)
    except MissingExtraError as error:  # no renderer, or no encoder
        pytest.skip(str(error))
    assert folders == [tmp_path / "out" / "videos" / "oa"]
    assert sorted(file.name for file in folders[0].glob("*.mp4")) == [
        f"{task}-{when}.mp4"
        for task in ("button-press", "window-close")
        for when in ("after", "before")
    ]
    strips = find_strips(folders, study.protocol.names)
    assert [(strip.task, strip.words) for strip in strips] == [
        (task, "not solved in 4 steps") for task in ("window-close", "button-press")
    ]
    assert len(said) == 6
    found = find_videos(folders, study.protocol.names)
    assert page(report, [[]], [found]).count("data:video/mp4;base64,") == 4
    make_videos(study, tmp_path / "out", said.append)
    assert len(said) == 6, "what is there is not filmed again"


def test_runs_without_snapshots_cannot_be_filmed(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("random", 0, "smoke"), episodes=1)
    said: list[str] = []
    write_report(read_report([run]), tmp_path / "out", film=True, notify=said.append)
    assert said == ["no videos of random: none of its runs has a snapshot"]
