"""The folder of a run: config, metrics, transitions, and the machine it ran on.

``metrics.jsonl`` is the truth: lines are only ever appended, each with one write, so a crash
costs at most the last. A resumed run cuts the file back to where its snapshot was taken and
computes the same lines again.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from everlearn.interfaces import FloatArray
from everlearn.runs import metrics_file
from everlearn.runs.config import VERSION, RunConfig
from everlearn.runs.machine import environment_facts
from everlearn.runs.metrics_file import (
    CHECKPOINTS,
    CONFIG,
    CUT,
    ENVIRONMENT,
    EVENTS,
    MAX_BYTES,
    MAX_LINE,
    METRICS,
    SINGLE,
    STRUCTURE,
    TRANSITIONS,
    Notify,
    read_lines,
    storing,
)
from everlearn.runs.schedule import default_evaluators, is_complete
from everlearn.support.archive import load_archive, save_archive
from everlearn.support.errors import DamagedFileError, InvalidInputError
from everlearn.support.files import (
    check_file,
    exists,
    is_folder,
    read_file,
    read_record,
    remove_leftovers,
    write_text,
)
from everlearn.support.files import check_folder as check_real_folder
from everlearn.support.lock import NAME as LOCK
from everlearn.support.lock import locked
from everlearn.support.threads import available_threads, check_threads

FILES = (CONFIG, METRICS, ENVIRONMENT, STRUCTURE, CUT, LOCK)
FOLDERS = (CHECKPOINTS, TRANSITIONS, EVENTS, SINGLE, "wandb")
"""What a run writes into its folder."""

MAX_TRANSITIONS = 1 << 30
"""Bytes of the transitions of an episode."""


@dataclasses.dataclass(frozen=True)
class RunFolder:
    """A run's folder, held by this process.

    Attributes
    ----------
    path
        Where it is.
    config
        As stored: the numbers of threads and evaluators are decided.
    """

    path: Path
    config: RunConfig

    @property
    def metrics(self) -> Path:
        """The JSONL file."""
        return self.path / METRICS

    @property
    def checkpoints(self) -> Path:
        """Folder of the snapshots."""
        return self.path / CHECKPOINTS

    def check_metrics(self, offset: int, digest: str | None, ends: list[int]) -> None:
        """Refuse metrics that are not those that a snapshot was taken at.

        Parameters
        ----------
        offset, digest
            Their length and SHA-256 then; a digest of None fits any.
        ends
            Where lines end now.
        """
        if offset and offset not in ends:
            raise DamagedFileError(
                f"it was taken at byte {offset} of {METRICS}, where no line ends"
            )
        if digest is None:
            return
        content = read_file(self.metrics, MAX_BYTES + MAX_LINE)[:offset] if offset else b""
        if hashlib.sha256(content).hexdigest() != digest:
            raise DamagedFileError(f"the {offset} bytes of {METRICS} before it were altered")

    def save_structure(self, found: Mapping[str, Any], episode: int) -> None:
        """Keep what the agent found about its world by the end of `episode`."""
        file = self.path / STRUCTURE
        with storing(str(file)):
            write_text(file, json.dumps({"episode": episode, **found}, indent=1) + "\n")

    def save_transitions(
        self,
        episode: int,
        observations: FloatArray,
        actions: FloatArray,
        rewards: FloatArray,
        facts: Mapping[str, Any],
    ) -> None:
        """Keep an episode's transitions; one that is repeated gives the same file again."""
        arrays = {"observations": observations, "actions": actions, "rewards": rewards}
        with storing(f"transitions of episode {episode}"):
            folder = self.path / TRANSITIONS
            folder.mkdir(exist_ok=True)
            save_archive(transitions_path(self.path, episode), "transitions", 1, arrays, facts)


def transitions_path(run: Path, episode: int) -> Path:
    """File of the transitions of training episode `episode`, counted from 1 as in the metrics."""
    return run / TRANSITIONS / f"{episode:06d}.transitions"


