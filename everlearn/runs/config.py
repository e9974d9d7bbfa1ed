"""Everything that decides a run, as one frozen value that survives a trip through JSON.

Pure data: agents, worlds and tasks are names here, and only whoever executes the run looks them up.
So a config can be read where its agent, its world or the simulator is not installed.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from everlearn.support.checks import check_number, check_whole
from everlearn.support.command_line import internal
from everlearn.support.errors import (
    DamagedFileError,
    InvalidInputError,
    UnknownNameError,
    given,
    unknown_name,
)
from everlearn.support.files import RECORD_LIMIT, parse_record, read_file

MAX_SEED = 2**64 - 1

VERSION = 2
"""Version of the JSON form; older ones are upgraded, newer ones refused."""

PAPER_TASKS = (
    "pick-place",
    "button-press",
    "door-open",
    "peg-unplug",
    "window-close",
    "faucet-close",
)
"""Tasks of Continual Bench in the order in which the paper learns them."""

LIVE_SETTINGS = ("snapshot_seconds", "tensorboard", "wandb", "imports")
"""Settings that change nothing in what a run computes, so a resumed run may change them."""

MACHINE_SETTINGS = ("threads", "evaluators")
"""Settings whose None is decided by the machine when a run starts."""

RECORDED = ("resolved", "told", "given", "measure")
"""Fields that a run fills in when it starts, from its agent and its world."""

MAX_NUMBER = 1e9
MAX_TASKS, MAX_EPISODES, MAX_STEPS, MAX_PROCESSORS = 1000, 100_000, 10**9, 10_000
"""Most tasks and training episodes of a run, steps of an episode, and threads or processes.

What is beyond is a mistake, or a config of somebody who wants others to wait.
"""

MAX_EVALUATORS, MANY_EPISODES = 4, 100
"""How many processes evaluate at most, and for how many episodes it is worth to start some."""


@dataclass(frozen=True)
class EvaluationSchedule:
    """When tasks are evaluated, and how often each."""

    every: int = 20
    """Episodes between evaluations inside a task's period; 0 for none inside."""
    episodes: int = 5
    """Episodes of each task at those."""
    boundary_episodes: int = 20
    """Episodes of each task at every switch and at the end of the run; 0 for none there."""
    heldout: int = 1000
    """Transitions of each task that measure a world model's error; 0 for none."""

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check_whole(f"evaluation.{item.name}", getattr(self, item.name), 0, MAX_EPISODES)
        if self.every and not self.episodes:
            raise InvalidInputError(
                f"evaluation.every is {self.every} but evaluation.episodes is 0; set every to 0 "
                "to evaluate at switches only, or give some episodes"
            )


