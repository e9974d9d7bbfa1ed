"""Stored runs, seen again: frames of what was recorded, and one file that holds them."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("viser")

from everlearn.runs.folder import load_transitions
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import CHECKPOINTS, TRANSITIONS
from everlearn.support.errors import InvalidInputError
from everlearn.view.commands import Seek
from everlearn.view.export import LARGEST, chosen_episodes, export_run
from everlearn.view.replay import ReplaySession, StoredRun, frame_of
from everlearn.view.watch import Watch
from tests.report.browser import WEBGL, chromium
from tests.runs.worker import tiny
from tests.view.test_page import wait


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "run"
    execute(tiny("oa", episodes_per_task=3, max_steps=12, record=True), folder)
    return folder


def test_episodes_are_simulated_again_as_they_were(run: Path) -> None:
    said: list[str] = []
    stored = StoredRun(run, said.append)
    assert stored.episodes == [1, 2, 3, 4, 5, 6]
    for number in (1, 5):
        recording = stored.episode(number)
        arrays, facts = load_transitions(run, number)
        assert recording.task == facts["task"]
        # The hand of the simulation is where the recorded observations say it is.
        hand = stored.env.unwrapped.model.body("hand").id
        np.testing.assert_allclose(
            recording.poses[:, hand, :3], arrays["observations"][:, :3], atol=1e-9
        )
        # What the model expects begins where the episode is.
        assert recording.predicted is not None
        np.testing.assert_allclose(
            recording.predicted[:, 0], arrays["observations"][:-1], atol=1e-5
        )
        frame = frame_of(recording, 2, stored.bodies)
        np.testing.assert_allclose(
            frame.happened[0, :, :2], arrays["observations"][2:, :2], atol=1e-6
        )
        assert frame.predicted.shape == frame.happened.shape
        assert facts["task"] in frame.status
    assert said == []
    stored.close()


def test_a_run_recorded_elsewhere_says_that_it_differs(run: Path, tmp_path: Path) -> None:
    import shutil

    from everlearn.runs.folder import transitions_path
    from everlearn.support.archive import save_archive

    copy = tmp_path / "run"
    shutil.copytree(run, copy)
    arrays, facts = load_transitions(copy, 2)
    arrays["observations"][3:] += 0.01
    save_archive(transitions_path(copy, 2), "transitions", 1, arrays, facts)
    said: list[str] = []
    stored = StoredRun(copy, said.append)
    stored.episode(2)
    assert len(said) == 1
    assert "episode 2" in said[0]
    assert "by up to 0.01" in said[0]
    # Without snapshots there are no predictions, and it says so.
    shutil.rmtree(copy / CHECKPOINTS)
    bare = StoredRun(copy, said.append)
    assert bare.episode(1).predicted is None
    assert "no predictions" in said[1]
    shutil.rmtree(copy / TRANSITIONS)
    with pytest.raises(InvalidInputError, match="no recorded transitions"):
        StoredRun(copy)


def test_the_time_line_seeks(run: Path) -> None:
    stored = StoredRun(run)
    session = ReplaySession(stored, port=0)
    session.pace.paused = True
    session.page.commands.put(Seek(episode=4))
    session.page.commands.put(Seek(step=7))
    session.page.commands.put(Seek(step=10_000))
    session.page.commands.put(Seek(episode=99))
    until = time.monotonic() + 10
    session.run(lambda: session.page.commands.empty() or time.monotonic() > until)
    assert (session.recording.number, session.step) == (4, 7)
    session.close()


def test_one_file_opens_without_a_network(run: Path, tmp_path: Path) -> None:
    file = tmp_path / "life.html"
    size = export_run(run, file)
    assert size == file.stat().st_size < LARGEST
    text = file.read_text()
    assert "oa in continual-bench" in text
    assert not re.findall(r'(?:src|href)="(?!data:|#)', text.split("<script", 1)[0])
    with chromium(*WEBGL) as browser:
        browser.resize(480, 360)
        browser.command("Network.enable")
        browser.command(
            "Network.emulateNetworkConditions",
            offline=True,
            latency=0,
            downloadThroughput=0,
            uploadThroughput=0,
        )
        browser.open(file)
        wait(lambda: browser.run("return document.querySelectorAll('canvas').length") > 0)
        wait(lambda: any("Embedded data loaded" in text for text in browser.messages()))
        loaded = browser.run(
            "return performance.getEntriesByType('resource').map(e => e.name)"
            ".filter(n => !n.startsWith('data:') && !n.startsWith('blob:'))"
        )
        assert loaded == []


def test_it_shows_the_first_and_the_last_episode_of_each_task(run: Path) -> None:
    stored = StoredRun(run)
    assert chosen_episodes(stored) == [1, 3, 4, 6]
    stored.close()


def test_a_file_of_another_kind_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match=r"life\.html"):
        export_run(run, tmp_path / "life.mp4")


def test_a_watched_run_is_the_run_that_nobody_watches(run: Path, tmp_path: Path) -> None:
    pages: list[Any] = []
    watch = Watch(port=0, opened=pages.append)
    settings = tiny("oa", episodes_per_task=3, max_steps=12, record=True)
    execute(settings, tmp_path / "watched", listeners=[watch])
    assert len(pages) == 1
    for number in range(1, 7):
        mine, theirs = (load_transitions(one, number)[0] for one in (run, tmp_path / "watched"))
        for name, array in mine.items():
            np.testing.assert_array_equal(array, theirs[name])


def test_a_page_that_fails_ends_alone(tmp_path: Path) -> None:
    said: list[str] = []

    def broken(page: Any) -> None:
        page.failure = RuntimeError("the page broke")

    watch = Watch(port=0, opened=broken, notify=said.append)
    result = execute(
        tiny("oa", episodes_per_task=1, max_steps=5), tmp_path / "run", listeners=[watch]
    )
    assert result.finished
    assert said == ["watching ends, the run goes on: RuntimeError: the page broke"]