def load_transitions(run: str | Path, episode: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Read an episode's ``observations[n + 1]``, ``actions[n]``, ``rewards[n]``, and facts."""
    path = transitions_path(Path(run), episode)
    check_real_folder(path.parent)
    return load_archive(path, "transitions", 1, limit=MAX_TRANSITIONS)


@contextmanager
def open_run(
    path: Path, config: RunConfig, notify: Notify, *, fresh: bool = False, extend: bool = False
) -> Iterator[RunFolder]:
    """Create a run's folder or take up an existing one, and hold its lock.

    Parameters
    ----------
    path, config
        Folder, and what is to run there.
    notify
        Told what the user should know.
    fresh
        Start over if there is a run; its metrics are kept under another name.
    extend
        Let `config` go on where the run that is there ended.

    Raises
    ------
    InvalidInputError
        The folder holds another run, or something else; nothing was changed.
    NotReadyError
        Another process is running there.
    StorageError
        The folder cannot be written.
    """
    check_folder(path, config, fresh=fresh, extend=extend)
    with storing(str(path)):
        path.mkdir(parents=True, exist_ok=True)
        holder = locked(path)
        holder.__enter__()
    try:
        # Again: now nobody else can change it.
        stored = check_folder(path, config, fresh=fresh, extend=extend)
        threads = config.threads or (stored.threads if stored else None) or available_threads()
        check_threads(threads)
        evaluators = (
            config.evaluators
            or (stored.evaluators if stored else None)
            or default_evaluators(config, threads)
        )
        config = dataclasses.replace(config, threads=threads, evaluators=evaluators)
        if stored is not None and stored.resolved is None:
            # What the defaults were when it began is not known; today's would be a guess.
            config = dataclasses.replace(config, resolved=None)
        if stored is None or not _is_archived(path, config):
            with storing(str(path)):
                _prepare(path, stored, config, notify)
        yield RunFolder(path, config)
    finally:
        holder.__exit__(None, None, None)


def _is_archived(path: Path, config: RunConfig) -> bool:
    """Whether only the metrics of a finished run are left, to which nothing can be added."""
    if metrics_file.snapshot_names(path / CHECKPOINTS):
        return False
    lines, _ = read_lines(path / METRICS)
    return is_complete(config, lines)


def _prepare(path: Path, stored: RunConfig | None, config: RunConfig, notify: Notify) -> None:
    """Write what a run needs before its first line, or before it resumes."""
    for folder in (path, path / TRANSITIONS):
        remove_leftovers(folder)
    if stored is None:
        _clear(path)
    elif stored.episodes != config.episodes or _version(path / CONFIG) != VERSION:
        _keep_copy(path / CONFIG)
    write_text(path / CONFIG, config.to_json())
    _note_environment(path / ENVIRONMENT, config, notify)


def _version(file: Path) -> int:
    version: int = read_record(file)["version"]
    return version


def check_sorts(path: Path) -> None:
    """Refuse a folder in which a name that runs write to is a link or a special file."""
    for name in FILES:
        check_file(path / name)
    for name in FOLDERS:
        check_real_folder(path / name)


def check_folder(
    path: Path, config: RunConfig, *, fresh: bool = False, extend: bool = False
) -> RunConfig | None:
    """Return the config of the run in the folder, None if a new one can start; changes nothing."""
    if exists(path) and not path.is_dir():
        raise InvalidInputError(f"{path} is a file; give a folder for the run")
    check_sorts(path)
    if not exists(path / CONFIG):
        names = [item.name for item in path.iterdir()] if path.exists() else []
        visible = [name for name in names if name[0] != "." and name != SINGLE]
        if not visible:
            return None
        # Another process may have begun a run in between: its config is there before all else.
        if not exists(path / CONFIG):
            raise InvalidInputError(
                f"{path} is not empty and holds no run ({visible[0]} ...); give another folder"
            )
    if fresh:
        return None
    stored = RunConfig.read(path / CONFIG)
    longer = is_extension(stored, config)
    compared = stored
    if longer and extend:
        compared = dataclasses.replace(
            stored, tasks=config.tasks, episodes_per_task=config.episodes_per_task
        )
    differences = compared.differences(config)
    if differences:
        advice = ", --extend to go on from its end" if longer else ""
        raise InvalidInputError(
            f"{path} holds a run with other settings ({'; '.join(differences)}); give those to "
            f"resume it, another folder{advice}, or --fresh to start over"
        )
    begun = (path / METRICS).exists() and (path / METRICS).stat().st_size > 0
    if longer and begun and not metrics_file.snapshot_names(path / CHECKPOINTS):
        raise InvalidInputError(
            f"{path} has no snapshot from which the run could be extended; give another folder, or "
            "--fresh to start over"
        )
    return stored


def is_extension(stored: RunConfig, config: RunConfig) -> bool:
    """Whether `config` is a run that has `stored` as its beginning and is longer.

    More tasks at the end, or more episodes of the only task: elsewhere more episodes would move
    the switches that the stored run has already made.
    """
    if config.episodes_per_task == stored.episodes_per_task:
        begins = config.tasks[: len(stored.tasks)] == stored.tasks
        return begins and len(config.tasks) > len(stored.tasks)
    same_task = len(stored.tasks) == 1 and config.tasks == stored.tasks
    return same_task and config.episodes_per_task > stored.episodes_per_task


def _clear(path: Path) -> None:
    """Remove what runs write, and only that; metrics are kept under another name.

    config.json stays until another replaces it.
    """
    for name in (CHECKPOINTS, TRANSITIONS, EVENTS):
        if is_folder(path / name):
            shutil.rmtree(path / name)
    if exists(path / METRICS):
        (path / METRICS).rename(_free_name(path / METRICS))
        if exists(path / CONFIG):
            _keep_copy(path / CONFIG)
    for name in (ENVIRONMENT, STRUCTURE):
        (path / name).unlink(missing_ok=True)


def _keep_copy(file: Path) -> None:
    """Give a file that is about to be replaced a second name, or copy it where there is no such."""
    copy = _free_name(file)
    try:
        os.link(file, copy)
    except OSError:  # some file systems know one name a file
        shutil.copy2(file, copy)


def _free_name(file: Path) -> Path:
    """Return the first free name of ``NAME.1``, ``NAME.2`` and so on."""
    number = 1
    while exists(copy := file.with_name(f"{file.name}.{number}")):
        number += 1
    return copy


def _note_environment(file: Path, config: RunConfig, notify: Notify) -> None:
    """Write where the run started; where it is resumed is added when it differs."""
    facts = environment_facts(config)
    try:
        known = read_record(file)
        before = known["resumed_with"][-1] if known["resumed_with"] else known
        # What an older version did not write down is not known to differ.
        changed = [name for name in facts if name in before and before[name] != facts[name]]
        known["resumed_with"] = list(known["resumed_with"])
    except (OSError, LookupError, TypeError):
        # Not there yet, or no longer what was written; nothing is computed from it.
        if exists(file):
            file.rename(_free_name(file))
        known, changed = {**facts, "resumed_with": []}, []
    if changed:
        notify(
            f"code or machine differ from what the run had before ({', '.join(changed)}); the "
            "last bits of what follows may differ too"
        )
        known["resumed_with"].append(facts)
    write_text(file, json.dumps(known, indent=2) + "\n")
