"""Everything that decides a run, as one frozen value that survives a trip through JSON."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from everlearn.agents import AGENTS
from everlearn.continual_bench import PAPER_TASKS, TASKS
from everlearn.continual_bench.env import MAX_RESET_NOISE, MAX_STEPS
from everlearn.support.checks import check_number, check_whole
from everlearn.support.errors import InvalidInputError, UnknownNameError, given

MAX_SEED = 2**64 - 1

VERSION = 1
"""Version of the JSON form; readers refuse what is newer."""

LIVE_SETTINGS = ("checkpoint_seconds", "tensorboard", "wandb")
"""Settings that change nothing in what a run computes, so a resumed run may change them."""

RUN_SETTINGS = ("seed", "threads")
"""What a run decides, and not the settings of an agent."""

SHARES = ("threads", "evaluators")
"""Settings whose None is decided by the machine when a run starts."""

MAX_EVALUATORS, MANY_EPISODES = 4, 100
"""How many processes evaluate at most, and for how many episodes it is worth to start some."""


@dataclass(frozen=True)
class EvaluationSchedule:
    """When seen tasks are evaluated, and how often each.

    Attributes
    ----------
    every
        Episodes between evaluations inside a task's period; 0 for none inside.
    episodes
        Episodes a task at those.
    boundary_episodes
        Episodes a task at every switch and at the end of the run; 0 for none there.
    heldout
        Transitions a task in the fixed sets that measure a world model's error; 0 for none.
    """

    every: int = 20
    episodes: int = 5
    boundary_episodes: int = 20
    heldout: int = 1000

    def __post_init__(self) -> None:
        for item in dataclasses.fields(self):
            check_whole(f"evaluation.{item.name}", getattr(self, item.name), 0)
        if self.every and not self.episodes:
            raise InvalidInputError(
                f"evaluation.every is {self.every} but evaluation.episodes is 0; set every to 0 "
                "to evaluate at switches only, or give some episodes"
            )


@dataclass(frozen=True)
class RunConfig:
    """What a run is: who learns what, for how long, and how it is measured.

    Attributes
    ----------
    agent, options
        Registered name, and the settings in which it differs from that name's defaults.
    resolved
        All settings of the agent with their values, defaults included, as the run has them;
        filled in when it starts, and what counts from then on. None before that, and in
        folders of everlearn 0.1.0 and before.
    tasks
        Names in the order of learning; a task may come again.
    episodes_per_task
        Training episodes of each entry of `tasks`.
    max_steps
        Longest episode; the environment itself ends at 500.
    seed
        Fans out into the named generators of agent, environment and evaluation.
    threads
        Threads of kernels and linear algebra; bits are promised for equal threads. None takes
        every processor, and the run's saved config says how many that was.
    evaluators
        Processes that share the episodes of an evaluation, the run's own among them; each gets
        its share of the threads. None takes one a thread, up to `MAX_EVALUATORS`, in runs with
        at least `MANY_EPISODES` evaluation episodes, and one in others; the saved config says it.
    preset
        Name of the preset it was made from, for tables.
    evaluation
        When and how much is evaluated.
    reset_noise
        How far a reset spreads hand and objects, in metres.
    checkpoint_seconds
        Longest time between snapshots.
    record
        Keep every transition in the run's folder.
    tensorboard, wandb
        Also send the metrics there.
    """

    agent: str = "oa"
    options: Mapping[str, Any] = field(default_factory=dict)
    resolved: Mapping[str, Any] | None = None
    tasks: tuple[str, ...] = PAPER_TASKS
    episodes_per_task: int = 100
    max_steps: int = MAX_STEPS
    seed: int = 0
    threads: int | None = None
    evaluators: int | None = None
    preset: str | None = None
    evaluation: EvaluationSchedule = field(default_factory=EvaluationSchedule)
    reset_noise: float = 0.0
    checkpoint_seconds: float = 600.0
    record: bool = True
    tensorboard: bool = False
    wandb: bool = False

    def __post_init__(self) -> None:
        AGENTS.get(self.agent)
        if isinstance(self.tasks, str) or not isinstance(self.tasks, (tuple, list)):
            raise InvalidInputError(f"tasks is {self.tasks!r}; expected a list of task names")
        if not self.tasks:
            raise InvalidInputError(f"no tasks given; expected some of: {', '.join(TASKS)}")
        for task in self.tasks:
            TASKS.get(task)
        object.__setattr__(self, "tasks", tuple(self.tasks))
        check_whole("episodes_per_task", self.episodes_per_task, 1)
        check_whole("max_steps", self.max_steps, 1, MAX_STEPS)
        check_whole("seed", self.seed, 0, MAX_SEED)
        for name in ("threads", "evaluators"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), 1)
        if self.preset is not None and not _is_word(self.preset):
            raise InvalidInputError(
                f"preset is {given(self.preset)}; expected a name of letters, digits, - and _"
            )
        if not isinstance(self.evaluation, EvaluationSchedule):
            raise InvalidInputError(
                f"evaluation is {self.evaluation!r}; expected an EvaluationSchedule"
            )
        check_number("reset_noise", self.reset_noise, 0.0, MAX_RESET_NOISE)
        check_number("checkpoint_seconds", self.checkpoint_seconds, 0.0, float("inf"))
        for name in ("record", "tensorboard", "wandb"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidInputError(
                    f"{name} is {getattr(self, name)!r}; expected true or false"
                )
        object.__setattr__(self, "options", _checked_options("options", self.options))
        if self.resolved is not None:
            object.__setattr__(self, "resolved", _checked_options("resolved", self.resolved))

    @property
    def agent_options(self) -> Mapping[str, Any]:
        """What the agent is made with: everything that is known of its settings."""
        return self.options if self.resolved is None else self.resolved

    @property
    def episodes(self) -> int:
        """Training episodes of the whole run."""
        return len(self.tasks) * self.episodes_per_task

    def to_json(self) -> str:
        """Return the config as JSON that `from_json` reads back to an equal one."""
        values = {"version": VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=2) + "\n"

    @classmethod
    def from_json(cls, text: str, source: str = "the config") -> RunConfig:
        """Read what `to_json` wrote; `source` names it in messages.

        Raises
        ------
        InvalidInputError
            The text is not a config, of a newer version, or contradicts itself.
        UnknownNameError
            It has a setting, agent or task that this everlearn does not know.
        """
        try:
            values = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidInputError(f"{source} is not JSON: {error}") from error
        if not isinstance(values, dict):
            raise InvalidInputError(f"{source} is {type(values).__name__}; expected an object")
        version = values.pop("version", None)
        if isinstance(version, bool) or not isinstance(version, int) or version < 1:
            raise InvalidInputError(f"{source} has version {version!r}; expected 1 to {VERSION}")
        if version > VERSION:
            raise InvalidInputError(
                f"{source} has version {version}, this everlearn reads up to {VERSION}; install "
                "a newer everlearn"
            )
        check_known(values, cls, source)
        schedule = values.get("evaluation")
        if schedule is not None:
            if not isinstance(schedule, dict):
                raise InvalidInputError(f"{source}: evaluation is {schedule!r}; expected an object")
            check_known(schedule, EvaluationSchedule, f"evaluation of {source}")
            values["evaluation"] = EvaluationSchedule(**schedule)
        return cls(**values)

    @classmethod
    def read(cls, path: str | Path) -> RunConfig:
        """Read a config from a file."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise InvalidInputError(
                f"no config at {path}; give the config.json of a run or a file like it"
            ) from None
        except UnicodeDecodeError as error:
            raise InvalidInputError(f"{path} is not JSON: {error}") from error
        return cls.from_json(text, str(path))

    def differences(self, other: RunConfig) -> list[str]:
        """Say in which settings that matter `other` differs; None fits any in `SHARES`.

        Where both know all settings of their agents these count, whichever of them were given
        and whichever were defaults at the time.
        """
        found = []
        resolved = self.resolved is not None and other.resolved is not None
        skipped = {*LIVE_SETTINGS, "options" if resolved else "resolved"}
        for item in dataclasses.fields(self):
            mine, theirs = getattr(self, item.name), getattr(other, item.name)
            if mine == theirs or item.name in skipped:
                continue
            if item.name == "resolved":
                found += _option_differences(mine, theirs, other.options)
            elif item.name not in SHARES or None not in (mine, theirs):
                found.append(f"{item.name}: {_plain(mine)} and now {_plain(theirs)}")
        return found


