"""Two processes, or six, on one run's folder: one runs, the others are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from everlearn.runs.folder import check_folder
from everlearn.runs.metrics_file import CONFIG
from tests.runs.worker import IN_USE, finish, outcome, start, tiny
from tests.torture.length import often


@pytest.mark.parametrize(
    ("rounds", "processes"), [(1, 3), pytest.param(often(25), 6, marks=pytest.mark.torture)]
)
def test_only_one_at_a_time(rounds, processes, tmp_path, tally):
    config = tiny(episodes_per_task=4)
    assert finish(start(config, tmp_path / "alone")) == 0
    expected = outcome(tmp_path / "alone")
    for number in range(rounds):
        folder = tmp_path / str(number)
        codes = [finish(one) for one in [start(config, folder) for _ in range(processes)]]
        assert set(codes) <= {0, IN_USE}
        assert 0 in codes
        assert outcome(folder) == expected
        tally["second processes refused"] += codes.count(IN_USE)


def test_a_run_that_begins_during_the_check_is_taken_for_a_run(tmp_path, monkeypatch):
    config, listing = tiny(), Path.iterdir

    def begun(folder):
        (folder / CONFIG).write_text(config.to_json(), encoding="utf-8")
        return listing(folder)

    monkeypatch.setattr(Path, "iterdir", begun)
    assert check_folder(tmp_path, config, fresh=False) == config
