"""Where the files of a run are stored: in a folder that every worker sees, or at a URL.

A URL is anything that fsspec opens (``s3://``, ``gs://``, ``sftp://`` ...). A run at a URL computes
in a temporary folder of its machine. At every snapshot the folder is uploaded, and a machine that
resumes the run downloads it first::

    config.json  environment.json  structure.json
    metrics.jsonl  transitions/*                                    as in a run's folder
    snapshots/000100-2-evaluated.snapshot                           one object a snapshot

Each snapshot is one checksummed object with everything that a resumed run needs: agent, state and
the metrics up to then. An upload that was cut short is therefore recognised, and two machines that
write the same run (one was given up for lost, but is not) leave snapshots that agree.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from everlearn.runs import metrics_file, snapshots
from everlearn.runs.config import RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    STRUCTURE,
    TRANSITIONS,
    Line,
    Notify,
    StorageError,
    parse_lines,
    read_lines,
    storing,
)
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import (
    DamagedFileError,
    EverlearnError,
    InvalidInputError,
    MissingExtraError,
)
from everlearn.support.files import exists, reading
from everlearn.support.lock import is_locked

ARCHIVE, VERSION = "everlearn-stored-snapshot", 1
SNAPSHOTS, SUFFIX = "snapshots", ".snapshot"

# Downloaded files are written below the run's folder under these names and no others.
_SNAPSHOT = re.compile(r"(\d{6,}-(?:1-trained|2-evaluated))\.snapshot")
_EPISODE = re.compile(r"\d{6,}\.transitions")

WorkingFolder = AbstractContextManager[tuple[Path, list[Listener]]]


class RunStorage(Protocol):
    """What a sweep asks of the storage of one run."""

    poll_seconds: float
    """Seconds between two reads of the metrics while the run goes on."""

    def config(self) -> RunConfig | None:
        """Return the stored config; None if no run is stored."""
        ...

    def snapshots(self) -> list[str]:
        """Names of the snapshots, oldest first."""
        ...

    def is_running(self) -> bool | None:
        """Whether a process is running there; None if this storage cannot tell."""
        ...

    def metrics_version(self) -> object:
        """Return a value that changes when the metrics do; None if there are none."""
        ...

    def metrics(self) -> list[Line]:
        """Read the metrics; empty if there are none."""
        ...

    def working_folder(self, notify: Notify) -> WorkingFolder:
        """Give the folder to run in, and the listeners that the run needs to be stored."""
        ...


def is_url(location: str) -> bool:
    """Whether a location is a URL and not a folder."""
    return "://" in location


def open_storage(location: str) -> RunStorage:
    """Return the storage of the run at a folder or URL; nothing is created."""
    return URLStorage(location) if is_url(location) else FolderStorage(Path(location))


def join_location(location: str, *names: str) -> str:
    """Return a location inside another."""
    if is_url(location):
        return "/".join([location.rstrip("/"), *names])
    return str(Path(location, *names))


class FolderStorage:
    """A folder of this machine or of a file system that all machines share."""

    poll_seconds = 0.5

    def __init__(self, path: Path) -> None:
        self.path = path

    def config(self) -> RunConfig | None:
        """Return the stored config; None if no run is stored."""
        file = self.path / CONFIG
        return RunConfig.read(file) if exists(file) else None

    def snapshots(self) -> list[str]:
        """Names of the snapshots, oldest first."""
        return metrics_file.snapshot_names(self.path / CHECKPOINTS)

    def is_running(self) -> bool:
        """Whether a process holds the folder's lock."""
        return is_locked(self.path)

    def metrics_version(self) -> object:
        """Size and time of the metrics file."""
        try:
            status = (self.path / METRICS).stat()
        except OSError:
            return None
        return status.st_size, status.st_mtime_ns

    def metrics(self) -> list[Line]:
        """Read the metrics; empty if there are none."""
        return read_lines(self.path / METRICS)[0]

    @contextmanager
    def working_folder(self, notify: Notify) -> Iterator[tuple[Path, list[Listener]]]:
        """Return the folder of the run itself: it needs no copy."""
        yield self.path, []


