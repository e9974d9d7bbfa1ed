"""Runs in shared storage: whatever fsspec has a URL for (``s3://``, ``gs://``, ``sftp://`` ...).

A run computes in a folder of its own machine. At every snapshot it is copied to the URL, and a
machine that takes it up later starts from there::

    config.json  environment.json  metrics.jsonl  transitions/*     as in a run's folder
    snapshots/000100-2-evaluated.snapshot                           one object a snapshot

Each snapshot is one checksummed object with everything that going on needs: agent, state and
the metrics up to then. So whatever is cut short, and even if a machine that was given up for
lost writes on for a while, every object is whole or known not to be, and all of them agree.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np

from everlearn.runs import snapshots
from everlearn.runs.config import RunConfig
from everlearn.runs.listeners import Listener
from everlearn.runs.metrics_file import (
    CHECKPOINTS,
    CONFIG,
    ENVIRONMENT,
    METRICS,
    TRANSITIONS,
    Line,
    Notify,
    StorageError,
    parse_lines,
    storing,
)
from everlearn.support.archive import load_archive, reading, save_archive
from everlearn.support.errors import (
    DamagedFileError,
    EverlearnError,
    InvalidInputError,
    MissingExtraError,
)

KIND, VERSION = "everlearn-stored-snapshot", 1
SNAPSHOTS, SUFFIX = "snapshots", ".snapshot"

# What is taken from storage is written below the run's folder under these names and no others.
_SNAPSHOT = re.compile(r"(\d{6,}-(?:1-trained|2-evaluated))\.snapshot")
_EPISODE = re.compile(r"\d{6,}\.transitions")


class Mirror:
    """The place of a run at a URL.

    Parameters
    ----------
    url
        Of the run, such as ``s3://bucket/sweep/oa-0``.
    """

    patience = 10.0

    def __init__(self, url: str) -> None:
        self.url = url
        self._fs, self._root = _file_system(url)
        self._known: set[str] = set()
        """Snapshots of which this process knows that they are whole at the URL."""

    def config(self) -> RunConfig | None:
        """Return the config of the run that is there; None if none is."""
        try:
            text = self._fs.cat_file(self._at(CONFIG)).decode("utf-8")
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{self.url}/{CONFIG} is no text: {error}") from error
        return RunConfig.from_json(text, f"{self.url}/{CONFIG}")

    def snapshots(self) -> list[str]:
        """Names of its snapshots, oldest first."""
        found = (_SNAPSHOT.fullmatch(name) for name in self._names(SNAPSHOTS))
        return sorted(match[1] for match in found if match)

    def running(self) -> None:
        """Storage cannot tell who is at work."""
        return

    def stamp(self) -> object:
        """Return what the storage knows about the metrics."""
        self._fs.invalidate_cache()
        try:
            return self._fs.ukey(self._at(METRICS))
        except FileNotFoundError:
            return None

    def lines(self) -> list[Line]:
        """Read the metrics as of the last snapshot."""
        return parse_lines(self._fs.cat_file(self._at(METRICS)), f"{self.url}/{METRICS}")[0]

    @contextmanager
    def working_folder(self, notify: Notify) -> Iterator[tuple[Path, list[Listener]]]:
        """Give a folder with the run as it is at the URL, and keep both equal at snapshots."""
        with tempfile.TemporaryDirectory(prefix="everlearn-") as scratch:
            folder = Path(scratch) / "run"
            self.pull(folder, notify)
            keeper = _Keeper(self, folder, notify)
            yield folder, [keeper]
            if keeper.late:
                self.push(folder)

    def pull(self, folder: Path, notify: Notify) -> None:
        """Copy the run at the URL to a new `folder`; nothing happens if there is none.

        Raises
        ------
        DamagedFileError
            There are snapshots, and none of them can be read.
        """
        with _told(f"to {folder} what is at {self.url}"):
            if not self._fs.exists(self._at(CONFIG)):
                return
            folder.mkdir(parents=True)
            for name in (CONFIG, ENVIRONMENT):
                with suppress(FileNotFoundError):
                    self._fs.get_file(self._at(name), str(folder / name))
            self._pull_snapshots(folder, notify)
            for name in self._names(TRANSITIONS):
                if _EPISODE.fullmatch(name):
                    (folder / TRANSITIONS).mkdir(exist_ok=True)
                    target = folder / TRANSITIONS / name
                    self._fs.get_file(self._at(TRANSITIONS, name), str(target))

    def _pull_snapshots(self, folder: Path, notify: Notify) -> None:
        """Unpack the newest snapshot that can be read."""
        names, reasons = self.snapshots(), []
        for name in reversed(names):
            packed = folder / f".{name}.tmp"
            try:
                self._fs.get_file(self._at(SNAPSHOTS, name + SUFFIX), str(packed))
                arrays, _ = load_archive(packed, KIND, VERSION)
                with reading(packed, "snapshot"):
                    parts = [arrays[part] for part in (METRICS, snapshots.AGENT, snapshots.STATE)]
            except (DamagedFileError, FileNotFoundError) as error:
                reasons.append(f"{name}: {error}")
                notify(f"snapshot {name} at {self.url} cannot be used: {error}")
                continue
            finally:
                packed.unlink(missing_ok=True)
            self._known.add(name)
            target = folder / CHECKPOINTS / name
            target.mkdir(parents=True)
            files = (folder / METRICS, target / snapshots.AGENT, target / snapshots.STATE)
            for file, content in zip(files, parts, strict=True):
                file.write_bytes(content.tobytes())
            return
        if names:
            raise DamagedFileError(
                f"no snapshot at {self.url} can be used: {'; '.join(reasons)}. Restore one from "
                "a copy, or remove what is there to start over"
            )

    def push(self, folder: Path) -> None:
        """Copy a run's folder to the URL: the snapshots last, and the old ones removed then."""
        with _told(f"to {self.url}"):
            self._fs.makedirs(self._root, exist_ok=True)
            there = self._sizes(TRANSITIONS)
            for file in sorted((folder / TRANSITIONS).glob("*.transitions")):
                if there.get(file.name) != file.stat().st_size:
                    self._put(file, TRANSITIONS, file.name)
            for name in (CONFIG, ENVIRONMENT, METRICS):
                if (folder / name).exists():
                    self._put(folder / name, name)
            for name in snapshots.names(folder / CHECKPOINTS):
                if name not in self._known:
                    self._push_snapshot(folder, name)
                    self._known.add(name)
            for old in self.snapshots()[: -snapshots.KEPT]:
                with suppress(FileNotFoundError):  # another machine was faster
                    self._fs.rm_file(self._at(SNAPSHOTS, old + SUFFIX))

    def _push_snapshot(self, folder: Path, name: str) -> None:
        snapshot = snapshots.read_snapshot(folder / CHECKPOINTS / name)
        metrics = np.fromfile(folder / METRICS, np.uint8, count=snapshot.offset)
        agent, state = snapshot.agent, snapshot.path / snapshots.STATE
        arrays = {
            METRICS: metrics,
            # Streamed to the object: an agent may be larger than memory has room for twice.
            snapshots.AGENT: np.memmap(agent, np.uint8, "r"),
            snapshots.STATE: np.fromfile(state, np.uint8),
        }
        packed = folder / f".{name}{SUFFIX}.tmp"
        try:
            save_archive(packed, KIND, VERSION, arrays, {"snapshot": name})
            self._put(packed, SNAPSHOTS, name + SUFFIX)
        finally:
            packed.unlink(missing_ok=True)

    def _put(self, file: Path, *names: str) -> None:
        target = self._at(*names)
        self._fs.makedirs(target.rpartition("/")[0], exist_ok=True)
        self._fs.put_file(str(file), target)

    def _at(self, *names: str) -> str:
        return "/".join([self._root, *names])

    def _names(self, folder: str) -> list[str]:
        """Names in a folder of the storage, as it is now."""
        return list(self._sizes(folder))

    def _sizes(self, folder: str) -> dict[str, int]:
        """Sizes of what is in a folder of the storage, as it is now, by name."""
        self._fs.invalidate_cache()
        try:
            found = self._fs.ls(self._at(folder), detail=True)
        except FileNotFoundError:
            return {}
        return {str(one["name"]).rstrip("/").rpartition("/")[2]: one["size"] for one in found}