def _option_differences(
    mine: Mapping[str, Any], theirs: Mapping[str, Any], said: Mapping[str, Any]
) -> list[str]:
    """Say which settings of an agent differ.

    A setting that one of them does not know came or went with a version of everlearn; one that
    was said on purpose is then taken at its word.
    """

    def shown(table: Mapping[str, Any], name: str) -> str:
        return _plain(table[name]) if name in table else "not known"

    return [
        f"option {name}: {shown(mine, name)} and now {shown(theirs, name)}"
        for name in dict.fromkeys([*mine, *theirs])
        if shown(mine, name) != shown(theirs, name) and (name in mine or name not in said)
    ]


def check_known(values: Mapping[str, Any], kind: type[Any], source: str) -> None:
    """Refuse a key that is no field of the dataclass `kind`."""
    known = [item.name for item in dataclasses.fields(kind)]
    for name in values:
        if name not in known:
            raise UnknownNameError(
                f"unknown setting {name!r} in {source}; known: {', '.join(known)}"
            )


def _checked_options(field_name: str, options: object) -> dict[str, Any]:
    """Return options of an agent as they come back from JSON, or say why they are none."""
    if not isinstance(options, Mapping):
        raise InvalidInputError(f"{field_name} is {options!r}; expected names and values")
    for name in RUN_SETTINGS:
        if name in options:
            raise InvalidInputError(
                f"option {name}={options[name]!r} would contradict the run's own {name}; "
                f"set {name} of the run instead"
            )
    try:
        # What the run saves is what it runs with.
        plain: dict[str, Any] = json.loads(json.dumps(dict(options), allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInputError(f"agent options must be plain JSON values: {error}") from error
    return plain


def _is_word(value: object) -> bool:
    """Whether a name can be part of the name of a folder."""
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_-]{1,100}", value) is not None


def _plain(value: object) -> str:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = dataclasses.asdict(value)
    return json.dumps(value)
