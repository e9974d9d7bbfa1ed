"""Strips of pictures: made from snapshots, found by their names, and shown at any width."""

from __future__ import annotations

import base64
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from everlearn.report import read_report, write_report
from everlearn.report.page import page
from everlearn.report.pictures import LARGEST_STRIP, find_strips
from everlearn.report.videos import GAP, PICTURES, SIZE, make_videos, write_strip
from everlearn.runs.loop import execute
from everlearn.support.errors import MissingExtraError
from tests.report.browser import chromium
from tests.report.synthetic import config_of, write_run
from tests.runs.worker import tiny

pytestmark = pytest.mark.xdist_group("report")

STRIP = PICTURES * SIZE + (PICTURES - 1) * GAP


def test_a_strip_shows_start_and_end_and_what_lies_between(tmp_path: Path):
    frames = [np.full((8, 8, 3), shade, np.uint8) for shade in range(0, 202, 2)]
    write_strip(tmp_path / "strip.png", frames)
    with Image.open(tmp_path / "strip.png") as picture:
        pixels = np.asarray(picture)
    assert pixels.shape == (8, PICTURES * 8 + (PICTURES - 1) * GAP, 3)
    assert [int(pixels[4, 4 + number * (8 + GAP), 0]) for number in range(PICTURES)] == [
        *(0, 40, 80, 120, 160, 200)
    ]
    assert (pixels[:, 8 : 8 + GAP] == 255).all()


def test_of_a_short_episode_frames_are_repeated(tmp_path: Path):
    write_strip(tmp_path / "strip.png", [np.zeros((4, 4, 3), np.uint8)])
    with Image.open(tmp_path / "strip.png") as picture:
        assert picture.size == (PICTURES * 4 + (PICTURES - 1) * GAP, 4)


def test_strips_are_found_by_name_and_say_how_the_episode_ended(tmp_path: Path):
    run = write_run(tmp_path / "runs" / "one", config_of("random", 0))
    (run / "videos").mkdir()
    for name in (
        *("door-open-after-solved-63.png", "pick-place-after-failed-500.png", "holiday.png"),
        *("door-open-before-solved-3.png", "door-open-after-solved-x.png", "door-open.png"),
    ):
        (run / "videos" / name).write_bytes(b"pixels")
    (run / "videos" / "button-press-after-solved-9.png").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_bytes(b"what lies outside")
    report = read_report([run])
    found = find_strips([run / "videos"], report.studies[0].study.protocol.names)
    assert [(strip.task, strip.solved, strip.steps, strip.source) for strip in found] == [
        ("pick-place", False, 500, "one"),
        ("door-open", True, 63, "one"),
    ]
    text = page(report, [[]], [[]], [found])
    assert text.count(f"data:image/png;base64,{base64.b64encode(b'pixels').decode()}") == 2
    assert "door-open: solved in 63 steps <small>one</small>" in text
    assert "pick-place: not solved in 500 steps" in text
    assert 'alt="Pictures of an episode of door-open, from its start to its end; solved in' in text
    assert base64.b64encode(b"what lies outside").decode() not in text


def test_a_strip_that_is_too_large_is_named_and_names_are_escaped(tmp_path: Path):
    task, source = '<img src=x onerror="alert(1)">', "<b>bold<b>"
    (tmp_path / source).mkdir()
    with (tmp_path / source / f"{task}-after-solved-1.png").open("wb") as file:
        file.truncate(LARGEST_STRIP + 1)
    report = read_report([write_run(tmp_path / "run", config_of("random", 0))])
    text = page(report, [[]], [[]], [find_strips([tmp_path / source], [task])])
    assert "Not in this page: <code>" in text
    assert "solved in 1 step <small>" in text
    for part in (task, source):
        assert part not in text


def test_a_run_without_snapshots_has_none_and_it_is_said(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("random", 0, "smoke"), episodes=1)
    said: list[str] = []
    out = write_report(read_report([run]), tmp_path / "out", pictures=True, notify=said.append)
    assert said == ["no pictures of random: none of its runs has a snapshot"]
    text = out.read_text()
    assert "Episodes in pictures" not in text
    assert "<code>--pictures</code>" in text


def test_learned_episodes_are_pictured(tmp_path: Path):
    execute(tiny("oa", episodes_per_task=1, max_steps=9), tmp_path / "run")
    said: list[str] = []
    report = read_report([tmp_path / "run"])
    try:
        file = write_report(report, tmp_path / "out", pictures=True, notify=said.append)
    except MissingExtraError as error:  # no renderer
        pytest.skip(str(error))
    made = sorted((tmp_path / "out" / "videos" / "oa").iterdir())
    assert [path.name for path in made] == [
        *("button-press-after-failed-9.png", "window-close-after-failed-9.png")
    ]
    assert sorted(said) == [f"filmed {path}" for path in made]
    with Image.open(made[0]) as picture:
        assert picture.size == (STRIP, SIZE)
        assert np.asarray(picture)[:, :SIZE].std() > 10, "there is something to see"
    make_videos(report.studies[0].study, tmp_path / "out", said.append, films=False)
    assert len(said) == 2, "what is there is not made again"
    assert len(re.findall("not solved in 9 steps <small>oa", file.read_text())) == 2


def test_a_strip_scrolls_in_its_box_on_a_phone(tmp_path: Path):
    run = write_run(tmp_path / "run", config_of("random", 0, "smoke"))
    (run / "videos").mkdir()
    frames = [np.full((SIZE, SIZE, 3), shade, np.uint8) for shade in range(PICTURES)]
    write_strip(run / "videos" / "window-close-after-solved-63.png", frames)
    file = write_report(read_report([run]), tmp_path / "out")
    picture = "document.querySelector('img[alt^=\"Pictures of\"]')"
    with chromium() as browser:
        browser.resize(1280, 900)
        browser.open(file)
        assert browser.run(f"return {picture}.naturalWidth") == STRIP
        box = f"{picture}.parentElement"
        assert browser.run(f"return {box}.scrollWidth - {box}.clientWidth") <= 1
        browser.resize(390, 844, phone=True)
        assert browser.run(f"return {box}.scrollWidth - {box}.clientWidth") > 300
        assert browser.run("return document.documentElement.scrollWidth") <= 390
        assert browser.messages() == []