class URLStorage:
    """Shared storage at a URL.

    Parameters
    ----------
    url
        Of the run, such as ``s3://bucket/sweep/oa-0``.
    """

    poll_seconds = 10.0

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._root = _file_system(url)
        self._uploaded: set[str] = set()
        """Snapshots that this process knows to be complete at the URL."""

    def config(self) -> RunConfig | None:
        """Return the stored config; None if no run is stored."""
        try:
            text = self._fs.cat_file(self._path(CONFIG)).decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{self.url}/{CONFIG} is not text: {error}") from error
        return RunConfig.from_json(text, f"{self.url}/{CONFIG}")

    def snapshots(self) -> list[str]:
        """Names of the snapshots, oldest first."""
        matches = (_SNAPSHOT.fullmatch(name) for name in self._sizes(SNAPSHOTS))
        return sorted(match[1] for match in matches if match)

    def is_running(self) -> None:
        """Shared storage has no locks and cannot tell."""
        return

    def metrics_version(self) -> object:
        """Return what the storage knows about the metrics file."""
        self._fs.invalidate_cache()
        try:
            return self._fs.ukey(self._path(METRICS))
        except FileNotFoundError:
            return None

    def metrics(self) -> list[Line]:
        """Read the metrics as of the last snapshot; empty if there are none."""
        try:
            content = self._fs.cat_file(self._path(METRICS))
        except FileNotFoundError:
            return []
        return parse_lines(content, f"{self.url}/{METRICS}")[0]

    @contextmanager
    def working_folder(self, notify: Notify) -> Iterator[tuple[Path, list[Listener]]]:
        """Give a folder with the run as it is at the URL; snapshots of it are uploaded."""
        with tempfile.TemporaryDirectory(prefix="everlearn-") as scratch:
            folder = Path(scratch) / "run"
            self.download(folder, notify)
            uploader = _Uploader(self, folder, notify)
            yield folder, [uploader]
            if uploader.behind:
                self.upload(folder)

    def download(self, folder: Path, notify: Notify) -> None:
        """Copy the run at the URL to a new `folder`; nothing happens if there is none.

        Raises
        ------
        DamagedFileError
            There are snapshots, and none of them can be read.
        """
        with _storage_errors(f"to {folder} the run at {self.url}"):
            if not self._fs.exists(self._path(CONFIG)):
                return
            folder.mkdir(parents=True)
            for name in (CONFIG, ENVIRONMENT, STRUCTURE):
                with suppress(FileNotFoundError):
                    self._fs.get_file(self._path(name), str(folder / name))
            self._download_snapshot(folder, notify)
            for name in self._sizes(TRANSITIONS):
                if _EPISODE.fullmatch(name):
                    (folder / TRANSITIONS).mkdir(exist_ok=True)
                    target = folder / TRANSITIONS / name
                    self._fs.get_file(self._path(TRANSITIONS, name), str(target))

    def _download_snapshot(self, folder: Path, notify: Notify) -> None:
        """Unpack the newest snapshot that can be read."""
        names, reasons = self.snapshots(), []
        if not names:
            self._keep_metrics(notify)
        for name in reversed(names):
            packed = folder / f".{name}.tmp"
            try:
                self._fs.get_file(self._path(SNAPSHOTS, name + SUFFIX), str(packed))
                arrays, _ = load_archive(packed, ARCHIVE, VERSION)
                with reading(packed, "snapshot"):
                    parts = [arrays[part] for part in (METRICS, snapshots.AGENT, snapshots.STATE)]
            except (DamagedFileError, FileNotFoundError) as error:
                reasons.append(f"{name}: {error}")
                notify(f"snapshot {name} at {self.url} cannot be used: {error}")
                continue
            finally:
                packed.unlink(missing_ok=True)
            self._uploaded.add(name)
            target = folder / CHECKPOINTS / name
            target.mkdir(parents=True)
            files = (folder / METRICS, target / snapshots.AGENT, target / snapshots.STATE)
            for file, content in zip(files, parts, strict=True):
                file.write_bytes(content.tobytes())
            return
        if names:
            raise DamagedFileError(
                f"no snapshot at {self.url} can be used: {'; '.join(reasons)}. Restore one from "
                "a copy, or remove the run at the URL to start over"
            )

    def _keep_metrics(self, notify: Notify) -> None:
        """Copy metrics that no snapshot can continue: the run starts over and uploads its own."""
        try:
            content = self._fs.cat_file(self._path(METRICS))
        except FileNotFoundError:
            return
        if content:
            number = 1
            while self._fs.exists(copy := self._path(f"{METRICS}.{number}")):
                number += 1
            self._fs.pipe_file(copy, content)
            notify(f"no snapshot at {self.url}; starting over, old metrics in {METRICS}.{number}")

    def upload(self, folder: Path) -> None:
        """Copy a run's folder to the URL: snapshots last, after which old ones are removed."""
        with _storage_errors(f"to {self.url}"):
            self._fs.makedirs(self._root, exist_ok=True)
            sizes = self._sizes(TRANSITIONS)
            for file in sorted((folder / TRANSITIONS).glob("*.transitions")):
                if sizes.get(file.name) != file.stat().st_size:
                    self._upload_file(file, TRANSITIONS, file.name)
            for name in (CONFIG, ENVIRONMENT, STRUCTURE, METRICS):
                if (folder / name).exists():
                    self._upload_file(folder / name, name)
            for name in metrics_file.snapshot_names(folder / CHECKPOINTS):
                if name not in self._uploaded:
                    self._upload_snapshot(folder, name)
                    self._uploaded.add(name)
            for old in self.snapshots()[: -snapshots.KEPT]:
                with suppress(FileNotFoundError):  # another machine was faster
                    self._fs.rm_file(self._path(SNAPSHOTS, old + SUFFIX))

    def _upload_snapshot(self, folder: Path, name: str) -> None:
        snapshot = snapshots.read_snapshot(folder / CHECKPOINTS / name)
        arrays = {
            METRICS: np.fromfile(folder / METRICS, np.uint8, count=snapshot.offset),
            # Mapped, not read: an agent may be larger than memory has room for twice.
            snapshots.AGENT: np.memmap(snapshot.agent, np.uint8, "r"),
            snapshots.STATE: np.fromfile(snapshot.path / snapshots.STATE, np.uint8),
        }
        packed = folder / f".{name}{SUFFIX}.tmp"
        try:
            save_archive(packed, ARCHIVE, VERSION, arrays, {"snapshot": name})
            self._upload_file(packed, SNAPSHOTS, name + SUFFIX)
        finally:
            packed.unlink(missing_ok=True)

    def _upload_file(self, file: Path, *names: str) -> None:
        target = self._path(*names)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(file), target)

    def _path(self, *names: str) -> str:
        return "/".join([self._root, *names])

    def _sizes(self, folder: str) -> dict[str, int]:
        """Sizes of the files in a folder of the storage, as it is now, by name."""
        self._fs.invalidate_cache()
        try:
            files = self._fs.ls(self._path(folder), detail=True)
        except FileNotFoundError:
            return {}
        return {str(file["name"]).rstrip("/").rpartition("/")[2]: file["size"] for file in files}