class _Keeper(Listener):
    """Copies a run to its URL at every snapshot.

    Storage that cannot be reached for a while must not end a run: what could not be copied is
    copied with the next snapshot, or at the end, and only then is it an error.
    """

    def __init__(self, mirror: Mirror, folder: Path, notify: Notify) -> None:
        self._mirror, self._folder, self._notify = mirror, folder, notify
        self.late = True

    def saved(self, snapshot: str) -> None:
        """Copy what is new."""
        try:
            self._mirror.push(self._folder)
        except StorageError as error:
            self.late = True
            self._notify(f"snapshot {snapshot} is on this machine only for now: {error}")
        else:
            self.late = False


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turn whatever a storage library raises into one error of ours."""
    try:
        with storing(what):
            yield
    except EverlearnError:
        raise
    except Exception as error:  # each library has its own, and none derives from OSError
        raise StorageError(f"could not write {what}: {type(error).__name__}: {error}") from error


def _file_system(url: str) -> tuple[Any, str]:
    if importlib.util.find_spec("fsspec") is None:
        raise MissingExtraError(
            f"{url} needs fsspec, which is not installed: pip install 'everlearn[cluster]', or "
            "give a folder"
        )
    core: Any = importlib.import_module("fsspec.core")
    try:
        found = core.url_to_fs(url)
    except (ValueError, ImportError) as error:
        raise InvalidInputError(f"{url} cannot be used as storage: {error}") from error
    return found[0], found[1].rstrip("/")
