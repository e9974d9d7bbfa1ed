"""Snapshots of a run, from which it goes on to the bit.

A snapshot is a folder with the agent's file and the runner's state. It is written beside the
others under a hidden name and renamed when complete, so a half-written one is never taken for
a snapshot. Training seeds are functions of the episode (`protocol.py`) and every episode
starts with a reset, so at the end of an episode this is all there is. In a world without resets
(`endless.py`) its state is there too.
"""

from __future__ import annotations

import dataclasses
import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from everlearn.interfaces import Agent, State
from everlearn.runs.endless import save_world
from everlearn.runs.metrics_file import Notify, snapshot_name, snapshot_names, storing
from everlearn.support.archive import load_archive, save_archive, sync_folder
from everlearn.support.checks import check_whole
from everlearn.support.errors import DamagedFileError, EverlearnError, InvalidInputError
from everlearn.support.files import RECORD_LIMIT, check_file, check_folder, exists, reading

KIND, VERSION = "everlearn-run-state", 2
AGENT, STATE = "agent", "state"
KEPT = 2


@dataclass(frozen=True)
class RunState:
    """Where a run stands between two episodes.

    Attributes
    ----------
    episode, step
        Training episodes and environment steps done.
    begun
        Entry of the task sequence that the agent was told of last; -1 before the first.
    evaluated
        Whether the evaluation due after `episode` episodes, if any, is done.
    """

    episode: int = 0
    step: int = 0
    begun: int = -1
    evaluated: bool = True

    def __post_init__(self) -> None:
        check_whole("episode", self.episode, 0)
        check_whole("step", self.step, 0)
        check_whole("begun", self.begun, -1)
        if not isinstance(self.evaluated, bool):
            raise InvalidInputError(f"evaluated is {self.evaluated!r}; expected true or false")

    @property
    def name(self) -> str:
        """Name of its snapshot; names sort by time."""
        return snapshot_name(self.episode, self.evaluated)


@dataclass(frozen=True)
class Snapshot:
    """What a snapshot says beside the agent's own file."""

    path: Path
    state: RunState
    offset: int
    """Bytes of the metrics file that had been written."""
    digest: str | None
    """SHA-256 of those bytes; None in snapshots of the first version."""

    @property
    def agent(self) -> Path:
        """The agent's file."""
        return self.path / AGENT


def save_snapshot(
    folder: Path,
    state: RunState,
    offset: int,
    digest: str,
    agent: Agent,
    world: State | None = None,
) -> None:
    """Write a snapshot, all or nothing, and remove all but the last `KEPT`.

    Parameters
    ----------
    folder
        Of the snapshots.
    state
        Where the run stands.
    offset, digest
        Length and SHA-256 of the metrics by now.
    agent
        Who is saved.
    world
        State of the world, if the next episode goes on from this one.
    """
    with storing(f"a snapshot to {folder}"):
        folder.mkdir(exist_ok=True)
        temporary = folder / f".{state.name}.{secrets.token_hex(4)}.tmp"
        try:
            temporary.mkdir()
            agent.save(temporary / AGENT)
            if world is not None:
                save_world(temporary, world)
            meta = {**dataclasses.asdict(state), "offset": offset, "digest": digest}
            save_archive(temporary / STATE, KIND, VERSION, {}, meta)
            if exists(folder / state.name):
                set_aside(folder / state.name)
            temporary.rename(folder / state.name)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        sync_folder(folder)
        prune(folder)


def prune(folder: Path) -> None:
    """Remove all snapshots but the last `KEPT`."""
    for old in snapshot_names(folder)[:-KEPT]:
        # Renamed first: a half-removed snapshot must not look like a damaged one.
        gone = folder / f".{old}.{secrets.token_hex(4)}.tmp"
        (folder / old).rename(gone)
        shutil.rmtree(gone)


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot's state; raises `DamagedFileError` or `FileNotFoundError`."""
    check_folder(path)
    check_file(path / AGENT)  # which the agent opens by itself
    _, meta = load_archive(path / STATE, KIND, VERSION, limit=RECORD_LIMIT)
    with reading(path / STATE, "state of a run"):
        offset, digest = meta.pop("offset"), meta.pop("digest", None)
        check_whole("offset", offset, 0)
        # A default would take the place of what a damaged file no longer says.
        if missing := {field.name for field in dataclasses.fields(RunState)} - set(meta):
            raise InvalidInputError(f"a state does not say {sorted(missing)[0]!r}")
        return Snapshot(path, RunState(**meta), offset, digest)


def newest_usable(
    folder: Path, use: Callable[[Snapshot], None], notify: Notify, repair: bool = True
) -> Snapshot | None:
    """Hand snapshots to `use`, newest first, until one can be used.

    Parameters
    ----------
    folder
        Of the snapshots.
    use
        Loads the agent from one, and raises and changes nothing if that is impossible.
    notify
        Told about every snapshot that cannot be used.
    repair
        Set damaged ones aside, so that they no longer count; otherwise nothing is changed.

    Returns
    -------
    Snapshot or None
        The one that was used; None if there are none at all.

    Raises
    ------
    DamagedFileError
        There are some, and none can be used. To start over without being asked would lose
        what they stand for.
    """
    found = snapshot_names(folder)
    failures = []
    for name in reversed(found):
        try:
            snapshot = read_snapshot(folder / name)
            use(snapshot)
        except (EverlearnError, OSError) as error:
            failures.append((name, error))
            continue
        for bad, reason in failures:
            notify(f"snapshot {bad} cannot be used ({reason}); going back to {name}")
            if repair:
                set_aside(folder / bad)
        return snapshot
    if failures:
        raise DamagedFileError(
            f"no snapshot in {folder} can be used: "
            + "; ".join(f"{name}: {error}" for name, error in failures)
            + ". Restore one from a copy, or start over with --fresh"
        )
    return None


def set_aside(path: Path) -> None:
    """Keep a snapshot that cannot be used under a name that no longer counts."""
    path.rename(path.with_name(f"damaged-{path.name}-{secrets.token_hex(2)}"))
