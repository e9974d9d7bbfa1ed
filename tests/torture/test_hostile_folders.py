"""Every command on every hostile folder: a line of refusal or a result, and nothing else happens.

No traceback, no command that hangs, no more than a gigabyte, nothing written or read outside, and
no line of metrics lost. All of it happens in this process. In `make torture` every kind is also
given to one of the commands in a process of its own, and a sample of them in every test run.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from everlearn.cli import main
from everlearn.runs.config import EvaluationSchedule, RunConfig
from everlearn.runs.loop import execute
from tests.torture.hostile_folders import ALL, SECRET, build, make_outside
from tests.torture.length import some

CONFIG = RunConfig(
    agent="random",
    world="line",
    imports=("tests.torture.world",),
    tasks=("first", "second"),
    episodes_per_task=2,
    max_steps=5,
    threads=1,
    evaluators=1,
    evaluation=EvaluationSchedule(1, 1, 1, 0),
    snapshot_seconds=0.0,
)
COMMANDS = ("report", "list", "eval", "run")
ROOT = Path(__file__).parents[2]

WORLD = ("--import", "tests.torture.world")

SECONDS, GIGABYTE = 10.0, 1 << 30

DRAWN = (
    "video: link_to_file",
    "videos: link_to_folder",
    "folder named: bytes that are no text",
)
"""Kinds that matter for the page alone: of the others, the numbers are read and nothing drawn."""


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good") / "run"
    execute(CONFIG, folder)
    return folder


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for runs, beside one that no command may touch."""
    make_outside(tmp_path / "outside")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(ROOT)  # where the world's module is found
    # What these look up is the same for all: a second less for every ten kinds.
    monkeypatch.setattr("everlearn.runs.folder.environment_facts", lambda config: {"python": "3"})
    monkeypatch.setattr("everlearn.registry.entry_points", lambda group: ())
    yield tmp_path
    for path in tmp_path.rglob("checkpoints"):
        if not path.is_symlink():
            path.chmod(0o755)
    shutil.rmtree(tmp_path)  # at once: some files have 90 GB, even if they are empty


def words(command: str, runs: Path, run: Path, out: Path, page: bool) -> list[str]:
    return {
        "report": ["report", str(runs), *(("--out", str(out)) if page else ("--json",))],
        "list": ["list", "--runs", str(runs)],
        "eval": ["eval", str(run), "--episodes", "1", *WORLD],
        "run": ["run", "--config", str(run / "config.json"), "--out", str(run), "--quiet", *WORLD],
    }[command]


def tree(folder: Path, contents: bool = True) -> dict[str, object]:
    """What lies in a folder: names, times of change, links, and contents of small files."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        small = path.is_file() and not path.is_symlink() and status.st_size < 1 << 20
        content = path.read_bytes() if contents and small else None
        found[str(path)] = (status.st_mode, status.st_mtime_ns, status.st_size, content)
    return found


def lines_in(run: Path) -> set[bytes]:
    """Lines of metrics anywhere in a folder."""
    found: set[bytes] = set()
    for path in run.glob("metrics*"):
        if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 24:
            found |= {line for line in path.read_bytes().splitlines() if len(line) > 20}
    return found


def peak_memory(reset: bool = False) -> int:
    """Largest memory of this process since it was last reset."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    line = next(
        line for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line
    )
    return 1024 * int(line.split()[1])


def check(command: str, code: object, said: str) -> None:
    assert code in (0, 2), said
    assert "Traceback" not in said
    assert SECRET not in said, "it was read"
    assert "\x1b" not in said, "the terminal was told what to do"
    if code == 2:
        assert said.splitlines()[-1].startswith(f"everlearn {command}: "), said


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", ALL)
def test_in_this_process(kind, good, place, capsys, tally):
    runs, outside, out = place / "runs", place / "outside", place / "out"
    run = build(kind, good, runs, outside)
    shutil.copytree(good, runs / "beside")
    untouched, spoiled = tree(outside), tree(run)
    kept = lines_in(run)
    for command in COMMANDS:
        before, began = peak_memory(reset=True), time.process_time()
        try:
            main(words(command, runs, run, out, page=kind in DRAWN))
            code: object = 0
        except SystemExit as end:
            code = end.code
        worked, needed = time.process_time() - began, peak_memory() - before
        said = capsys.readouterr()
        check(command, code, said.err)
        assert SECRET not in said.out
        assert "\x1b" not in said.out
        assert worked < SECONDS, f"{command} took {worked:.1f} s"
        assert needed < GIGABYTE, f"{command} took {needed:,} bytes"
        assert tree(outside) == untouched, f"{command} wrote outside"
        if command == "report":
            assert code == 0, "one bad run hides the others"
            assert SECRET not in (out / "index.html").read_text() if out.exists() else True
            if not out.exists():
                methods = json.loads(said.out)["studies"][0]["methods"]
                folders = [one["folder"] for method in methods for one in method["runs"]]
                assert any(folder.endswith("beside") for folder in folders) or len(folders) == 1
        if command != "run":
            assert tree(run) == spoiled, f"{command} only reads"
        tally["commands on hostile folders"] += 1
    assert kept <= lines_in(run), "lines of metrics were lost"
    tally["hostile folders, each of its own kind"] += 1


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (4 * GIGABYTE, 4 * GIGABYTE))


def answer(arguments: list[str]) -> tuple[int, str, int]:
    """Exit code of a command in a process of its own, what it said, and its largest memory."""
    # Not `ru_maxrss`, which a process takes over from the one that it was forked from.
    code = (
        "import sys; from everlearn.cli import main\n"
        "try: main()\n"
        "finally:\n"
        "    status = open('/proc/self/status').read()\n"
        "    print('peak', status.split('VmHWM:')[1].split()[0], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        preexec_fn=limit,
        timeout=120,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    said = done.stderr.decode(errors="replace")
    before, _, peak = said.rpartition("peak ")
    return done.returncode, before + done.stdout.decode(errors="replace"), 1024 * int(peak)


SAMPLE = (
    "metrics: link_to_a_device",
    "metrics: 100 MB without an end",
    "config: pipe",
)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits memory")
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "kind", [*SAMPLE, *(pytest.param(kind, marks=pytest.mark.torture) for kind in some(ALL))]
)
def test_in_processes_of_their_own(kind, request, good, place, tally):
    runs, outside = place / "runs", place / "outside"
    run = build(kind, good, runs, outside)
    shutil.copytree(good, runs / "beside")
    untouched = tree(outside)
    long = request.node.get_closest_marker("torture") is not None
    # The next one in turn; `test_in_this_process` has them all.
    for command in [COMMANDS[ALL.index(kind) % len(COMMANDS)] if long else "report"]:
        arguments = words(command, runs, run, place / "out", page=long)
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
        code, said, peak = answer(arguments)
        worked = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - began
        assert code in (0, 2), said
        assert "Traceback" not in said
        assert SECRET not in said
        assert "\x1b" not in said
        assert peak < GIGABYTE, f"{command} took {peak:,} bytes"
        assert worked < SECONDS + 5, f"{command} took {worked:.1f} s"  # it starts Python as well
        assert tree(outside) == untouched
        tally["commands on hostile folders"] += 1


def test_there_are_many_kinds():
    assert len(ALL) >= 100
    chosen = random.Random(0).sample(ALL, 3)
    assert len({*chosen}) == 3
