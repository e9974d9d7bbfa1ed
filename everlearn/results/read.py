"""Many runs as one table: columns read once from the JSONL, then from a cache beside it."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from everlearn.runs import snapshots
from everlearn.runs.config import RunConfig
from everlearn.runs.metrics_file import CHECKPOINTS, CONFIG, KINDS, METRICS, Line, read_lines
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.lock import is_locked

CACHE, CACHE_KIND, CACHE_VERSION = ".columns", "metrics-columns", 1

Columns = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, eq=False)
class RunTable:
    """Runs side by side.

    Attributes
    ----------
    runs, configs
        Folder and config of each.
    columns
        For each kind of line its columns, all runs one after another, and a column ``run``
        with the run's place in `runs`. Numbers that a line lacks are NaN.
    """

    runs: tuple[Path, ...]
    configs: tuple[RunConfig, ...]
    columns: dict[str, Columns]


def find_runs(root: str | Path) -> list[Path]:
    """Folders of runs at or below `root`, in order."""
    return sorted(
        path.parent for path in Path(root).rglob(CONFIG) if (path.parent / METRICS).exists()
    )


def is_last(taken: list[str], config: RunConfig) -> bool:
    """Whether the newest of a run's snapshots, by their names, is the one at its end."""
    return bool(taken) and taken[-1] == snapshots.RunState(config.episodes).name


def run_state(run: Path, config: RunConfig) -> str:
    """Say whether a run is running, finished or stopped, and where."""
    if is_locked(run):
        return "running"
    taken = snapshots.names(run / CHECKPOINTS)
    if is_last(taken, config):
        return "finished"
    done = int(taken[-1].partition("-")[0]) if taken else 0
    return f"stopped after episode {done} of {config.episodes}"


def read_run(run: str | Path) -> dict[str, Columns]:
    """Columns of a run's metrics by kind of line.

    They are cached in the run's folder, for as long as the metrics file stays as it is.
    """
    folder = Path(run)
    if not (folder / METRICS).exists():
        raise InvalidInputError(f"{folder} holds no run: it has no {METRICS}; give a run's folder")
    status = (folder / METRICS).stat()
    key = [status.st_size, status.st_mtime_ns]
    try:
        arrays, meta = load_archive(folder / CACHE, CACHE_KIND, CACHE_VERSION)
        if meta["key"] == key:
            return _unpacked(arrays)
    except (FileNotFoundError, DamagedFileError):
        pass  # a cache can be made again
    lines, _ = read_lines(folder / METRICS)
    columns = {kind: _columns([line for line in lines if line["kind"] == kind]) for kind in KINDS}
    packed = {f"{kind}/{name}": a for kind, part in columns.items() for name, a in part.items()}
    with suppress(OSError):  # a folder that cannot be written can still be read
        save_archive(folder / CACHE, CACHE_KIND, CACHE_VERSION, packed, {"key": key})
    return columns


def read_runs(runs: Iterable[str | Path]) -> RunTable:
    """Read many runs into one table."""
    folders = tuple(Path(run) for run in runs)
    parts: dict[str, list[Columns]] = {kind: [] for kind in KINDS}
    for place, folder in enumerate(folders):
        for kind, columns in read_run(folder).items():
            rows = len(next(iter(columns.values()))) if columns else 0
            if rows:
                parts[kind].append({"run": np.full(rows, place), **columns})
    joined = {kind: _joined(some) for kind, some in parts.items()}
    configs = tuple(RunConfig.read(folder / CONFIG) for folder in folders)
    return RunTable(folders, configs, joined)


def _columns(lines: list[Line]) -> Columns:
    names = dict.fromkeys(name for line in lines for name in line if name != "kind")
    return {name: _column([line.get(name) for line in lines]) for name in names}


def _column(values: list[Any]) -> npt.NDArray[Any]:
    kinds = {type(value) for value in values}
    if kinds == {str}:
        return np.array(values)
    if kinds in ({bool}, {int}):
        return np.array(values, dtype=bool if kinds == {bool} else np.int64)
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _unpacked(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, Columns]:
    columns: dict[str, Columns] = {kind: {} for kind in KINDS}
    for path, array in arrays.items():
        kind, _, name = path.partition("/")
        columns[kind][name] = array
    return columns


def _joined(parts: list[Columns]) -> Columns:
    names = dict.fromkeys(name for part in parts for name in part)
    return {
        name: np.concatenate(
            [part[name] if name in part else np.full(len(part["run"]), np.nan) for part in parts]
        )
        for name in names
    }