@dataclass(frozen=True)
class RunConfig:
    """What a run is: who learns what, for how long, and how it is measured."""

    agent: str = "oa"
    """Name of the agent; `everlearn list` shows them."""
    options: Mapping[str, Any] = internal(factory=dict)
    """Options in which the agent differs from that name's settings, by dotted path."""
    resolved: Mapping[str, Any] | None = internal(None)
    """All options of the agent with their values; filled in when the run starts."""
    world: str = "continual-bench"
    """Name of the world: continual-bench, gym:ID, dm_control:DOMAIN-TASK, or one of yours."""
    tasks: tuple[str, ...] = PAPER_TASKS
    """Names of the tasks in the order of learning; a task may come again."""
    episodes_per_task: int = 100
    """Training episodes of each entry of the tasks."""
    max_steps: int = 500
    """Longest episode."""
    seed: int = 0
    """Seed of agent, environment and evaluation."""
    threads: int | None = None
    """Threads to compute with; every processor if not given."""
    evaluators: int | None = None
    """Processes that share an evaluation; one a thread in long runs if not given."""
    preset: str | None = internal(None)
    """Name of the preset that the run was made from."""
    evaluation: EvaluationSchedule = field(default_factory=EvaluationSchedule)
    """When and how much is evaluated."""
    reset_noise: float = 0.0
    """How far resets spread the start of an episode, in the world's units."""
    snapshot_seconds: float = 600.0
    """Longest time between snapshots, in seconds."""
    record: bool = True
    """Keep every transition in the run's folder."""
    tensorboard: bool = False
    """Also write TensorBoard events."""
    wandb: bool = False
    """Also send the metrics to Weights & Biases."""
    imports: tuple[str, ...] = internal(())
    """Modules with agents, tasks or worlds of your own, which the user of the run imported."""
    told: tuple[str, ...] | None = internal(None)
    """What the agent is told of tasks; filled in when the run starts."""
    given: tuple[str, ...] | None = internal(None)
    """What the agent is given beside observations and rewards; filled in when the run starts."""
    measure: Literal["success", "return"] | None = internal(None)
    """Whether success or return is measured; filled in when the run starts."""

    def __post_init__(self) -> None:
        for name in ("agent", "world"):
            value = getattr(self, name)
            if not _is_name(value) or (name == "agent" and "/" in value):
                raise InvalidInputError(f"{name} is {given(value)}; expected a name")
        self._set_words("tasks")
        self._set_words("imports")
        if not self.tasks:
            raise InvalidInputError("no tasks given; expected at least one name")
        for name in ("told", "given"):
            if getattr(self, name) is not None:
                self._set_words(name)
        if self.measure not in (None, "success", "return"):
            raise InvalidInputError(
                f"measure is {given(self.measure)}; expected 'success' or 'return'"
            )
        check_whole("number of tasks", len(self.tasks), 1, MAX_TASKS)
        check_whole("episodes_per_task", self.episodes_per_task, 1, MAX_EPISODES)
        check_whole("episodes of all tasks", self.episodes, 1, MAX_EPISODES)
        check_whole("max_steps", self.max_steps, 1, MAX_STEPS)
        check_whole("seed", self.seed, 0, MAX_SEED)
        for name in MACHINE_SETTINGS:
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1, MAX_PROCESSORS)
        if self.preset is not None and not _is_word(self.preset):
            raise InvalidInputError(
                f"preset is {given(self.preset)}; expected a name of letters, digits, - and _"
            )
        if not isinstance(self.evaluation, EvaluationSchedule):
            raise InvalidInputError(
                f"evaluation is {self.evaluation!r}; expected an EvaluationSchedule"
            )
        check_number("reset_noise", self.reset_noise, 0.0, MAX_NUMBER)
        check_number("snapshot_seconds", self.snapshot_seconds, 0.0, MAX_NUMBER)
        for name in ("record", "tensorboard", "wandb"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)!r}; expected true or false"
                )
        object.__setattr__(self, "options", _plain_options("options", self.options))
        if self.resolved is not None:
            object.__setattr__(self, "resolved", _plain_options("resolved", self.resolved))

    def _set_words(self, name: str) -> None:
        """Make a field a tuple of words, or refuse it."""
        words = getattr(self, name)
        if isinstance(words, str) or not isinstance(words, (tuple, list)):
            raise InvalidInputError(f"{name} is {given(words)}; expected a list of names")
        for word in words:
            if not _is_name(word):
                raise InvalidInputError(f"{name} has {given(word)}; expected names")
        object.__setattr__(self, name, tuple(words))

    @property
    def agent_options(self) -> Mapping[str, Any]:
        """What the agent is made with: everything that is known of its options."""
        return self.options if self.resolved is None else self.resolved

    @property
    def episodes(self) -> int:
        """Training episodes of the whole run."""
        return len(self.tasks) * self.episodes_per_task

    @property
    def measures_success(self) -> bool:
        """Whether episodes are solved or not; elsewhere their returns count."""
        return self.measure != "return"

    def to_json(self) -> str:
        """Return the config as JSON that `from_json` reads back to an equal one."""
        values = {"version": VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str | bytes, source: str = "the config") -> RunConfig:
        """Read what `to_json` of this or an older version wrote; `source` names it in messages.

        Raises
        ------
        InvalidInputError
            The text is not a config, of a newer version, or contradicts itself.
        UnknownNameError
            It has a setting that this everlearn does not know.
        """
        try:
            values = parse_record(text, source)
        except DamagedFileError as error:
            raise InvalidInputError(str(error)) from error
        version = values.pop("version", None)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InvalidInputError(
                f"{source} has version {given(version)}; expected 1 to {VERSION}"
            )
        if version > VERSION:
            raise InvalidInputError(
                f"{source} has version {given(version)}, this everlearn reads up to {VERSION}; "
                "install a newer everlearn"
            )
        if version < VERSION:
            from everlearn.runs.legacy import upgraded

            values = upgraded(values, source)
        check_known(values, cls, source)
        schedule = values.get("evaluation")
        if schedule is not None:
            if not isinstance(schedule, dict):
                raise InvalidInputError(f"{source}: evaluation is {schedule!r}; expected an object")
            check_known(schedule, EvaluationSchedule, f"evaluation of {source}")
            values["evaluation"] = EvaluationSchedule(**schedule)
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path, *, follow: bool = False) -> RunConfig:
        """Read a config from a file; a link only if `follow`, as a user gives one."""
        path = Path(path)
        try:
            content = read_file(path, RECORD_LIMIT, follow=follow)
        except FileNotFoundError:
            raise InvalidInputError(
                f"no config at {path}; give the folder of a run, or a config.json where a file is "
                "asked for"
            ) from None
        return cls.from_json(content, str(path))

    def differences(self, other: RunConfig) -> list[str]:
        """Say in which settings that matter `other` differs.

        None fits any value in `MACHINE_SETTINGS` and in what a run fills in when it starts. Where
        both know all options of their agents these count, whichever of them were given and
        whichever were defaults at the time.
        """
        found = []
        both = self.resolved is not None and other.resolved is not None
        skipped = {*LIVE_SETTINGS, "options" if both else "resolved"}
        for item in dataclasses.fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if mine == theirs or item.name in skipped:
                continue
            if item.name == "resolved":
                found += _option_differences(mine, theirs, other.options)
            elif None not in (mine, theirs) or item.name not in (*MACHINE_SETTINGS, *RECORDED):
                found.append(f"{item.name}: {_shown(mine)} and now {_shown(theirs)}")
        return found


