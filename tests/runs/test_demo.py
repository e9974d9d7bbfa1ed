"""The demo, in small: what it prints is what happened."""

from __future__ import annotations

import inspect
import io
import shlex
from pathlib import Path

import pytest
from rich.console import Console

from everlearn import cli
from everlearn.continual_bench import rendering
from everlearn.runs.demo import run_demo
from everlearn.support.errors import MissingExtraError
from everlearn.support.threads import limited_threads

PLANNER = {"candidates": 12, "elites": 3, "horizon": 5, "iterations": 1}
TINY = {"model": {"features": 10}, "planner": PLANNER}


@pytest.fixture(autouse=True)
def _one_thread():
    """Threads wait for each other at every step of so small an agent."""
    with limited_threads(1):
        yield


def played(tmp_path: Path, seed: int = 0):
    said = io.StringIO()
    console = Console(file=said, width=200)
    result = run_demo(
        seed,
        tmp_path,
        tasks=("button-press", "window-close"),
        episodes=1,
        frame_every=100,
        console=console,
        **TINY,
    )
    return result, said.getvalue()


def test_it_tells_what_happened_and_the_same_seed_does_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def no_graphics(path: Path) -> Path:
        raise MissingExtraError("no library to draw with; install libegl1 or everlearn[video]")

    monkeypatch.setattr("everlearn.runs.demo.check_path", no_graphics)
    result, said = played(tmp_path)
    assert list(result.episodes) == ["button-press", "window-close"]
    for task, episodes in result.episodes.items():
        ((steps, solved),) = episodes
        assert f"{task} 1: {'solved' if solved else 'not solved'} in {steps} steps" in said
    assert "install libegl1 or everlearn[video]" in " ".join(
        said.split()
    )  # the job is done without a video, and the reason is named
    assert result.video is None
    assert not list(tmp_path.iterdir())
    assert played(tmp_path)[0] == result


def test_it_leaves_a_video(tmp_path: Path):
    try:
        from everlearn.continual_bench.rendering import graphics_library

        graphics_library()
        rendering.check_path("film.mp4")
    except MissingExtraError as error:
        pytest.skip(str(error))
    result, said = played(tmp_path)
    assert result.video is not None
    assert result.video.stat().st_size > 1000
    assert str(result.video) in said


def test_the_example_of_run_works_where_the_demo_was_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    run_demo(tasks=("button-press",), episodes=1, frame_every=100, **TINY)
    text = " ".join((inspect.getdoc(cli.Run) or "").split())
    words = shlex.split(text.partition("Example: everlearn ")[2])
    assert words[0] == "run"
    small = ["--max-steps", "20", "--evaluation.boundary-episodes", "1", "--evaluation.heldout"]
    small += ["30", "--threads", "1"]
    for path, value in (("model.features", 10), *((f"planner.{k}", v) for k, v in PLANNER.items())):
        small += ["--option", f"{path}={value}"]
    cli.main([*words, *small])
    assert f"-> {words[words.index('--out') + 1]}" in capsys.readouterr().out
    cli.main(["eval", "runs/first", "--episodes", "1"])
