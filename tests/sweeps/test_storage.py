"""Runs in shared storage: whatever is cut short or damaged there, they end with the same bits."""

import uuid
from pathlib import Path

import pytest

fsspec = pytest.importorskip("fsspec", reason="shared storage needs the extra cluster")

from everlearn.runs.listeners import Listener  # noqa: E402
from everlearn.runs.loop import execute  # noqa: E402
from everlearn.support.errors import DamagedFileError, InvalidInputError  # noqa: E402
from everlearn.sweeps import storage  # noqa: E402
from everlearn.sweeps.grid import unfinished  # noqa: E402
from everlearn.sweeps.job import Job, Outcome, is_finished, run_job  # noqa: E402
from everlearn.sweeps.storage import URLStorage  # noqa: E402
from tests.runs.worker import outcome, tiny  # noqa: E402

CONFIG = tiny("oa")


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    folder = tmp_path_factory.mktemp("alone") / "run"
    execute(CONFIG, folder)
    return outcome(folder)


@pytest.fixture(params=["memory", "file"])
def url(request, tmp_path):
    if request.param == "memory":
        return f"memory://{uuid.uuid4().hex}/sweep/oa-0"
    return f"file://{tmp_path}/stored/oa-0"


def job(url):
    return Job("oa-0", CONFIG, url)


def downloaded(url, folder):
    """What a run at a URL comes to, as it would go on somewhere else."""
    URLStorage(url).download(folder, lambda text: None)
    return outcome(folder)


def same(found, expected):
    """Storage keeps two snapshots and `download` brings the newest: the rest must be equal."""
    newest = expected["snapshots"][-1]
    older = expected["snapshots"][0]
    assert found["snapshots"] == [newest]
    kept = {k: v for k, v in expected.items() if k != "snapshots" and not k.startswith(older)}
    assert {k: v for k, v in found.items() if k != "snapshots"} == kept


class LostMachineError(Exception):
    """A machine that is gone."""


class CrashAfter(Listener):
    def __init__(self, snapshots):
        self.left = snapshots

    def saved(self, snapshot):
        self.left -= 1
        if self.left == 0:
            raise LostMachineError


def crash(url, snapshots):
    """Run until so many snapshots have been copied, then be gone."""
    with (
        pytest.raises(LostMachineError),
        URLStorage(url).working_folder(lambda text: None) as (folder, listeners),
    ):
        execute(CONFIG, folder, listeners=[*listeners, CrashAfter(snapshots)])


def test_a_run_goes_on_elsewhere_with_the_same_bits(url, expected, tmp_path):
    assert unfinished([job(url)]) == [job(url)]
    crash(url, 2)
    crash(url, 3)
    assert not is_finished(job(url))
    assert run_job(job(url)) == Outcome("finished")
    assert is_finished(job(url))
    assert unfinished([job(url)]) == []
    assert len(URLStorage(url).snapshots()) == 2
    same(downloaded(url, tmp_path / "here"), expected)
    lines = [
        {k: v for k, v in line.items() if "seconds" not in k} for line in URLStorage(url).metrics()
    ]
    assert lines == expected["lines"]


def test_a_damaged_snapshot_in_storage_costs_only_itself(url, expected, tmp_path, capsys):
    crash(url, 4)
    stored = URLStorage(url)
    older, newest = stored.snapshots()
    path = stored._path(storage.SNAPSHOTS, newest + storage.SUFFIX)
    whole = stored._fs.cat_file(path)
    for content in (whole[:-1], whole[: len(whole) // 2], b""):
        stored._fs.pipe_file(path, content)
        stored.download(tmp_path / str(len(content)), lambda text: None)
        assert outcome(tmp_path / str(len(content)))["snapshots"] == [older]
    assert run_job(job(url)) == Outcome("finished")
    assert f"snapshot {newest} at {url} cannot be used" in capsys.readouterr().err
    same(downloaded(url, tmp_path / "here"), expected)


def test_without_a_usable_snapshot_nothing_is_begun_or_removed(url, tmp_path):
    crash(url, 4)
    stored = URLStorage(url)
    for name in stored.snapshots():
        stored._fs.pipe_file(stored._path(storage.SNAPSHOTS, name + storage.SUFFIX), b"rubbish")
    with pytest.raises(DamagedFileError, match="no snapshot at"):
        stored.download(tmp_path / "here", lambda text: None)
    result = run_job(job(url))
    assert result.end == "failed"
    assert "Restore one from a copy" in result.text
    assert len(stored.snapshots()) == 2


def test_metrics_without_a_snapshot_are_kept(url, expected, tmp_path):
    crash(url, 4)
    stored = URLStorage(url)
    before = stored._fs.cat_file(stored._path("metrics.jsonl"))
    stored._fs.rm(stored._path(storage.SNAPSHOTS), recursive=True)
    assert run_job(job(url)) == Outcome("finished")
    assert stored._fs.cat_file(stored._path("metrics.jsonl.1")) == before
    same(downloaded(url, tmp_path / "here"), expected)


@pytest.mark.parametrize("refused", [3, 10**6])
def test_storage_that_cannot_be_reached_for_a_while(refused, expected, tmp_path, monkeypatch):
    url = f"memory://{uuid.uuid4().hex}/oa-0"
    system = type(fsspec.filesystem("memory"))
    real, left = system.put_file, refused

    def failing(self, *args, **options):
        nonlocal left
        left -= 1
        if left >= 0:
            raise RuntimeError("throttled")  # libraries raise what they like
        return real(self, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(system, "put_file", failing)
        result = run_job(job(url))
    if refused == 3:
        assert result == Outcome("finished")
    else:
        assert result.end == "failed"
        assert "RuntimeError: throttled" in result.text
        assert run_job(job(url)) == Outcome("finished")
    same(downloaded(url, tmp_path / "here"), expected)


def test_a_machine_given_up_for_lost_may_write_on(expected, tmp_path):
    """Two machines at once on one URL: slower, and the same bits."""
    url = f"memory://{uuid.uuid4().hex}/oa-0"
    with URLStorage(url).working_folder(lambda text: None) as (slow, listeners):

        class Other(Listener):
            def saved(self, snapshot):
                if snapshot.startswith("000002-2"):
                    crash(url, 5)  # another machine starts from here and gets further

        execute(CONFIG, slow, listeners=[*listeners, Other()])
    assert run_job(job(url)) == Outcome("finished")
    same(downloaded(url, tmp_path / "here"), expected)


def test_names_in_storage_cannot_lead_out_of_the_folder(tmp_path):
    url = f"file://{tmp_path}/stored/oa-0"
    crash(url, 4)
    stored = tmp_path / "stored" / "oa-0"
    (stored / "snapshots" / "evil.snapshot").write_bytes(b"x")
    (stored / "transitions" / "..evil").write_bytes(b"x")
    (stored / "transitions" / "000009.transitions.sh").write_bytes(b"x")
    URLStorage(url).download(tmp_path / "in" / "run", lambda text: None)
    names = {path.name for path in (tmp_path / "in").rglob("*")}
    assert not {name for name in names if "evil" in name or "sh" in Path(name).suffix}


def test_what_is_no_storage_is_refused_by_name():
    with pytest.raises(InvalidInputError, match="nowhere://"):
        URLStorage("nowhere://bucket/run")