class _Uploader(Listener):
    """Uploads a run at every snapshot.

    Storage that cannot be reached for a while must not end a run: an upload that failed is
    repeated with the next snapshot, and at the end, where it becomes an error.
    """

    def __init__(self, storage: URLStorage, folder: Path, notify: Notify) -> None:
        self._storage, self._folder, self._notify = storage, folder, notify
        self.behind = True

    def saved(self, snapshot: str) -> None:
        """Upload what is new."""
        try:
            self._storage.upload(self._folder)
        except StorageError as error:
            self.behind = True
            self._notify(f"snapshot {snapshot} is on this machine only for now: {error}")
        else:
            self.behind = False


@contextmanager
def _storage_errors(copy: str) -> Iterator[None]:
    """Turn whatever a storage library raises into a `StorageError`."""
    try:
        with storing(copy):
            yield
    except EverlearnError:
        raise
    except Exception as error:  # each library has its own, and none derives from OSError
        raise StorageError(f"could not write {copy}: {type(error).__name__}: {error}") from error


def _file_system(url: str) -> tuple[Any, str]:
    if importlib.util.find_spec("fsspec") is None:
        raise MissingExtraError(
            f"{url} needs fsspec, which is not installed: pip install 'everlearn[cluster]', or "
            "give a folder"
        )
    core: Any = importlib.import_module("fsspec.core")
    try:
        file_system, root = core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be used as storage: {error}") from error
    return file_system, root.rstrip("/")
