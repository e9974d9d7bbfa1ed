"""Thousands of kills at random moments, and one at every single change of the disk."""

import dataclasses
import random
import shutil
import signal

import pytest

from everlearn.runs.presets import preset_config
from tests.runs.worker import finish, kill_at, outcome, start, tiny, uninterrupted
from tests.torture.length import often, some

pytestmark = pytest.mark.torture


@pytest.fixture(scope="module")
def smoke(tmp_path_factory):
    # A snapshot after every episode, so that many kills hit one that is being written.
    config = dataclasses.replace(preset_config("smoke", threads=1), snapshot_seconds=0.0)
    folder = tmp_path_factory.mktemp("smoke") / "run"
    seconds = uninterrupted(config, folder)
    return config, seconds, outcome(folder)


@pytest.mark.parametrize("moment", range(often(40)))
def test_smoke_run_killed_at_a_random_moment(moment, smoke, tmp_path, tally):
    config, seconds, expected = smoke
    folder = tmp_path / "run"
    kill_at(start(config, folder), folder, random.Random(moment).uniform(0.0, seconds))
    assert finish(start(config, folder)) == 0
    assert outcome(folder) == expected
    tally["kills of a run survived"] += 1


@pytest.fixture(scope="module", params=["oa", "mlp-packnet", "sac-ewc"])
def small(request, tmp_path_factory):
    """A run of less than a second, so that most kills hit a file that is being written."""
    config = tiny(request.param)
    folder = tmp_path_factory.mktemp("small") / "run"
    seconds = uninterrupted(config, folder)
    return config, seconds, outcome(folder), MOMENTS.get(request.param, 30)


MOMENTS = {"oa": 3000}


@pytest.mark.timeout(30_000)
def test_small_runs_killed_at_random_moments(small, tmp_path, tally):
    config, seconds, expected, moments = small
    for moment in range(often(moments)):
        folder = tmp_path / str(moment)
        kill_at(start(config, folder), folder, random.Random(moment).uniform(0.0, seconds))
        assert finish(start(config, folder)) == 0
        assert outcome(folder) == expected, f"killed at moment {moment}"
        shutil.rmtree(folder)
        tally["kills of a run survived"] += 1


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "run"
    assert finish(start(tiny(), folder)) == 0
    return outcome(folder)


@pytest.mark.parametrize("first", some(range(1, 200, 10)))
def test_killed_at_every_change_of_the_disk(first, whole, tmp_path, tally):
    for count in range(first, first + 10):
        folder = tmp_path / str(count)
        killed = finish(start(tiny(), folder, crash_at=count)) == -signal.SIGKILL
        assert finish(start(tiny(), folder)) == 0
        assert outcome(folder) == whole, f"killed at change {count}"
        if not killed:
            return  # there are no more changes
        tally["kills of a run survived"] += 1
