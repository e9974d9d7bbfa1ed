"""What is opened and read of a folder that somebody else may have filled."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from everlearn.support import archive
from everlearn.support.errors import DamagedFileError
from everlearn.support.files import (
    ForeignFileError,
    open_file,
    parse_record,
    read_file,
    reading,
    remove_leftovers,
    write_text,
)


def link(path: Path) -> None:
    path.with_name("target").write_text("x")
    path.symlink_to(path.with_name("target"))


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(path))


SORTS: dict[str, Callable[[Path], None]] = {
    "a symbolic link": link,
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a socket": unix_socket,
    "a device": lambda path: path.symlink_to("/dev/zero"),
}


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("file")  # names of sockets are short


@pytest.mark.parametrize("sort", SORTS)
def test_only_regular_files_are_opened(sort: str, path: Path) -> None:
    SORTS[sort](path)
    for follow in (False, True):
        if follow and sort == "a symbolic link":
            os.close(open_file(path, follow=True))
            continue
        expected = sort if follow or sort != "a device" else "a symbolic link"
        with pytest.raises(ForeignFileError, match=f"file is {expected}; expected a regular file"):
            open_file(path, follow=follow)


def test_what_comes_in_between_is_refused_as_well(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check sees a file, and the system opens a link, or a pipe without anybody else."""
    monkeypatch.setattr("everlearn.support.files.check_file", lambda path: None)
    os.mkfifo(path)
    with pytest.raises(ForeignFileError, match="a pipe"):
        open_file(path)
    path.unlink()
    link(path)
    with pytest.raises(OSError, match="symbolic links"):
        open_file(path)


def test_no_more_is_read_than_a_limit(path: Path) -> None:
    path.write_bytes(b"x" * 100)
    assert read_file(path, 100) == b"x" * 100
    with pytest.raises(DamagedFileError, match="larger than the 99 bytes"):
        read_file(path, 99)
    os.truncate(path, 90 << 30)  # takes no room on the disk
    with pytest.raises(DamagedFileError, match="larger than the 100 bytes"):
        read_file(path, 100)


@pytest.mark.parametrize("number", [errno.EACCES, errno.EIO])
def test_a_file_that_cannot_be_read_is_an_error_in_words(
    number: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path.write_text("x")

    def refused(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(DamagedFileError, match=f"cannot be read: {os.strerror(number)}"):
        read_file(path, 10)


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1e400}',
        '{"a": -1e400}',
        '{"a": NaN}',
        '{"a": Infinity}',
        f'{{"a": {2**64}}}',
        f'{{"a": {-(2**63) - 1}}}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        "[" * 100_000,
        "[1]",
        "",
        b"\xff\xfe",
    ],
    ids=lambda text: str(text)[:20],
)
def test_records_are_objects_of_numbers_and_text(text: str | bytes) -> None:
    with pytest.raises(DamagedFileError):
        parse_record(text, "it")


def test_records_of_all_that_fits() -> None:
    text = f'{{"a": [1e308, {2**64 - 1}, {-(2**63)}, "\\u00e9", null, true]}}'
    assert parse_record(text, "it") == {"a": [1e308, 2**64 - 1, -(2**63), "é", None, True]}


def test_whatever_content_trips_over_is_damage() -> None:
    for error in (KeyError("x"), TypeError("x"), MemoryError(), RecursionError(), OverflowError()):
        with (
            pytest.raises(DamagedFileError, match="it holds no usable thing"),
            reading("it", "thing"),
        ):
            raise error


def test_an_archive_that_is_larger_than_memory_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "file"
    archive.save_archive(file, "thing", 1, {"a": np.zeros(100)}, {})
    assert len(archive.load_archive(file, "thing", 1)[0]["a"]) == 100
    monkeypatch.setattr(archive, "memory_bytes", lambda: 500)
    with pytest.raises(DamagedFileError, match="more than the 500 that can be read"):
        archive.load_archive(file, "thing", 1)
    with pytest.raises(DamagedFileError, match="more than the 400 that can be read"):
        archive.load_archive(file, "thing", 1, limit=400)


def test_leftovers_are_removed_and_what_they_lead_to_is_not(tmp_path: Path) -> None:
    folder, outside = tmp_path / "folder", tmp_path / "outside"
    outside.mkdir()
    (outside / ".kept.tmp").write_text("x")
    folder.symlink_to(outside)
    remove_leftovers(folder)
    folder.unlink()
    folder.mkdir()
    (folder / ".a.tmp").mkdir()
    (folder / ".b.tmp").write_text("x")
    (folder / ".c.tmp").symlink_to(outside)
    (folder / ".d.tmp").symlink_to(outside / ".kept.tmp")
    remove_leftovers(folder)
    assert (outside / ".kept.tmp").exists()
    assert sorted(item.name for item in folder.iterdir()) == [".c.tmp", ".d.tmp"]


def test_a_link_is_replaced_by_what_is_written(path: Path) -> None:
    link(path)
    write_text(path, "x")  # as what it leads to
    assert not path.is_symlink()
    path.unlink()
    link(path)
    write_text(path, "another")
    assert path.read_text() == "another"
    assert Path("target").read_text() == "x"