def evaluation_episodes(config: RunConfig, done: int) -> int:
    """Episodes a task of the evaluation that is due after `done` episodes; 0 if none is.

    The start of the run counts as a switch.
    """
    schedule = config.evaluation
    inside = done % config.episodes_per_task
    if inside == 0:
        return schedule.boundary_episodes
    return schedule.episodes if schedule.every and inside % schedule.every == 0 else 0


def seen_tasks(config: RunConfig, done: int) -> tuple[str, ...]:
    """Names of the tasks begun within `done` episodes, each once, in their first order."""
    entries = -(-done // config.episodes_per_task)
    return tuple(dict.fromkeys(config.tasks[:entries]))


def _option_differences(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], said: Mapping[str, Any]
) -> list[str]:
    """Say which options of an agent differ.

    An option that one of them does not know came or went with a version of everlearn; one that
    was given on purpose then overrides.
    """

    def shown(table: Mapping[str, Any], name: str) -> str:
        return _shown(table[name]) if name in table else "not known"

    return [
        f"option {name}: {shown(mine, name)} and now {shown(theirs, name)}"
        for name in dict.fromkeys([*mine, *theirs])
        if shown(mine, name) != shown(theirs, name) and (name in mine or name not in said)
    ]


def check_known(values: Mapping[str, Any], config: type[Any], source: str) -> None:
    """Refuse a key that is no field of the dataclass `config`."""
    known = [item.name for item in dataclasses.fields(config)]
    for name in values:
        if name not in known:
            raise UnknownNameError(f"{source}: {unknown_name('setting', name, known)}")


def _plain_options(name: str, options: object) -> dict[str, Any]:
    """Return options of an agent as they come back from JSON, or say why they are none."""
    if not isinstance(options, Mapping):
        raise InvalidInputError(f"{name} is {given(options)}; expected names and values")
    try:
        # What the run saves is what it runs with.
        plain = parse_record(json.dumps(dict(options), allow_nan=False), name)
    except (DamagedFileError, TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"agent options must be plain JSON values: {error}") from error
    return plain


def _is_name(value: object) -> bool:
    """Whether a name leads nowhere: Gymnasium's have slashes, and names become parts of paths."""
    if not isinstance(value, str) or not value.isprintable() or "\\" in value:
        return False
    return len(value) <= 1000 and all(part not in ("", ".", "..") for part in value.split("/"))


def _is_word(value: object) -> bool:
    """Whether a name can be part of the name of a folder."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value) is not None


def _shown(value: object) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value)
