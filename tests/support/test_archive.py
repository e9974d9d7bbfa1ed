from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from everlearn.support import archive
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError

ARRAYS = {
    "a/b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "whole": np.array([1, -2], np.int64),
    "empty": np.zeros((0, 4)),
    "scalar": np.array(2.5),
    "text": np.array(["x", "yz"]),
    "strided": np.arange(12.0).reshape(3, 4).T[::2],
}
META = {"name": "test", "nested": {"list": [1, 2.5, None, True]}}


def saved(folder: Path) -> Path:
    path = folder / "file.everlearn"
    save_archive(path, "thing", 3, ARRAYS, META)
    return path


def test_everything_comes_back(tmp_path: Path) -> None:
    arrays, meta = load_archive(saved(tmp_path), "thing", 3)
    assert meta == META
    assert list(arrays) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert arrays[name].dtype == array.dtype
        assert arrays[name].shape == array.shape
        np.testing.assert_array_equal(arrays[name], array)
    assert arrays["a/b"].flags.writeable
    assert [p.name for p in tmp_path.iterdir()] == ["file.everlearn"]


def test_an_older_version_is_read_and_a_newer_one_refused(tmp_path: Path) -> None:
    path = saved(tmp_path)
    assert load_archive(path, "thing", 9)[1] == META
    with pytest.raises(DamagedFileError, match=r"version 3.*newer everlearn"):
        load_archive(path, "thing", 2)


def test_another_kind_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DamagedFileError, match="'thing', not a 'agent'"):
        load_archive(saved(tmp_path), "agent", 3)


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    path = saved(tmp_path)
    content = path.read_bytes()
    for length in range(len(content)):
        path.write_bytes(content[:length])
        with pytest.raises(DamagedFileError):
            load_archive(path, "thing", 3)
    path.write_bytes(content + b"\0")
    with pytest.raises(DamagedFileError):
        load_archive(path, "thing", 3)


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(where=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_every_flipped_bit_is_noticed(tmp_path: Path, where: float, bit: int) -> None:
    path = saved(tmp_path)
    content = bytearray(path.read_bytes())
    content[int(where * len(content))] ^= 1 << bit
    path.write_bytes(content)
    with pytest.raises(DamagedFileError):
        load_archive(path, "thing", 3)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip file", b"x" * 1000])
def test_foreign_files_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(content)
    with pytest.raises(DamagedFileError):
        load_archive(path, "thing", 3)


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_archive(tmp_path / "none", "thing", 3)


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved(tmp_path)
    before = path.read_bytes()

    def full_disk(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(archive.os, "fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        save_archive(path, "thing", 4, {"a": np.zeros(5)}, {})
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 1


def test_objects_and_odd_facts_are_refused_before_writing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with pytest.raises(InvalidInputError, match="plain numbers"):
        save_archive(path, "thing", 1, {"a": np.array([object()])}, {})
    with pytest.raises(InvalidInputError, match="JSON"):
        save_archive(path, "thing", 1, {}, {"a": object()})
    assert not list(tmp_path.iterdir())


def test_large_arrays_go_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "CHUNK", 64)
    big = np.random.default_rng(0).normal(size=(50, 7))
    save_archive(tmp_path / "big", "thing", 1, {"big": big, "turned": big.T}, {})
    arrays, _ = load_archive(tmp_path / "big", "thing", 1)
    np.testing.assert_array_equal(arrays["big"], big)
    np.testing.assert_array_equal(arrays["turned"], big.T)
