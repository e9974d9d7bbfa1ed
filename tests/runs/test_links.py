"""Links in a run's folder that lead to files which a run would use, or to names it would write."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from everlearn.results.read import read_run
from everlearn.runs.loop import execute
from everlearn.runs.metrics_file import snapshot_names
from everlearn.runs.snapshots import read_snapshot
from everlearn.support.files import ForeignFileError
from tests.torture.test_hostile_folders import CONFIG, ROOT


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ROOT)
    execute(CONFIG, tmp_path / "run")
    return tmp_path / "run"


def moved_out(path: Path, outside: Path) -> None:
    """Put a link where something was that belongs to the run."""
    shutil.move(path, outside)
    path.symlink_to(outside)


@pytest.mark.parametrize("part", ["agent", "state", "."])
def test_a_snapshot_behind_a_link_is_not_used(part: str, run: Path, tmp_path: Path) -> None:
    newest = run / "checkpoints" / snapshot_names(run / "checkpoints")[-1]
    read_snapshot(newest)
    moved_out(newest / part if part != "." else newest, tmp_path / "outside")
    with pytest.raises(ForeignFileError, match="is a symbolic link"):
        read_snapshot(newest)


def test_a_run_of_a_task_alone_behind_a_link_is_not_read(run: Path, tmp_path: Path) -> None:
    alone = run / "single" / "second"
    shutil.copytree(run, alone)
    assert set(read_run(run).alone) == {"second"}
    moved_out(alone, tmp_path / "outside")
    with pytest.raises(ForeignFileError, match="is a symbolic link"):
        read_run(run)
    alone.unlink()
    moved_out(run / "single", tmp_path / "above")
    shutil.move(tmp_path / "outside", tmp_path / "above" / "second")
    with pytest.raises(ForeignFileError, match="is a symbolic link"):
        read_run(run)


def test_copies_of_what_is_replaced_are_not_written_through_links(
    run: Path, tmp_path: Path
) -> None:
    kept = {name: (run / name).read_bytes() for name in ("config.json", "metrics.jsonl")}
    for name in kept:
        (run / f"{name}.1").symlink_to(tmp_path / "made")
    assert execute(CONFIG, run, fresh=True).finished
    assert not (tmp_path / "made").exists()
    for name, content in kept.items():
        assert (run / f"{name}.1").is_symlink()
        assert (run / f"{name}.2").read_bytes() == content
