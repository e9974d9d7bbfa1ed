"""Damaged files: every truncation and every flipped byte is noticed, and costs one snapshot."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from everlearn.runs import snapshots
from everlearn.runs.folder import RunFolder, load_transitions
from everlearn.runs.loop import execute, make
from everlearn.runs.metrics_file import read_lines
from everlearn.support.errors import DamagedFileError
from tests.runs.worker import outcome, tiny
from tests.torture.length import often, some

CONFIG = tiny("oa")
NEWEST = "000006-2-evaluated"

Check = Callable[[], None]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("damage") / "run"
    execute(CONFIG, folder)
    return folder


@pytest.fixture
def copy(run: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


def checks(folder: Path) -> dict[Path, Check]:
    """Files of a run that decide something, and what reads each."""
    _, agent, _ = make(CONFIG)
    snapshot = folder / "checkpoints" / NEWEST
    read = snapshots.read_snapshot(snapshot)

    def metrics() -> None:
        _, ends = read_lines(folder / "metrics.jsonl")
        RunFolder(folder, CONFIG).check_metrics(read.offset, read.digest, ends)

    def state() -> None:
        snapshots.read_snapshot(snapshot)

    return {
        snapshot / "agent": lambda: agent.load(snapshot / "agent"),
        snapshot / "state": state,
        folder / "metrics.jsonl": metrics,
        folder / "transitions" / "000001.transitions": lambda: load_transitions(folder, 1) and None,
    }


@pytest.mark.parametrize(
    "points", [100, pytest.param(None, marks=[pytest.mark.torture, pytest.mark.timeout(3000)])]
)
def test_every_truncation_is_noticed(points, copy, tally):
    for file, check in checks(copy).items():
        size = file.stat().st_size
        check()
        every = range(size)
        lengths = some(every) if points is None else random.Random(0).sample(every, points)
        for length in sorted(lengths, reverse=True):
            os.truncate(file, length)
            with pytest.raises(DamagedFileError):
                check()
            tally["truncations noticed"] += 1


@pytest.mark.parametrize("flips", [100, pytest.param(often(6000), marks=pytest.mark.torture)])
def test_every_flipped_byte_is_noticed(flips, copy, tally):
    generator = random.Random(1)
    for file, check in checks(copy).items():
        content = file.read_bytes()
        for _ in range(flips):
            damaged = bytearray(content)
            damaged[generator.randrange(len(content))] ^= generator.randrange(1, 256)
            file.write_bytes(damaged)
            with pytest.raises(DamagedFileError):
                check()
            tally["flipped bytes noticed"] += 1
        file.write_bytes(content)
        check()


@pytest.mark.parametrize("times", [3, pytest.param(often(60), marks=pytest.mark.torture)])
def test_a_run_with_a_damaged_newest_snapshot_ends_with_the_same_bits(times, run, tmp_path, tally):
    expected = outcome(run)
    for number in range(times):
        generator = random.Random(number)
        folder = Path(shutil.copytree(run, tmp_path / str(number)))
        name = generator.choice(["agent", "state"])
        file = folder / "checkpoints" / NEWEST / name
        content = bytearray(file.read_bytes())
        if generator.random() < 0.5:
            del content[generator.randrange(len(content)) :]
        else:
            content[generator.randrange(len(content))] ^= generator.randrange(1, 256)
        file.write_bytes(content)
        assert execute(CONFIG, folder).finished
        assert outcome(folder) == expected
        tally["damaged snapshots replaced by the one before"] += 1
        shutil.rmtree(folder)


@pytest.mark.parametrize("times", [3, pytest.param(often(60), marks=pytest.mark.torture)])
def test_altered_metrics_are_never_taken_for_the_truth(times, run, tmp_path, tally):
    """A digit that was changed leaves a line that reads well; the snapshots know better."""
    for number in range(times):
        generator = random.Random(number)
        folder = Path(shutil.copytree(run, tmp_path / str(number)))
        file = folder / "metrics.jsonl"
        content = bytearray(file.read_bytes())
        older = snapshots.read_snapshot(folder / "checkpoints" / "000006-1-trained").offset
        digits = [at for at in range(older) if chr(content[at]) in "0123456789"]
        content[generator.choice(digits)] ^= 1
        file.write_bytes(content)
        with pytest.raises(DamagedFileError):
            execute(CONFIG, folder)
        assert file.read_bytes() == content, "nothing was changed"
        tally["altered metrics refused"] += 1
        shutil.rmtree(folder)
