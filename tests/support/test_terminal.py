"""What a screen does never reaches a run, and what a file says never reaches a terminal."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import read_lines
from everlearn.runs.progress import Screen
from everlearn.support.terminal import Forgiving, error_console, printable
from tests.torture.test_hostile_folders import CONFIG, ROOT

RUN = (
    "import sys; from everlearn.cli import main; "
    "main(['run', '--import', 'tests.torture.world', '--config', *sys.argv[1:]])"
)


class Refusing(io.StringIO):
    """A stream on a full disk."""

    def write(self, text: str) -> int:
        raise OSError(28, "No space left on device")


class Closed(io.StringIO):
    def write(self, text: str) -> int:
        raise ValueError("I/O operation on closed file")


@pytest.mark.parametrize("stream", [Refusing(), Closed(), None])
def test_a_stream_that_cannot_be_written_falls_silent(stream: io.StringIO | None) -> None:
    forgiving = Forgiving(stream)
    for _ in range(2):
        assert forgiving.write("text") == 4
        forgiving.flush()
    assert not forgiving.isatty()


def test_a_run_goes_on_without_its_screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Refusing())
    monkeypatch.chdir(ROOT)
    assert execute(CONFIG, tmp_path / "run", listeners=[Screen()]).finished


def test_names_with_markup_are_shown_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    console = error_console()
    console.file = shown = io.StringIO()
    screen = Screen(console)
    screen.begin(CONFIG, Path("[/bold]\x1b[2J"), [])
    screen._standing.scores = {"[/nothing]": [1.0]}
    console.print(screen._render())
    screen.message("from a file: \x1b]0;owned\x07")
    assert "[/bold]\\x1b[2J" in shown.getvalue()
    assert "[/nothing]" in shown.getvalue()
    assert "\x1b" not in shown.getvalue()


def test_what_a_terminal_would_obey_is_spelled_out() -> None:
    assert printable("\x1b[2Jred\x07 \u202etxt.exe \ud800 \r") == (
        "\\x1b[2Jred\\x07 \\u202etxt.exe \\ud800 \\r"
    )
    assert printable("as it is: é ± ↑\n中文") == "as it is: é ± ↑\n中文"


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A run in a process of its own."""
    (tmp_path / "config.json").write_text(CONFIG.to_json())
    words = [str(tmp_path / "config.json"), "--out", str(tmp_path / "run")]
    return [sys.executable, "-c", RUN, *words]


def finished(folder: Path) -> bool:
    lines, _ = read_lines(folder / "metrics.jsonl")
    return [line["episode"] for line in lines if line["kind"] == "episode"] == [1, 2, 3, 4]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_logs_on_a_full_device(command: list[str], tmp_path: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, cwd=ROOT, stderr=full, stdout=subprocess.PIPE, check=False)
    assert done.returncode == 0
    assert b"average performance" in done.stdout
    assert finished(tmp_path / "run")


def test_closed_descriptors_do_not_become_files_of_the_run(
    command: list[str], tmp_path: Path
) -> None:
    def close() -> None:
        for descriptor in range(3):
            os.close(descriptor)

    done = subprocess.run(command, cwd=ROOT, preexec_fn=close, check=False)
    assert done.returncode == 0
    assert finished(tmp_path / "run")
    assert CONFIG.agent in (tmp_path / "run" / "config.json").read_text()


def test_a_reader_that_has_left(command: list[str], tmp_path: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(command, cwd=ROOT, stderr=writing, stdout=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 0
    assert finished(tmp_path / "run")


def test_a_closed_terminal_stops_a_run_with_a_snapshot(tmp_path: Path) -> None:
    slow = CONFIG.to_json().replace('"max_steps": 5', '"max_steps": 20000')
    slow = slow.replace('"snapshot_seconds": 0.0', '"snapshot_seconds": 3600.0')
    slow = slow.replace('"episodes_per_task": 2', '"episodes_per_task": 40000')
    (tmp_path / "config.json").write_text(slow)
    folder = tmp_path / "run"
    command = [sys.executable, "-c", RUN, str(tmp_path / "config.json"), "--out", str(folder)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        stderr=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # also under nohup
    )
    metrics = folder / "metrics.jsonl"
    while process.poll() is None and (
        not metrics.exists() or b'"kind":"episode"' not in metrics.read_bytes()
    ):
        time.sleep(0.02)
    process.send_signal(signal.SIGHUP)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGHUP
    assert b"the same command resumes" in said
    lines, _ = read_lines(metrics)
    done = max(line["episode"] for line in lines if line["kind"] == "episode")
    assert list((folder / "checkpoints").glob(f"{done:06d}-*")), "nothing is computed twice"
