"""A full disk at every moment: an error that says so, and the run goes on when there is room."""

from __future__ import annotations

import os
import resource
import subprocess
from functools import partial

import pytest

from everlearn.runs.metrics_file import read_lines
from tests.runs.worker import REFUSED, fill, finish, outcome, start, tiny, trip_at
from tests.torture.length import some


@pytest.fixture(scope="module")
def complete(tmp_path_factory):
    folder = tmp_path_factory.mktemp("room") / "run"
    assert finish(start(tiny("oa"), folder)) == 0
    return folder


@pytest.fixture(scope="module")
def expected(complete):
    return outcome(complete)


@pytest.fixture(scope="module")
def largest(complete):
    """Bytes of the largest file of a run."""
    return max(path.stat().st_size for path in complete.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "moments",
    [
        (2, 40, 90),
        pytest.param(
            some(range(1, 400)), marks=[pytest.mark.torture, pytest.mark.timeout(3000)], id="every"
        ),
    ],
)
def test_full_from_a_change_on(moments, expected, tmp_path, tally):
    for count in moments:
        folder = tmp_path / str(count)
        code = finish(start(tiny("oa"), folder, prepare=partial(trip_at, count, fill)))
        if code == 0:
            break  # there are no more changes
        assert code == REFUSED, f"full at change {count}"
        assert finish(start(tiny("oa"), folder)) == 0
        assert outcome(folder) == expected, f"full at change {count}"
        tally["full disks survived"] += 1


def limit_files(size: int) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


@pytest.mark.parametrize(
    "shares",
    [(0.01, 0.6), pytest.param((0, 0.005, 0.1, 0.4, 0.8, 0.99), marks=pytest.mark.torture)],
    ids=["few", "many"],
)
def test_files_that_the_system_cuts_short(shares, expected, largest, tmp_path, tally):
    """The kernel itself refuses to let a file grow, in the middle of a write."""
    for share in shares:
        size = max(1, int(share * largest))
        folder = tmp_path / str(size)
        assert finish(start(tiny("oa"), folder, prepare=partial(limit_files, size))) == REFUSED
        read_lines(folder / "metrics.jsonl")
        assert finish(start(tiny("oa"), folder)) == 0
        assert outcome(folder) == expected
        tally["full disks survived"] += 1


@pytest.mark.torture
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounts a file system")
def test_a_file_system_without_room(expected, tmp_path, tally):
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=16k", "tmpfs", str(place)]
    if subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("this system does not let tests mount a file system")
    try:
        size, code = 16, None
        while code != 0:  # a little more room each time
            code = finish(start(tiny("oa"), place / "run"))
            assert code in (0, REFUSED)
            size += 24
            assert size < 20_000
            remount = ["mount", "-o", f"remount,size={size}k", str(place)]
            subprocess.run(remount, check=True)
            tally["full disks survived"] += code != 0
        assert outcome(place / "run") == expected
    finally:
        subprocess.run(["umount", str(place)], check=True)
